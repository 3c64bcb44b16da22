// Job: a request on its way through a Batcher.
//
// Thread rule: the batcher's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "runtime/draft/ngram_drafter.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/sampling/token_mask.h"
#include "runtime/serve/embedding.h"
#include "runtime/serve/generation.h"
#include "runtime/serve/pooler.h"
#include "runtime/serve/prefix_index.h"
#include "runtime/token.h"

namespace shoal::runtime {

// Of a job that makes an embedding.
struct EmbeddingJob {
  std::shared_ptr<EmbeddingSink> sink;
  Pooler pooler;
  std::vector<float> values;  // at its end
};

struct Job {
  RequestId id = 0;
  GenerationRequest request;  // its prompt has moved into `tokens`; empty for an embedding
  std::optional<EmbeddingJob> embedding;
  Nanoseconds submitted{0};

  std::vector<TokenId> tokens;  // the prompt, then the answer
  size_t prompt_tokens = 0;
  std::optional<Sampler> sampler;               // of an answer that has started
  std::unique_ptr<TokenConstraint> constraint;  // as long as the sampler, where there is a grammar
  std::optional<NgramDrafter> drafter;
  Nanoseconds started{0};    // first step
  Nanoseconds answering{0};  // first token
  size_t reused_tokens = 0;  // at its first start

  // While it is in a session:
  SessionId session = 0;
  size_t held = 0;     // tokens in the session
  size_t planned = 0;  // tokens of the step under way, drafted ones not counted
  // Of the step under way: the last of `tokens` and the drafted ones behind it; empty: none are.
  std::vector<TokenId> drafted;
  // In the prefix index:
  std::vector<PrefixIndex::Ref> pinned;
  std::optional<PrefixIndex::Ref> shared_part;  // a block used in part, until it is copied
  std::optional<PrefixIndex::Ref> last_whole;   // entry of the last whole block of `tokens`
  size_t whole_blocks = 0;                      // that have one
  bool is_indexed = false;                      // false: its path in the index is lost

  bool is_over = false;
  GenerationResult result;

  // Tokens to compute until the next one can be chosen; at least 1.
  size_t todo() const { return tokens.size() - held; }
  size_t answered() const { return tokens.size() - prompt_tokens; }
  bool has_started() const { return started.count() != 0; }
};

}  // namespace shoal::runtime
