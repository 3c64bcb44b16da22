#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "cli/doctor/findings.h"

namespace shoal::cli {
namespace {

using Kind = NetworkInterface::Kind;

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kEthernet:
      return "Ethernet";
    case Kind::kWireless:
      return "wireless";
    case Kind::kThunderbolt:
      return "Thunderbolt";
    case Kind::kInfiniBand:
      return "IP over InfiniBand";
    case Kind::kLoopback:
      return "loopback";
    case Kind::kTunnel:
      return "VPN";
    case Kind::kBridge:
      return "bridge";
    case Kind::kVirtual:
      return "virtual";
  }
  return "";
}

bool is_link_local(const std::string& address) {
  return address.starts_with("169.254.") || address.starts_with("fe80:");
}

// Whether other machines may know the interface's addresses as its own: those of bridges without
// hardware exist on many machines at once (docker0), those of VPNs lead a long way round.
bool is_for_others(const NetworkInterface& network) {
  if (network.kind == Kind::kBridge) return network.has_hardware;
  return network.kind != Kind::kLoopback && network.kind != Kind::kTunnel;
}

// Those that other machines can send to; IPv4 first.
std::vector<std::string> routed_addresses(const NetworkInterface& network) {
  std::vector<std::string> addresses = network.ipv4;
  std::ranges::copy(network.ipv6, std::back_inserter(addresses));
  std::erase_if(addresses, is_link_local);
  return addresses;
}

std::string described(const NetworkInterface& network, const std::vector<std::string>& addresses) {
  return fmt::format("{} ({}, MTU {}): {}", network.name, kind_name(network.kind), network.mtu,
                     fmt::join(addresses, ", "));
}

Finding judge_shared_memory(const DoctorFacts& facts, const Wanted& wanted) {
  Finding finding{.id = "shared-memory"};
  if (facts.shared_memory.is_ok()) {
    finding.what =
        fmt::format("shared memory: {} nodes on this machine can be joined", wanted.nodes);
    return finding;
  }
  finding.level = wanted.obstacle(fabric::LinkKind::kShm);
  finding.what = "shared memory cannot be used: " + facts.shared_memory.message();
  finding.remedy =
      "raise the limit on open files (ulimit -n, LimitNOFILE= of a service), or free memory and "
      "look at the limit of the container or control group; --link tcp does without";
  return finding;
}

Finding judge_tcp(const DoctorFacts& facts, const Wanted& wanted) {
  Finding finding{.id = "tcp"};
  if (facts.tcp.is_ok()) {
    finding.what = "TCP: nodes on this machine meet at 127.0.0.1";
    return finding;
  }
  // The queue pairs of RDMA and the workers of UCX come up over TCP. Nobody who leaves the choice
  // to us misses it where there is shared memory.
  finding.level = Level::kProblem;
  if (wanted.link == fabric::LinkKind::kShm) finding.level = Level::kNote;
  if (!wanted.link && facts.shared_memory.is_ok()) finding.level = Level::kWarning;
  finding.what = "TCP does not work within this machine: " + facts.tcp.message();
  finding.remedy =
      "switch the loopback interface on (ip link set lo up), and let the firewall pass what it "
      "carries";
  return finding;
}

// Off unless it is asked for: nobody else misses it.
Finding judge_ucx(const DoctorFacts& facts, const Wanted& wanted) {
  if (facts.ucx.is_ok()) return {.id = "ucx", .what = "UCX is there (--link ucx)"};
  const bool is_wanted = wanted.link == fabric::LinkKind::kUcx;
  return {.id = "ucx",
          .level = is_wanted ? Level::kProblem : Level::kNote,
          .what = "UCX cannot be used: " + facts.ucx.message(),
          .remedy = is_wanted ? "install libucx0, or join the nodes by another link" : ""};
}

// C68: which of several networks leads to other machines.
std::vector<Finding> judge_networks(const std::vector<NetworkInterface>& networks) {
  std::vector<std::string> fit;
  std::vector<std::string> unfit;
  std::map<std::string, std::vector<std::string>> owners;
  for (const NetworkInterface& network : networks) {
    if (!network.has_carrier || network.kind == Kind::kLoopback) continue;
    for (const std::string& address : network.ipv4) {
      if (!is_link_local(address)) owners[address].push_back(network.name);
    }
    const std::vector<std::string> addresses = routed_addresses(network);
    if (addresses.empty()) {
      const bool has_any = !network.ipv4.empty() || !network.ipv6.empty();
      unfit.push_back(fmt::format("{} ({}): {}", network.name, kind_name(network.kind),
                                  has_any ? "only link-local addresses" : "no address"));
    } else {
      (is_for_others(network) ? fit : unfit).push_back(described(network, addresses));
    }
  }
  std::vector<Finding> findings;
  if (fit.empty()) {
    findings.push_back({.id = "networks",
                        .level = Level::kNote,
                        .what = "no network leads to other machines",
                        .remedy = "connect one and give it an address (ip addr add ADDRESS/24 dev "
                                  "INTERFACE); nodes on this machine need none"});
  } else {
    findings.push_back(
        {.id = "networks",
         .level = fit.size() > 1 ? Level::kNote : Level::kOk,
         .what = fmt::format("networks to other machines: {}", fmt::join(fit, "; "))});
    if (fit.size() > 1) {
      findings.back().remedy =
          "nothing chooses among them yet: give other machines the address of the fastest one";
    }
  }
  if (!unfit.empty()) {
    findings.push_back({.id = "networks-unfit",
                        .level = Level::kNote,
                        .what = fmt::format("not for other machines: {}", fmt::join(unfit, "; "))});
  }
  for (const auto& [address, names] : owners) {
    if (names.size() < 2) continue;
    findings.push_back(
        {.id = "networks-address",
         .level = Level::kWarning,
         .what = fmt::format("{} belongs to {} at once", address, fmt::join(names, " and ")),
         .remedy = "give each interface an address of its own, in a subnet of its own"});
  }
  return findings;
}

}  // namespace

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "";
}

Level Wanted::obstacle(fabric::LinkKind kind) const {
  if (link) return *link == kind ? Level::kProblem : Level::kNote;
  // Nodes of one machine meet over shared memory, else over TCP, and over nothing else unasked.
  return kind == fabric::LinkKind::kShm ? Level::kWarning : Level::kNote;
}

std::vector<Finding> judge_machine(const DoctorFacts& facts, const Wanted& wanted) {
  std::vector<Finding> findings = {judge_shared_memory(facts, wanted), judge_tcp(facts, wanted),
                                   judge_ucx(facts, wanted)};
  std::ranges::move(judge_networks(facts.networks), std::back_inserter(findings));
  return findings;
}

std::vector<Finding> judge(const DoctorFacts& facts, const Wanted& wanted) {
  std::vector<Finding> findings = judge_machine(facts, wanted);
  std::ranges::move(
      facts.thunderbolt ? judge_thunderbolt(*facts.thunderbolt, wanted) : judge_rdma(facts, wanted),
      std::back_inserter(findings));
  return findings;
}

Status verdict(const std::vector<Finding>& findings, const Wanted& wanted) {
  const auto problems = std::ranges::count(findings, Level::kProblem, &Finding::level);
  if (problems == 0) return Status::ok();
  return Status::node(fmt::format("{} {} {} nodes from being joined over {}; each has its remedy",
                                  problems, problems == 1 ? "problem keeps" : "problems keep",
                                  wanted.nodes,
                                  wanted.link ? fabric::link_kind_name(*wanted.link) : "auto"));
}

}  // namespace shoal::cli
