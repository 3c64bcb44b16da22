// The bytes of a RankReport (docs/step_protocol.md).
//
// Thread rule: pure functions and a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/rank/fingerprint.h"

namespace shoal::runtime {

// What a rank tells rank 0 when it has loaded, or failed to.
struct RankReport {
  Status status;
  Fingerprint fingerprint;    // the same on every rank
  uint64_t weight_bytes = 0;  // packed, in memory
  uint64_t kv_bytes = 0;      // of the whole cache
};

inline constexpr size_t kReportBytes = 512;

// A longer message is cut.
std::vector<std::byte> encode_report(const RankReport& report);
// kGroup when the bytes are no report.
Result<RankReport> decode_report(std::span<const std::byte> bytes);

}  // namespace shoal::runtime
