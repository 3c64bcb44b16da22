#include "runtime/stop_matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shoal::runtime {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
  if (stops.size() > kStopsMax) {
    return Status::request(
        fmt::format("{} stop strings: at most {} are allowed", stops.size(), kStopsMax));
  }
  StopMatcher matcher;
  for (std::string& text : stops) {
    if (text.empty()) return Status::request("a stop string is empty");
    if (text.size() > kStopBytesMax) {
      return Status::request(fmt::format("a stop string has {} bytes: at most {} are allowed",
                                         text.size(), kStopBytesMax));
    }
    Stop stop{std::move(text), {}, 0};
    stop.fallback.resize(stop.text.size());
    for (size_t i = 1, border = 0; i < stop.text.size(); ++i) {
      while (border > 0 && stop.text[i] != stop.text[border]) border = stop.fallback[border - 1];
      if (stop.text[i] == stop.text[border]) ++border;
      stop.fallback[i] = static_cast<uint32_t>(border);
    }
    matcher.stops_.push_back(std::move(stop));
  }
  return matcher;
}

bool StopMatcher::step(Stop* stop, char byte) {
  while (stop->state > 0 && stop->text[stop->state] != byte) {
    stop->state = stop->fallback[stop->state - 1];
  }
  if (stop->text[stop->state] == byte) ++stop->state;
  return stop->state == stop->text.size();
}

std::string StopMatcher::push(std::string_view text) {
  if (matched_.has_value()) return {};
  for (const char byte : text) {
    held_.push_back(byte);
    for (size_t i = 0; i < stops_.size(); ++i) {
      const bool met = step(&stops_[i], byte);
      if (met && (!matched_ || stops_[i].text.size() > stops_[*matched_].text.size())) {
        matched_ = i;
      }
    }
    if (matched_.has_value()) {
      held_.resize(held_.size() - stops_[*matched_].text.size());
      return std::exchange(held_, {});
    }
  }
  size_t begun = 0;
  for (const Stop& stop : stops_) begun = std::max(begun, stop.state);
  std::string out = held_.substr(0, held_.size() - begun);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

std::optional<std::string_view> StopMatcher::matched() const {
  if (!matched_.has_value()) return std::nullopt;
  return stops_[*matched_].text;
}

}  // namespace shoal::runtime
