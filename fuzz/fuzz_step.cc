// Any bytes as what ranks tell each other in the step protocol: commands, set-ups, summaries of
// logits, load reports, times and traces. What is accepted must encode to the same bytes again.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "runtime/measure/measurements.h"
#include "runtime/rank/command.h"
#include "runtime/rank/rank_report.h"
#include "runtime/rank/summary_codec.h"
#include "runtime/setup.h"

namespace {

using namespace shoal::runtime;  // NOLINT(google-build-using-namespace)
using Bytes = std::span<const std::byte>;

bool is_same(Bytes a, Bytes b) { return std::ranges::equal(a, b); }

void feed_command(Bytes bytes) {
  constexpr CommandLimits kLimits{
      .items_max = 4, .tokens_max = 32, .hidden = 4, .blocks_max = 8, .summaries_max = 16};
  Command command;
  Bytes activations;
  if (!decode_command(bytes, kLimits, &command, &activations).is_ok()) return;
  CHECK(command.items.size() <= kLimits.items_max && command.tokens() <= kLimits.tokens_max);
  CHECK(command.blocks.size() <= kLimits.blocks_max);
  CHECK(command.mode == OutputMode::kFull || command.outputs() <= kLimits.summaries_max);
  CHECK(command.op != Op::kStep ||
        activations.size() == command.tokens() * kLimits.hidden * sizeof(float));
  std::vector<float> values(activations.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), activations.data(), activations.size());
  std::vector<std::byte> again;
  encode_command(command, values, &again);
  CHECK(is_same(again, bytes));
}

void feed_setup(Bytes bytes) {
  const auto setup = decode_setup(bytes);
  if (setup.is_ok()) CHECK(is_same(encode_setup(*setup), bytes));
}

void feed_summary(Bytes bytes) {
  shoal::ByteReader reader(bytes);
  const auto begin = reader.read<uint8_t>();
  const auto rows = reader.read<uint8_t>();
  if (!begin.is_ok() || !rows.is_ok()) return;
  const shoal::plan::Range vocabulary{*begin, uint64_t{*begin} + *rows};
  LogitSummary summary;
  const Bytes rest = bytes.subspan(reader.position());
  if (!decode_summary(rest, vocabulary, &summary).is_ok()) return;
  for (const Candidate& candidate : summary.top) {
    CHECK(vocabulary.contains(static_cast<uint64_t>(candidate.id)));
  }
  const std::vector<LogitSummary> parts{summary};
  LogitSummary merged;
  merge(parts, 64, &merged);
}

void feed_report(Bytes bytes) {
  const auto report = decode_report(bytes);
  if (!report.is_ok()) return;
  const auto again = decode_report(encode_report(*report));
  CHECK(again.is_ok() && again->fingerprint == report->fingerprint);
  CHECK(again->status.message() == report->status.message());
}

void feed_measurements(Bytes bytes) {
  const auto times = decode_times(bytes);
  if (times.is_ok()) CHECK(is_same(encode_times(*times), bytes));
  if (bytes.size() < kTraceHeadBytes) return;
  const auto head = decode_trace_head(bytes.first(kTraceHeadBytes));
  if (!head.is_ok()) return;
  const auto spans = decode_spans(bytes.subspan(kTraceHeadBytes), *head);
  if (spans.is_ok()) CHECK(is_same(encode_spans(*spans), bytes.subspan(kTraceHeadBytes)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  const Bytes rest = bytes.subspan(1);
  switch (static_cast<uint8_t>(bytes[0]) % 5) {
    case 0:
      feed_command(rest);
      break;
    case 1:
      feed_setup(rest);
      break;
    case 2:
      feed_summary(rest);
      break;
    case 3:
      feed_measurements(rest);
      break;
    default:
      feed_report(rest);
  }
  return 0;
}
