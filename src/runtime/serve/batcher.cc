#include "runtime/serve/batcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/elapsed.h"

namespace shoal::runtime {
namespace {

Nanoseconds now() { return SteadyClock::instance().now(); }

// A step of prompts only may take that many times as long: nobody waits in the middle of an answer,
// but whoever comes or goes does.
constexpr double kPromptsOnlyFactor = 4;

// Tokens drafted for an answer in one step. Beyond that a step is mostly its rows, and one more
// gains little.
constexpr size_t kDraftMax = 16;

// A step has a token for every running request and one for a prompt.
size_t running_limit(const Engine& engine, uint32_t wanted) {
  const size_t sessions = engine.sessions_max();
  const size_t by_steps = std::max<size_t>(1, engine.step_tokens_max() - 1);
  return std::min({sessions, by_steps, wanted == 0 ? sessions : size_t{wanted}});
}

std::unique_ptr<Job> make_job(RequestId id, std::vector<TokenId> prompt, Nanoseconds submitted) {
  auto job = std::make_unique<Job>();
  job->id = id;
  job->submitted = submitted;
  job->prompt_tokens = prompt.size();
  job->tokens = std::move(prompt);
  return job;
}

template <typename Jobs>
void insert_by_id(Jobs* jobs, std::unique_ptr<Job> job) {
  const auto after = [](const std::unique_ptr<Job>& a, const std::unique_ptr<Job>& b) {
    return a->id < b->id;
  };
  jobs->insert(std::upper_bound(jobs->begin(), jobs->end(), job, after), std::move(job));
}

}  // namespace

Batcher::Batcher(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      running_max_(running_limit(engine, options.running_max)),
      block_tokens_(engine.block_tokens()),
      index_(engine.block_tokens(), engine.blocks_total()) {
  running_.reserve(running_max_);
  planned_.reserve(running_max_);
  items_.reserve(running_max_);
  counters_.kv_positions = engine.blocks_total() * block_tokens_;
}

size_t Batcher::blocks_for(size_t tokens) const {
  return (tokens + block_tokens_ - 1) / block_tokens_;
}

// Remembers what breaks the engine. Rank 0 knows what it can ask for: a refusal is our own bug.
Status Batcher::note(const Status& status) {
  CHECK_MSG(
      status.is_ok() || status.code() == StatusCode::kGroup || status.code() == StatusCode::kNode,
      status.message().c_str());
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;
  return status;
}

Status Batcher::check_ids(const std::vector<TokenId>& ids) const {
  const size_t tokens = engine_.token_count();
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < tokens) continue;
    return Status::request(
        fmt::format("token {} is not in the vocabulary of {} tokens", id, tokens));
  }
  return Status::ok();
}

Status Batcher::check_prompt(const std::vector<TokenId>& prompt) const {
  if (prompt.empty()) return Status::request("the prompt is empty: give it a token");
  RETURN_IF_ERROR(check_ids(prompt));
  if (prompt.size() <= engine_.context()) return Status::ok();
  return Status::request(fmt::format(
      "the prompt has {} tokens, the context holds {}: shorten it or load the model with a "
      "larger context",
      prompt.size(), engine_.context()));
}

Status Batcher::check(const EmbeddingRequest& request) const {
  if (request.sink == nullptr) return Status::request("the request has no sink");
  return check_prompt(request.prompt);
}

Status Batcher::check(const GenerationRequest& request) const {
  if (request.sink == nullptr) return Status::request("the request has no sink");
  RETURN_IF_ERROR(check_prompt(request.prompt));
  RETURN_IF_ERROR(check_ids(request.end_tokens));
  if (request.logprobs_top > GenerationRequest::kLogprobsTopMax) {
    return Status::request(fmt::format("top_logprobs is {}: must be at most {}",
                                       request.logprobs_top, GenerationRequest::kLogprobsTopMax));
  }
  return validate(request.sampling, engine_.token_count());
}

void Batcher::add(RequestId id, GenerationRequest request, Nanoseconds submitted) {
  auto job = make_job(id, std::move(request.prompt), submitted);
  job->request = std::move(request);
  insert_by_id(&queue_, std::move(job));
}

void Batcher::add(RequestId id, EmbeddingRequest request, Nanoseconds submitted) {
  auto job = make_job(id, std::move(request.prompt), submitted);
  job->embedding =
      EmbeddingJob{std::move(request.sink), Pooler(request.pooling, engine_.hidden_size()), {}};
  insert_by_id(&queue_, std::move(job));
}

void Batcher::cancel(RequestId id) {
  for (const std::unique_ptr<Job>& job : running_) {
    if (job->id == id) end(*job, StopReason::kCancelled);
  }
  for (const std::unique_ptr<Job>& job : queue_) {
    if (job->id == id) end(*job, StopReason::kCancelled);
  }
  remove_ended();
}

void Batcher::end_all(const Status& status) {
  for (const std::unique_ptr<Job>& job : running_) fail(*job, status);
  for (const std::unique_ptr<Job>& job : queue_) fail(*job, status);
  remove_ended();
}

Status Batcher::step() {
  if (broken_.is_ok()) admit();
  if (broken_.is_ok()) plan();
  if (broken_.is_ok() && !items_.empty()) {
    const Nanoseconds start = now();
    if (note(engine_.advance(items_)).is_ok()) {
      finish_step();
      measured_.seconds = seconds_between(start, now());  // with the choice of tokens
      pace_.note(measured_);
      if (measured_.prefill_tokens == 0) draft_pace_.note(measured_.answers, measured_.seconds);
    }
  }
  if (!broken_.is_ok()) end_all(broken_);
  return broken_;
}

void Batcher::look_at_engine() {
  if (!broken_.is_ok() || note(engine_.health()).is_ok()) return;
  end_all(broken_);
}

// ---- From the queue into a session ----

// An embedding's tokens are all computed, since each has a part in it, and none is worth keeping:
// texts to embed seldom begin alike, and thousands of them would drive conversations out.
bool Batcher::uses_prefixes(const Job& job) const {
  return options_.prefix_cache && !job.embedding.has_value();
}

// First come, first served; but a request whose beginning another one is just computing lets others
// go first, since it soon has less to do; and while the first waits for that or for room, later
// ones may use what it will leave over.
void Batcher::admit() {
  const Job* waiting = nullptr;
  for (size_t i = 0; i < queue_.size() && running_.size() < running_max_ && broken_.is_ok();) {
    Job& next = *queue_[i];
    const bool may_start = waiting == nullptr || leaves_room_for(*waiting, next);
    const Start tried = may_start ? try_start(next) : Start::kNoRoom;
    if (tried != Start::kStarted) {
      const bool has_no_room = may_start && tried == Start::kNoRoom;
      if (has_no_room && waiting != nullptr) break;
      if (waiting == nullptr) waiting = &next;
      ++i;
      continue;
    }
    std::unique_ptr<Job> job = std::move(queue_[i]);
    queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    insert_by_id(&running_, std::move(job));
  }
}

Batcher::Start Batcher::try_start(Job& job) {
  PrefixIndex::Match match;
  if (uses_prefixes(job)) {
    // The last token is computed in any case, for its logits.
    match = index_.find(std::span(job.tokens).first(job.tokens.size() - 1));
    if (is_computed_by_another(job, match)) return Start::kPrefixUnderWay;
  }
  // A part of a block costs a copy. Alone in a cache that its tokens fill, it has no room for one.
  if (match.tokens % block_tokens_ != 0 &&
      blocks_for(job.tokens.size()) == engine_.blocks_total()) {
    match.tokens -= match.tokens % block_tokens_;
    match.path.pop_back();
  }
  if (!running_.empty() && !has_room_for(job, match)) return Start::kNoRoom;
  (void)start(job, match);
  return Start::kStarted;
}

bool Batcher::is_computed_by_another(const Job& job, const PrefixIndex::Match& match) const {
  const auto wanted = std::span(job.tokens).first(job.tokens.size() - 1);
  return std::any_of(running_.begin(), running_.end(), [&](const std::unique_ptr<Job>& other) {
    if (other->todo() <= 1 || !other->is_indexed) return false;
    const size_t blocks = common_length(wanted, other->tokens) / block_tokens_;
    return blocks > match.tokens / block_tokens_ && other->held < blocks * block_tokens_;
  });
}

bool Batcher::has_room_for(const Job& job, const PrefixIndex::Match& match) const {
  size_t needed = blocks_for(job.tokens.size()) + running_.size() + 1;
  for (const std::unique_ptr<Job>& other : running_) {
    needed += engine_.blocks_needed(other->session, other->todo());
  }
  const size_t whole = match.tokens / block_tokens_;
  for (size_t i = 0; i < match.path.size(); ++i) {
    const bool is_in_use = index_.pins(match.path[i]) > 0;
    if (i < whole && is_in_use) --needed;
    if (i >= whole && !is_in_use) ++needed;  // it stays until it is copied
  }
  return needed <= engine_.blocks_free() + index_.idle_blocks();
}

// Whether `waiting` starts as soon as it would if `job`, which came later, waited behind it: there
// is room for it beside all that those who overtake it may ever hold.
bool Batcher::leaves_room_for(const Job& waiting, const Job& job) const {
  if (running_.size() + 1 >= running_max_) return false;
  const auto held_at_most = [this](const Job& one) {
    const size_t most = one.request.tokens_max;
    const size_t end = most == 0 ? engine_.context() : one.prompt_tokens + most;
    return blocks_for(std::min(end, engine_.context()));
  };
  // As has_room_for() counts: one more for each, and one for a block that is copied.
  size_t needed = blocks_for(waiting.tokens.size()) + 2 + held_at_most(job) + 1;
  for (const std::unique_ptr<Job>& other : running_) {
    if (other->id > waiting.id) needed += held_at_most(*other) + 1;
  }
  return needed <= engine_.blocks_total();
}

Status Batcher::start(Job& job, const PrefixIndex::Match& match) {
  job.pinned.clear();
  job.last_whole.reset();
  job.shared_part.reset();
  job.whole_blocks = match.tokens / block_tokens_;
  job.is_indexed = uses_prefixes(job);
  std::vector<BlockId> blocks;
  for (const PrefixIndex::Ref& ref : match.path) {
    index_.pin(ref);
    blocks.push_back(ref.block);
    const bool is_whole = blocks.size() <= job.whole_blocks;
    if (is_whole) job.pinned.push_back(ref);
    (is_whole ? job.last_whole : job.shared_part) = ref;
  }
  auto session = engine_.open_session({std::span(job.tokens).first(match.tokens), blocks});
  RETURN_IF_ERROR(note(session.status()));
  job.session = *session;
  job.held = match.tokens;
  if (job.has_started()) return Status::ok();  // it stepped back and goes on

  if (job.embedding.has_value()) {
    job.started = now();
    counters_.prompt_tokens += job.prompt_tokens;
    counters_.embedding_tokens += job.prompt_tokens;
    return Status::ok();
  }
  auto sampler = Sampler::create(job.request.sampling, engine_.token_count());
  CHECK_MSG(sampler.is_ok(), sampler.status().message().c_str());
  job.sampler = std::move(sampler).value();
  for (const TokenId id : job.tokens) job.sampler->accept_prompt(id);
  if (job.request.grammar != nullptr) job.constraint = job.request.grammar->start();
  job.started = now();
  job.reused_tokens = match.tokens;
  // Reserved now, so that a step allocates nothing.
  const size_t room = engine_.context() - job.prompt_tokens + 1;
  const uint32_t most = job.request.tokens_max;
  job.tokens.reserve(job.prompt_tokens + (most == 0 ? room : std::min<size_t>(room, most)));
  job.pinned.reserve(engine_.blocks_total());
  if (options_.speculation == Speculation::kNgram) {
    job.drafter.emplace(job.tokens, job.tokens.capacity());
    job.drafted.reserve(kDraftMax + 1);
  }
  counters_.prompt_tokens += job.prompt_tokens;
  counters_.reused_tokens += match.tokens;
  return Status::ok();
}

// ---- The tokens of a step ----

void Batcher::plan() {
  while (broken_.is_ok()) {
    planned_.clear();
    items_.clear();
    measured_ = {};
    tokens_left_ = engine_.step_tokens_max();
    outputs_left_ = engine_.step_outputs_max();
    blocks_taken_ = 0;
    plan_answers();
    measured_.answers = items_.size();
    plan_prompts();
    plan_drafts(measured_.answers);
    if (!items_.empty() || running_.empty()) return;
    // Prompts that take one another's room: the first goes on.
    CHECK_MSG(running_.size() > 1, "a request alone has room");
    preempt_last();
  }
}

// One token of every answer, the oldest request first.
void Batcher::plan_answers() {
  for (size_t i = 0; i < running_.size() && broken_.is_ok(); ++i) {
    if (running_[i]->todo() > 1) continue;
    bool has_room = make_room(*running_[i], 1);
    while (!has_room && broken_.is_ok()) {
      CHECK_MSG(running_.size() > 1, "a request alone has room");
      preempt_last();
      if (i == running_.size()) return;
      has_room = make_room(*running_[i], 1);
    }
    if (has_room) take(*running_[i], 1);
  }
}

size_t Batcher::prompt_budget() const {
  const size_t fixed = options_.prefill_beside_decode;
  const auto target = std::chrono::duration<double>(options_.step_target).count();
  if (!items_.empty()) return fixed != 0 ? fixed : pace_.tokens_beside_answers(target);
  return fixed != 0 ? tokens_left_ : pace_.tokens_alone(target * kPromptsOnlyFactor);
}

// Prompts, from the one after that which had its turn last.
void Batcher::plan_prompts() {
  size_t budget = std::min(tokens_left_, prompt_budget());
  const auto is_later = [&](const std::unique_ptr<Job>& job) { return job->id > last_prompt_; };
  const auto first = std::find_if(running_.begin(), running_.end(), is_later) - running_.begin();
  for (size_t n = 0; n < running_.size() && budget > 0 && broken_.is_ok(); ++n) {
    Job& job = *running_[(static_cast<size_t>(first) + n) % running_.size()];
    if (job.todo() <= 1) continue;
    size_t tokens = std::min(budget, job.todo());
    while (tokens > 0 && !make_room(job, tokens)) tokens /= 2;
    if (tokens == 0) continue;
    take(job, tokens);
    budget -= tokens;
    measured_.prefill_tokens += tokens;
    last_prompt_ = job.id;
  }
}

void Batcher::take(Job& job, size_t tokens) {
  job.planned = tokens;
  AdvanceItem item;
  item.session = job.session;
  item.tokens = std::span(job.tokens).subspan(job.held, tokens);
  const bool wants_output = tokens == job.todo() && !job.embedding.has_value();
  item.outputs = wants_output ? Outputs::kLast : Outputs::kNone;
  if (wants_output) item.inverse_temperature = job.sampler->inverse_temperature();
  if (wants_output && job.request.want_logprobs && item.inverse_temperature == 0) {
    item.inverse_temperature = LogprobReader::kInverseTemperature;
  }
  blocks_taken_ += engine_.blocks_needed(job.session, tokens);
  tokens_left_ -= tokens;
  if (item.outputs == Outputs::kLast) --outputs_left_;
  planned_.push_back(&job);
  items_.push_back(item);
}

// Drafted tokens for the step's first items, which are answers, out of the room that is left.
void Batcher::plan_drafts(size_t answers) {
  if (options_.speculation == Speculation::kOff || !broken_.is_ok()) return;
  draft_pace_.begin_step(answers);
  for (size_t i = 0; i < answers; ++i) {
    const Job& job = *planned_[i];
    if (!job.drafter.has_value() || job.drafter->match_length() == 0) continue;
    const size_t most = draft_limit(job);
    const size_t fixed = options_.draft_tokens;
    const size_t length =
        fixed != 0 ? std::min(fixed, most) : draft_pace_.choose(*job.drafter, most);
    if (length > 0) add_draft(i, length);
  }
}

// What the answer, the step and the cache have room for.
size_t Batcher::draft_limit(const Job& job) const {
  size_t most =
      std::min({kDraftMax, tokens_left_, outputs_left_, engine_.context() - job.tokens.size()});
  if (job.request.tokens_max != 0) {
    most = std::min(most, job.request.tokens_max - job.answered() - 1);
  }
  const size_t taken = blocks_taken_ - engine_.blocks_needed(job.session, 1);
  while (most > 0 && taken + engine_.blocks_needed(job.session, 1 + most) > engine_.blocks_free()) {
    --most;
  }
  return most;
}

void Batcher::add_draft(size_t item, size_t length) {
  Job& job = *planned_[item];
  job.drafted.assign(1, job.tokens.back());
  job.drafter->draft(job.tokens, length, &job.drafted);
  // Nothing comes after an end.
  const std::vector<TokenId>& ends = job.request.end_tokens;
  const auto end =
      std::find_first_of(job.drafted.begin() + 1, job.drafted.end(), ends.begin(), ends.end());
  job.drafted.erase(end, job.drafted.end());
  const size_t added = job.drafted.size() - 1;
  if (added == 0) return job.drafted.clear();
  items_[item].tokens = job.drafted;
  items_[item].outputs = Outputs::kAll;
  blocks_taken_ += engine_.blocks_needed(job.session, 1 + added);
  blocks_taken_ -= engine_.blocks_needed(job.session, 1);
  tokens_left_ -= added;
  outputs_left_ -= added;
  measured_.answers += added;
}

// Free blocks for this, beside what the step takes already; idle prefixes give way.
bool Batcher::make_room(const Job& job, size_t tokens) {
  const size_t needed = blocks_taken_ + engine_.blocks_needed(job.session, tokens);
  if (needed > engine_.blocks_free() && index_.idle_blocks() > 0) {
    const std::vector<BlockId> dropped = index_.evict(needed - engine_.blocks_free());
    (void)note(engine_.drop_blocks(dropped));
  }
  return needed <= engine_.blocks_free();
}

// The request that came last goes back into the queue; its tokens stay cached while there is room.
void Batcher::preempt_last() {
  std::unique_ptr<Job> job = std::move(running_.back());
  running_.pop_back();
  leave_session(*job);
  ++counters_.preemptions;
  insert_by_id(&queue_, std::move(job));
}

// ---- What came of it ----

void Batcher::finish_step() {
  ++counters_.steps;
  counters_.prefill_tokens += measured_.prefill_tokens;
  for (Job* job : planned_) {
    job->held += job->planned;
    if (options_.prefix_cache) note_held(*job);
  }
  size_t output = 0;
  for (size_t i = 0; i < planned_.size() && broken_.is_ok(); ++i) {
    if (planned_[i]->embedding.has_value()) pool(*planned_[i], i);
    const Outputs outputs = items_[i].outputs;
    if (outputs == Outputs::kNone) continue;
    answer(*planned_[i], output);
    output += outputs == Outputs::kAll ? items_[i].tokens.size() : 1;
  }
  remove_ended();
}

// Enters the blocks that have become whole.
void Batcher::note_held(Job& job) {
  if (job.shared_part.has_value()) {  // the step has copied it
    index_.unpin(*job.shared_part);
    job.shared_part.reset();
  }
  while (job.is_indexed && job.held >= (job.whole_blocks + 1) * block_tokens_) {
    const auto blocks = engine_.session_blocks(job.session);
    const auto tokens =
        std::span(job.tokens).subspan(job.whole_blocks * block_tokens_, block_tokens_);
    const auto entry = index_.insert(job.last_whole, tokens, blocks.value()[job.whole_blocks]);
    job.is_indexed = entry.has_value();
    if (!job.is_indexed) return;
    if (entry->is_new) job.pinned.push_back(entry->ref);
    job.last_whole = entry->ref;
    ++job.whole_blocks;
  }
}

// Takes what the step has computed of an embedding's tokens.
void Batcher::pool(Job& job, size_t item) {
  EmbeddingJob& embedding = *job.embedding;
  embedding.pooler.add(job.held - job.planned, engine_.hidden_states(item));
  if (job.todo() > 0) return;
  auto values = embedding.pooler.finish();
  if (!values.is_ok()) return fail(job, values.status());
  embedding.values = std::move(values).value();
  ++counters_.embeddings;
  end(job, StopReason::kEndOfGeneration);
}

// The next token: any, or one that the request's grammar allows.
Result<TokenId> Batcher::choose(Job& job, size_t output) {
  if (job.constraint == nullptr) return engine_.sample(output, *job.sampler);
  const Nanoseconds start = now();
  const auto allowed = job.constraint->allowed();
  counters_.mask_seconds += seconds_between(start, now());
  ++counters_.masks;
  if (!allowed.is_ok()) return allowed.status();
  return engine_.sample(output, *job.sampler, *allowed);
}

// The grammar's next state; true where the answer is whole.
Result<bool> Batcher::follow(Job& job, TokenId token) {
  if (job.constraint == nullptr) return false;
  const Nanoseconds start = now();
  const auto is_complete = job.constraint->accept(token);
  counters_.mask_seconds += seconds_between(start, now());
  return is_complete;
}

// From the job's outputs, of which `output` is the first: one token, then one more for each drafted
// token that was the one chosen, since the logits behind it are then the answer's.
void Batcher::answer(Job& job, size_t output) {
  size_t right = 0;
  while (answer_once(job, output + right) && right + 1 < job.drafted.size() &&
         job.tokens.back() == job.drafted[right + 1]) {
    ++right;
  }
  if (!job.drafted.empty()) settle_draft(job, right);
}

// False when the answer is over.
bool Batcher::answer_once(Job& job, size_t output) {
  const auto token = choose(job, output);
  if (!token.is_ok()) {
    if (token.status().code() != StatusCode::kRequest) (void)note(token.status());
    fail(job, token.status());
    return false;
  }
  if (job.answered() == 0) job.answering = now();
  const std::vector<TokenId>& ends = job.request.end_tokens;
  if (std::find(ends.begin(), ends.end(), *token) != ends.end()) {
    end(job, StopReason::kEndOfGeneration);
    return false;
  }
  const auto is_complete = follow(job, *token);
  if (!is_complete.is_ok()) {
    fail(job, is_complete.status());
    return false;
  }
  job.sampler->accept_generated(*token);
  job.tokens.push_back(*token);
  if (job.drafter.has_value()) job.drafter->append(job.tokens);
  ++counters_.generated_tokens;
  if (!deliver(job, output, *token)) return false;
  if (*is_complete) {
    end(job, StopReason::kEndOfGeneration);
  } else if (job.answered() == job.request.tokens_max) {
    end(job, StopReason::kTokensMax);
  } else if (job.tokens.size() > engine_.context()) {
    end(job, StopReason::kContextFull);
  }
  return !job.is_over;
}

// The session keeps the drafted tokens that were right, and forgets the others before anybody could
// find them in the cache.
void Batcher::settle_draft(Job& job, size_t right) {
  const size_t drafted = job.drafted.size() - 1;
  job.drafted.clear();
  job.held += right;
  ++counters_.drafts;
  counters_.drafted_tokens += drafted;
  counters_.accepted_tokens += right;
  if (!broken_.is_ok()) return;
  if (right < drafted && !note(engine_.truncate(job.session, job.held)).is_ok()) return;
  if (right > 0 && options_.prefix_cache) note_held(job);
}

// False when the answer goes no further.
bool Batcher::deliver(Job& job, size_t output, TokenId token) {
  GeneratedToken generated;
  generated.id = token;
  generated.index = job.answered() - 1;
  if (job.request.want_logprobs) {
    const auto logprobs = logprobs_.read(engine_, output, token, job.request.logprobs_top);
    if (!logprobs.is_ok()) {
      fail(job, note(logprobs.status()));
      return false;
    }
    generated.logprob = logprobs->chosen;
    generated.top = logprobs->top;
  }
  if (job.request.sink->on_token(generated)) return true;
  end(job, StopReason::kStopped);
  return false;
}

// Closes the session; the blocks that the index knows stay with the cache.
void Batcher::leave_session(Job& job) {
  if (!broken_.is_ok()) return;
  const auto held = engine_.session_blocks(job.session);
  const std::vector<BlockId> blocks(held.value().begin(), held.value().end());
  const size_t whole = job.whole_blocks * block_tokens_;
  const bool has_part = job.is_indexed && job.held >= whole + PrefixIndex::kPartMin;
  if (has_part && !job.shared_part.has_value()) {
    const auto tokens = std::span(job.tokens).subspan(whole, job.held - whole);
    const auto part = index_.insert(job.last_whole, tokens, blocks.back());
    if (part.has_value() && part->is_new) job.pinned.push_back(part->ref);
  }
  const std::vector<BlockId> kept = index_.keep(blocks);
  (void)note(engine_.close_session(job.session, kept));
  if (job.shared_part.has_value()) index_.unpin(*job.shared_part);
  for (auto ref = job.pinned.rbegin(); ref != job.pinned.rend(); ++ref) index_.unpin(*ref);
  job.pinned.clear();
  job.shared_part.reset();
  job.held = 0;
}

void Batcher::end(Job& job, StopReason reason) {
  if (job.is_over) return;
  job.is_over = true;
  job.result.reason = reason;
  ++counters_.requests_finished;
  if (reason == StopReason::kCancelled) ++counters_.requests_cancelled;
}

void Batcher::fail(Job& job, const Status& status) {
  if (job.is_over) return;
  job.is_over = true;
  job.result.status = status;
  ++counters_.requests_failed;
}

void Batcher::remove_ended() {
  std::vector<std::unique_ptr<Job>> ended;
  const auto collect = [&](auto* jobs) {
    for (std::unique_ptr<Job>& job : *jobs) {
      if (job->is_over) ended.push_back(std::move(job));
    }
    std::erase(*jobs, nullptr);
  };
  for (const std::unique_ptr<Job>& job : running_) {
    if (job->is_over) leave_session(*job);
  }
  collect(&running_);
  collect(&queue_);
  for (const std::unique_ptr<Job>& job : ended) report(*job);
}

void Batcher::report_embedding(Job& job) {
  const Nanoseconds end = now();
  EmbeddingResult result;
  result.status = job.result.status;
  result.is_cancelled = job.result.reason == StopReason::kCancelled;
  result.values = std::move(job.embedding->values);
  result.prompt_tokens = job.prompt_tokens;
  result.queue_seconds = seconds_between(job.submitted, job.has_started() ? job.started : end);
  if (job.has_started()) result.compute_seconds = seconds_between(job.started, end);
  job.embedding->sink->on_embedding(std::move(result));
}

void Batcher::report(Job& job) {
  if (job.embedding.has_value()) return report_embedding(job);
  const Nanoseconds end = now();
  GenerationResult& result = job.result;
  const bool has_started = job.has_started();
  const bool has_answered = job.answering.count() != 0;
  if (has_started) result.seed = job.sampler->seed();
  result.prompt_tokens = job.prompt_tokens;
  result.reused_tokens = job.reused_tokens;
  result.generated_tokens = job.answered();
  result.queue_seconds = seconds_between(job.submitted, has_started ? job.started : end);
  if (has_started) {
    result.prefill_seconds = seconds_between(job.started, has_answered ? job.answering : end);
    const double all = seconds_between(job.started, end);
    request_seconds_ = request_seconds_ == 0 ? all : 0.8 * request_seconds_ + 0.2 * all;
  }
  if (has_answered) result.decode_seconds = seconds_between(job.answering, end);
  job.request.sink->on_finished(result);
}

void Batcher::write_stats(SchedulerStats* stats) const {
  const uint64_t submitted = stats->requests_submitted;
  const uint64_t refused = stats->requests_refused;
  *stats = counters_;
  stats->requests_submitted = submitted;
  stats->requests_refused = refused;
  stats->running = running_.size();
  stats->queued = queue_.size();
  const size_t free = broken_.is_ok() ? engine_.blocks_free() : 0;
  stats->kv_positions_cached = index_.idle_blocks() * block_tokens_;
  stats->kv_positions_used =
      stats->kv_positions - stats->kv_positions_cached - free * block_tokens_;
  const auto running = static_cast<double>(std::max<size_t>(1, running_.size()));
  stats->retry_after_seconds = std::clamp(request_seconds_ / running, 1.0, 60.0);
}

}  // namespace shoal::runtime
