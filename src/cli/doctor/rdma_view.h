// The RDMA ports of this machine as `shoal info` shows them.
//
// Thread rule: pure functions but read_rdma_ports(), which asks the devices for seconds at most.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/support/json_output.h"
#include "fabric/verbs/verbs_port.h"

namespace shoal::cli {

using RdmaPorts = Result<std::vector<fabric::PortFacts>>;

// kNode, with the reason, where there are none.
RdmaPorts read_rdma_ports();

// {"ports": [{"device", "port", "state", "physical_state", "link", "mtu", "mtu_max",
//  "gbit_per_second" (null: unknown), "firmware", "lid", "addresses", "gids": [{"index", "type",
//  "address"}]}], "unavailable": why there are none, or null}
Json rdma_json(const RdmaPorts& ports);
// "100 Gbit/s", or that the rate is unknown (0).
std::string rate_text(double gbit_per_second);
// A line for each port and one for each GID that a peer can be reached by; or why there are none.
std::string rdma_text(const RdmaPorts& ports);

}  // namespace shoal::cli
