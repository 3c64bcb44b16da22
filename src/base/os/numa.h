// NUMA domains: processors with memory of their own, and threads that keep to one of them.
//
// Linux tells them in /sys/devices/system/node; elsewhere none are known (no_numa.cc).
// Thread rule: reads are pure; a binding is the calling thread's, and goes on to the threads and
// processes that it starts from then on.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace shoal {

struct NumaDomain {
  int number = 0;         // the system's
  std::vector<int> cpus;  // that may be used, in rising order; at least one
  bool has_memory = true;
};

// The numbers of a list of the kernel's, such as "0-3,8": rising, each once. None where the text is
// no such list or has a number above kListNumberMax.
inline constexpr int kListNumberMax = 65535;
std::optional<std::vector<int>> parse_number_list(std::string_view text);

// The domains with processors of this thread's affinity mask, by number; empty where the system
// tells none.
std::vector<NumaDomain> numa_domains();
// The same of any such mask; root is put before /sys: empty but in tests.
std::vector<NumaDomain> numa_domains_of(const std::vector<int>& allowed, const std::string& root);

struct NumaBinding {
  // Whether memory can only come from the domain. Where the system forbids to ask for that, as
  // containers do, it comes from the domain of the thread that first writes to it, while it has
  // any.
  bool holds_memory = false;
};
// kNode when the thread cannot be bound to the processors, or the domain's memory is not for this
// process.
Result<NumaBinding> bind_to_domain(const NumaDomain& domain);

}  // namespace shoal
