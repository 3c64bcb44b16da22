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

inline void sum_two_onto(float* out, const float* addend, const float* a, const float* b,
                         size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = addend[i] + (a[i] + b[i]);
}

inline void sum_many(std::span<float> out, const SumInput& input) {
  // In blocks that stay in the first cache, since out may be one of the parts: a block is summed
  // aside before it is written.
  constexpr size_t kBlock = 1024;
  float block[kBlock];
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    const size_t count = out.size() - begin < kBlock ? out.size() - begin : kBlock;
    sum_two(block, input.parts[0] + begin, input.parts[1] + begin, count);
    for (const float* part : input.parts.subspan(2)) sum_two(block, block, part + begin, count);
    if (input.addend == nullptr) {
      copy(out.data() + begin, block, count);
    } else {
      sum_two(out.data() + begin, input.addend + begin, block, count);
    }
  }
}

inline void sum(std::span<float> out, const SumInput& input) {
  const auto& parts = input.parts;
  if (parts.size() > 2) {
    sum_many(out, input);
  } else if (parts.size() == 1 && input.addend == nullptr) {
    copy(out.data(), parts[0], out.size());
  } else if (parts.size() == 1) {
    sum_two(out.data(), input.addend, parts[0], out.size());
  } else if (input.addend == nullptr) {
    sum_two(out.data(), parts[0], parts[1], out.size());
  } else {
    sum_two_onto(out.data(), input.addend, parts[0], parts[1], out.size());
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void sum_avx2(std::span<float> out,
                                                       const SumInput& input) {
  sum(out, input);
}

__attribute__((target("avx512f,avx512vl"), flatten)) void sum_avx512(std::span<float> out,
                                                                     const SumInput& input) {
  sum(out, input);
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

void sum_in_rank_order(std::span<float> out, const SumInput& input) {
  CHECK(!input.parts.empty());
  static const SumFunction chosen = choose();
  chosen(out, input);
}

}  // namespace shoal::collective
