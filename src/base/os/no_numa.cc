#include "base/os/numa.h"

namespace shoal {

std::optional<std::vector<int>> parse_number_list(std::string_view /*text*/) {
  return std::nullopt;
}

std::vector<NumaDomain> numa_domains() { return {}; }

std::vector<NumaDomain> numa_domains_of(const std::vector<int>& /*allowed*/,
                                        const std::string& /*root*/) {
  return {};
}

Result<NumaBinding> bind_to_domain(const NumaDomain& /*domain*/) {
  return Status::node("NUMA domains are not known on this system");
}

}  // namespace shoal
