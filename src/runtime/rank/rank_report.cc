#include "runtime/rank/rank_report.h"

#include <algorithm>

#include "base/bytes.h"

namespace shoal::runtime {
namespace {

constexpr uint32_t kMagic = 0x5253'4853;  // "SHSR"
constexpr size_t kMessageBytesMax = kReportBytes - 64;

}  // namespace

std::vector<std::byte> encode_report(const RankReport& report) {
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(static_cast<uint32_t>(report.status.code()));
  writer.write(report.fingerprint.settings);
  writer.write(report.fingerprint.tensors);
  writer.write(report.fingerprint.weights);
  writer.write(report.fingerprint.layout);
  writer.write(report.weight_bytes);
  writer.write(report.kv_bytes);
  writer.write_string(std::string_view(report.status.message()).substr(0, kMessageBytesMax));
  std::vector<std::byte> bytes = writer.take();
  bytes.resize(kReportBytes);
  return bytes;
}

Result<RankReport> decode_report(std::span<const std::byte> bytes) {
  const auto read = [&]() -> Result<RankReport> {
    ByteReader reader(bytes);
    RankReport report;
    ASSIGN_OR_RETURN(const uint32_t magic, reader.read<uint32_t>());
    ASSIGN_OR_RETURN(const uint32_t code, reader.read<uint32_t>());
    ASSIGN_OR_RETURN(report.fingerprint.settings, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(report.fingerprint.tensors, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(report.fingerprint.weights, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(report.fingerprint.layout, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(report.weight_bytes, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(report.kv_bytes, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(const std::string_view message, reader.read_string(kMessageBytesMax));
    if (magic != kMagic || code > static_cast<uint32_t>(StatusCode::kNode)) {
      return Status::group("it sent no load report");
    }
    if (code != 0) report.status = Status(static_cast<StatusCode>(code), std::string(message));
    return report;
  };
  auto report = read();
  if (!report.is_ok()) return Status::group("it sent no load report");
  return report;
}

}  // namespace shoal::runtime
