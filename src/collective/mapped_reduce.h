// all_reduce in memory that all ranks map: the peers' data are summed where they lie.
//
// Thread rule: as MappedMemory's. All ranks call the same function with the same sizes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/status.h"
#include "collective/reduction.h"
#include "collective/shared_writer.h"
#include "fabric/message.h"
#include "fabric/shm/mapped_memory.h"

namespace shoal::collective {

class MappedReduce {
 public:
  struct Place {
    fabric::MappedMemory& memory;
    size_t rank = 0;
    std::span<const float*> parts;  // [ranks]: scratch
    SharedWriter& writer;
  };
  struct Wait {
    std::string_view operation;  // begins a failure at the deadline
    const fabric::WaitPolicy& policy;
  };
  MappedReduce(const Place& place, const Wait& wait) : place_(place), wait_(wait) {}

  // Of at most one part of the memory: everybody writes all its data, and sums all parts.
  Status one_shot(const Reduction& reduction);
  // Of any size.
  Status scatter_and_gather(const Reduction& reduction);

 private:
  size_t ranks() const { return place_.parts.size(); }
  void publish(const Reduction& reduction);
  Status meet() { return place_.memory.meet(wait_.operation, wait_.policy); }
  std::span<const float> part_of(size_t peer) const;
  void scatter(const Reduction& reduction, const Shards& shards, size_t number);
  void reduce(const Reduction& reduction, const Shards& shards, size_t number);
  void gather(const Reduction& reduction, const Shards& shards, size_t number);

  Place place_;
  Wait wait_;
};

}  // namespace shoal::collective
