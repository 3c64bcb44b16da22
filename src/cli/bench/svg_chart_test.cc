#include "cli/bench/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>

namespace shoal::cli {
namespace {

std::string plain(double value) { return std::to_string(value); }

Chart chart_of(std::vector<ChartCurve> curves) {
  return {.title = "a title",
          .x = {.title = "size", .base = 4, .label = plain},
          .y = {.title = "", .base = 10, .label = plain},
          .curves = std::move(curves)};
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Every tag is closed by its own, and there is one root.
void expect_well_formed(const std::string& svg) {
  const std::regex tag("<(/?)([a-z]+)([^<>]*?)(/?)>");
  std::vector<std::string> open;
  size_t roots = 0;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), tag); it != std::sregex_iterator();
       ++it) {
    const std::smatch& match = *it;
    if (match[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), match[2].str());
      open.pop_back();
      continue;
    }
    if (open.empty()) ++roots;
    if (match[4].length() == 0) open.push_back(match[2].str());
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(roots, 1U);
  EXPECT_EQ(count_of(svg, "<"), count_of(svg, ">"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LogScale, PlacesRiseWithValuesAndKeepWithinTheAxis) {
  const LogScale scale({.least = 3, .most = 70000}, 10, {.begin = 50, .end = 500});
  double before = 50 - 1e-9;
  for (double value = 3; value <= 70000; value *= 1.3) {
    const double place = scale.place_of(value);
    EXPECT_GT(place, before);
    EXPECT_LE(place, 500);
    before = place;
  }
  EXPECT_NEAR(scale.place_of(1), 50, 1e-6);
  EXPECT_NEAR(scale.place_of(1e5), 500, 1e-6);
}

TEST(LogScale, AnAxisMayRunDownwards) {
  const LogScale scale({.least = 1, .most = 100}, 10, {.begin = 300, .end = 20});
  EXPECT_NEAR(scale.place_of(1), 300, 1e-6);
  EXPECT_NEAR(scale.place_of(10), 160, 1e-6);
  EXPECT_NEAR(scale.place_of(100), 20, 1e-6);
}

TEST(LogScale, LabelsAscendAndAreNotTooMany) {
  for (const double most : {1.0, 2.0, 1e3, 1e9, 1e30}) {
    const LogScale scale({.least = 1, .most = most}, 4, {.begin = 0, .end = 1});
    const std::vector<double> labels = scale.labelled(8);
    ASSERT_GE(labels.size(), 2U);
    EXPECT_LE(labels.size(), 8U);
    for (size_t i = 1; i < labels.size(); ++i) EXPECT_GT(labels[i], labels[i - 1]);
    EXPECT_LE(scale.place_of(labels.back()), 1 + 1e-9);
  }
}

TEST(LogScale, OneValueHasAnAxisToo) {
  const LogScale scale({.least = 64, .most = 64}, 4, {.begin = 0, .end = 1});
  EXPECT_NEAR(scale.place_of(64), 0, 1e-9);
  EXPECT_EQ(scale.labelled(5).size(), 2U);
}

TEST(SvgOf, ChartsAreWellFormed) {
  const ChartCurve rising{
      .name = "shm", .style = 0, .points = {{8, 1e-7}, {64, 2e-7}, {4096, 1e-6}}};
  const ChartCurve dashed{.name = "tcp", .style = 1, .is_dashed = true, .points = {{8, 1e-5}}};
  const std::string svg = svg_of("two charts", {chart_of({rising, dashed}), chart_of({rising})});
  expect_well_formed(svg);
  EXPECT_EQ(count_of(svg, "<polyline"), 3U);
  EXPECT_EQ(count_of(svg, "<circle"), 2U * (3 + 1));  // with those of the legends
  EXPECT_EQ(count_of(svg, ">tcp</text>"), 1U);
}

TEST(SvgOf, NothingToDrawIsAnEmptyChart) {
  expect_well_formed(svg_of("none", {}));
  expect_well_formed(svg_of("no curve", {chart_of({})}));
  const std::string svg = svg_of("no point", {chart_of({{.name = "shm", .points = {}}})});
  expect_well_formed(svg);
  EXPECT_EQ(count_of(svg, "<polyline"), 0U);
}

TEST(SvgOf, PointsWithoutAPlaceAreLeftOut) {
  const std::string svg =
      svg_of("zeros", {chart_of({{.name = "shm", .points = {{0, 1}, {8, 0}, {8, NAN}, {8, 1}}}})});
  expect_well_formed(svg);
  EXPECT_EQ(count_of(svg, "<circle"), 2U);  // one, and the legend's
}

TEST(SvgOf, LargerValuesAreHigherAndFurtherRight) {
  const std::string svg =
      svg_of("rising", {chart_of({{.name = "", .points = {{1, 1}, {8, 20}, {100, 3000}}}})});
  const std::regex corner("(\\d+\\.\\d),(\\d+\\.\\d)");
  std::vector<ChartPoint> corners;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), corner); it != std::sregex_iterator();
       ++it) {
    corners.push_back({std::stod((*it)[1]), std::stod((*it)[2])});
  }
  ASSERT_EQ(corners.size(), 3U);
  for (size_t i = 1; i < corners.size(); ++i) {
    EXPECT_GT(corners[i].x, corners[i - 1].x);
    EXPECT_LT(corners[i].y, corners[i - 1].y);
  }
}

TEST(SvgOf, NamesCannotBreakTheMarkup) {
  const std::string svg =
      svg_of("a <b> & \"c\"", {chart_of({{.name = "</svg>", .points = {{1, 1}}}})});
  expect_well_formed(svg);
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; &quot;c&quot;"), std::string::npos);
}

}  // namespace
}  // namespace shoal::cli
