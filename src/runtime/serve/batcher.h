// Batcher: which tokens of which requests the engine computes next; the scheduler without a thread.
//
// Requests are queued, then running (in a session of the engine), then over. step() admits from the
// queue, plans, computes and hands tokens to the sinks; scheduler.h says by which rules.
// Order: requests that came first have the right of way; running_ and queue_ are sorted by id.
// Room: a request is admitted when the blocks of its tokens, of the prompts still under way and one
// for each running request are free or idle. While one waits for that, later ones start only where
// they leave it its room, so that a long prompt neither stops short ones nor is stopped by them.
// A block that an answer then lacks is taken from idle prefixes, then from the request that came
// last; the first of all always finds room.
// Errors: step() fails with kGroup or kNode, which every request then ended with.
// Thread rule: one thread at a time. Borrows the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "runtime/draft/draft_pace.h"
#include "runtime/engine.h"
#include "runtime/serve/embedding.h"
#include "runtime/serve/generation.h"
#include "runtime/serve/job.h"
#include "runtime/serve/logprobs.h"
#include "runtime/serve/prefill_pace.h"
#include "runtime/serve/prefix_index.h"
#include "runtime/serve/scheduler.h"

namespace shoal::runtime {

class Batcher {
 public:
  Batcher(Engine& engine, const SchedulerOptions& options);
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // kRequest when the request can never be met. Reads only what never changes: any thread.
  Status check(const GenerationRequest& request) const;
  Status check(const EmbeddingRequest& request) const;
  // Queues a request that check() passed; ids rise.
  void add(RequestId id, GenerationRequest request, Nanoseconds submitted);
  void add(RequestId id, EmbeddingRequest request, Nanoseconds submitted);
  // Ends it with kCancelled, if it is there.
  void cancel(RequestId id);
  // Ends all requests with this status.
  void end_all(const Status& status);

  bool is_idle() const { return queue_.empty() && running_.empty(); }
  size_t queued() const { return queue_.size(); }
  // What broke the engine.
  const Status& broken() const { return broken_; }
  Status step();
  // Looks whether the engine still works, while there is no step that would find out.
  void look_at_engine();

  // Writes the batcher's part of the statistics, allocating nothing.
  void write_stats(SchedulerStats* stats) const;

 private:
  enum class Start { kStarted, kNoRoom, kPrefixUnderWay };

  Status check_ids(const std::vector<TokenId>& ids) const;
  Status check_prompt(const std::vector<TokenId>& prompt) const;
  bool uses_prefixes(const Job& job) const;

  void admit();
  Start try_start(Job& job);
  bool has_room_for(const Job& job, const PrefixIndex::Match& match) const;
  bool is_computed_by_another(const Job& job, const PrefixIndex::Match& match) const;
  bool leaves_room_for(const Job& waiting, const Job& job) const;
  Status start(Job& job, const PrefixIndex::Match& match);

  void plan();
  void plan_answers();
  void plan_prompts();
  void plan_drafts(size_t answers);
  size_t draft_limit(const Job& job) const;
  void add_draft(size_t item, size_t length);
  size_t prompt_budget() const;
  void take(Job& job, size_t tokens);
  bool make_room(const Job& job, size_t tokens);
  void preempt_last();

  void finish_step();
  void note_held(Job& job);
  void pool(Job& job, size_t item);
  void answer(Job& job, size_t output);
  Result<TokenId> choose(Job& job, size_t output);
  Result<bool> follow(Job& job, TokenId token);
  bool answer_once(Job& job, size_t output);
  void settle_draft(Job& job, size_t right);
  bool deliver(Job& job, size_t output, TokenId token);
  void leave_session(Job& job);
  void end(Job& job, StopReason reason);
  void fail(Job& job, const Status& status);
  void remove_ended();
  void report(Job& job);
  void report_embedding(Job& job);
  Status note(const Status& status);
  size_t blocks_for(size_t tokens) const;

  Engine& engine_;
  const SchedulerOptions options_;
  const size_t running_max_;
  const size_t block_tokens_;
  PrefixIndex index_;
  PrefillPace pace_;
  DraftPace draft_pace_;
  LogprobReader logprobs_;
  Status broken_;

  std::deque<std::unique_ptr<Job>> queue_;
  std::vector<std::unique_ptr<Job>> running_;
  RequestId last_prompt_ = 0;  // whose prompt had its turn last

  // Of the step under way.
  std::vector<Job*> planned_;
  std::vector<AdvanceItem> items_;
  size_t tokens_left_ = 0;
  size_t outputs_left_ = 0;
  size_t blocks_taken_ = 0;
  PrefillPace::Step measured_;

  SchedulerStats counters_;
  double request_seconds_ = 0;  // that a request takes from its start, lately
};

}  // namespace shoal::runtime
