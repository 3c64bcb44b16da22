#include "collective/sum.h"

#include <cstddef>

#include "base/check.h"

namespace shoal::collective {
namespace {

// The loops below are written for the compiler to vectorise; every lane adds in rank order, so the
// vector width does not change a bit of the result.

inline void copy(float* out, const float* a, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i];
}

inline void sum_two(float* out, const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

inline void sum_many(std::span<float> out, std::span<const float* const> parts) {
  // In blocks that stay in the first cache, since out may be one of the parts: a block is summed
  // aside before it is written.
  constexpr size_t kBlock = 1024;
  float block[kBlock];
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    const size_t count = out.size() - begin < kBlock ? out.size() - begin : kBlock;
    sum_two(block, parts[0] + begin, parts[1] + begin, count);
    for (const float* part : parts.subspan(2)) sum_two(block, block, part + begin, count);
    copy(out.data() + begin, block, count);
  }
}

inline void sum(std::span<float> out, std::span<const float* const> parts) {
  if (parts.size() > 2) {
    sum_many(out, parts);
  } else if (parts.size() == 2) {
    sum_two(out.data(), parts[0], parts[1], out.size());
  } else {
    copy(out.data(), parts[0], out.size());
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void sum_avx2(std::span<float> out,
                                                       std::span<const float* const> parts) {
  sum(out, parts);
}

__attribute__((target("avx512f,avx512vl"), flatten)) void sum_avx512(
    std::span<float> out, std::span<const float* const> parts) {
  sum(out, parts);
}

SumFunction choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return sum_avx512;
  if (__builtin_cpu_supports("avx2")) return sum_avx2;
  return sum;
}
#else
SumFunction choose() { return sum; }
#endif

}  // namespace

void sum_in_rank_order(std::span<float> out, std::span<const float* const> parts) {
  CHECK(!parts.empty());
  static const SumFunction chosen = choose();
  chosen(out, parts);
}

}  // namespace shoal::collective
