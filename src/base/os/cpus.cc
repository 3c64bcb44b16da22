#include "base/os/cpus.h"

#include <sched.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "base/os/control_groups.h"

namespace shoal {
namespace {

// The kernel refuses a mask that is smaller than its own; none has more processors than this.
constexpr int kCpusMax = 1 << 16;

double lesser(double quota, double other) { return quota == 0 ? other : std::min(quota, other); }

}  // namespace

uint32_t usable_cpus() {
  const auto allowed = static_cast<uint32_t>(affinity_cpus().size());
  return usable_cpus_of(allowed != 0 ? allowed : std::thread::hardware_concurrency(), cpu_quota());
}

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  for (int count = 1024; count <= kCpusMax; count *= 4) {
    cpu_set_t* set = CPU_ALLOC(count);
    if (set == nullptr) return cpus;
    const size_t bytes = CPU_ALLOC_SIZE(count);
    const bool is_read = ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; is_read && cpu < count; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (is_read) break;
  }
  return cpus;
}

double cpu_quota(const std::string& root) {
  const ControlGroups groups = find_control_groups("cpu", root);
  double quota = 0;
  for (const std::string& folder : groups.unified) {
    std::istringstream text(read_small_file(folder + "/cpu.max"));  // "200000 100000", "max 100000"
    double allowed = 0;
    double period = 0;
    if (text >> allowed >> period && allowed > 0 && period > 0) {
      quota = lesser(quota, allowed / period);
    }
  }
  for (const std::string& folder : groups.controller) {
    const auto allowed = read_small_number(folder + "/cpu.cfs_quota_us");  // -1: no limit
    const auto period = read_small_number(folder + "/cpu.cfs_period_us");
    if (allowed.value_or(0) > 0 && period.value_or(0) > 0) {
      quota = lesser(quota, static_cast<double>(*allowed) / static_cast<double>(*period));
    }
  }
  return quota;
}

}  // namespace shoal
