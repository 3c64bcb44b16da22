// Engine: a model laid over a group of ranks, answering requests; the API of rank 0.
//
// Rank 0 creates an Engine, every other rank runs run_follower() (follower.h); both with the same
// model, plan and options. The engine opens sessions (a conversation's tokens and their KV cache),
// and runs steps; between calls no rank uses the CPU.
// Errors: kRequest leaves everything usable; kGroup (a peer died, see the message) and kNode break
// the engine, every later call returns the same status.
// Thread rule: one thread at a time, except that a cancel flag may be set from anywhere. Borrows
// model and group, which must outlive it. The destructor ends the followers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/group.h"
#include "model/model.h"
#include "plan/plan.h"
#include "runtime/engine_options.h"
#include "runtime/measure/measurements.h"
#include "runtime/rank/command.h"
#include "runtime/sampler.h"
#include "runtime/token.h"

namespace shoal::runtime {

using SessionId = uint32_t;

enum class StopReason {
  kEndOfGeneration,  // a token of GenerateRequest::end_tokens
  kStopped,          // on_token returned false
  kTokensMax,
  kContextFull,
  kCancelled,
};

std::string_view stop_reason_name(StopReason reason);

struct GenerateRequest {
  SessionId session = 0;
  // The whole conversation so far. What the session already holds of its beginning is not computed
  // again, anything else in the session is forgotten.
  std::span<const TokenId> prompt;
  SamplingParams sampling;
  uint32_t tokens_max = 0;  // 0: until the context is full
  std::span<const TokenId> end_tokens;
  const std::atomic<bool>* cancel = nullptr;  // looked at before every step and prefill chunk
  // Each token as it is chosen, the end token excluded. False ends the answer (a stop string).
  std::function<bool(TokenId)> on_token;
  // Tokens of the prompt done, of those to compute.
  std::function<void(size_t done, size_t total)> on_prefill;
};

struct GenerateResult {
  std::vector<TokenId> tokens;  // the end token excluded
  StopReason reason = StopReason::kTokensMax;
  uint64_t seed = 0;  // repeats this answer
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;  // of the prompt, from the session's cache
  double prefill_seconds = 0;
  double decode_seconds = 0;
  size_t decode_steps = 0;  // steps in decode_seconds: one less than the tokens sampled
};

// Scoring: the logits that follow every token of a text, from an empty cache.
struct ScoreRequest {
  std::span<const TokenId> tokens;
  size_t first = 0;        // logits of earlier positions are not wanted
  bool by_decode = false;  // token by token instead of by prefill
  // logits [vocabulary] after tokens[position]; false ends the scoring.
  std::function<bool(size_t position, std::span<const float> logits)> on_logits;
};

struct NodeStats {
  std::string name;
  uint64_t weight_bytes = 0;  // packed, in memory
  uint64_t kv_bytes = 0;      // of the whole cache
};

struct EngineStats {
  uint64_t prefill_tokens = 0;
  double prefill_seconds = 0;
  uint64_t decode_tokens = 0;
  double decode_seconds = 0;
  collective::Counters collectives;  // as rank 0 saw them
  std::vector<NodeStats> nodes;      // by rank
  double load_seconds = 0;
};

// One session's tokens in a step. kAll is for drafted tokens: each one's logits say whether the
// next one was right; truncate() takes back those that were not.
struct AdvanceItem {
  SessionId session = 0;
  std::span<const TokenId> tokens;
  Outputs outputs = Outputs::kLast;  // the logits after which of its tokens
  float inverse_temperature = 0;     // that the summary's log-sum-exp is taken at; 0: not wanted
};

// What a session begins with instead of computing it: tokens whose keys and values lie in blocks of
// other sessions, or of the cache. All blocks but the last are used whole.
struct CachedPrefix {
  std::span<const TokenId> tokens;
  std::span<const BlockId> blocks;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const model::Model& model, const plan::Plan& plan,
                                                collective::Group& group,
                                                const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // kBusy when EngineOptions::sessions_max are open.
  Result<SessionId> open_session(const CachedPrefix& prefix = {});
  // `kept`, some of the session's blocks in its order, stay in the cache until drop_blocks(). That
  // their tokens are what a later prefix says is the caller's matter (serve/prefix_index.h).
  Status close_session(SessionId session, std::span<const BlockId> kept = {});
  Status drop_blocks(std::span<const BlockId> kept);
  Result<std::span<const BlockId>> session_blocks(SessionId session) const;
  // Forgets all but the first `tokens` tokens.
  Status truncate(SessionId session, size_t tokens);
  // What the session's cache holds.
  Result<std::span<const TokenId>> session_tokens(SessionId session) const;

  Result<GenerateResult> generate(const GenerateRequest& request);
  Status score(const ScoreRequest& request);

  // One forward pass over several sessions at once, for a scheduler: appends each item's tokens.
  // The outputs that items want, at most step_outputs_max(), in the order of items and tokens, are
  // then sampled or read until the next call. All tokens together at most step_tokens_max().
  // kRequest, with nothing changed, when the cache has no room.
  Status advance(std::span<const AdvanceItem> items);
  // Of an output of the last advance(). What a sampler chooses depends on the logits and itself,
  // not on the other items. kRequest: non-finite logits, or none that the mask allows.
  Result<TokenId> sample(size_t output, Sampler& sampler, const TokenMask& mask = {});
  const LogitSummary& summary(size_t output) const;
  // [token_count()], valid until the next call; costs a message from every rank.
  Result<std::span<const float>> fetch_logits(size_t output);

  // After the final norm, of all tokens of the last advance()'s item number `item`, whatever
  // outputs it wanted: [its tokens, hidden_size()], valid until the next call. No message to other
  // ranks.
  std::span<const float> hidden_states(size_t item);

  // Ok, or what has broken the engine; between steps too: that a peer has died or left.
  Status health() const;

  size_t context() const;  // positions of the KV cache, over all sessions
  size_t block_tokens() const;
  size_t blocks_total() const;
  size_t blocks_free() const;
  // That advance() would take for `tokens` more of an open session.
  size_t blocks_needed(SessionId session, size_t tokens) const;
  uint32_t sessions_max() const;
  uint32_t step_tokens_max() const;   // EngineOptions::prefill_chunk
  uint32_t step_outputs_max() const;  // at least sessions_max()
  // Rows of the output head, and so the length of logits; those at and above token_count() are
  // padding.
  size_t output_rows() const;
  // Ids that a prompt may hold and an answer be chosen from: EngineOptions::tokens, or all rows.
  size_t token_count() const;
  size_t hidden_size() const;  // of the model: floats of one hidden state
  // Of everything since create() or reset_stats().
  EngineStats stats() const;
  void reset_stats();

  // Where the time of every rank's workers has gone since the last call, by rank.
  Result<std::vector<RankTimes>> take_times();
  // Every rank keeps what its workers do, until take_trace() gives it, by rank, on one clock.
  Status start_trace();
  Result<std::vector<RankTrace>> take_trace();

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::runtime
