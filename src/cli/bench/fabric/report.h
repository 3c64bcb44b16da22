// What `shoal bench fabric` prints: tables for people, JSON for programs, a plot.
// docs/fabric-benchmark.md describes all three.
//
// Thread rule: pure functions and values.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/fabric/figures.h"
#include "cli/support/json_output.h"

namespace shoal::cli {

// A kind of link that gave no figures.
struct MissingLink {
  std::string link{};
  std::string reason{};
  bool is_failure = false;  // it was asked for by name, or broke while it was measured
};

struct FabricReport {
  int nodes = 2;
  bool is_polling = false;
  std::vector<LinkFigures> links{};
  std::vector<MissingLink> missing{};
};

// Half of a round trip.
Summary one_way_of(const MessageFigures& round_trip);

Json json_of(const FabricReport& report);
// The links beside each other. Of more than two ranks: ranks 0 and 1 by size, and every pair.
std::string tables_of(const FabricReport& report);
// Latency and bandwidth of ranks 0 and 1 over size, as SVG.
std::string plot_of(const FabricReport& report);

}  // namespace shoal::cli
