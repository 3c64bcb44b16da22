// The bytes of a RankReport (docs/step_protocol.md), and the fingerprint in it.
//
// Thread rule: pure functions and a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal::runtime {

// What a rank tells rank 0 when it has loaded, or failed to.
struct RankReport {
  Status status;
  uint64_t fingerprint = 0;   // of model, plan and options: the same on every rank
  uint64_t weight_bytes = 0;  // packed, in memory
  uint64_t kv_bytes = 0;      // of the whole cache
};

inline constexpr size_t kReportBytes = 512;

// A longer message is cut.
std::vector<std::byte> encode_report(const RankReport& report);
// kGroup when the bytes are no report.
Result<RankReport> decode_report(std::span<const std::byte> bytes);

// FNV-1a over 64-bit numbers: tells different set-ups apart; no defence against forgery.
class Fingerprint {
 public:
  Fingerprint& add(uint64_t value);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace shoal::runtime
