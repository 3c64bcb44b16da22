#include "cli/bench/fabric/report.h"

#include <gtest/gtest.h>

#include "cli/bench/fabric/link_bench.h"

namespace shoal::cli {
namespace {

Summary summary_of(double median) {
  return {.count = 10,
          .median = median,
          .p10 = median,
          .p90 = 2 * median,
          .p99 = 3 * median,
          .max = 4 * median};
}

LinkFigures link_of(std::string name, const std::vector<size_t>& sizes, double second) {
  LinkFigures link{.link = std::move(name)};
  PairFigures pair;
  for (const size_t bytes : sizes) {
    pair.round_trip.push_back({.bytes = bytes, .figure = summary_of(second)});
    pair.stream.push_back({.bytes = bytes,
                           .figure = summary_of(static_cast<double>(bytes) / second),
                           .overall = static_cast<double>(bytes) / second / 2,
                           .lower_cpu = 1e-6,
                           .higher_cpu = 2e-6});
    link.all_reduce.push_back({.bytes = bytes,
                               .algorithm = "chosen",
                               .seconds = summary_of(second),
                               .single = summary_of(second),
                               .bare = summary_of(second / 2)});
  }
  link.pairs.push_back(std::move(pair));
  return link;
}

// The line of `text` that begins with these words; empty: none.
std::string line_with(const std::string& text, const std::string& beginning) {
  const size_t at = text.find(beginning);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(FabricReport, LinksStandBesideEachOtherAndKeepTheirColumns) {
  FabricReport report;
  report.links = {link_of("shm", {8, 4096}, 2e-6), link_of("tcp", {4096, 65536}, 2e-5)};
  const std::string text = tables_of(report);
  EXPECT_NE(text.find("shm p50"), std::string::npos);
  EXPECT_NE(text.find("tcp max"), std::string::npos);
  // A size that one link lacks leaves its cells empty.
  EXPECT_EQ(line_with(text, "   8 B").find("10 µs"), std::string::npos);
  EXPECT_NE(line_with(text, " 4 KiB").find("10 µs"), std::string::npos);  // half of the way
  EXPECT_NE(text.find("2.00"), std::string::npos);                        // to the floor
}

TEST(FabricReport, JsonHasHalfOfARoundTripAndTheRateOfMessages) {
  FabricReport report{.nodes = 2};
  report.links = {link_of("shm", {1000}, 2e-6)};
  report.missing = {{.link = "verbs", .reason = "no device"}};
  const Json json = json_of(report);
  const Json& pair = json["links"][0]["pairs"][0];
  EXPECT_EQ(pair["ranks"], Json({0, 1}));
  EXPECT_DOUBLE_EQ(pair["round_trip"][0]["seconds"]["median"], 2e-6);
  EXPECT_DOUBLE_EQ(pair["round_trip"][0]["one_way_seconds"]["median"], 1e-6);
  EXPECT_DOUBLE_EQ(pair["round_trip"][0]["one_way_seconds"]["max"], 4e-6);
  EXPECT_DOUBLE_EQ(pair["stream"][0]["messages_per_second"], 5e5);
  EXPECT_DOUBLE_EQ(pair["stream"][0]["overall_bytes_per_second"], 2.5e8);
  EXPECT_EQ(pair["stream"][0]["cpu_seconds_per_message"], Json({1e-6, 2e-6}));
  EXPECT_EQ(pair["both_ways"], Json::array());
  EXPECT_EQ(json["links"][0]["all_reduce"][0]["bare_seconds"]["median"], 1e-6);
  EXPECT_EQ(json["missing"][0]["link"], "verbs");
  EXPECT_EQ(json["poll"], false);
}

TEST(FabricReport, JsonHasWhatALinkHasAndNothingElse) {
  FabricReport report{.is_polling = true};
  report.links = {link_of("verbs", {1000}, 2e-6), link_of("tcp", {1000}, 2e-6)};
  report.links[0].ports = {{.device = "rxe0", .number = 1, .gid_index = 2, .mtu = 4096}};
  report.links[0].broadcast = {
      {.bytes = 1000, .algorithm = "chosen", .seconds = summary_of(1e-6), .bare = {}}};
  const Json json = json_of(report);
  EXPECT_EQ(json["poll"], true);
  EXPECT_EQ(json["links"][0]["ports"],
            Json::array({{{"device", "rxe0"}, {"number", 1}, {"gid_index", 2}, {"mtu", 4096}}}));
  EXPECT_FALSE(json["links"][1].contains("ports"));
  EXPECT_TRUE(json["links"][0]["all_reduce"][0].contains("single_seconds"));
  EXPECT_FALSE(json["links"][0]["broadcast"][0].contains("single_seconds"));
  EXPECT_NE(tables_of(report).find("who waits polls"), std::string::npos);
}

TEST(FabricReport, ATailTakesAHundredSamples) {
  FabricReport report;
  report.links = {link_of("shm", {8}, 2e-5)};
  Summary& one_way = report.links[0].pairs[0].round_trip[0].figure;
  Summary& single = report.links[0].all_reduce[0].single;
  for (const size_t count : {99U, 100U}) {
    one_way.count = single.count = count;
    const std::string text = tables_of(report);
    EXPECT_EQ(text.find(" 30 µs") != std::string::npos, count == 100) << text;
    EXPECT_EQ(text.find(" 60 µs") != std::string::npos, count == 100) << text;
  }
}

TEST(FabricReport, ManyRanksHaveATableOfPairs) {
  FabricReport report{.nodes = 3};
  report.links = {link_of("tcp", {64}, 2e-5)};
  report.links[0].pairs.push_back({.lower = 1, .higher = 2});
  report.links[0].pairs.back().round_trip.push_back({.bytes = 64, .figure = summary_of(8e-5)});
  const std::string text = tables_of(report);
  EXPECT_NE(line_with(text, "1, 2").find("40 µs"), std::string::npos);
  report.links[0].pairs.pop_back();
  EXPECT_EQ(tables_of(report).find("every pair"), std::string::npos);
}

TEST(FabricReport, WhatWasNotMeasuredHasNoTable) {
  FabricReport report;
  LinkFigures link{.link = "shm"};
  link.pairs.push_back({});
  report.links = {link};
  const std::string text = tables_of(report);
  EXPECT_EQ(text.find("p50"), std::string::npos);
  EXPECT_NE(plot_of(report).find("</svg>"), std::string::npos);
  report.links.clear();
  EXPECT_FALSE(tables_of(report).empty());
  EXPECT_NE(plot_of(report).find("</svg>"), std::string::npos);
}

TEST(FabricReport, ThePlotHasACurvePerLinkAndFigure) {
  FabricReport report;
  report.links = {link_of("shm", {8, 4096}, 2e-6), link_of("tcp", {8, 4096}, 2e-5)};
  const std::string svg = plot_of(report);
  for (const char* name : {"shm, median", "shm, p99", "tcp, one way", "4 KiB", "MB/s", "µs"}) {
    EXPECT_NE(svg.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(svg.find("both ways"), std::string::npos);  // was not measured
}

TEST(SizeText, PowersOf1024WhereTheyFit) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(2304), "2304 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(size_t{3} << 20U), "3 MiB");
}

}  // namespace
}  // namespace shoal::cli
