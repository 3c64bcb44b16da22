// seconds_between: a stretch of a clock's time as a number to report.
//
// Thread rule: a pure function.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace shoal {

inline double seconds_between(Nanoseconds from, Nanoseconds to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace shoal
