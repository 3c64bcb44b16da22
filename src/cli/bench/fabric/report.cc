#include "cli/bench/fabric/report.h"

#include <fmt/format.h>

namespace shoal::cli {
namespace {

Json json_of(const std::vector<MessageFigures>& list, bool is_stream) {
  Json json = Json::array();
  for (const MessageFigures& entry : list) {
    Json one = {{"bytes", entry.bytes}, {"rounds", entry.figure.count}};
    if (is_stream) {
      one["bytes_per_second"] = entry.figure.to_json();
      one["overall_bytes_per_second"] = entry.overall;
      one["messages_per_second"] = entry.figure.median / static_cast<double>(entry.bytes);
    } else {
      one["seconds"] = entry.figure.to_json();
      one["one_way_seconds"] = one_way_of(entry).to_json();
    }
    one["cpu_seconds_per_message"] = {entry.lower_cpu, entry.higher_cpu};
    json.push_back(std::move(one));
  }
  return json;
}

Json json_of(const std::vector<CollectiveFigures>& list) {
  Json json = Json::array();
  for (const CollectiveFigures& entry : list) {
    json.push_back({{"bytes", entry.bytes},
                    {"algorithm", entry.algorithm},
                    {"rounds", entry.seconds.count},
                    {"seconds", entry.seconds.to_json()}});
    if (entry.single.count > 0) json.back()["single_seconds"] = entry.single.to_json();
    if (entry.bare.count > 0) json.back()["bare_seconds"] = entry.bare.to_json();
  }
  return json;
}

Json json_of(const LinkFigures& figures) {
  Json pairs = Json::array();
  for (const PairFigures& pair : figures.pairs) {
    pairs.push_back({{"ranks", {pair.lower, pair.higher}},
                     {"round_trip", json_of(pair.round_trip, /*is_stream=*/false)},
                     {"stream", json_of(pair.stream, /*is_stream=*/true)},
                     {"both_ways", json_of(pair.both_ways, /*is_stream=*/true)}});
  }
  Json json;
  json["link"] = figures.link;
  for (const fabric::LinkPort& port : figures.ports) {
    json["ports"].push_back({{"device", port.device},
                             {"number", port.number},
                             {"gid_index", port.gid_index},
                             {"mtu", port.mtu}});
  }
  json["pairs"] = std::move(pairs);
  json["all_reduce"] = json_of(figures.all_reduce);
  json["all_gather"] = json_of(figures.all_gather);
  json["broadcast"] = json_of(figures.broadcast);
  return json;
}

}  // namespace

Summary one_way_of(const MessageFigures& round_trip) { return round_trip.figure.times(0.5); }

Json json_of(const FabricReport& report) {
  Json links = Json::array();
  for (const LinkFigures& figures : report.links) links.push_back(json_of(figures));
  Json missing = Json::array();
  for (const MissingLink& one : report.missing) {
    missing.push_back({{"link", one.link}, {"reason", one.reason}});
  }
  return {{"nodes", report.nodes},
          {"poll", report.is_polling},
          {"links", std::move(links)},
          {"missing", std::move(missing)}};
}

}  // namespace shoal::cli
