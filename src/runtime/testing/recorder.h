// Recorder: a TokenSink that remembers what it got.
//
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/serve/generation.h"
#include "runtime/token.h"

namespace shoal::runtime::testing {

class Recorder final : public TokenSink {
 public:
  // Called with each token, on the scheduler's thread; false ends the answer.
  using OnToken = std::function<bool(const GeneratedToken&)>;
  explicit Recorder(OnToken on_token = nullptr) : on_token_(std::move(on_token)) {}

  bool on_token(const GeneratedToken& token) override;
  void on_finished(const GenerationResult& result) override;

  // CHECKs that it comes within a minute.
  GenerationResult wait();
  bool is_finished() const;
  std::vector<TokenId> tokens() const;
  std::vector<float> logprobs() const;
  std::vector<std::vector<TokenLogprob>> tops() const;

 private:
  const OnToken on_token_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  std::vector<TokenId> tokens_;
  std::vector<float> logprobs_;
  std::vector<std::vector<TokenLogprob>> tops_;
  std::optional<GenerationResult> result_;
};

}  // namespace shoal::runtime::testing
