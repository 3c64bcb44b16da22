// GroupBench: collective operations of a whole group, measured by rank 0.
//
// All ranks call the same functions in the same order, with the same sizes. What the others than
// rank 0 return has no meaning.
// Thread rule: one thread. Borrows the fabric.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/bench/fabric/bare_exchange.h"
#include "cli/bench/fabric/figures.h"
#include "cli/bench/fabric/plan.h"
#include "collective/group.h"
#include "fabric/fabric.h"

namespace shoal::cli {

// A way to make an all-reduce.
struct Algorithm {
  std::string name;  // "chosen": the one that the group takes by itself
  collective::GroupOptions options;
  size_t bytes_max = SIZE_MAX;  // of data
};

class GroupBench {
 public:
  // Where others do not wait for one measurement longer than this, the group is broken.
  GroupBench(fabric::Fabric& fabric, Nanoseconds patience);

  // Those that this group's link has.
  const std::vector<Algorithm>& algorithms() const { return algorithms_; }
  // Two ranks with a floor to compare with make it ready for these sizes of data, up to 16 MiB.
  Status prepare_floor(const std::vector<size_t>& sizes);

  Result<CollectiveFigures> all_reduce(const Algorithm& algorithm, size_t bytes,
                                       const Budget& budget);
  // bytes: of all parts together.
  Result<CollectiveFigures> all_gather(size_t bytes, const Budget& budget);
  // The ranks are root in turn: none can start the next one before it has this one.
  Result<CollectiveFigures> broadcast(size_t bytes, const Budget& budget);
  Status barrier() { return group_.barrier(deadline()); }

 private:
  // Where the times of a row of operations go; null: nowhere.
  struct Timings {
    Samples* mean = nullptr;
    Samples* single = nullptr;
  };
  Deadline deadline() const { return Deadline::after(fabric_.clock(), patience_); }
  Result<Batch> agree(Pacer& pacer);
  // run(is_counted) for every round that all agree on.
  template <typename Run>
  Status repeat(const Budget& budget, const Run& run);
  template <typename Operation>
  Status time_row(uint32_t in_a_row, const Operation& operation, const Timings& timings);
  template <typename Reduce>
  Status time_sums(std::vector<float>& data, const Reduce& reduce, const Timings& timings);
  uint32_t sums_in_a_row(size_t bytes) const;

  fabric::Fabric& fabric_;
  const Nanoseconds patience_;
  collective::Group group_;
  std::vector<Algorithm> algorithms_;
  std::unique_ptr<BareExchange> bare_;
  size_t bare_bytes_max_ = 0;
};

}  // namespace shoal::cli
