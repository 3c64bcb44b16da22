// run_link_bench: everything that a plan asks for, over one group. The same program on every rank.
//
// Thread rule: one thread. Borrows the fabric.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/status.h"
#include "cli/bench/fabric/figures.h"
#include "cli/bench/fabric/plan.h"
#include "fabric/fabric.h"

namespace shoal::cli {

// What is measured next, for people: "stream of 64 KiB, ranks 0 and 1"; and how far that is.
struct MeasureStep {
  std::string text;
  size_t done = 0;
  size_t count = 0;
};
using OnStep = std::function<void(const MeasureStep&)>;

// All ranks call it with the same plan. Rank 0 gets the figures of all; what the others get has no
// meaning. kGroup: the group broke, or a sum was wrong.
Result<LinkFigures> run_link_bench(fabric::Fabric& fabric, const MeasurePlan& plan,
                                   const OnStep& on_step);

// "64 KiB", "100 B": powers of 1024 where they fit.
std::string size_text(size_t bytes);

}  // namespace shoal::cli
