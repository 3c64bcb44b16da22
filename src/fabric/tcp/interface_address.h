// InterfaceAddress: the IP addresses that this machine's network interfaces have.
//
// Thread rule: pure reads.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace shoal::fabric {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string text;       // "192.0.2.1", without scope
  int prefix_bits = 0;    // of its network, as in "192.0.2.1/24"
};

// kNode where the system does not tell.
Result<std::vector<InterfaceAddress>> interface_addresses();

}  // namespace shoal::fabric
