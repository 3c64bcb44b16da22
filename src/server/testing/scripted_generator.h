// ScriptedGenerator: a Generator whose tokens and embeddings a test chooses.
//
// Thread rule: the test's thread gives tokens; submit, cancel and stats come from any thread.
#pragma once

#include <mutex>
#include <vector>

#include "server/generate/generator.h"

namespace shoal::server {

class ScriptedGenerator final : public Generator {
 public:
  static constexpr size_t kContext = 1000;
  static constexpr size_t kHiddenSize = 3;

  // A generator for a vocabulary of so many tokens.
  explicit ScriptedGenerator(size_t token_count) : token_count_(token_count) {}

  Result<runtime::RequestId> submit(runtime::GenerationRequest request) override;
  Result<runtime::RequestId> embed(runtime::EmbeddingRequest request) override;
  void cancel(runtime::RequestId id) override;
  size_t context() const override { return kContext; }
  size_t token_count() const override { return token_count_; }
  runtime::SchedulerStats stats() const override;

  // After this many more requests submit() refuses with this status.
  void refuse_after(size_t requests, Status status);
  // Answers that are given at once, inside submit(): the n-th request takes the n-th one, the last
  // one serves all after it.
  void answer_at_once(std::vector<std::vector<runtime::TokenId>> answers);

  // Requests so far, waiting for at least `count` of them (ten seconds).
  std::vector<runtime::GenerationRequest> requests(size_t count);
  // One token of request number `index`; false: it wants no more.
  bool give(size_t index, runtime::TokenId id);
  // The end of it.
  void finish(size_t index, runtime::StopReason reason);
  void fail(size_t index, Status status);
  bool was_cancelled(size_t index) const;

  // What a text becomes, inside embed(), unless embeddings are held: {tokens, 0, -1}.
  static std::vector<float> embedding_of(const std::vector<runtime::TokenId>& text);
  // From now on they wait for end_embedding().
  void hold_embeddings();
  std::vector<runtime::EmbeddingRequest> embeddings() const;  // asked for so far
  void end_embedding(size_t index, Status status = {});

 private:
  // Ids of embeddings are above it.
  static constexpr runtime::RequestId kEmbeddingIds = runtime::RequestId{1} << 32U;
  struct Running {
    runtime::GenerationRequest request;
    size_t tokens = 0;
    bool is_cancelled = false;
  };
  void run(size_t index, const std::vector<runtime::TokenId>& tokens);
  void end(size_t index, runtime::GenerationResult result);
  void tell(size_t index, runtime::EmbeddingResult result);

  const size_t token_count_;
  mutable std::mutex mutex_;
  std::vector<Running> running_;
  std::vector<runtime::EmbeddingRequest> embeddings_;
  bool holds_embeddings_ = false;
  std::vector<std::vector<runtime::TokenId>> answers_;
  size_t refused_from_ = SIZE_MAX;
  Status refusal_;
};

}  // namespace shoal::server
