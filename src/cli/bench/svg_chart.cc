#include "cli/bench/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace shoal::cli {
namespace {

// Everything in pixels.
constexpr double kChartWidth = 520;
constexpr double kHeight = 400;
constexpr double kTop = 64;
constexpr double kBottom = 56;
constexpr double kLeft = 76;
constexpr double kRight = 20;
constexpr double kLegendLine = 18;
constexpr double kMark = 3.5;
constexpr size_t kLabelsX = 8;
constexpr size_t kLabelsY = 9;
constexpr std::string_view kText = "#7d7d7d";
constexpr std::array<std::string_view, 6> kColours = {"#2b83d6", "#d9730d", "#2a9d5c",
                                                      "#a45bd0", "#c94f6d", "#8a8116"};

bool has_place(const ChartPoint& point) {
  return point.x > 0 && point.y > 0 && std::isfinite(point.x) && std::isfinite(point.y);
}

LogScale::Range range_of(const std::vector<ChartCurve>& curves, double ChartPoint::* of) {
  LogScale::Range range{.least = std::numeric_limits<double>::max(), .most = 0};
  for (const ChartCurve& curve : curves) {
    for (const ChartPoint& point : curve.points) {
      if (!has_place(point)) continue;
      range.least = std::min(range.least, point.*of);
      range.most = std::max(range.most, point.*of);
    }
  }
  return range.most > 0 ? range : LogScale::Range{};
}

std::string text_at(const ChartPoint& at, std::string_view anchor, std::string_view text,
                    int size = 12) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", at.x, at.y,
      anchor, size, escape_xml(text));
}

std::string line(const ChartPoint& from, const ChartPoint& to) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", from.x,
                     from.y, to.x, to.y);
}

std::string mark_at(const ChartPoint& at, size_t style) {
  switch (style % 3) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>\n", at.x, at.y, kMark);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>\n",
                         at.x - kMark, at.y - kMark, 2 * kMark, 2 * kMark);
    default:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}h{}z\"/>\n", at.x, at.y - kMark - 1,
                         kMark + 1, 2 * kMark, -2 * (kMark + 1));
  }
}

// One chart whose left edge is at `left`.
class ChartWriter {
 public:
  ChartWriter(const Chart& chart, double left)
      : chart_(chart),
        left_(left),
        x_(range_of(chart.curves, &ChartPoint::x), chart.x.base,
           {.begin = left + kLeft, .end = left + kChartWidth - kRight}),
        y_(range_of(chart.curves, &ChartPoint::y), chart.y.base,
           {.begin = kHeight - kBottom, .end = kTop}) {}

  std::string write() {
    write_axes();
    for (const ChartCurve& curve : chart_.curves) write_curve(curve);
    write_legend();
    return std::move(text_);
  }

 private:
  double right() const { return left_ + kChartWidth - kRight; }

  void write_axes() {
    const double bottom = kHeight - kBottom;
    text_ += fmt::format("<g fill=\"{}\">\n", kText);
    text_ += text_at({left_ + kLeft, kTop - 14}, "start", chart_.title, 14);
    text_ += text_at({(left_ + kLeft + right()) / 2, kHeight - 14}, "middle", chart_.x.title);
    std::string grid = fmt::format("<g stroke=\"{}\" stroke-opacity=\"0.35\">\n", kText);
    for (const double value : x_.labelled(kLabelsX)) {
      const double x = x_.place_of(value);
      text_ += text_at({x, bottom + 18}, "middle", chart_.x.label(value));
      grid += line({x, kTop}, {x, bottom});
    }
    for (const double value : y_.labelled(kLabelsY)) {
      const double y = y_.place_of(value);
      text_ += text_at({left_ + kLeft - 8, y + 4}, "end", chart_.y.label(value));
      grid += line({left_ + kLeft, y}, {right(), y});
    }
    text_ += "</g>\n" + grid + "</g>\n";
  }

  void write_curve(const ChartCurve& curve) {
    std::string corners;
    std::string marks;
    for (const ChartPoint& point : curve.points) {
      if (!has_place(point)) continue;
      const ChartPoint at{x_.place_of(point.x), y_.place_of(point.y)};
      corners += fmt::format("{}{:.1f},{:.1f}", corners.empty() ? "" : " ", at.x, at.y);
      marks += mark_at(at, curve.style);
    }
    if (corners.empty()) return;
    const std::string_view colour = kColours[curve.style % kColours.size()];
    text_ += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", corners,
        colour, curve.is_dashed ? 1.2 : 2, curve.is_dashed ? " stroke-dasharray=\"5 4\"" : "");
    text_ += fmt::format("<g fill=\"{}\">\n{}</g>\n", colour, marks);
  }

  // In the upper left corner of the chart, where curves that rise are not.
  void write_legend() {
    double y = kTop + 16;
    for (const ChartCurve& curve : chart_.curves) {
      if (curve.name.empty()) continue;
      const double x = left_ + kLeft + 12;
      const std::string_view colour = kColours[curve.style % kColours.size()];
      text_ += fmt::format("<g fill=\"{0}\" stroke=\"{0}\"{1}>\n", colour,
                           curve.is_dashed ? " stroke-dasharray=\"5 4\"" : "");
      text_ += line({x, y - 4}, {x + 24, y - 4}) + "</g>\n";
      text_ += fmt::format("<g fill=\"{}\">\n", colour) + mark_at({x + 12, y - 4}, curve.style) +
               text_at({x + 32, y}, "start", curve.name) + "</g>\n";
      y += kLegendLine;
    }
  }

  const Chart& chart_;
  const double left_;
  const LogScale x_;
  const LogScale y_;
  std::string text_;
};

}  // namespace

LogScale::LogScale(const Range& range, double base, const Places& places)
    : base_(base),
      // What lies on a power but for rounding, is on it.
      first_(static_cast<int>(std::floor(std::log(range.least) / std::log(base) + 1e-9))),
      last_(static_cast<int>(std::ceil(std::log(range.most) / std::log(base) - 1e-9))),
      places_(places) {
  last_ = std::max(last_, first_ + 1);
}

double LogScale::place_of(double value) const {
  const double power = std::log(value) / std::log(base_);
  return places_.begin + (places_.end - places_.begin) * (power - first_) / (last_ - first_);
}

std::vector<double> LogScale::labelled(size_t count_max) const {
  const int most = std::max(2, static_cast<int>(count_max));
  const int step = std::max(1, (last_ - first_ + most - 2) / (most - 1));
  std::vector<double> values;
  for (int power = first_; power <= last_; power += step) values.push_back(std::pow(base_, power));
  if (values.size() == 1) values.push_back(std::pow(base_, last_));
  return values;
}

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string svg_of(std::string_view title, const std::vector<Chart>& charts) {
  const double width = kChartWidth * static_cast<double>(std::max<size_t>(charts.size(), 1));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"system-ui, sans-serif\">\n<title>{2}</title>\n",
      width, kHeight, escape_xml(title));
  svg += fmt::format("<g fill=\"{}\">\n", kText) + text_at({width / 2, 24}, "middle", title, 16) +
         "</g>\n";
  for (size_t i = 0; i < charts.size(); ++i) {
    svg += ChartWriter(charts[i], kChartWidth * static_cast<double>(i)).write();
  }
  return svg + "</svg>\n";
}

}  // namespace shoal::cli
