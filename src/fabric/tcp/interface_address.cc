#include "fabric/tcp/interface_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <bit>
#include <cerrno>
#include <memory>
#include <span>

namespace shoal::fabric {
namespace {

// Of an address of this family; none of one that is not IP's.
std::span<const std::byte> bytes_of(const sockaddr& address, sa_family_t family) {
  if (family == AF_INET) {
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in&>(address).sin_addr, 1));
  }
  if (family == AF_INET6) {
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 1));
  }
  return {};
}

std::string text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const std::span<const std::byte> bytes = bytes_of(address, address.sa_family);
  if (!bytes.empty()) inet_ntop(address.sa_family, bytes.data(), text.data(), text.size());
  return text.data();
}

// All bits where the system names no network. A mask's own family is not always set.
int prefix_bits(const ifaddrs& entry) {
  const sa_family_t family = entry.ifa_addr->sa_family;
  const sockaddr* mask = entry.ifa_netmask;
  if (mask == nullptr) return static_cast<int>(8 * bytes_of(*entry.ifa_addr, family).size());
  int ones = 0;
  for (const std::byte byte : bytes_of(*mask, family)) {
    ones += std::popcount(std::to_integer<unsigned>(byte));
  }
  return ones;
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return Status::from_errno("the interfaces' addresses", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    std::string text = text_of(*entry->ifa_addr);
    if (text.empty()) continue;
    // What stands behind a colon is a label of the address ("eth0:1").
    const std::string name = entry->ifa_name;
    addresses.push_back({name.substr(0, name.find(':')), std::move(text), prefix_bits(*entry)});
  }
  return addresses;
}

}  // namespace shoal::fabric
