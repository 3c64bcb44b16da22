#include "fabric/verbs/infiniband_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/os/control_groups.h"

namespace shoal::fabric {
namespace {

constexpr size_t kLinkAddressBytes = 20;

std::string text_of(const sockaddr& address) {
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (bytes != nullptr) inet_ntop(address.sa_family, bytes, text.data(), text.size());
  return text.data();
}

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
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, freeifaddrs);
  std::vector<InfinibandAddress> found;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const std::string address = text_of(*entry->ifa_addr);
    const std::string folder = root + "/sys/class/net/" + entry->ifa_name;
    if (address.empty() || read_small_number(folder + "/type") != ARPHRD_INFINIBAND) continue;
    const auto gid = gid_of_link_address(read_small_file(folder + "/address"));
    if (gid) found.push_back({address, *gid});
  }
  return found;
}

}  // namespace shoal::fabric
