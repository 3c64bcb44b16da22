// MappedMemory: memory of every rank of a group on one machine, mapped by all, read in place.
//
// What shared-memory links offer beside their slots. The ranks go in steps, 1, 2, ...: a rank
// writes its data of the next step into its own part, publishes the step, and meets the others:
// when all have published it, each may read the parts of all, until it publishes again. Data of
// step n lie in part n % 3 of a rank's region, so that a rank may write its next part while others
// still read the one before. Only its owner can write a region (the others map it read-only). A
// step carries what it is for; ranks that disagree break the group. Layout: docs/fabric.md.
//
// Thread rule: one thread at a time, the one that uses the rank's endpoints; poke() from any
// thread. Ownership: borrows the group's GroupHealth. No system call unless somebody sleeps.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/message.h"

namespace shoal::fabric {

struct MappedLayout {
  int size = 2;           // ranks
  size_t part_bytes = 0;  // a multiple of 64
};

// Parts for slots of this class: eight slots, since large parts do not stay in the caches of those
// that have read them and are cheaper to write again; and room for each rank.
MappedLayout mapped_layout(const SlotClass& slots, int size);

// What all ranks must agree on when they meet.
struct MappedStep {
  uint32_t tag = 0;    // what the step is for
  uint64_t bytes = 0;  // of the whole operation
};

class MappedMemory {
 public:
  struct Identity {
    int rank = 0;
    uint64_t epoch = 0;
  };
  // The memory of a whole group: a new memfd, zeroed, sealed against shrinking and growing.
  static Result<UniqueFd> create(const MappedLayout& layout);
  // Maps a memfd that may come from a peer: size and seals are checked. The descriptor may be
  // closed afterwards. kNode: the machine refuses the mapping.
  static Result<std::unique_ptr<MappedMemory>> map(int fd, const MappedLayout& layout,
                                                   const Identity& self, GroupHealth& health);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  static size_t size_bytes(const MappedLayout& layout);

  size_t part_bytes() const { return layout_.part_bytes; }
  // The part of the next step, to be filled before publish().
  std::span<std::byte> own_part();
  // The rank's part of the step that was last met; not the own rank's.
  std::span<const std::byte> part_of(int peer) const;

  // Makes own_part() visible as the next step. The last one must have been met, and meet() must
  // follow soon: it wakes the peers that sleep.
  void publish(const MappedStep& step);
  // Returns when all ranks have published the step that we published last. At the deadline the
  // group is broken, naming those still waited for; `operation` begins the message.
  Status meet(std::string_view operation, const WaitPolicy& wait);

  // Whether the peer has published a step that we have not: it is in another operation than we, if
  // it owes us anything else.
  bool is_ahead(int peer) const;

 private:
  static constexpr size_t kParts = 3;
  // What is mapped by itself begins at a multiple of this: the largest page of any kernel here.
  static constexpr size_t kGranuleBytes = size_t{64} * 1024;
  // Two lines apart, so that the processor's pairwise prefetch joins nothing.
  struct alignas(128) StepLine {
    std::atomic<uint64_t> number;  // written last
    std::atomic<uint64_t> epoch;
    std::atomic<uint64_t> bytes;
    std::atomic<uint32_t> tag;
  };
  struct alignas(128) Bell {
    std::atomic<uint32_t> sleeps;
    std::atomic<uint32_t> word;  // the futex
  };
  // One small page per rank. Step n is published in steps[n % 2]: nobody can be two steps behind.
  struct alignas(4096) Controls {
    Bell bell;
    StepLine steps[2];
  };

  // Mappings of the descriptor.
  struct Mappings {
    Controls* controls = nullptr;    // [size]
    std::byte* own = nullptr;        // the own region
    const std::byte* all = nullptr;  // the regions of all, read-only
  };
  MappedMemory(const MappedLayout& layout, const Identity& self, GroupHealth& health);
  Status map_all(int fd);
  static size_t controls_bytes(const MappedLayout& layout);  // of all ranks
  static size_t region_bytes(const MappedLayout& layout);    // of one
  Controls& controls_of(int rank) const { return mappings_.controls[rank]; }

  Result<bool> has_met(int peer);
  Status look_at_peers();
  Status fail(int peer, std::string_view reason);
  Status fail_at_deadline(std::string_view operation);
  void wake_sleepers();
  void sleep(const Deadline& deadline);
  bool has_news();
  void poke();

  const MappedLayout layout_;
  const Identity self_;
  GroupHealth& health_;
  Mappings mappings_;
  uint64_t waker_ticket_ = 0;  // nobody's until all is mapped

  uint64_t published_ = 0;        // steps
  uint64_t met_ = 0;              // published_ or one less
  MappedStep step_;               // the one published last
  std::vector<int> waiting_for_;  // ranks; scratch of meet()
};

}  // namespace shoal::fabric
