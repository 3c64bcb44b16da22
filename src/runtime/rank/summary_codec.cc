#include "runtime/rank/summary_codec.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal::runtime {
namespace {

template <typename T>
std::byte* put(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(T));
  return at + sizeof(T);
}

Status bad(const char* what) { return Status::request(std::string("bad logit summary: ") + what); }

}  // namespace

void encode_summary(const LogitSummary& summary, std::span<std::byte> out) {
  CHECK(out.size() >= summary_bytes(summary.top.size()));
  std::byte* at = out.data();
  at = put(static_cast<uint32_t>(summary.top.size()), at);
  at = put(static_cast<uint32_t>(summary.non_finite), at);
  at = put(summary.rows, at);
  at = put(summary.log_sum_exp, at);
  at = put(summary.inverse_temperature, at);
  at = put(uint32_t{0}, at);
  for (const Candidate& candidate : summary.top) {
    at = put(candidate.id, at);
    at = put(candidate.logit, at);
  }
  std::memset(at, 0, static_cast<size_t>(out.data() + out.size() - at));
}

Status decode_summary(std::span<const std::byte> bytes, const plan::Range& vocabulary,
                      LogitSummary* out) {
  ByteReader reader(bytes);
  ASSIGN_OR_RETURN(const uint32_t count, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t non_finite, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(out->rows, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(out->log_sum_exp, reader.read<double>());
  ASSIGN_OR_RETURN(out->inverse_temperature, reader.read<float>());
  RETURN_IF_ERROR(reader.skip(sizeof(uint32_t)));
  if (count > reader.left() / kCandidateBytes || count > vocabulary.size()) {
    return bad("too many candidates");
  }
  if (out->rows != vocabulary.size()) return bad("it covers other vocabulary rows");
  if (non_finite > 1) return bad("unknown flags");
  if (std::isnan(out->log_sum_exp) || std::isnan(out->inverse_temperature)) {
    return bad("it holds NaN");
  }
  out->non_finite = non_finite != 0;
  out->top.clear();
  for (uint32_t i = 0; i < count; ++i) {
    Candidate candidate;
    ASSIGN_OR_RETURN(candidate.id, reader.read<TokenId>());
    ASSIGN_OR_RETURN(candidate.logit, reader.read<float>());
    if (candidate.id < 0 || !vocabulary.contains(static_cast<uint64_t>(candidate.id))) {
      return bad("a candidate is not in the rank's vocabulary rows");
    }
    if (!out->non_finite && i > 0 && !comes_before(out->top.back(), candidate)) {
      return bad("the candidates are out of order");
    }
    out->top.push_back(candidate);
  }
  return Status::ok();
}

}  // namespace shoal::runtime
