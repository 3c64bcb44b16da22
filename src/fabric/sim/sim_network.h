// SimNetwork: N ranks in one process on virtual time, with delay, death and partition.
//
// Each rank's fabric is used by one thread. Virtual time stands still while any rank runs, and
// jumps to the next event when all living ranks sleep in Endpoint::wait(), so a run depends on the
// seed only, not on the scheduling of threads. Deadlines must be made with fabric.clock(). A rank
// whose fabric is destroyed no longer holds time up. Faults are set up before the threads start, or
// by a rank's own thread. Thread rule: safe from any thread; the network outlives its fabrics.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/fabric.h"
#include "fabric/link/slot_header.h"

namespace shoal::fabric {

struct SimOptions {
  int size = 2;
  uint64_t seed = 1;
  SlotClass slots;
  Nanoseconds delay_min{std::chrono::microseconds(5)};
  Nanoseconds delay_max{std::chrono::microseconds(5)};
  // How long until a closed peer, and a silent one, is noticed.
  Nanoseconds close_noticed_after{std::chrono::milliseconds(1)};
  Nanoseconds silence_noticed_after{std::chrono::milliseconds(1200)};
};

// What a corrupted header gets wrong.
enum class SimCorruption { kMagic, kEpoch, kSequence, kLength };

class SimNetwork {
 public:
  explicit SimNetwork(const SimOptions& options);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // Each rank's, once.
  std::unique_ptr<Fabric> take_fabric(int rank);
  const Clock& clock() const { return clock_; }

  // From this virtual time on: the rank's process is gone: nothing it sends arrives.
  void crash_at(int rank, Nanoseconds time);
  // The rank is stopped: nothing it sends arrives, nothing closes.
  void stop_at(int rank, Nanoseconds time);
  // The ranks of `side` and the others no longer hear each other.
  void partition_at(const std::vector<int>& side, Nanoseconds time);
  // The next slot on this link arrives with a wrong header.
  struct Link {
    int from = 0;
    int to = 0;
  };
  void corrupt_next(const Link& link, SimCorruption corruption);

 private:
  friend class SimEndpoint;

  struct Slot {
    SlotHeader header;
    std::vector<std::byte> payload;
  };
  // What is on its way from one rank to another.
  struct Wire {
    std::mt19937_64 random;
    Nanoseconds last_arrival{0};  // keeps the order
    bool is_cut = false;
    std::optional<SimCorruption> corruption;
    std::deque<Slot> arrived;
    uint64_t credits = 0;  // slots released by the receiver, as the sender knows
  };
  enum class EventKind { kSlot, kCredit, kGoodbye, kNotice, kVerdict, kCut };
  struct Event {
    Event(EventKind of, const Link& on, Nanoseconds at = Nanoseconds(0))
        : time(at), kind(of), from(on.from), to(on.to) {}
    Nanoseconds time;
    uint64_t order = 0;
    EventKind kind;
    int from;
    int to;
    Slot slot;             // kSlot
    uint64_t credits = 0;  // kCredit
    int culprit = 0;       // kNotice, kVerdict
    std::string text;      // kNotice, kVerdict
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  struct RankState {
    GroupHealth* health = nullptr;  // while its fabric lives
    bool is_alive = false;          // its fabric lives
    bool is_waiting = false;
    bool has_changed = false;  // something came since its last wait
    bool has_spread_failure = false;
    int open_endpoints = 0;
    Nanoseconds wake_at{0};
  };

  // For SimEndpoint.
  void send_slot(const Link& link, Slot slot);
  void send_credits(const Link& link, uint64_t credits);
  std::optional<Slot> take_slot(const Link& link);
  uint64_t credits(const Link& link);
  void wait(int rank, const Deadline& deadline);
  void close_endpoint(int rank);

  Wire& wire(const Link& link) {
    return wires_[static_cast<size_t>(link.from) * ranks_.size() + static_cast<size_t>(link.to)];
  }
  RankState& state(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  void schedule(Event event);
  void schedule_on_wire(Event event);
  Nanoseconds arrival_time(Wire& wire);
  void schedule_verdict(int rank, int culprit, Nanoseconds time, std::string text);
  void spread_failure(int rank);
  bool is_everyone_waiting() const;
  void advance();
  void deliver(Event& event);

  const SimOptions options_;
  ManualClock clock_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Wire> wires_;
  std::vector<RankState> ranks_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t next_order_ = 0;
};

}  // namespace shoal::fabric
