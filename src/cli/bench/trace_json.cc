#include "cli/bench/trace_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::cli {
namespace {

using runtime::RankTrace;
using runtime::TraceSpan;

double microseconds(Nanoseconds time) { return static_cast<double>(time.count()) * 1e-3; }

Nanoseconds first_begin(std::span<const RankTrace> ranks) {
  Nanoseconds first = Nanoseconds::max();
  for (const RankTrace& rank : ranks) {
    for (const TraceSpan& span : rank.spans) first = std::min(first, span.begin);
  }
  return first;
}

Json name_event(const char* what, size_t rank, size_t worker, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", worker}, {"args", {{"name", name}}}};
}

Json span_event(const TraceSpan& span, size_t rank, Nanoseconds origin) {
  Json event = {{"ph", "X"},
                {"name", tensor::phase_name(span.phase)},
                {"cat", span.stage == tensor::Stage::kPrefill ? "prefill" : "decode"},
                {"pid", rank},
                {"tid", span.worker},
                {"ts", microseconds(span.begin - origin)},
                {"dur", microseconds(span.end - span.begin)}};
  if (span.layer != tensor::Stretch::kNoLayer) event["args"] = {{"layer", span.layer}};
  return event;
}

}  // namespace

TraceSummary summarize(std::span<const RankTrace> ranks) {
  TraceSummary summary;
  Nanoseconds last = first_begin(ranks);
  for (const RankTrace& rank : ranks) {
    summary.spans += rank.spans.size();
    summary.dropped += rank.dropped;
    for (const TraceSpan& span : rank.spans) last = std::max(last, span.end);
  }
  summary.seconds = std::chrono::duration<double>(last - first_begin(ranks)).count();
  return summary;
}

Json trace_json(std::span<const RankTrace> ranks, std::span<const std::string> node_names) {
  const Nanoseconds origin = first_begin(ranks);
  Json events = Json::array();
  Json offsets = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    events.push_back(
        name_event("process_name", rank, 0, fmt::format("rank {} ({})", rank, node_names[rank])));
    for (size_t worker = 0; worker < ranks[rank].workers; ++worker) {
      events.push_back(name_event("thread_name", rank, worker, fmt::format("worker {}", worker)));
    }
    for (const TraceSpan& span : ranks[rank].spans) {
      events.push_back(span_event(span, rank, origin));
    }
    offsets.push_back(ranks[rank].clock_offset.count());
  }
  return {{"traceEvents", std::move(events)},
          {"displayTimeUnit", "ns"},
          {"otherData", {{"clock_offset_ns_by_rank", std::move(offsets)}}}};
}

}  // namespace shoal::cli
