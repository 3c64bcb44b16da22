#include "runtime/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/elapsed.h"
#include "base/log.h"
#include "runtime/rank/rank_instance.h"

namespace shoal::runtime {
namespace {

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "end_of_generation";
    case StopReason::kStopped:
      return "stop";
    case StopReason::kTokensMax:
      return "length";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

class Engine::Impl {
 public:
  Impl(collective::Group& group, const EngineOptions& options,
       std::unique_ptr<RankInstance> instance, double load_seconds)
      : group_(group), options_(options), instance_(std::move(instance)) {
    sessions_.resize(options.sessions_max);
    stats_.load_seconds = load_seconds;
    for (size_t rank = 0; rank < instance_->reports().size(); ++rank) {
      const RankReport& report = instance_->reports()[rank];
      stats_.nodes.push_back(
          {group.fabric().node_name(static_cast<int>(rank)), report.weight_bytes, report.kv_bytes});
    }
    group_.reset_counters();
  }

  ~Impl() {
    if (!broken_.is_ok()) return;
    const Status ended = command(Op::kShutdown, 0, 0);
    if (!ended.is_ok()) LOG(debug, "followers were not told to end: {}", ended.message());
  }

  Result<SessionId> open_session(const CachedPrefix& prefix);
  Status close_session(SessionId session, std::span<const BlockId> kept);
  Status drop_blocks(std::span<const BlockId> kept);
  Result<std::span<const BlockId>> session_blocks(SessionId session) const;
  Status truncate(SessionId session, size_t tokens);
  Result<std::span<const TokenId>> session_tokens(SessionId session) const;
  Result<GenerateResult> generate(const GenerateRequest& request);
  Status score(const ScoreRequest& request);
  Status advance(std::span<const AdvanceItem> items);
  Status health() const;
  Result<TokenId> sample(size_t output, Sampler& sampler, const TokenMask& mask);
  const LogitSummary& summary(size_t output) const { return instance_->summaries()[output]; }
  Result<std::span<const float>> fetch_logits(size_t output);
  std::span<const float> hidden_states(size_t item);
  Result<std::vector<RankTimes>> take_times();
  Status start_trace();
  Result<std::vector<RankTrace>> take_trace();

  const EngineOptions& options() const { return options_; }
  const KvCache& cache() const { return instance_->cache(); }
  size_t output_rows() const { return instance_->output_rows(); }
  uint32_t summaries_max() const { return instance_->summaries_max(); }
  size_t token_count() const { return instance_->token_count(); }
  size_t hidden_size() const { return instance_->hidden_size(); }
  EngineStats stats() const {
    EngineStats stats = stats_;
    stats.collectives = group_.counters();
    return stats;
  }
  void reset_stats() {
    stats_.prefill_tokens = stats_.decode_tokens = 0;
    stats_.prefill_seconds = stats_.decode_seconds = 0;
    group_.reset_counters();
  }

 private:
  struct Session {
    bool is_open = false;
    std::vector<TokenId> tokens;  // in the cache, or about to be
  };
  // One session's part of a step: tokens that follow what it holds.
  struct Extension {
    SessionId session = 0;
    std::span<const TokenId> tokens;
    Outputs outputs = Outputs::kLast;
    OutputMode mode = OutputMode::kFull;
    float inverse_temperature = 0;
  };

  Status check_session(SessionId session) const;
  Status check_tokens(std::span<const TokenId> tokens) const;
  Status note(Status status);
  Status command(Op op, uint32_t session, size_t length, std::span<const BlockId> blocks = {});
  Status extend(const Extension& extension, const RankInstance::OnLogits& on_logits);
  Status prefill(const GenerateRequest& request, const Sampler& sampler, GenerateResult* result);
  Status decode(const GenerateRequest& request, Sampler& sampler, GenerateResult* result);
  Result<TokenId> choose(Sampler& sampler);
  Status lay_out(std::span<const AdvanceItem> items);
  void note_held(std::span<const AdvanceItem> items);
  Status score_in(SessionId session, const ScoreRequest& request);
  Extension sampled(SessionId session, std::span<const TokenId> tokens,
                    const Sampler& sampler) const;

  collective::Group& group_;
  const EngineOptions options_;
  std::unique_ptr<RankInstance> instance_;
  std::vector<Session> sessions_;
  Status broken_;
  EngineStats stats_;
  Command step_;  // reused by every step
  std::vector<TokenId> step_tokens_;
  std::span<const float> logits_;  // after the last step: full logits, or empty: a summary
};

Status Engine::Impl::check_session(SessionId session) const {
  RETURN_IF_ERROR(broken_);
  if (session < sessions_.size() && sessions_[session].is_open) return Status::ok();
  return Status::request(fmt::format("session {} is not open", session));
}

Status Engine::Impl::check_tokens(std::span<const TokenId> tokens) const {
  for (const TokenId id : tokens) {
    if (id < 0 || static_cast<size_t>(id) >= token_count()) {
      return Status::request(
          fmt::format("token {} is not in the vocabulary of {} tokens", id, token_count()));
    }
  }
  return Status::ok();
}

// Remembers what breaks the engine.
Status Engine::Impl::note(Status status) {
  const bool breaks = status.code() == StatusCode::kGroup || status.code() == StatusCode::kNode;
  if (breaks && broken_.is_ok()) broken_ = status;
  return status;
}

Status Engine::Impl::health() const {
  RETURN_IF_ERROR(broken_);
  const fabric::GroupHealth& health = group_.fabric().health();
  if (health.failed()) return health.failure();
  for (int rank = 1; rank < health.size(); ++rank) {
    if (health.has_left(rank)) {
      return Status::group(fmt::format("{} has left the group", health.rank_text(rank)));
    }
  }
  return Status::ok();
}

Status Engine::Impl::command(Op op, uint32_t session, size_t length,
                             std::span<const BlockId> blocks) {
  Command command;
  command.op = op;
  command.session = session;
  command.length = static_cast<uint32_t>(length);
  command.blocks.assign(blocks.begin(), blocks.end());
  return note(instance_->lead(command, {}, nullptr));
}

Result<SessionId> Engine::Impl::open_session(const CachedPrefix& prefix) {
  RETURN_IF_ERROR(broken_);
  RETURN_IF_ERROR(check_tokens(prefix.tokens));
  RETURN_IF_ERROR(cache().check_prefix({prefix.blocks, prefix.tokens.size()}));
  for (SessionId session = 0; session < sessions_.size(); ++session) {
    if (sessions_[session].is_open) continue;
    RETURN_IF_ERROR(command(Op::kOpen, session, prefix.tokens.size(), prefix.blocks));
    sessions_[session].is_open = true;
    sessions_[session].tokens.reserve(cache().positions());
    sessions_[session].tokens.assign(prefix.tokens.begin(), prefix.tokens.end());
    return session;
  }
  return Status::busy(fmt::format("all {} sessions are in use", sessions_.size()));
}

Status Engine::Impl::close_session(SessionId session, std::span<const BlockId> kept) {
  RETURN_IF_ERROR(check_session(session));
  RETURN_IF_ERROR(cache().check_kept(session, kept));
  sessions_[session] = Session();
  return command(Op::kClose, session, 0, kept);
}

Status Engine::Impl::drop_blocks(std::span<const BlockId> kept) {
  RETURN_IF_ERROR(broken_);
  RETURN_IF_ERROR(cache().check_drop(kept));
  return command(Op::kDrop, 0, 0, kept);
}

Result<std::span<const BlockId>> Engine::Impl::session_blocks(SessionId session) const {
  RETURN_IF_ERROR(check_session(session));
  return cache().blocks(session);
}

Status Engine::Impl::truncate(SessionId session, size_t tokens) {
  RETURN_IF_ERROR(check_session(session));
  std::vector<TokenId>& held = sessions_[session].tokens;
  if (tokens > held.size()) {
    return Status::request(
        fmt::format("session {} holds {} tokens, not {}", session, held.size(), tokens));
  }
  if (tokens == held.size()) return Status::ok();
  held.resize(tokens);
  return command(Op::kTruncate, session, tokens);
}

Result<std::span<const TokenId>> Engine::Impl::session_tokens(SessionId session) const {
  RETURN_IF_ERROR(check_session(session));
  return std::span<const TokenId>(sessions_[session].tokens);
}

// One step of one session, which has room for it.
Status Engine::Impl::extend(const Extension& extension, const RankInstance::OnLogits& on_logits) {
  std::vector<TokenId>& held = sessions_[extension.session].tokens;
  step_.op = Op::kStep;
  step_.mode = extension.mode;
  step_.items.resize(1);
  step_.items[0] = {extension.session, static_cast<uint32_t>(held.size()),
                    static_cast<uint32_t>(extension.tokens.size()), extension.outputs,
                    extension.inverse_temperature};
  RETURN_IF_ERROR(note(instance_->lead(step_, extension.tokens, on_logits)));
  held.insert(held.end(), extension.tokens.begin(), extension.tokens.end());
  return Status::ok();
}

// A step after which choose() can sample.
Engine::Impl::Extension Engine::Impl::sampled(SessionId session, std::span<const TokenId> tokens,
                                              const Sampler& sampler) const {
  Extension extension{session, tokens, Outputs::kLast, OutputMode::kSummary,
                      sampler.inverse_temperature()};
  if (sampler.wants_full(RankInstance::kCandidatesMax)) extension.mode = OutputMode::kFull;
  return extension;
}

Result<TokenId> Engine::Impl::choose(Sampler& sampler) {
  if (step_.mode == OutputMode::kSummary) return sample(0, sampler, {});
  instance_->clock().set_stage(tensor::Stage::kDecode);
  const tensor::PhaseScope scope(instance_->clock(), tensor::Phase::kSampling);
  ASSIGN_OR_RETURN(const auto token, sampler.sample({logits_.first(token_count()), nullptr}));
  CHECK(token.has_value());
  return *token;
}

Result<TokenId> Engine::Impl::sample(size_t output, Sampler& sampler, const TokenMask& mask) {
  instance_->clock().set_stage(tensor::Stage::kDecode);
  const tensor::PhaseScope scope(instance_->clock(), tensor::Phase::kSampling);
  std::optional<TokenId> token;
  if (!sampler.wants_full(RankInstance::kCandidatesMax, mask)) {
    ASSIGN_OR_RETURN(token, sampler.sample({{}, &summary(output)}, mask));
  }
  if (!token.has_value()) {
    ASSIGN_OR_RETURN(const std::span<const float> logits, fetch_logits(output));
    ASSIGN_OR_RETURN(token, sampler.sample({logits, nullptr}, mask));
    CHECK(token.has_value());
  }
  return *token;
}

Result<std::span<const float>> Engine::Impl::fetch_logits(size_t output) {
  RETURN_IF_ERROR(broken_);
  CHECK(output < instance_->summaries().size());
  Command fetch;
  fetch.op = Op::kFetchLogits;
  fetch.length = static_cast<uint32_t>(output);
  std::span<const float> fetched;
  RETURN_IF_ERROR(note(instance_->lead(
      fetch, {}, [&](size_t, std::span<const float> logits) { fetched = logits; })));
  return fetched.first(token_count());
}

Result<GenerateResult> Engine::Impl::generate(const GenerateRequest& request) {
  RETURN_IF_ERROR(check_session(request.session));
  if (request.prompt.empty()) return Status::request("the prompt is empty: give it a token");
  RETURN_IF_ERROR(check_tokens(request.prompt));
  RETURN_IF_ERROR(check_tokens(request.end_tokens));
  ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(request.sampling, token_count()));
  for (const TokenId id : request.prompt) sampler.accept_prompt(id);

  // What the session holds of the prompt stays; the last token is computed in any case.
  const std::vector<TokenId>& held = sessions_[request.session].tokens;
  const auto differs =
      std::mismatch(held.begin(), held.end(), request.prompt.begin(), request.prompt.end());
  const size_t reused = std::min<size_t>(static_cast<size_t>(differs.first - held.begin()),
                                         request.prompt.size() - 1);
  const size_t positions = cache().positions();
  if (request.prompt.size() > positions) {
    return Status::request(fmt::format(
        "the prompt has {} tokens, the context holds {}: shorten it or load the model with a "
        "larger context",
        request.prompt.size(), positions));
  }
  RETURN_IF_ERROR(truncate(request.session, reused));
  if (request.prompt.size() - reused > cache().room(request.session)) {
    return Status::request(fmt::format(
        "context full: the prompt has {} tokens, and other sessions leave room for {} of the "
        "{} that the context holds",
        request.prompt.size(), reused + cache().room(request.session), positions));
  }

  GenerateResult result;
  result.seed = sampler.seed();
  result.prompt_tokens = request.prompt.size();
  result.reused_tokens = reused;
  // Reserved now, so that a step allocates nothing.
  const size_t tokens_max = positions - request.prompt.size() + 1;
  result.tokens.reserve(request.tokens_max == 0 ? tokens_max
                                                : std::min<size_t>(tokens_max, request.tokens_max));
  RETURN_IF_ERROR(prefill(request, sampler, &result));
  if (result.reason != StopReason::kCancelled) {
    RETURN_IF_ERROR(decode(request, sampler, &result));
  }
  return result;
}

Status Engine::Impl::prefill(const GenerateRequest& request, const Sampler& sampler,
                             GenerateResult* result) {
  const Nanoseconds start = SteadyClock::instance().now();
  const auto todo = request.prompt.subspan(result->reused_tokens);
  size_t done = 0;
  while (done < todo.size()) {
    if (is_set(request.cancel)) {
      result->reason = StopReason::kCancelled;
      break;
    }
    const size_t count = std::min<size_t>(options_.prefill_chunk, todo.size() - done);
    Extension chunk = sampled(request.session, todo.subspan(done, count), sampler);
    if (done + count < todo.size()) chunk.outputs = Outputs::kNone;
    RETURN_IF_ERROR(
        extend(chunk, [&](size_t, std::span<const float> logits) { logits_ = logits; }));
    done += count;
    if (request.on_prefill) request.on_prefill(done, todo.size());
  }
  result->prefill_seconds = seconds_between(start, SteadyClock::instance().now());
  stats_.prefill_tokens += done;
  stats_.prefill_seconds += result->prefill_seconds;
  return Status::ok();
}

Status Engine::Impl::decode(const GenerateRequest& request, Sampler& sampler,
                            GenerateResult* result) {
  const Nanoseconds start = SteadyClock::instance().now();
  const auto until = [&](StopReason reason) {
    result->reason = reason;
    result->decode_seconds = seconds_between(start, SteadyClock::instance().now());
    stats_.decode_tokens += result->decode_steps;
    stats_.decode_seconds += result->decode_seconds;
    return Status::ok();
  };
  while (true) {
    ASSIGN_OR_RETURN(const TokenId token, choose(sampler));
    if (std::find(request.end_tokens.begin(), request.end_tokens.end(), token) !=
        request.end_tokens.end()) {
      return until(StopReason::kEndOfGeneration);
    }
    sampler.accept_generated(token);
    result->tokens.push_back(token);
    if (request.on_token && !request.on_token(token)) return until(StopReason::kStopped);
    if (result->tokens.size() == request.tokens_max) return until(StopReason::kTokensMax);
    if (is_set(request.cancel)) return until(StopReason::kCancelled);
    if (cache().room(request.session) == 0) return until(StopReason::kContextFull);
    RETURN_IF_ERROR(extend(sampled(request.session, {&token, 1}, sampler),
                           [&](size_t, std::span<const float> logits) { logits_ = logits; }));
    ++result->decode_steps;
  }
}

Result<std::vector<RankTimes>> Engine::Impl::take_times() {
  RETURN_IF_ERROR(broken_);
  RETURN_IF_ERROR(command(Op::kTakeTimes, 0, 0));
  return instance_->take_times();
}

Status Engine::Impl::start_trace() {
  RETURN_IF_ERROR(broken_);
  return command(Op::kStartTrace, 0, 0);
}

Result<std::vector<RankTrace>> Engine::Impl::take_trace() {
  RETURN_IF_ERROR(broken_);
  RETURN_IF_ERROR(command(Op::kTakeTrace, 0, 0));
  return instance_->take_trace();
}

Status Engine::Impl::score(const ScoreRequest& request) {
  RETURN_IF_ERROR(broken_);
  RETURN_IF_ERROR(check_tokens(request.tokens));
  if (request.tokens.size() > cache().positions()) {
    return Status::request(fmt::format("the text has {} tokens, the context holds {}",
                                       request.tokens.size(), cache().positions()));
  }
  ASSIGN_OR_RETURN(const SessionId session, open_session({}));
  const Status scored = score_in(session, request);
  const Status closed = broken_.is_ok() ? close_session(session, {}) : Status::ok();
  return scored.is_ok() ? closed : scored;
}

Status Engine::Impl::score_in(SessionId session, const ScoreRequest& request) {
  if (request.tokens.size() > cache().room(session)) {
    return Status::request(fmt::format("context full: other sessions leave room for {} tokens",
                                       cache().room(session)));
  }
  const Nanoseconds start = SteadyClock::instance().now();
  bool goes_on = true;
  size_t at = 0;
  while (at < request.tokens.size() && goes_on) {
    size_t end =
        std::min(request.tokens.size(), at + (request.by_decode ? 1 : options_.prefill_chunk));
    if (at < request.first) end = std::min(end, request.first);
    Extension chunk;
    chunk.session = session;
    chunk.tokens = request.tokens.subspan(at, end - at);
    chunk.outputs = at >= request.first ? Outputs::kAll : Outputs::kNone;
    RETURN_IF_ERROR(extend(chunk, [&](size_t first, std::span<const float> logits) {
      for (size_t i = 0; (i + 1) * output_rows() <= logits.size() && goes_on; ++i) {
        goes_on =
            request.on_logits(at + first + i, logits.subspan(i * output_rows(), output_rows()));
      }
    }));
    at = end;
  }
  const double seconds = seconds_between(start, SteadyClock::instance().now());
  (request.by_decode ? stats_.decode_tokens : stats_.prefill_tokens) += at;
  (request.by_decode ? stats_.decode_seconds : stats_.prefill_seconds) += seconds;
  return Status::ok();
}

// Fills step_ and step_tokens_, having checked that every rank can do it.
Status Engine::Impl::lay_out(std::span<const AdvanceItem> items) {
  step_.op = Op::kStep;
  step_.items.clear();
  step_tokens_.clear();
  size_t blocks = 0;
  if (items.empty()) return Status::request("a step needs a session");
  for (const AdvanceItem& item : items) {
    RETURN_IF_ERROR(check_session(item.session));
    RETURN_IF_ERROR(check_tokens(item.tokens));
    if (item.tokens.empty()) return Status::request("a step needs a token of every session");
    for (const BatchItem& other : step_.items) {
      if (other.session == item.session) return Status::request("a session comes twice in a step");
    }
    if (item.tokens.size() > cache().room(item.session)) return Status::request("context full");
    blocks += cache().blocks_needed(item.session, item.tokens.size());
    step_.items.push_back(
        {item.session, static_cast<uint32_t>(sessions_[item.session].tokens.size()),
         static_cast<uint32_t>(item.tokens.size()), item.outputs, item.inverse_temperature});
    step_tokens_.insert(step_tokens_.end(), item.tokens.begin(), item.tokens.end());
  }
  if (step_tokens_.size() > options_.prefill_chunk) {
    return Status::request(fmt::format("a step of {} tokens: at most {} are allowed",
                                       step_tokens_.size(), options_.prefill_chunk));
  }
  if (step_.outputs() > instance_->summaries_max()) {
    return Status::request(fmt::format("a step of {} outputs: at most {} are allowed",
                                       step_.outputs(), instance_->summaries_max()));
  }
  if (blocks > cache().blocks_free()) return Status::request("context full");
  return Status::ok();
}

// Every rank has done the step: the sessions hold its tokens.
void Engine::Impl::note_held(std::span<const AdvanceItem> items) {
  for (const AdvanceItem& item : items) {
    std::vector<TokenId>& held = sessions_[item.session].tokens;
    held.insert(held.end(), item.tokens.begin(), item.tokens.end());
  }
}

Status Engine::Impl::advance(std::span<const AdvanceItem> items) {
  RETURN_IF_ERROR(broken_);
  RETURN_IF_ERROR(lay_out(items));
  step_.mode = OutputMode::kSummary;
  const bool is_decode = step_.stage() == tensor::Stage::kDecode;
  const Nanoseconds start = SteadyClock::instance().now();
  RETURN_IF_ERROR(note(instance_->lead(step_, step_tokens_, nullptr)));
  const double seconds = seconds_between(start, SteadyClock::instance().now());
  (is_decode ? stats_.decode_tokens : stats_.prefill_tokens) += step_tokens_.size();
  (is_decode ? stats_.decode_seconds : stats_.prefill_seconds) += seconds;
  note_held(items);
  return Status::ok();
}

// step_ is the last advance()'s.
std::span<const float> Engine::Impl::hidden_states(size_t item) {
  CHECK(item < step_.items.size());
  size_t first = 0;
  for (size_t i = 0; i < item; ++i) first += step_.items[i].tokens;
  instance_->clock().set_stage(step_.stage());
  return instance_->hidden_states(first, step_.items[item].tokens);
}

Result<std::unique_ptr<Engine>> Engine::create(const model::Model& model, const plan::Plan& plan,
                                               collective::Group& group,
                                               const EngineOptions& options) {
  CHECK(group.rank() == 0);
  const Nanoseconds start = SteadyClock::instance().now();
  ASSIGN_OR_RETURN(auto instance, RankInstance::create(model, plan, group, options));
  const double seconds = seconds_between(start, SteadyClock::instance().now());
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(group, options, std::move(instance), seconds)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<SessionId> Engine::open_session(const CachedPrefix& prefix) {
  return impl_->open_session(prefix);
}
Status Engine::close_session(SessionId session, std::span<const BlockId> kept) {
  return impl_->close_session(session, kept);
}
Status Engine::drop_blocks(std::span<const BlockId> kept) { return impl_->drop_blocks(kept); }
Result<std::span<const BlockId>> Engine::session_blocks(SessionId session) const {
  return impl_->session_blocks(session);
}
Status Engine::truncate(SessionId session, size_t tokens) {
  return impl_->truncate(session, tokens);
}
Result<std::span<const TokenId>> Engine::session_tokens(SessionId session) const {
  return impl_->session_tokens(session);
}
Result<GenerateResult> Engine::generate(const GenerateRequest& request) {
  return impl_->generate(request);
}
Status Engine::score(const ScoreRequest& request) { return impl_->score(request); }
Status Engine::advance(std::span<const AdvanceItem> items) { return impl_->advance(items); }
Result<TokenId> Engine::sample(size_t output, Sampler& sampler, const TokenMask& mask) {
  return impl_->sample(output, sampler, mask);
}
const LogitSummary& Engine::summary(size_t output) const { return impl_->summary(output); }
Result<std::span<const float>> Engine::fetch_logits(size_t output) {
  return impl_->fetch_logits(output);
}
std::span<const float> Engine::hidden_states(size_t item) { return impl_->hidden_states(item); }
Status Engine::health() const { return impl_->health(); }
size_t Engine::context() const { return impl_->cache().positions(); }
size_t Engine::block_tokens() const { return impl_->cache().block_tokens(); }
size_t Engine::blocks_total() const { return impl_->cache().blocks_total(); }
size_t Engine::blocks_free() const { return impl_->cache().blocks_free(); }
size_t Engine::blocks_needed(SessionId session, size_t tokens) const {
  return impl_->cache().blocks_needed(session, tokens);
}
uint32_t Engine::sessions_max() const { return impl_->options().sessions_max; }
uint32_t Engine::step_tokens_max() const { return impl_->options().prefill_chunk; }
uint32_t Engine::step_outputs_max() const { return impl_->summaries_max(); }
size_t Engine::output_rows() const { return impl_->output_rows(); }

size_t Engine::token_count() const { return impl_->token_count(); }
size_t Engine::hidden_size() const { return impl_->hidden_size(); }
EngineStats Engine::stats() const { return impl_->stats(); }
void Engine::reset_stats() { impl_->reset_stats(); }
Result<std::vector<RankTimes>> Engine::take_times() { return impl_->take_times(); }
Status Engine::start_trace() { return impl_->start_trace(); }
Result<std::vector<RankTrace>> Engine::take_trace() { return impl_->take_trace(); }

}  // namespace shoal::runtime
