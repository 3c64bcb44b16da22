#include "runtime/testing/recorder.h"

#include <chrono>

#include "base/check.h"

namespace shoal::runtime::testing {

bool Recorder::on_token(const GeneratedToken& token) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(!result_.has_value() && token.index == tokens_.size());
    tokens_.push_back(token.id);
    logprobs_.push_back(token.logprob);
    tops_.emplace_back(token.top.begin(), token.top.end());
  }
  return !on_token_ || on_token_(token);
}

void Recorder::on_finished(const GenerationResult& result) {
  const std::lock_guard lock(mutex_);
  CHECK(!result_.has_value());
  result_ = result;
  finished_.notify_all();
}

GenerationResult Recorder::wait() {
  std::unique_lock lock(mutex_);
  finished_.wait_for(lock, std::chrono::minutes(1), [&] { return result_.has_value(); });
  CHECK(result_.has_value());
  return *result_;
}

bool Recorder::is_finished() const {
  const std::lock_guard lock(mutex_);
  return result_.has_value();
}

std::vector<TokenId> Recorder::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

std::vector<float> Recorder::logprobs() const {
  const std::lock_guard lock(mutex_);
  return logprobs_;
}

std::vector<std::vector<TokenLogprob>> Recorder::tops() const {
  const std::lock_guard lock(mutex_);
  return tops_;
}

}  // namespace shoal::runtime::testing
