// Group: collective operations over a Fabric, for any number of ranks.
//
// Every rank calls the same operations in the same order with the same sizes and options. Sums are
// made in rank order by every path, so the result is the same bits on all ranks and in all runs.
// Each operation takes a deadline on fabric.clock() and, on failure, returns a kGroup status that
// names the operation and the culprit; from then on the group is broken for good.
// Thread rule: one thread at a time. Borrows the fabric. Steady-state operations allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/reduction.h"
#include "collective/shared_writer.h"
#include "collective/sum.h"
#include "fabric/fabric.h"
#include "fabric/message.h"

namespace shoal::collective {

struct GroupOptions {
  SumFunction sum = sum_in_rank_order;
  // all_reduce: up to this many bytes (and one slot) everybody sends to everybody; above,
  // reduce-scatter and all-gather in pipelined slots.
  size_t one_shot_bytes_max = 64 * 1024;
  // The same (and one part) in memory that all ranks map; off, slots are used there, too. The
  // second is for more ranks than cores, where a step less is worth more than reading less.
  size_t mapped_one_shot_bytes_max = 3 * 1024;
  size_t crowded_one_shot_bytes_max = 64 * 1024;
  bool uses_mapped_memory = true;
};

// What the operations have cost so far.
struct Counters {
  uint64_t operations = 0;
  uint64_t bytes = 0;  // of the callers' data
  double seconds = 0;  // spent inside, waiting included
};

// The parts of all ranks, one after another in rank order.
struct RankParts {
  std::span<std::byte> all;
  std::span<const size_t> bytes_by_rank;  // [size]; sums up to all.size()
};

class Group {
 public:
  explicit Group(fabric::Fabric& fabric, GroupOptions options = {});
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return fabric_.rank(); }
  int size() const { return fabric_.size(); }
  fabric::Fabric& fabric() { return fabric_; }

  // data becomes the sum over all ranks.
  Status all_reduce(std::span<float> data, const Deadline& deadline);
  // The own part is already in place in parts.all; the others' are filled in.
  Status all_gather(const RankParts& parts, const Deadline& deadline);
  // data of root goes to everybody.
  Status broadcast(std::span<std::byte> data, int root, const Deadline& deadline);
  // The same, where only root knows the size, up to kMessageBytesMax. On the others kBusy means
  // that nothing came before the deadline: nothing is broken, call again.
  Status broadcast_message(std::vector<std::byte>& message, int root, const Deadline& deadline);
  // mine goes to root; on root (only) parts.all is filled, the own part included.
  struct Gather {
    std::span<const std::byte> mine;
    RankParts parts;  // read on root only
    int root = 0;
  };
  Status gather(const Gather& gather, const Deadline& deadline);
  // Returns after every rank has entered.
  Status barrier(const Deadline& deadline);

  const Counters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }

  static constexpr size_t kMessageBytesMax = size_t{256} * 1024 * 1024;

 private:
  // One peer in the operation under way.
  struct PeerState {
    fabric::Endpoint* endpoint = nullptr;
    bool is_sent = false;      // everything is posted and flushed
    bool is_received = false;  // everything has come
    bool is_held = false;      // `held` is valid
    bool is_waited_for = false;
    bool is_due = false;  // what we need next, it alone has; else it may be waiting for another
    fabric::ReceivedSlot held;
    size_t chunks_sent = 0;
    size_t chunks_received = 0;  // of the peer's shard, in all_gather's half
  };
  // What one pass over the peers found.
  struct Pass {
    bool has_moved = false;
    fabric::Endpoint* waiting = nullptr;  // the first that is not done
    int waiting_count = 0;
    void note(const PeerState& peer) {
      if (!peer.is_waited_for) return;
      if (waiting == nullptr) waiting = peer.endpoint;
      ++waiting_count;
    }
  };
  struct Operation {
    std::string_view name;
    size_t bytes = 0;
    Deadline deadline;
    uint32_t tag = 0;
  };
  struct Scatter;

  enum class Kind : uint32_t { kAllReduce = 1, kAllGather, kBroadcast, kGather, kBarrier };
  Operation begin(Kind kind, size_t bytes, const Deadline& deadline) const;
  fabric::WaitPolicy wait_policy(const Operation& operation) const;

  template <typename Body>
  Status run(const Operation& operation, const Body& body);
  template <typename MakePass>
  Status complete(const Operation& operation, const MakePass& make_pass);
  Status fail_at_deadline(const Operation& operation);
  void reset_peers();
  Status reduce(const Reduction& reduction, const Operation& operation);
  Status mapped_reduce(const Reduction& reduction, const Operation& operation);
  Status one_shot(const Reduction& reduction, const Operation& operation);
  Status receive_one_shot(PeerState& peer, const Operation& operation, Pass& pass);
  Status scatter_and_gather(const Reduction& reduction, const Operation& operation);
  Status send_chunks(PeerState& peer, Scatter& scatter, Pass& pass);
  Status receive_chunks(PeerState& peer, Scatter& scatter, Pass& pass);
  Status reduce_chunk(Scatter& scatter, Pass& pass);
  Status exchange(const Operation& operation);

  fabric::Fabric& fabric_;
  GroupOptions options_;
  Counters counters_;
  uint32_t sequence_ = 0;  // of operations; all ranks count alike
  // Scratch, sized once.
  std::vector<PeerState> peers_;             // without the own rank
  std::vector<fabric::Transfer> transfers_;  // as peers_
  std::vector<const float*> sum_parts_;      // by rank
  SharedWriter shared_writer_;
};

}  // namespace shoal::collective
