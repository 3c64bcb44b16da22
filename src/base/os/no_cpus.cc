#include <algorithm>
#include <thread>

#include "base/os/cpus.h"

namespace shoal {

uint32_t usable_cpus() { return std::max(1U, std::thread::hardware_concurrency()); }

std::vector<int> affinity_cpus() { return {}; }

double cpu_quota(const std::string& /*root*/) { return 0; }

}  // namespace shoal
