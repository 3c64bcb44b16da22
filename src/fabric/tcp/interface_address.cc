#include "fabric/tcp/interface_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <memory>

namespace shoal::fabric {
namespace {

// Empty for what is no IP address.
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
    addresses.push_back({name.substr(0, name.find(':')), std::move(text)});
  }
  return addresses;
}

}  // namespace shoal::fabric
