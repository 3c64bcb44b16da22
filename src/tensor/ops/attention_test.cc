// The contract of attention and the pages that it reads, on every kernel path and KV type.
#include "tensor/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tensor/aligned_buffer.h"
#include "tensor/float16.h"
#include "tensor/ops/heads.h"

namespace shoal::tensor {
namespace {

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// One session's q, k, v and its cache, filled in pieces.
struct Session {
  KvLayout layout;
  AttentionParams params;
  int64_t tokens;
  std::vector<float> q, k, v, out, parts;
  std::vector<AlignedBuffer> buffers;
  std::vector<std::byte*> pages;
  double tolerance = 0;  // of an output whose queries, keys and values are random_floats

  Session(const KvLayout& kv_layout, const AttentionParams& attention_params, int64_t token_count)
      : layout(kv_layout),
        params(attention_params),
        tokens(token_count),
        q(random_floats(static_cast<size_t>(tokens * q_cols()), 1)),
        k(random_floats(static_cast<size_t>(tokens * kv_cols()), 2)),
        v(random_floats(static_cast<size_t>(tokens * kv_cols()), 3)),
        out(q.size(), -99.0F) {
    for (int64_t page = 0; page < layout.pages_for(tokens); ++page) {
      buffers.push_back(std::move(AlignedBuffer::allocate(layout.page_bytes())).value());
      pages.push_back(buffers.back().data());
      // What an earlier session left behind must not matter.
      std::memset(pages.back(), 0xff, layout.page_bytes());
    }
  }

  int64_t q_cols() const { return params.query_heads * layout.head_dim; }
  int64_t kv_cols() const { return layout.kv_heads * layout.head_dim; }

  // Keys and values of tokens [begin, end), without their attention.
  void fill(WorkerPool& pool, int64_t begin, int64_t end) { run(pool, {begin, end}, false); }

  // Tokens [begin, end) as one step.
  void step(WorkerPool& pool, int64_t begin, int64_t end) {
    ASSERT_TRUE(pool.reserve_scratch(attention_scratch_bytes(pool.path(), layout, tokens)).is_ok());
    tolerance = tolerance_on(pool.path());
    run(pool, {begin, end}, true);
  }

  // Values are below 5, weights sum to 1. A score of up to about 10 carries head_dim roundings of
  // 2^-24 of its parts (together below 40), which moves its weight by up to 256 * 40 * 2^-24 = 6e-4
  // in the worst and, as roundings are of both signs, by less than 2e-5 in any likely case.
  // 8-bit keys and values meet queries and weights of 16 bits, but not in kExact. A query's
  // elements are off by up to 1/65534 of its largest, below 5, with a deviation of 4.4e-5; times
  // keys of deviation 1, times 1/sqrt(head_dim), so are scores. Two positions of equal weight w
  // move an output by w^2 |v1 - v2| = 1/4 * 6 of the difference of their errors: 1.5 * 4 deviations
  // of 6.2e-5 are 4e-4.
  double tolerance_on(KernelPath path) const {
    return layout.type == DType::kI8 && path != KernelPath::kExact ? 4e-4 : 2e-5;
  }

  void run(WorkerPool& pool, Range range, bool attends) {
    const std::vector<KvSequence> sequences = {
        {.pages = pages, .position = range.begin, .tokens = range.size(), .row = 0}};
    const auto rows = [&](std::vector<float>& all, int64_t cols) {
      return FloatRows{all.data() + range.begin * cols, range.size(), cols, cols};
    };
    pool.run([&](Worker& me) {
      prepare_heads(me, layout, {}, {rows(q, q_cols()), rows(k, kv_cols()), rows(v, kv_cols())},
                    sequences);
      me.barrier();
      if (!attends) return;
      attention(me, layout, params, sequences, {rows(q, q_cols()), rows(out, q_cols()), parts});
    });
  }

  // Room for a context that is split over the workers.
  void allow_splitting() { parts.resize(attention_parts_floats(layout, tokens)); }

  // Element d of the head whose values begin at `head`, as a page keeps it.
  double stored(const float* head, int64_t d) const {
    if (layout.type == DType::kF32) return head[d];
    if (layout.type == DType::kF16) return f16_to_float(float_to_f16(head[d]));
    float extreme = 0;
    for (int64_t i = 0; i < layout.head_dim; ++i) extreme = std::max(extreme, std::fabs(head[i]));
    const float scale = f16_to_float(float_to_f16(extreme / 127.0F));
    return std::nearbyint(head[d] * (1.0F / scale)) * scale;
  }

  // The naive result in float64.
  std::vector<double> naive(int64_t token, int64_t head) const {
    const int64_t dim = layout.head_dim;
    const int64_t kv_head =
        (params.query_head_begin + head) / params.group_size - params.kv_head_begin;
    const int64_t begin = params.window > 0 ? std::max<int64_t>(token + 1 - params.window, 0) : 0;
    std::vector<double> weights;
    double sum = 0;
    for (int64_t other = begin; other <= token; ++other) {
      double score = 0;
      for (int64_t d = 0; d < dim; ++d) {
        score += static_cast<double>(q[static_cast<size_t>(token * q_cols() + head * dim + d)]) *
                 stored(&k[static_cast<size_t>(other * kv_cols() + kv_head * dim)], d);
      }
      weights.push_back(std::exp(score * static_cast<double>(params.scale)));
      sum += weights.back();
    }
    std::vector<double> result(static_cast<size_t>(dim));
    for (int64_t other = begin; other <= token; ++other) {
      for (int64_t d = 0; d < dim; ++d) {
        result[static_cast<size_t>(d)] +=
            weights[static_cast<size_t>(other - begin)] / sum *
            stored(&v[static_cast<size_t>(other * kv_cols() + kv_head * dim)], d);
      }
    }
    return result;
  }

  void expect_naive(int64_t first = 0) const {
    for (int64_t token = first; token < tokens; ++token) {
      for (int64_t head = 0; head < params.query_heads; ++head) {
        const std::vector<double> want = naive(token, head);
        for (int64_t d = 0; d < layout.head_dim; ++d) {
          const auto at = static_cast<size_t>(token * q_cols() + head * layout.head_dim + d);
          ASSERT_NEAR(out[at], want[static_cast<size_t>(d)], tolerance)
              << "token " << token << " head " << head << " dim " << d;
        }
      }
    }
  }
};

using PathAndType = std::tuple<KernelPath, DType>;

class Attention : public testing::TestWithParam<PathAndType> {
 protected:
  std::unique_ptr<WorkerPool> pool(int workers = 1) const {
    return std::move(WorkerPool::create({.workers = workers, .path = std::get<0>(GetParam())}))
        .value();
  }
  KvLayout layout(int64_t kv_heads, int64_t head_dim, int64_t page_tokens = 16) const {
    return {.type = std::get<1>(GetParam()),
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .page_tokens = page_tokens};
  }
  static AttentionParams params(int64_t query_heads, int64_t group_size, int64_t head_dim) {
    return {.query_heads = query_heads,
            .group_size = group_size,
            .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  }
};

// kPortableTiles has the attention of kPortable.
std::vector<KernelPath> attention_paths() {
  std::vector<KernelPath> paths = runnable_kernel_paths();
  std::erase(paths, KernelPath::kPortableTiles);
  return paths;
}

INSTANTIATE_TEST_SUITE_P(EveryPathAndKvType, Attention,
                         testing::Combine(testing::ValuesIn(attention_paths()),
                                          testing::Values(DType::kF16, DType::kF32, DType::kI8)),
                         [](const testing::TestParamInfo<PathAndType>& info) {
                           return std::string(kernel_path_name(std::get<0>(info.param))) + "_" +
                                  std::string(dtype_name(std::get<1>(info.param)));
                         });

TEST_P(Attention, GivesTheNaiveResultForEveryShape) {
  for (const int64_t head_dim : {8, 9, 16, 24, 64, 128}) {
    for (const int64_t page_tokens : {16, 64}) {
      Session session(layout(2, head_dim, page_tokens), params(6, 3, head_dim), 70);
      session.step(*pool(2), 0, 70);
      session.expect_naive();
    }
  }
}

TEST_P(Attention, TokenByTokenEqualsAtOnceInEveryBit) {
  Session at_once(layout(2, 64), params(8, 4, 64), 53);
  at_once.step(*pool(), 0, 53);
  for (const int64_t piece : {1, 3, 8, 31}) {
    Session in_pieces(layout(2, 64), params(8, 4, 64), 53);
    auto workers = pool(piece == 3 ? 3 : 1);
    for (int64_t begin = 0; begin < 53; begin += piece) {
      in_pieces.step(*workers, begin, std::min<int64_t>(begin + piece, 53));
    }
    EXPECT_EQ(in_pieces.out, at_once.out) << "pieces of " << piece;
  }
}

// Over a chunk's end, with a window whose beginning lies inside tiles, and heads of odd sizes.
TEST_P(Attention, PiecesOfALongPromptEqualItAtOnceInEveryBit) {
  AttentionParams windowed = params(6, 3, 24);
  windowed.window = 530;
  Session at_once(layout(2, 24, 64), windowed, 600);
  at_once.step(*pool(), 0, 600);
  Session in_pieces(layout(2, 24, 64), windowed, 600);
  in_pieces.allow_splitting();
  auto workers = pool(2);
  for (int64_t begin = 0; begin < 500; begin += 125) in_pieces.step(*workers, begin, begin + 125);
  for (int64_t begin = 500; begin < 600; begin += 10) in_pieces.step(*pool(), begin, begin + 10);
  EXPECT_EQ(in_pieces.out, at_once.out);
  for (int64_t token = 500; token < 600; ++token) in_pieces.step(*workers, token, token + 1);
  EXPECT_EQ(in_pieces.out, at_once.out);
}

// Case C99: query head h reads KV head h / group_size, also where a rank has only some heads.
TEST_P(Attention, ARankWithSomeHeadsComputesThoseOfTheWhole) {
  Session whole(layout(4, 16), params(12, 3, 16), 20);
  whole.step(*pool(), 0, 20);
  // Query heads 4 to 8, which read KV heads 1 and 2.
  AttentionParams part = params(5, 3, 16);
  part.query_head_begin = 4;
  part.kv_head_begin = 1;
  Session rank(layout(2, 16), part, 20);
  for (int64_t token = 0; token < 20; ++token) {
    std::copy_n(whole.q.begin() + token * whole.q_cols() + 4 * 16, 5 * 16,
                rank.q.begin() + token * rank.q_cols());
    std::copy_n(whole.k.begin() + token * whole.kv_cols() + 16, 2 * 16,
                rank.k.begin() + token * rank.kv_cols());
    std::copy_n(whole.v.begin() + token * whole.kv_cols() + 16, 2 * 16,
                rank.v.begin() + token * rank.kv_cols());
  }
  rank.step(*pool(2), 0, 20);
  for (int64_t token = 0; token < 20; ++token) {
    for (int64_t i = 0; i < rank.q_cols(); ++i) {
      ASSERT_EQ(rank.out[static_cast<size_t>(token * rank.q_cols() + i)],
                whole.out[static_cast<size_t>(token * whole.q_cols() + 4 * 16 + i)]);
    }
  }
}

// Case C104: with W = 4, token 10 sees 7 to 10 and not 6; token 9 sees 6.
TEST_P(Attention, AWindowCountsTheTokenItself) {
  AttentionParams windowed = params(2, 1, 16);
  windowed.window = 4;
  Session before(layout(2, 16), windowed, 20);
  before.step(*pool(), 0, 20);
  before.expect_naive();
  Session after(layout(2, 16), windowed, 20);
  for (int64_t i = 0; i < after.kv_cols(); ++i) {
    after.k[static_cast<size_t>(6 * after.kv_cols() + i)] += 1.0F;
    after.v[static_cast<size_t>(6 * after.kv_cols() + i)] += 1.0F;
  }
  after.step(*pool(), 0, 20);
  const auto row = [&](const Session& session, int64_t token) {
    const auto begin = session.out.begin() + token * session.q_cols();
    return std::vector<float>(begin, begin + session.q_cols());
  };
  EXPECT_EQ(row(after, 10), row(before, 10));
  EXPECT_NE(row(after, 9), row(before, 9));
  EXPECT_EQ(row(after, 5), row(before, 5));
}

TEST_P(Attention, AWindowLongerThanAPageGivesTheNaiveResult) {
  AttentionParams windowed = params(4, 2, 16);
  windowed.window = 37;
  Session session(layout(2, 16), windowed, 100);
  auto workers = pool(2);
  for (int64_t begin = 0; begin < 100; begin += 7) {
    session.step(*workers, begin, std::min<int64_t>(begin + 7, 100));
  }
  session.expect_naive();
}

// Contexts beyond 512 positions are put together from parts.
TEST_P(Attention, LongContextsGiveTheNaiveResult) {
  for (const int64_t window : {0, 700}) {
    AttentionParams windowed = params(4, 2, 16);
    windowed.window = window;
    Session session(layout(2, 16, 64), windowed, 1210);
    auto workers = pool(2);
    session.allow_splitting();
    session.fill(*workers, 0, 1180);
    session.step(*workers, 1180, 1200);
    for (int64_t token = 1200; token < 1210; ++token) session.step(*workers, token, token + 1);
    session.expect_naive(1198);
  }
}

TEST_P(Attention, SplittingAContextOverWorkersChangesNoBit) {
  for (const int64_t window : {0, 600}) {
    AttentionParams windowed = params(6, 3, 24);
    windowed.window = window;
    Session alone(layout(2, 24, 16), windowed, 1120);
    alone.fill(*pool(), 0, 1112);
    alone.step(*pool(), 1112, 1120);
    Session split = Session(layout(2, 24, 16), windowed, 1120);
    split.allow_splitting();
    split.fill(*pool(2), 0, 1112);
    for (int64_t token = 1112; token < 1120; ++token) {
      split.step(*pool(static_cast<int>(token % 4) + 1), token, token + 1);
    }
    EXPECT_EQ(split.out, alone.out) << "window " << window;
  }
}

TEST_P(Attention, SeveralSessionsInOneStepDoNotMix) {
  Session first(layout(1, 16), params(3, 3, 16), 30);
  Session second(layout(1, 16), params(3, 3, 16), 45);
  auto workers = pool(2);
  first.step(*workers, 0, 29);
  second.step(*workers, 0, 40);
  Session alone_first = Session(layout(1, 16), params(3, 3, 16), 30);
  alone_first.step(*workers, 0, 30);
  // Row 0 is first's token 29, rows 1 to 5 are second's tokens 40 to 44.
  const auto joined = [](const std::vector<float>& a, const std::vector<float>& b, int64_t cols) {
    std::vector<float> rows(a.begin() + 29 * cols, a.begin() + 30 * cols);
    rows.insert(rows.end(), b.begin() + 40 * cols, b.begin() + 45 * cols);
    return rows;
  };
  std::vector<float> q = joined(first.q, second.q, 48);
  std::vector<float> k = joined(first.k, second.k, 16);
  std::vector<float> v = joined(first.v, second.v, 16);
  std::vector<float> out(6 * 48);
  const std::vector<KvSequence> sequences = {
      {.pages = first.pages, .position = 29, .tokens = 1, .row = 0},
      {.pages = second.pages, .position = 40, .tokens = 5, .row = 1}};
  workers->run([&](Worker& me) {
    prepare_heads(me, first.layout, {},
                  {{q.data(), 6, 48, 48}, {k.data(), 6, 16, 16}, {v.data(), 6, 16, 16}}, sequences);
    me.barrier();
    attention(me, first.layout, first.params, sequences,
              {{q.data(), 6, 48, 48}, {out.data(), 6, 48, 48}});
  });
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 48, alone_first.out.begin() + 29 * 48));
  std::copy(out.begin() + 48, out.end(), second.out.begin() + 40 * 48);
  second.expect_naive();
}

TEST_P(Attention, NanReachesTheTokensThatSeeItAndNoEarlierOnes) {
  Session session(layout(1, 16), params(1, 1, 16), 24);
  session.k[10 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  auto workers = pool();
  for (int64_t token = 0; token < 24; ++token) session.step(*workers, token, token + 1);
  for (size_t token = 0; token < 24; ++token) {
    EXPECT_EQ(std::isfinite(session.out[token * 16]), token < 10) << token;
  }
}

// A prefill's tile holds queries of several tokens, with and without the position in question.
TEST_P(Attention, ValuesThatAreNotFiniteReachOnlyTheTokensThatSeeThem) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t group_size : {1, 3, 8}) {
      for (const int64_t window : {0, 4, 20}) {
        AttentionParams windowed = params(group_size, group_size, 16);
        windowed.window = window;
        Session session(layout(1, 16), windowed, 60);
        Session without = Session(layout(1, 16), windowed, 60);
        session.v[30 * 16 + 5] = value;
        session.step(*pool(), 0, 60);
        without.step(*pool(), 0, 60);
        for (int64_t token = 0; token < 60; ++token) {
          const bool sees = token >= 30 && (window == 0 || token < 30 + window);
          const auto row = static_cast<size_t>(token * session.q_cols());
          const auto cols = static_cast<size_t>(session.q_cols());
          for (size_t i = row; i < row + cols; ++i) {
            if (i % 16 == 5) EXPECT_EQ(std::isfinite(session.out[i]), !sees) << token;
            if (!sees) EXPECT_EQ(session.out[i], without.out[i]) << token;
          }
        }
      }
    }
  }
}

TEST_P(Attention, AQueryThatIsNotFiniteSpoilsItsOwnOutputAlone) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Session session(layout(1, 16), params(8, 8, 16), 60);
    Session without = Session(layout(1, 16), params(8, 8, 16), 60);
    const int64_t spoiled = 30 * session.q_cols() + 2 * 16;  // token 30, head 2
    session.q[static_cast<size_t>(spoiled + 5)] = value;
    session.step(*pool(), 0, 60);
    without.step(*pool(), 0, 60);
    for (int64_t i = 0; i < 60 * session.q_cols(); ++i) {
      const auto at = static_cast<size_t>(i);
      const bool is_spoiled = i >= spoiled && i < spoiled + 16;
      EXPECT_EQ(std::isfinite(session.out[at]), !is_spoiled) << i;
      if (!is_spoiled) EXPECT_EQ(session.out[at], without.out[at]) << i;
    }
  }
}

// 127 * 32767 * 600 and, in a page, 127 * 32767 * 768 are beyond 32 bits. Keys point along the
// queries, but every fourth away from them.
TEST_P(Attention, LongHeadsAndPagesDoNotOverflow) {
  constexpr int64_t kHeadDim = 600;
  Session session(layout(1, kHeadDim, 1024), params(2, 2, kHeadDim), 1100);
  std::fill(session.q.begin(), session.q.end(), 3.0F);
  for (size_t i = 0; i < session.k.size(); ++i) {
    session.k[i] = i / kHeadDim % 4 == 0 ? -1.0F : 1.0F;
    session.v[i] = 2.0F * session.k[i];
  }
  session.fill(*pool(), 0, 1096);
  session.step(*pool(), 1096, 1100);
  // A value is twice 127 codes of a half, which has 11 bits.
  for (size_t i = 1096 * 2 * kHeadDim; i < session.out.size(); ++i) {
    ASSERT_NEAR(session.out[i], 2.0F, 2 * 0x1p-11) << i;
  }
}

// 599 positions of weight e^-10 beside one of weight 1. In 8 bits a page's weights are rounded to
// half a code of 1/32767 of its largest: the 63 that share a page with the heavy one by 0.5/32767,
// the others by that of themselves. Sums of 600 parts near 1 carry roundings of 2^-25.
TEST_P(Attention, AHeavyPositionLeavesTheOthersTheirWeights) {
  Session session(layout(1, 16, 64), params(1, 1, 16), 600);
  const float* q = &session.q[599 * 16];
  float length = 0;
  for (size_t d = 0; d < 16; ++d) length += q[d] * q[d];
  for (size_t i = 0; i < session.k.size(); ++i) {
    session.k[i] = i < 16 ? q[i] * 40.0F / length : 1e-3F;  // a score of 40 / sqrt(16)
    session.v[i] = i < 16 ? -1.0F : 1.0F;
  }
  session.fill(*pool(), 0, 599);
  session.step(*pool(), 599, 600);
  session.tolerance += 600 * 0x1p-25;
  if (session.layout.type == DType::kI8) session.tolerance += 63 * 0.5 / 32767;
  session.expect_naive(599);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  Session session(layout(1, 16), params(2, 2, 16), 40);
  for (float& value : session.q) value *= 1000.0F;
  session.step(*pool(), 0, 40);
  for (const float value : session.out) ASSERT_TRUE(std::isfinite(value));
}

// Case C107: a half holds at most 65504.
TEST_P(Attention, ValuesBeyondHalfAreClamped) {
  Session session(layout(1, 16), params(1, 1, 16), 1);
  session.v.assign(16, 1e6F);
  session.step(*pool(), 0, 1);
  const float want = session.layout.type == DType::kF16 ? 65504.0F : 1e6F;
  // An 8-bit value of a head's largest magnitude is 127 times a half, which has 11 bits.
  const float part = session.layout.type == DType::kI8 ? 0x1p-11F : 1e-6F;
  for (const float value : session.out) EXPECT_NEAR(value, want, want * part);
}

// The scale of 8-bit values is a half: below its normal numbers and above its largest it is rounded
// down by so much that a code would not fit.
TEST_P(Attention, SmallAndHugeHeadsKeepTheirSigns) {
  for (const float size : {1e-4F, 1e-7F, 6e4F, 1e7F}) {
    Session session(layout(1, 16), params(1, 1, 16), 1);
    for (size_t i = 0; i < 16; ++i) session.v[i] = i % 2 == 0 ? -size : size / 2;
    session.step(*pool(), 0, 1);
    const float largest = session.layout.type == DType::kF16  ? 65504.0F
                          : session.layout.type == DType::kI8 ? 127 * 65504.0F
                                                              : size;
    // A scale is off by up to half of 2^-24, and there are 127 of them in the largest value.
    const float error = session.layout.type == DType::kF32 ? size * 1e-6F
                        : session.layout.type == DType::kF16
                            ? size * 0x1p-11F + 0x1p-25F
                            : size * (0x1p-11F + 0.5F / 127) + 127 * 0x1p-25F;
    for (size_t i = 0; i < 16; ++i) {
      const float want = std::clamp(session.v[i], -largest, largest);
      EXPECT_NEAR(session.out[i], want, error) << size;
      if (std::fabs(want) > error) EXPECT_EQ(session.out[i] < 0, i % 2 == 0) << size;
    }
  }
}

}  // namespace
}  // namespace shoal::tensor
