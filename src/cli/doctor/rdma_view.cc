#include "cli/doctor/rdma_view.h"

#include <fmt/format.h>

#include "fabric/verbs/verbs_table.h"

namespace shoal::cli {
namespace {

Json gids_json(const fabric::PortFacts& port) {
  Json list = Json::array();
  for (const fabric::GidFacts& gid : port.gids) {
    list.push_back({{"index", gid.index}, {"type", gid.type}, {"address", gid.address}});
  }
  return list;
}

std::string port_text(const fabric::PortFacts& port) {
  if (port.link.empty()) return fmt::format("{}: {}", port.device, port.state);
  std::string text = fmt::format("{} port {}: {} ({}), {}, {}, MTU {} of {}", port.device,
                                 port.number, port.state, port.physical_state, port.link,
                                 rate_text(port.gbit_per_second), port.mtu, port.mtu_max);
  if (port.lid != 0) text += fmt::format(", LID {}", port.lid);
  if (!port.firmware.empty()) text += ", firmware " + port.firmware;
  if (port.addresses.empty()) text += ", no address";
  // Those of RoCE are its GIDs.
  if (port.link == "InfiniBand" && !port.addresses.empty()) {
    text += fmt::format(", address {}", fmt::join(port.addresses, ", "));
  }
  for (const fabric::GidFacts& gid : port.gids) {
    if (gid.type == "RoCE v1") continue;
    text += fmt::format("\n    GID {}: {} ({})", gid.index, gid.address, gid.type);
  }
  return text;
}

}  // namespace

RdmaPorts read_rdma_ports() {
  ASSIGN_OR_RETURN(const fabric::VerbsTable* table, fabric::load_verbs());
  ASSIGN_OR_RETURN(auto ports, fabric::list_ports_bounded(*table));
  if (ports.empty()) return Status::node("no RDMA device (`shoal doctor` says more)");
  return ports;
}

Json rdma_json(const RdmaPorts& ports) {
  Json list = Json::array();
  if (ports.is_ok()) {
    for (const fabric::PortFacts& port : *ports) {
      list.push_back({{"device", port.device},
                      {"port", port.number},
                      {"state", port.state},
                      {"physical_state", port.physical_state},
                      {"link", port.link},
                      {"mtu", port.mtu},
                      {"mtu_max", port.mtu_max},
                      {"gbit_per_second",
                       port.gbit_per_second > 0 ? Json(port.gbit_per_second) : Json(nullptr)},
                      {"firmware", port.firmware},
                      {"lid", port.lid},
                      {"addresses", port.addresses},
                      {"gids", gids_json(port)}});
    }
  }
  return {{"ports", std::move(list)},
          {"unavailable", ports.is_ok() ? Json(nullptr) : Json(ports.status().message())}};
}

std::string rate_text(double gbit_per_second) {
  return gbit_per_second > 0 ? fmt::format("{} Gbit/s", gbit_per_second) : "rate unknown";
}

std::string rdma_text(const RdmaPorts& ports) {
  if (!ports.is_ok()) return ports.status().message();
  std::string text;
  for (const fabric::PortFacts& port : *ports) {
    text += (text.empty() ? "" : "\n  ") + port_text(port);
  }
  return text;
}

}  // namespace shoal::cli
