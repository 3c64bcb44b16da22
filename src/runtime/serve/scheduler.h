// Scheduler: many requests at once on one engine, by continuous batching.
//
// It owns the thread that runs the engine. Each step takes one token of every answer under way,
// then as much of the prompts still to be computed as the token budget leaves, prompts taking
// turns; beside answers that budget is what keeps a step near SchedulerOptions::step_target.
// An embedding is a prompt of which nothing is answered: it takes its turn with the others.
// Requests wait in a bounded queue, first come first served, for a session and for room in the KV
// cache; one that needs much room is overtaken only by those that do not make it wait longer. A
// prompt's beginning that is still cached, from a prompt or an answer, is not computed
// again (prefix_index.h). Where the cache runs full, the request that came last steps back into
// the queue and goes on later where it was.
// Where an answer repeats what was said before, tokens are drafted (draft/ngram_drafter.h) and
// computed in the same step as the one before them; those that the sampler then chooses are the
// answer's next ones, the others are forgotten. A step has as many as pay (draft/draft_pace.h).
// What holds: a request's tokens and log-probabilities depend on the request, its seed and the
// engine's layout only, never on what else runs. A request's failure leaves the others running.
// A step allocates nothing once its buffers have been used, except where a request starts or ends,
// where a block enters or leaves the index of prefixes, and where a grammar does.
// Thread rule: every function may be called from any thread; drain() and the destructor not from a
// sink. Borrows the engine, which must outlive it and which nobody else uses meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/serve/embedding.h"
#include "runtime/serve/generation.h"

namespace shoal::runtime {

enum class Speculation : uint8_t {
  kOff,
  kNgram,  // drafts are what followed the last tokens where they stood before
};

struct SchedulerOptions {
  size_t queue_max = 256;    // requests that wait, at least 1
  uint32_t running_max = 0;  // requests at once; 0, and at most: EngineOptions::sessions_max
  // How long a step should take at most while answers are under way: what a client waits for its
  // next token because of somebody else's prompt. Four times that while there are only prompts.
  Nanoseconds step_target{std::chrono::milliseconds(250)};
  // Tokens of prompts in a step beside answers, and as many as the engine takes in one without,
  // instead of what step_target and the measured speed give; 0: those. Tests set it.
  uint32_t prefill_beside_decode = 0;
  bool prefix_cache = true;
  Speculation speculation = Speculation::kNgram;
  // Tokens to draft for each answer that repeats itself, instead of as many as pay; 0: those. Tests
  // set it.
  uint32_t draft_tokens = 0;
};

// Counters grow from create() on.
struct SchedulerStats {
  size_t running = 0;              // requests in a session
  size_t queued = 0;               // requests that wait
  size_t kv_positions = 0;         // of the whole cache
  size_t kv_positions_used = 0;    // in blocks of running requests
  size_t kv_positions_cached = 0;  // in blocks that are kept for prompts to come only
  uint64_t requests_submitted = 0;
  uint64_t requests_refused = 0;   // by submit()
  uint64_t requests_finished = 0;  // with an ok status, cancelled ones too
  uint64_t requests_cancelled = 0;
  uint64_t requests_failed = 0;
  uint64_t preemptions = 0;       // times that a request stepped back for lack of room
  uint64_t prompt_tokens = 0;     // of requests that started
  uint64_t embeddings = 0;        // made
  uint64_t embedding_tokens = 0;  // of prompt_tokens, for embeddings: no prefix is looked for
  uint64_t reused_tokens = 0;     // of those, found in the prefix cache
  uint64_t prefill_tokens = 0;    // computed, for prompts and after preemptions
  uint64_t generated_tokens = 0;
  uint64_t drafts = 0;           // of one answer in one step
  uint64_t drafted_tokens = 0;   // computed for them
  uint64_t accepted_tokens = 0;  // of those, chosen for the answer
  uint64_t steps = 0;
  uint64_t masks = 0;       // tokens chosen among those that a grammar allowed
  double mask_seconds = 0;  // that the grammars took for them
  // How long a client should wait before it tries a full queue again; at least 1.
  double retry_after_seconds = 1;
};

class Scheduler {
 public:
  // kRequest for options out of range, kNode when there is no thread.
  static Result<std::unique_ptr<Scheduler>> create(Engine& engine, const SchedulerOptions& options);
  // Cuts off what still runs or waits (kBusy); drain() first to let it end.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Takes the request. kRequest: it can never be met (an empty prompt, an id outside the
  // vocabulary, a prompt longer than the context, parameters without meaning, no sink); kBusy: the
  // queue is full, or shutting down; kGroup, kNode: the engine is broken. The sink is not called
  // unless the request was taken.
  Result<RequestId> submit(GenerationRequest request);
  // The same for an embedding: its tokens share the steps as any prompt's do.
  Result<RequestId> embed(EmbeddingRequest request);

  // Ends a request before its next step, wherever it is: queued, in its prompt, in its answer. Its
  // sink then hears that it was cancelled. No effect on a finished or unknown request.
  void cancel(RequestId id);

  SchedulerStats stats() const;

  // Ok, or what has broken the engine, and what every submit() says therefore; also where a peer
  // died while nothing ran, within a second.
  Status health() const;

  // Refuses new requests from now on and waits until all others have ended. kBusy when the deadline
  // came first; those left were cut off with kBusy.
  Status drain(const Deadline& deadline);

  // Of the engine: positions of the KV cache, what a prompt and its answer hold together at most.
  size_t context() const;
  // Ids that a prompt may hold.
  size_t token_count() const;

 private:
  class Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::runtime
