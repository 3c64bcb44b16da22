#include "server/own/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <utility>
#include <vector>

namespace shoal::server {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets& latency_buckets() {
  static const Buckets buckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                  0.75,  1.0,   2.5,  5.0,  7.5,  10,   20,   40,  80,   160};
  return buckets;
}

const Buckets& token_buckets() {
  static const Buckets buckets = {1,   2,    5,    10,   20,    50,    100,   200,
                                  500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
  return buckets;
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kFailed:
      return "error";
  }
  return "error";
}

}  // namespace

class Metrics::Impl {
 public:
  explicit Impl(const std::string& model) : labels{{"model_name", model}} {}

  prometheus::Histogram& histogram(const std::string& name, const std::string& help,
                                   const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  // What answers and embeddings have alike.
  void count(const ChoiceEnd& end) {
    prometheus::Labels reason = labels;
    reason.emplace("finished_reason", finish_name(end.reason));
    ended.Add(reason).Increment();
    whole.Observe(end.seconds);
    prompt_tokens.Observe(static_cast<double>(end.prompt_tokens));
  }

  prometheus::Labels labels;
  prometheus::Registry registry;
  prometheus::Histogram& first_token =
      histogram("vllm:time_to_first_token_seconds", "From the request to its first token.",
                latency_buckets());
  prometheus::Histogram& next_token = histogram(
      "vllm:inter_token_latency_seconds", "Between two tokens of an answer.", latency_buckets());
  prometheus::Histogram& whole =
      histogram("vllm:e2e_request_latency_seconds", "From the request to the end of its answer.",
                latency_buckets());
  prometheus::Histogram& prompt_tokens = histogram(
      "vllm:request_prompt_tokens", "Tokens of the prompt of a request.", token_buckets());
  prometheus::Histogram& answer_tokens =
      histogram("vllm:request_generation_tokens", "Tokens of an answer.", token_buckets());
  prometheus::Family<prometheus::Counter>& ended =
      prometheus::BuildCounter()
          .Name("vllm:request_success_total")
          .Help("Answers and embeddings that ended, by reason.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& http =
      prometheus::BuildCounter()
          .Name("shoal:http_responses_total")
          .Help("Answers to HTTP requests, by route and status; 499: the client went before.")
          .Register(registry);
};

Metrics::Metrics(const std::string& model) : impl_(std::make_unique<Impl>(model)) {}
Metrics::~Metrics() = default;

void Metrics::on_first_token(double seconds) { impl_->first_token.Observe(seconds); }
void Metrics::on_next_token(double seconds_since_the_last) {
  impl_->next_token.Observe(seconds_since_the_last);
}

void Metrics::on_end(const ChoiceEnd& end) {
  impl_->count(end);
  impl_->answer_tokens.Observe(static_cast<double>(end.tokens));
}

void Metrics::on_embedding_end(const ChoiceEnd& end) { impl_->count(end); }

void Metrics::on_http(std::string_view route, int status) {
  impl_->http.Add({{"route", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::on_model(const text::AnswerFormat& format) {
  prometheus::Labels labels = impl_->labels;
  labels.emplace("calls", text::name(format.calls));
  labels.emplace("thoughts", text::name(format.thoughts));
  prometheus::BuildGauge()
      .Name("shoal:answer_format_info")
      .Help("How the model writes calls of tools and thoughts; always 1.")
      .Register(impl_->registry)
      .Add(labels, 1);
}

namespace {

// Values that the scheduler counts itself, as families of one metric.
class Families {
 public:
  Families(std::vector<prometheus::MetricFamily>* families, const prometheus::Labels& labels)
      : families_(families) {
    for (const auto& [name, value] : labels) labels_.push_back({name, value});
  }
  void gauge(const std::string& name, const std::string& help, double value) {
    prometheus::ClientMetric metric;
    metric.gauge.value = value;
    add({name, help, prometheus::MetricType::Gauge, {}}, std::move(metric));
  }
  void counter(const std::string& name, const std::string& help, uint64_t value) {
    counter(name, help, static_cast<double>(value));
  }
  void counter(const std::string& name, const std::string& help, double value) {
    prometheus::ClientMetric metric;
    metric.counter.value = value;
    add({name, help, prometheus::MetricType::Counter, {}}, std::move(metric));
  }

 private:
  void add(prometheus::MetricFamily family, prometheus::ClientMetric metric) {
    metric.label = labels_;
    family.metric.push_back(std::move(metric));
    families_->push_back(std::move(family));
  }
  std::vector<prometheus::MetricFamily>* families_;
  std::vector<prometheus::ClientMetric::Label> labels_;
};

double share(size_t part, size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void add_scheduler(const runtime::SchedulerStats& stats, Families* out) {
  out->gauge("vllm:num_requests_running", "Requests under way.",
             static_cast<double>(stats.running));
  out->gauge("vllm:num_requests_waiting", "Requests that wait to start.",
             static_cast<double>(stats.queued));
  out->gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use by requests; 1 is all.",
             share(stats.kv_positions_used, stats.kv_positions));
  out->gauge("shoal:prefix_cache_usage_perc", "Share of the KV cache kept for prompts to come.",
             share(stats.kv_positions_cached, stats.kv_positions));
  out->counter("vllm:num_preemptions_total", "Times that a request stepped back for lack of room.",
               stats.preemptions);
  out->counter("vllm:prompt_tokens_total", "Tokens of prompts.", stats.prompt_tokens);
  out->counter("vllm:generation_tokens_total", "Tokens of answers.", stats.generated_tokens);
  out->counter("vllm:prefix_cache_queries_total", "Tokens looked for in the prefix cache.",
               stats.prompt_tokens - stats.embedding_tokens);
  out->counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.",
               stats.reused_tokens);
  out->counter("vllm:spec_decode_num_drafts_total", "Times that tokens of an answer were drafted.",
               stats.drafts);
  out->counter("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens.", stats.drafted_tokens);
  out->counter("vllm:spec_decode_num_accepted_tokens_total",
               "Drafted tokens that became tokens of answers.", stats.accepted_tokens);
  out->counter("shoal:embeddings_total", "Embeddings made.", stats.embeddings);
  out->counter("shoal:requests_refused_total", "Requests that the scheduler did not take.",
               stats.requests_refused);
  out->counter("shoal:steps_total", "Forward passes.", stats.steps);
  out->counter("shoal:grammar_tokens_total", "Tokens chosen among those that a grammar allowed.",
               stats.masks);
  out->counter("shoal:grammar_seconds_total", "Time that grammars took for those tokens.",
               stats.mask_seconds);
}

}  // namespace

std::string Metrics::render(const runtime::SchedulerStats* stats) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  if (stats != nullptr) {
    Families scheduler(&families, impl_->labels);
    add_scheduler(*stats, &scheduler);
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace shoal::server
