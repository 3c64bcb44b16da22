#include "runtime/measure/measurements.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/bytes.h"
#include "fabric/link/secret.h"

namespace shoal::runtime {
namespace {

constexpr uint32_t kTimesMagic = 0x4D54'4853;  // "SHTM"
constexpr uint32_t kTraceMagic = 0x5254'4853;  // "SHTR"
constexpr uint32_t kWorkersMax = 1024;

Status bad(const char* what) { return Status::group(std::string("it sent ") + what); }

Result<TraceSpan> read_span(ByteReader& reader) {
  TraceSpan span;
  ASSIGN_OR_RETURN(span.worker, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint8_t phase, reader.read<uint8_t>());
  ASSIGN_OR_RETURN(const uint8_t stage, reader.read<uint8_t>());
  ASSIGN_OR_RETURN(span.layer, reader.read<uint16_t>());
  ASSIGN_OR_RETURN(const int64_t begin, reader.read<int64_t>());
  ASSIGN_OR_RETURN(const int64_t end, reader.read<int64_t>());
  if (phase >= tensor::kPhases || stage >= tensor::kStages || begin < 0 || begin > end ||
      end > kTimeMax.count()) {
    return bad("a span of a trace that cannot be");
  }
  span.phase = static_cast<tensor::Phase>(phase);
  span.stage = static_cast<tensor::Stage>(stage);
  span.begin = Nanoseconds(begin);
  span.end = Nanoseconds(end);
  return span;
}

}  // namespace

std::vector<std::byte> encode_times(const RankTimes& times) {
  ByteWriter writer;
  writer.write(kTimesMagic);
  writer.write(times.workers);
  for (const auto& stage : times.seconds) {
    for (const double seconds : stage) writer.write(seconds);
  }
  return writer.take();
}

Result<RankTimes> decode_times(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  RankTimes times;
  ASSIGN_OR_RETURN(const uint32_t magic, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(times.workers, reader.read<uint32_t>());
  if (magic != kTimesMagic || times.workers > kWorkersMax) return bad("no times");
  const double most = times.workers * kSecondsMax;
  for (auto& stage : times.seconds) {
    for (double& seconds : stage) {
      ASSIGN_OR_RETURN(seconds, reader.read<double>());
      if (!(seconds >= 0 && seconds <= most)) return bad("times that no clock shows");
    }
  }
  if (reader.left() != 0) return bad("no times");
  return times;
}

std::vector<std::byte> encode_trace_head(const TraceHead& head) {
  ByteWriter writer;
  writer.write(kTraceMagic);
  writer.write(head.workers);
  writer.write(head.spans);
  writer.write(head.dropped);
  writer.write(head.machine);
  writer.write(uint64_t{0});
  return writer.take();
}

Result<TraceHead> decode_trace_head(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  TraceHead head;
  ASSIGN_OR_RETURN(const uint32_t magic, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(head.workers, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(head.spans, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(head.dropped, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(head.machine, reader.read<uint64_t>());
  if (magic != kTraceMagic || head.workers > kWorkersMax ||
      head.spans > uint64_t{head.workers} * kTraceSpansMax) {
    return bad("no trace");
  }
  return head;
}

std::vector<std::byte> encode_spans(std::span<const TraceSpan> spans) {
  ByteWriter writer;
  for (const TraceSpan& span : spans) {
    writer.write(span.worker);
    writer.write(static_cast<uint8_t>(span.phase));
    writer.write(static_cast<uint8_t>(span.stage));
    writer.write(span.layer);
    writer.write(int64_t{span.begin.count()});
    writer.write(int64_t{span.end.count()});
  }
  return writer.take();
}

Result<std::vector<TraceSpan>> decode_spans(std::span<const std::byte> bytes,
                                            const TraceHead& head) {
  if (bytes.size() != head.spans * kTraceSpanBytes) return bad("another number of spans");
  ByteReader reader(bytes);
  std::vector<TraceSpan> spans;
  spans.reserve(head.spans);
  while (reader.left() > 0) {
    ASSIGN_OR_RETURN(const TraceSpan span, read_span(reader));
    if (span.worker >= head.workers) return bad("a span of a worker that it does not have");
    spans.push_back(span);
  }
  return spans;
}

Nanoseconds clock_offset(std::span<const ClockExchange> exchanges) {
  Nanoseconds offset(0);
  Nanoseconds quickest = Nanoseconds::max();
  for (const ClockExchange& exchange : exchanges) {
    const Nanoseconds took = exchange.answered - exchange.asked;
    if (took >= quickest) continue;
    quickest = took;
    offset = exchange.theirs - (exchange.asked + took / 2);
  }
  return offset;
}

uint64_t machine_id() {
  const std::string boot = fabric::boot_id();
  if (boot == "unknown") return 0;
  uint64_t id = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : boot) id = (id ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  return id;
}

}  // namespace shoal::runtime
