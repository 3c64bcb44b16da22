// IP addresses of InfiniBand ports: IP over InfiniBand tells which port an address belongs to.
//
// InfiniBand's GIDs are no IP addresses. An interface of IP over InfiniBand has a link-layer
// address of 20 bytes, flags, a queue pair and the port's GID (RFC 4391, 9.1.1), which Linux tells
// in /sys/class/net/NAME/address. Thread rule: pure reads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::fabric {

struct InfinibandAddress {
  std::string address;            // "192.0.2.1", without scope
  std::array<uint8_t, 16> gid{};  // of the port
};

// The GID in such a link-layer address, "80:00:00:48:fe:80:..."; none in another text.
std::optional<std::array<uint8_t, 16>> gid_of_link_address(std::string_view text);

// Those of this machine's interfaces; root is put before /sys: empty but in tests.
std::vector<InfinibandAddress> infiniband_addresses(const std::string& root = {});

}  // namespace shoal::fabric
