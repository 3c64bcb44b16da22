#include "server/own/metrics.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, AreWrittenWithTheirLabels) {
  Metrics metrics("tiny");
  metrics.on_first_token(0.03);
  metrics.on_end({.reason = FinishReason::kLength, .tokens = 5});
  metrics.on_http("/v1/models", 200);
  runtime::SchedulerStats stats;
  stats.running = 3;
  stats.kv_positions = 200;
  stats.kv_positions_used = 50;
  stats.generated_tokens = 5;
  stats.drafts = 2;
  stats.drafted_tokens = 9;
  stats.accepted_tokens = 4;
  const std::string text = metrics.render(&stats);
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running{model_name=\"tiny\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:kv_cache_usage_perc{model_name=\"tiny\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:generation_tokens_total counter\n"));
  EXPECT_THAT(text, HasSubstr("vllm:generation_tokens_total{model_name=\"tiny\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("vllm:spec_decode_num_drafts_total{model_name=\"tiny\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("vllm:spec_decode_num_draft_tokens_total{model_name=\"tiny\"} 9\n"));
  EXPECT_THAT(text,
              HasSubstr("vllm:spec_decode_num_accepted_tokens_total{model_name=\"tiny\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{finished_reason=\"length\","
                              "model_name=\"tiny\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{model_name=\"tiny\","
                              "le=\"0.02\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{model_name=\"tiny\","
                              "le=\"0.04\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("shoal:http_responses_total{route=\"/v1/models\",status=\"200\"} 1"));
}

TEST(Metrics, OfASchedulerAreLeftOutBeforeThereIsOne) {
  EXPECT_THAT(Metrics("tiny").render(nullptr), Not(HasSubstr("vllm:num_requests_running")));
}

}  // namespace
}  // namespace shoal::server
