// usable_cpus: how many processors this process may keep busy.
//
// Both limits count: the affinity mask and the quotas of control groups. Threads above this number
// wait for each other. Linux; elsewhere the number of processors (no_cpus.cc).
// Thread rule: pure reads, some tens of microseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

// floor(min(processors of the affinity mask, quota)), at least 1.
uint32_t usable_cpus();

// The processors of this thread's affinity mask, in rising order; empty where it is not known.
std::vector<int> affinity_cpus();

// Processors' worth of time that the control groups allow; 0: no limit. root is put before /proc
// and /sys: empty but in tests.
double cpu_quota(const std::string& root = {});

// usable_cpus() of these limits: a known number of processors, and a quota or 0.
inline uint32_t usable_cpus_of(uint32_t allowed, double quota) {
  if (quota <= 0 || quota >= allowed) return std::max(1U, allowed);
  return std::max(1U, static_cast<uint32_t>(quota));
}

}  // namespace shoal
