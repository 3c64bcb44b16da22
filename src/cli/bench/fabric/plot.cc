// The plot of report.h.
#include <fmt/format.h>

#include <cmath>

#include "cli/bench/fabric/link_bench.h"
#include "cli/bench/fabric/report.h"
#include "cli/bench/svg_chart.h"
#include "cli/support/format.h"

namespace shoal::cli {
namespace {

std::string size_label(double bytes) { return size_text(static_cast<size_t>(bytes)); }
std::string rate_label(double rate) {
  return rate < 1 ? "" : format_bytes(static_cast<uint64_t>(std::llround(rate))) + "/s";
}

// The curve of one figure of the messages between ranks 0 and 1.
template <typename Value>
ChartCurve curve_of(std::string name, const std::vector<MessageFigures>& list, const Value& value) {
  ChartCurve curve{.name = std::move(name), .points = {}};
  for (const MessageFigures& entry : list) {
    curve.points.push_back({.x = static_cast<double>(entry.bytes), .y = value(entry)});
  }
  return curve;
}

}  // namespace

std::string plot_of(const FabricReport& report) {
  const ChartAxis sizes{.title = "size of a message", .base = 4, .label = size_label};
  Chart latency{.title = "one way: half of a round trip",
                .x = sizes,
                .y = {.title = "", .base = 10, .label = format_seconds},
                .curves = {}};
  Chart bandwidth{.title = "bandwidth",
                  .x = sizes,
                  .y = {.title = "", .base = 10, .label = rate_label},
                  .curves = {}};
  const auto add = [](Chart& chart, ChartCurve curve, size_t style, bool is_dashed) {
    curve.style = style;
    curve.is_dashed = is_dashed;
    if (!curve.points.empty()) chart.curves.push_back(std::move(curve));
  };
  for (size_t i = 0; i < report.links.size(); ++i) {
    const std::string& link = report.links[i].link;
    const PairFigures& pair = report.links[i].pairs.front();
    const auto median = [](const MessageFigures& one) { return one.figure.median; };
    add(latency,
        curve_of(link + ", median", pair.round_trip,
                 [](const MessageFigures& one) { return one_way_of(one).median; }),
        i, false);
    add(latency,
        curve_of(link + ", p99", pair.round_trip,
                 [](const MessageFigures& one) { return one_way_of(one).p99; }),
        i, true);
    add(bandwidth, curve_of(link + ", one way", pair.stream, median), i, false);
    add(bandwidth, curve_of(link + ", both ways", pair.both_ways, median), i, true);
  }
  return svg_of(fmt::format("Messages between 2 of {} nodes", report.nodes), {latency, bandwidth});
}

}  // namespace shoal::cli
