#include "fabric/tcp/infiniband_address.h"

#include <net/if_arp.h>

#include <algorithm>
#include <charconv>

#include "base/os/control_groups.h"
#include "fabric/tcp/interface_address.h"

namespace shoal::fabric {
namespace {

constexpr size_t kLinkAddressBytes = 20;

}  // namespace

std::optional<std::array<uint8_t, 16>> gid_of_link_address(std::string_view text) {
  if (text.size() != 3 * kLinkAddressBytes - 1) return std::nullopt;
  std::array<uint8_t, kLinkAddressBytes> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char* at = text.data() + 3 * i;
    const auto [end, error] = std::from_chars(at, at + 2, bytes[i], 16);
    const bool is_separated = i + 1 == bytes.size() || at[2] == ':';
    if (error != std::errc() || end != at + 2 || !is_separated) return std::nullopt;
  }
  std::array<uint8_t, 16> gid{};
  std::copy(bytes.end() - 16, bytes.end(), gid.begin());
  return gid;
}

std::vector<InfinibandAddress> infiniband_addresses(const std::string& root) {
  const auto addresses = interface_addresses();
  if (!addresses.is_ok()) return {};
  std::vector<InfinibandAddress> found;
  for (const InterfaceAddress& address : *addresses) {
    const std::string folder = root + "/sys/class/net/" + address.interface;
    if (read_small_number(folder + "/type") != ARPHRD_INFINIBAND) continue;
    const auto gid = gid_of_link_address(read_small_file(folder + "/address"));
    if (gid) found.push_back({address.text, *gid});
  }
  return found;
}

}  // namespace shoal::fabric
