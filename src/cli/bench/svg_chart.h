// A chart of curves on two logarithmic axes, as SVG.
//
// The colours are of middling lightness and there is no background, so the picture can stand on a
// light page and on a dark one; curves differ by the shape of their marks, too.
// Thread rule: pure functions and values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::cli {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartCurve {
  std::string name{};  // in the legend; empty: not there
  size_t style = 0;    // same number, same colour and mark
  bool is_dashed = false;
  std::vector<ChartPoint> points{};  // those that are not positive have no place and are left out
};

struct ChartAxis {
  std::string title{};
  double base = 10;                        // of the values with a label
  std::string (*label)(double) = nullptr;  // of a value
};

struct Chart {
  std::string title{};
  ChartAxis x{};
  ChartAxis y{};
  std::vector<ChartCurve> curves{};
};

// The place of values on an axis: from `begin` to `end`, which may be the smaller number. The range
// is widened to powers of the base, and to more than one of them.
class LogScale {
 public:
  struct Range {
    double least = 1;  // positive
    double most = 1;   // >= least
  };
  struct Places {
    double begin = 0;
    double end = 1;
  };
  LogScale(const Range& range, double base, const Places& places);

  double place_of(double value) const;
  // Values with a label, ascending; at most `count_max`, at least two.
  std::vector<double> labelled(size_t count_max) const;

 private:
  double base_;
  int first_;  // powers of the base
  int last_;
  Places places_;
};

// The charts beside each other under one title.
std::string svg_of(std::string_view title, const std::vector<Chart>& charts);

// Text as it stands between tags and in attributes.
std::string escape_xml(std::string_view text);

}  // namespace shoal::cli
