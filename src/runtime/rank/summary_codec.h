// The bytes in which a rank's LogitSummary travels to rank 0 (docs/step_protocol.md).
//
// Fixed size, so that a gather knows it beforehand. The bytes are foreign to rank 0: decoding
// checks counts, ids, order and numbers. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "plan/plan.h"
#include "runtime/sampling/logits.h"

namespace shoal::runtime {

inline constexpr size_t kSummaryHeaderBytes = 32;
inline constexpr size_t kCandidateBytes = 8;

constexpr size_t summary_bytes(size_t candidates_max) {
  return kSummaryHeaderBytes + candidates_max * kCandidateBytes;
}

// out: summary_bytes(candidates_max) bytes, summary.top.size() <= candidates_max.
void encode_summary(const LogitSummary& summary, std::span<std::byte> out);

// `bytes` as made by encode_summary for a rank with these vocabulary rows. kRequest when they are
// not.
Status decode_summary(std::span<const std::byte> bytes, const plan::Range& vocabulary,
                      LogitSummary* out);

}  // namespace shoal::runtime
