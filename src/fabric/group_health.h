// GroupHealth: whether a group of ranks still works, and if not, who broke it and how.
//
// One object per group and process, shared by all endpoints and the liveness monitor. The first
// failure wins, is logged once, and breaks the group for good: a new epoch is needed. A peer that
// says goodbye has left without breaking anything; what it sent before is still delivered.
// Thread rule: safe from any thread; failed() is one atomic load, for spinning on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace shoal::fabric {

// A failure as ranks tell it to each other.
struct FailureNotice {
  int culprit = 0;
  std::string message;
};

class GroupHealth {
 public:
  GroupHealth(int self_rank, std::vector<std::string> node_names);
  GroupHealth(const GroupHealth&) = delete;
  GroupHealth& operator=(const GroupHealth&) = delete;

  int self_rank() const { return self_rank_; }
  int size() const { return static_cast<int>(node_names_.size()); }
  // "rank 1 (node-1)".
  std::string rank_text(int rank) const;

  bool failed() const { return failed_.load(std::memory_order_seq_cst); }
  // Ok, or the kGroup status that every operation returns from now on.
  Status failure() const;
  // The rank that broke the group, or -1 while it works.
  int culprit() const;
  // Breaks the group; later calls change nothing. The message becomes "rank 1 (node-1) reason".
  void fail(int culprit, std::string_view reason);
  // The same with a whole message.
  void fail_with(int culprit, std::string message);
  // A peer says that the group has failed, and who broke it: maybe this node, in its eyes.
  void fail_as_told(const FailureNotice& notice, int teller);
  // A peer that has left is needed: the group is over for this node, but nothing has gone wrong
  // that the others must be told.
  void fail_left(int rank);
  // What to tell the others; none while the group works, or when they know by themselves.
  std::optional<FailureNotice> notice() const;

  // A goodbye: the peer will send nothing more.
  void mark_left(int rank);
  bool has_left(int rank) const {
    return left_[static_cast<size_t>(rank)].load(std::memory_order_seq_cst);
  }

  // A link to this rank closed; the monitor looks for the cause (a goodbye, a death, a failure
  // elsewhere) and breaks the group with this reason when there is none.
  void suspect(int rank, std::string_view reason);
  struct Suspicion {
    int rank = -1;
    std::string reason;
  };
  std::vector<Suspicion> suspicions() const;

  // Called, with the health's own lock held, after every change: it must only wake a sleeper.
  // Returns a ticket for remove_waker, which does not return while the waker runs.
  uint64_t add_waker(std::function<void()> waker);
  void remove_waker(uint64_t ticket);

 private:
  struct Waker {
    uint64_t ticket;
    std::function<void()> wake;
  };
  void fail_locked(FailureNotice cause, std::string message);
  void wake_all_locked();

  const int self_rank_;
  const std::vector<std::string> node_names_;
  std::atomic<bool> failed_{false};
  std::vector<std::atomic<bool>> left_;

  mutable std::mutex mutex_;  // guards what follows
  Status failure_;
  FailureNotice cause_{.culprit = -1, .message = {}};
  bool is_told_to_others_ = false;
  std::vector<Suspicion> suspicions_;
  std::vector<Waker> wakers_;
  uint64_t next_ticket_ = 1;
};

}  // namespace shoal::fabric
