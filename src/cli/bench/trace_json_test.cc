#include "cli/bench/trace_json.h"

#include <gtest/gtest.h>

namespace shoal::cli {
namespace {

using runtime::RankTrace;
using tensor::Phase;
using tensor::Stage;

TEST(TraceJson, RanksAreProcessesWorkersAreThreadsAndTheFirstSpanBeginsAtZero) {
  RankTrace first;
  first.workers = 2;
  first.spans = {{.worker = 1,
                  .phase = Phase::kMatmul,
                  .stage = Stage::kDecode,
                  .layer = 3,
                  .begin = Nanoseconds(5000),
                  .end = Nanoseconds(7500)}};
  RankTrace second;
  second.workers = 1;
  second.dropped = 4;
  second.clock_offset = Nanoseconds(12);
  second.spans = {{.worker = 0,
                   .phase = Phase::kCollective,
                   .begin = Nanoseconds(4000),
                   .end = Nanoseconds(4500)}};
  const std::vector<RankTrace> ranks = {first, second};
  const std::vector<std::string> names = {"a", "b"};
  const Json json = trace_json(ranks, names);
  const Json& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 7U) << "two processes, three threads, two spans";
  EXPECT_EQ(events[0]["args"]["name"], "rank 0 (a)");
  EXPECT_EQ(events[3]["name"], "matmul");
  EXPECT_EQ(events[3]["ph"], "X");
  EXPECT_EQ(events[3]["cat"], "decode");
  EXPECT_EQ(events[3]["pid"], 0);
  EXPECT_EQ(events[3]["tid"], 1);
  EXPECT_DOUBLE_EQ(events[3]["ts"], 1.0);
  EXPECT_DOUBLE_EQ(events[3]["dur"], 2.5);
  EXPECT_EQ(events[3]["args"]["layer"], 3);
  EXPECT_EQ(events[6]["pid"], 1);
  EXPECT_DOUBLE_EQ(events[6]["ts"], 0.0);
  EXPECT_FALSE(events[6].contains("args")) << "no layer";
  EXPECT_EQ(json["otherData"]["clock_offset_ns_by_rank"][1], 12);

  const TraceSummary summary = summarize(ranks);
  EXPECT_EQ(summary.spans, 2U);
  EXPECT_EQ(summary.dropped, 4U);
  EXPECT_DOUBLE_EQ(summary.seconds, 3.5e-6);
}

TEST(TraceJson, NoSpansAreNoEvents) {
  const std::vector<RankTrace> ranks(1);
  const std::vector<std::string> names = {"a"};
  EXPECT_EQ(trace_json(ranks, names)["traceEvents"].size(), 1U);
  EXPECT_EQ(summarize(ranks).seconds, 0);
}

}  // namespace
}  // namespace shoal::cli
