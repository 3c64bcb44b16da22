// Metrics: counters and histograms of the server, as Prometheus reads them.
//
// What vLLM has too bears its name ("vllm:..."), so that dashboards made for it work; the rest
// begins with "shoal:". Nothing here depends on what clients write.
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/serve/scheduler.h"
#include "server/generate/generation.h"
#include "text/answer_format/answer_format.h"

namespace shoal::server {

class Metrics final : public GenerationObserver {
 public:
  explicit Metrics(const std::string& model);
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void on_first_token(double seconds) override;
  void on_next_token(double seconds_since_the_last) override;
  void on_end(const ChoiceEnd& end) override;
  void on_embedding_end(const ChoiceEnd& end) override;
  void on_http(std::string_view route, int status);
  // The names of the formats of its calls and thoughts.
  void on_model(const text::AnswerFormat& format);

  // The text format. stats: null while there is no scheduler.
  std::string render(const runtime::SchedulerStats* stats) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::server
