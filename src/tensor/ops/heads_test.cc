#include "tensor/ops/heads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tensor/aligned_buffer.h"
#include "tensor/matmul_testing.h"

namespace shoal::tensor {
namespace {

constexpr int64_t kHeadDim = 24;
constexpr int64_t kQueryHeads = 6;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kTokens = 5;  // two sequences: 2 tokens from position 15, 3 from position 0

// Two sessions' projections and pages.
struct Case {
  KvLayout layout{
      .type = DType::kF32, .kv_heads = kKvHeads, .head_dim = kHeadDim, .page_tokens = 16};
  RopeTable table = RopeTable::create({.rotary_dims = 16}).value();
  std::vector<int32_t> positions = {15, 16, 0, 1, 2};
  std::vector<float> angle_values =
      std::vector<float>(static_cast<size_t>(rope_angles_floats(table, kTokens)));
  std::vector<float> q = random_floats(kTokens * kQueryHeads * kHeadDim, 1);
  std::vector<float> k = random_floats(kTokens * kKvHeads * kHeadDim, 2);
  std::vector<float> v = random_floats(kTokens * kKvHeads * kHeadDim, 3);
  std::vector<AlignedBuffer> buffers;
  std::vector<std::byte*> pages;

  Case() {
    for (int i = 0; i < 3; ++i) {
      buffers.push_back(AlignedBuffer::allocate(layout.page_bytes()).value());
      pages.push_back(buffers.back().data());
    }
  }

  void prepare(const HeadPreparation& how, KernelPath path, int workers) {
    const std::vector<KvSequence> sequences = {
        {.pages = std::span(pages).first(2), .position = 15, .tokens = 2, .row = 0},
        {.pages = std::span(pages).last(1), .position = 0, .tokens = 3, .row = 2}};
    make_pool(path, workers)->run([&](Worker& me) {
      compute_rope_angles(me, positions, {&table, angle_values});
      me.barrier();
      prepare_heads(me, layout, how, rows(), sequences);
    });
  }
  HeadRows rows() {
    return {{q.data(), kTokens, kQueryHeads * kHeadDim, kQueryHeads * kHeadDim},
            {k.data(), kTokens, kKvHeads * kHeadDim, kKvHeads * kHeadDim},
            {v.data(), kTokens, kKvHeads * kHeadDim, kKvHeads * kHeadDim}};
  }
  float stored(int64_t token, int64_t element) const {
    const std::byte* page = pages[token < 2 ? static_cast<size_t>(token) : 2];
    float value = 0;
    std::memcpy(&value, page + element * 4, sizeof(value));
    return value;
  }
  int64_t slot(int64_t token) const { return positions[static_cast<size_t>(token)] % 16; }
  float stored_key(int64_t token, int64_t head, int64_t dim) const {
    return stored(token, layout.key_offset(head, dim, slot(token)));
  }
  float stored_value(int64_t token, int64_t head, int64_t dim) const {
    return stored(token, layout.value_offset(head, slot(token), dim));
  }
};

// One head through its steps in double precision.
std::vector<double> expected_head(const float* x, const float* bias, const std::vector<float>& norm,
                                  int32_t position) {
  std::vector<double> y(x, x + kHeadDim);
  double squares = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] += bias[i];
    squares += y[i] * y[i];
  }
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] *= norm[i] / std::sqrt(squares / kHeadDim + 1e-6);
  }
  for (size_t pair = 0; pair < 8; ++pair) {
    const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(pair) / 16);
    const double first = y[2 * pair];
    const double second = y[2 * pair + 1];
    y[2 * pair] = first * std::cos(angle) - second * std::sin(angle);
    y[2 * pair + 1] = first * std::sin(angle) + second * std::cos(angle);
  }
  return y;
}

class Heads : public testing::TestWithParam<KernelPath> {};

INSTANTIATE_TEST_SUITE_P(EveryPath, Heads, testing::ValuesIn(runnable_kernel_paths()),
                         [](const testing::TestParamInfo<KernelPath>& info) {
                           return std::string(kernel_path_name(info.param));
                         });

TEST_P(Heads, AddBiasNormalizeRotateAndStore) {
  const std::vector<float> q_bias = random_floats(kQueryHeads * kHeadDim, 4);
  const std::vector<float> k_bias = random_floats(kKvHeads * kHeadDim, 5);
  const std::vector<float> v_bias = random_floats(kKvHeads * kHeadDim, 6);
  const std::vector<float> q_norm = random_floats(kHeadDim, 7);
  const std::vector<float> k_norm = random_floats(kHeadDim, 8);
  for (const int workers : {1, 2, 7}) {
    Case now;
    const Case before;
    const HeadPreparation how = {.q = {q_bias, {q_norm, 1e-6F}, true},
                                 .k = {k_bias, {k_norm, 1e-6F}, true},
                                 .v = {.bias = v_bias},
                                 .angles = {&now.table, now.angle_values}};
    now.prepare(how, GetParam(), workers);
    for (int64_t token = 0; token < kTokens; ++token) {
      const int32_t position = now.positions[static_cast<size_t>(token)];
      for (int64_t head = 0; head < kQueryHeads; ++head) {
        const int64_t at = (token * kQueryHeads + head) * kHeadDim;
        const auto want =
            expected_head(&before.q[static_cast<size_t>(at)],
                          &q_bias[static_cast<size_t>(head * kHeadDim)], q_norm, position);
        for (int64_t d = 0; d < kHeadDim; ++d) {
          // Values up to about 5; angles in float32 are off by 2^-24 of up to 16.
          ASSERT_NEAR(now.q[static_cast<size_t>(at + d)], want[static_cast<size_t>(d)], 2e-5);
        }
      }
      for (int64_t head = 0; head < kKvHeads; ++head) {
        const auto at = static_cast<size_t>((token * kKvHeads + head) * kHeadDim);
        const auto bias_at = static_cast<size_t>(head * kHeadDim);
        const auto want = expected_head(&before.k[at], &k_bias[bias_at], k_norm, position);
        for (int64_t d = 0; d < kHeadDim; ++d) {
          const auto i = static_cast<size_t>(d);
          ASSERT_NEAR(now.stored_key(token, head, d), want[i], 2e-5);
          ASSERT_EQ(now.stored_value(token, head, d), before.v[at + i] + v_bias[bias_at + i]);
        }
      }
    }
  }
}

TEST_P(Heads, WithoutStepsAreStoredAsTheyAre) {
  Case now;
  const Case before;
  now.prepare({}, GetParam(), 3);
  EXPECT_EQ(now.q, before.q);
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t head = 0; head < kKvHeads; ++head) {
      for (int64_t d = 0; d < kHeadDim; ++d) {
        const auto at = static_cast<size_t>((token * kKvHeads + head) * kHeadDim + d);
        ASSERT_EQ(now.stored_key(token, head, d), before.k[at]);
        ASSERT_EQ(now.stored_value(token, head, d), before.v[at]);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::tensor
