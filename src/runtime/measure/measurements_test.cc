#include "runtime/measure/measurements.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "runtime/testing/local_cluster.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using tensor::Phase;
using tensor::Stage;

TEST(Measurements, TimesSurviveTheirBytesAndRubbishIsRefused) {
  RankTimes times;
  times.workers = 3;
  times.seconds[1][4] = 0.25;
  std::vector<std::byte> bytes = encode_times(times);
  ASSERT_EQ(bytes.size(), kTimesBytes);
  const auto decoded = decode_times(bytes);
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->workers, 3U);
  EXPECT_EQ(decoded->seconds, times.seconds);

  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), -1.0, -1e-300,
                             std::numeric_limits<double>::infinity(), 3.001 * kSecondsMax}) {
    times.seconds[0][0] = wrong;
    EXPECT_FALSE(decode_times(encode_times(times)).is_ok()) << wrong;
  }
  times.seconds[0][0] = 3 * kSecondsMax;
  EXPECT_TRUE(decode_times(encode_times(times)).is_ok());
  bytes[0] = std::byte{1};
  EXPECT_FALSE(decode_times(bytes).is_ok());
  EXPECT_FALSE(decode_times(std::span(bytes).first(20)).is_ok());
}

TEST(Measurements, TracesSurviveTheirBytesAndRubbishIsRefused) {
  const std::vector<TraceSpan> spans = {
      {0, Phase::kMatmul, Stage::kDecode, 5, Nanoseconds(10), Nanoseconds(20)},
      {1, Phase::kBarrier, Stage::kPrefill, 6, Nanoseconds(20), Nanoseconds(20)}};
  const TraceHead head{.workers = 2, .spans = 2, .dropped = 7, .machine = 9};
  const std::vector<std::byte> head_bytes = encode_trace_head(head);
  ASSERT_EQ(head_bytes.size(), kTraceHeadBytes);
  const auto head_again = decode_trace_head(head_bytes);
  ASSERT_TRUE(head_again.is_ok());
  EXPECT_EQ(head_again->dropped, 7U);
  const auto again = decode_spans(encode_spans(spans), *head_again);
  ASSERT_TRUE(again.is_ok());
  ASSERT_EQ(again->size(), 2U);
  EXPECT_EQ((*again)[0].phase, Phase::kMatmul);
  EXPECT_EQ((*again)[0].layer, 5);
  EXPECT_EQ((*again)[1].end, Nanoseconds(20));

  const auto refuses = [&](TraceSpan span) {
    return !decode_spans(encode_spans({&span, 1}), {.workers = 2, .spans = 1}).is_ok();
  };
  EXPECT_TRUE(refuses({.worker = 2}));
  EXPECT_TRUE(refuses({.phase = static_cast<Phase>(99)}));
  EXPECT_TRUE(refuses({.begin = Nanoseconds(5), .end = Nanoseconds(4)}));
  EXPECT_TRUE(refuses({.begin = Nanoseconds(0), .end = Nanoseconds::max()}));
  EXPECT_FALSE(refuses({.worker = 1}));
  EXPECT_FALSE(decode_spans(encode_spans(spans), {.workers = 2, .spans = 3}).is_ok());
  EXPECT_FALSE(
      decode_trace_head(encode_trace_head({.workers = 1, .spans = kTraceSpansMax + 1})).is_ok());
}

TEST(Measurements, TheQuickestExchangeTellsTheOffset) {
  const std::vector<ClockExchange> exchanges = {
      {Nanoseconds(0), Nanoseconds(900), Nanoseconds(1000)},
      {Nanoseconds(2000), Nanoseconds(2550), Nanoseconds(2100)},
      {Nanoseconds(3000), Nanoseconds(4000), Nanoseconds(3400)}};
  EXPECT_EQ(clock_offset(exchanges), Nanoseconds(500));
}

class MeasuredGroup : public ::testing::TestWithParam<uint32_t> {};

TEST_P(MeasuredGroup, TimesAndTracesHoldEveryRankAndWorker) {
  const model::testing::TempFolder folder;
  const auto model = testing::RandomModel().make(folder);
  testing::ClusterOptions options;
  options.ranks = GetParam();
  options.engine.threads = 2;
  testing::LocalCluster cluster(*model, options);
  ASSERT_TRUE(cluster.status().is_ok()) << cluster.status().message();
  Engine& engine = cluster.engine();
  const SessionId session = engine.open_session().value();
  ASSERT_TRUE(engine.take_times().is_ok());
  ASSERT_TRUE(engine.start_trace().is_ok());
  const auto prompt = testing::some_tokens(12, engine.output_rows());
  GenerateRequest request;
  request.session = session;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.tokens_max = 4;
  ASSERT_TRUE(engine.generate(request).is_ok());
  const auto trace = engine.take_trace();
  ASSERT_TRUE(trace.is_ok()) << trace.status().message();
  ASSERT_EQ(trace->size(), options.ranks);
  for (const RankTrace& rank : *trace) {
    EXPECT_EQ(rank.workers, 2U);
    EXPECT_EQ(rank.dropped, 0U);
    EXPECT_EQ(rank.clock_offset, Nanoseconds(0)) << "one machine, one clock";
    std::array<std::set<Phase>, 2> seen;
    for (size_t i = 0; i < rank.spans.size(); ++i) {
      const TraceSpan& span = rank.spans[i];
      seen.at(span.worker).insert(span.phase);
      if (i > 0 && rank.spans[i - 1].worker == span.worker) {
        EXPECT_LE(rank.spans[i - 1].end, span.begin);
      }
    }
    for (const auto& phases : seen) {
      EXPECT_TRUE(phases.contains(Phase::kMatmul));
      EXPECT_TRUE(phases.contains(Phase::kAttention));
      EXPECT_EQ(phases.contains(Phase::kCollective), options.ranks > 1);
    }
  }
  const auto times = engine.take_times();
  ASSERT_TRUE(times.is_ok());
  ASSERT_EQ(times->size(), options.ranks);
  for (const RankTimes& rank : *times) {
    EXPECT_EQ(rank.workers, 2U);
    for (const Stage stage : {Stage::kPrefill, Stage::kDecode}) {
      EXPECT_GT(rank.of(stage, Phase::kMatmul), 0);
      EXPECT_EQ(rank.of(stage, Phase::kCollective) > 0, options.ranks > 1);
    }
  }
  EXPECT_GT(times->front().of(Stage::kDecode, Phase::kSampling), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MeasuredGroup, ::testing::Values(1U, 3U));

}  // namespace
}  // namespace shoal::runtime
