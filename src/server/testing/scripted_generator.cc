#include "server/testing/scripted_generator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace shoal::server {

Result<runtime::RequestId> ScriptedGenerator::submit(runtime::GenerationRequest request) {
  RETURN_IF_ERROR(runtime::validate(request.sampling, token_count_));
  size_t index = 0;
  std::vector<runtime::TokenId> answer;
  bool answers_now = false;
  {
    const std::lock_guard lock(mutex_);
    index = running_.size();
    if (index + embeddings_.size() >= refused_from_) return refusal_;
    running_.push_back({.request = std::move(request)});
    answers_now = !answers_.empty();
    if (answers_now) answer = answers_[std::min(index, answers_.size() - 1)];
  }
  if (answers_now) run(index, answer);
  return index + 1;
}

Result<runtime::RequestId> ScriptedGenerator::embed(runtime::EmbeddingRequest request) {
  size_t index = 0;
  bool ends_now = false;
  {
    const std::lock_guard lock(mutex_);
    index = embeddings_.size();
    if (index + running_.size() >= refused_from_) return refusal_;
    embeddings_.push_back(std::move(request));
    ends_now = !holds_embeddings_;
  }
  if (ends_now) end_embedding(index);
  return kEmbeddingIds + index + 1;
}

std::vector<float> ScriptedGenerator::embedding_of(const std::vector<runtime::TokenId>& text) {
  return {static_cast<float>(text.size()), 0, -1};
}

void ScriptedGenerator::hold_embeddings() {
  const std::lock_guard lock(mutex_);
  holds_embeddings_ = true;
}

std::vector<runtime::EmbeddingRequest> ScriptedGenerator::embeddings() const {
  const std::lock_guard lock(mutex_);
  return embeddings_;
}

void ScriptedGenerator::end_embedding(size_t index, Status status) {
  runtime::EmbeddingResult result;
  if (status.is_ok()) result.values = embedding_of(embeddings().at(index).prompt);
  result.status = std::move(status);
  tell(index, std::move(result));
}

void ScriptedGenerator::tell(size_t index, runtime::EmbeddingResult result) {
  std::shared_ptr<runtime::EmbeddingSink> sink;
  {
    const std::lock_guard lock(mutex_);
    sink = std::move(embeddings_.at(index).sink);
    result.prompt_tokens = embeddings_[index].prompt.size();
  }
  if (sink != nullptr) sink->on_embedding(std::move(result));
}

void ScriptedGenerator::cancel(runtime::RequestId id) {
  if (id > kEmbeddingIds) {
    runtime::EmbeddingResult result;
    result.is_cancelled = true;
    return tell(id - kEmbeddingIds - 1, std::move(result));
  }
  const std::lock_guard lock(mutex_);
  running_.at(id - 1).is_cancelled = true;
}

runtime::SchedulerStats ScriptedGenerator::stats() const {
  runtime::SchedulerStats stats;
  const std::lock_guard lock(mutex_);
  stats.running = running_.size();
  stats.kv_positions = kContext;
  stats.kv_positions_used = kContext / 4;
  stats.retry_after_seconds = 2.5;
  return stats;
}

void ScriptedGenerator::refuse_after(size_t requests, Status status) {
  const std::lock_guard lock(mutex_);
  refused_from_ = running_.size() + embeddings_.size() + requests;
  refusal_ = std::move(status);
}

void ScriptedGenerator::answer_at_once(std::vector<std::vector<runtime::TokenId>> answers) {
  const std::lock_guard lock(mutex_);
  answers_ = std::move(answers);
}

std::vector<runtime::GenerationRequest> ScriptedGenerator::requests(size_t count) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (running_.size() >= count) {
        std::vector<runtime::GenerationRequest> requests;
        requests.reserve(running_.size());
        for (const Running& running : running_) requests.push_back(running.request);
        return requests;
      }
    }
    CHECK_MSG(!deadline.expired(), "the requests did not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool ScriptedGenerator::give(size_t index, runtime::TokenId id) {
  std::shared_ptr<runtime::TokenSink> sink;
  runtime::GeneratedToken token{.id = id, .index = 0, .logprob = 0, .top = {}};
  // The token given is the likeliest, the one after it half as likely.
  std::vector<runtime::TokenLogprob> top = {{.id = id, .logprob = -0.25F},
                                            {.id = id + 1, .logprob = -0.95F}};
  {
    const std::lock_guard lock(mutex_);
    Running& running = running_.at(index);
    sink = running.request.sink;
    token.index = running.tokens++;
    token.logprob = running.request.want_logprobs ? -0.25F : 0;
    top.resize(std::min<size_t>(top.size(), running.request.logprobs_top));
  }
  token.top = top;
  return sink->on_token(token);
}

void ScriptedGenerator::end(size_t index, runtime::GenerationResult result) {
  std::shared_ptr<runtime::TokenSink> sink;
  {
    const std::lock_guard lock(mutex_);
    Running& running = running_.at(index);
    sink = std::move(running.request.sink);
    result.prompt_tokens = running.request.prompt.size();
    result.generated_tokens = running.tokens;
  }
  sink->on_finished(result);
}

void ScriptedGenerator::finish(size_t index, runtime::StopReason reason) {
  end(index, {.status = {}, .reason = reason});
}

void ScriptedGenerator::fail(size_t index, Status status) {
  end(index, {.status = std::move(status)});
}

bool ScriptedGenerator::was_cancelled(size_t index) const {
  const std::lock_guard lock(mutex_);
  return running_.at(index).is_cancelled;
}

void ScriptedGenerator::run(size_t index, const std::vector<runtime::TokenId>& tokens) {
  const uint32_t tokens_max = requests(index + 1)[index].tokens_max;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens_max != 0 && i == tokens_max) {
      finish(index, runtime::StopReason::kTokensMax);
      return;
    }
    if (!give(index, tokens[i])) {
      finish(index, runtime::StopReason::kStopped);
      return;
    }
  }
  finish(index, runtime::StopReason::kEndOfGeneration);
}

}  // namespace shoal::server
