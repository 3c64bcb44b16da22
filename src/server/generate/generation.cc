#include "server/generate/generation.h"

#include <utility>

#include "base/elapsed.h"

namespace shoal::server {
namespace {

// Tokens that become text before the receiver is asked for room again: with their alternatives and
// their JSON some 50 kB at most.
constexpr size_t kTokensAtOnce = 16;

FinishReason finish_reason(const runtime::GenerationResult& result) {
  if (!result.status.is_ok()) return FinishReason::kFailed;
  switch (result.reason) {
    case runtime::StopReason::kEndOfGeneration:
    case runtime::StopReason::kStopped:
      return FinishReason::kStop;
    case runtime::StopReason::kTokensMax:
    case runtime::StopReason::kContextFull:
      return FinishReason::kLength;
    case runtime::StopReason::kCancelled:
      return FinishReason::kCancelled;
  }
  return FinishReason::kFailed;
}

AnswerPart part_of(const text::AnswerEvent& event) {
  using Kind = text::AnswerEvent::Kind;
  if (event.kind == Kind::kContent) return AnswerPart::kContent;
  return event.kind == Kind::kReasoning ? AnswerPart::kThought : AnswerPart::kCall;
}

// The piece that more of this part goes to.
AnswerPiece& piece_of(AnswerPart part, std::vector<AnswerPiece>* pieces) {
  if (pieces->empty() || pieces->back().part != part) {
    pieces->push_back({.text = {}, .tokens = {}, .events = {}, .part = part});
  }
  return pieces->back();
}

}  // namespace

struct Generation::ChoiceState {
  ChoiceState(const text::Tokenizer& tokenizer, runtime::StopMatcher matcher,
              const AnswerReading& reading)
      : text(tokenizer, std::move(matcher), reading.shown_tokens),
        parser(text::make_answer_parser(reading.format, reading.options)),
        ends_after_call(reading.ends_after_call) {}

  // The answer is whole, whatever else the model says.
  bool has_enough() const { return text.stop().has_value() || has_its_call; }
  // Appends a piece and those held back before it, by what they say, to *pieces.
  void read(AnswerPiece piece, bool is_last, std::vector<AnswerPiece>* pieces);
  text::AnswerEvents parse(std::string_view words, bool is_last);

  // Of the scheduler's thread.
  std::optional<Nanoseconds> last_token{};
  std::atomic<bool> is_stopped{false};  // no more tokens are wanted

  // Under the generation's mutex.
  std::deque<AnswerToken> queue{};
  std::optional<runtime::GenerationResult> result{};
  runtime::RequestId id = 0;

  // Of the pump's thread.
  AnswerText text;
  std::unique_ptr<text::AnswerParser> parser;
  const bool ends_after_call;
  AnswerPiece held{};  // what the parser has not told the part of
  size_t tokens = 0;
  size_t thought_tokens = 0;
  bool has_calls = false;
  bool has_its_call = false;  // the only one that it may have
  bool has_ended = false;
};

// The scheduler's way in: keeps the generation alive until on_finished.
class Generation::Sink final : public runtime::TokenSink {
 public:
  Sink(std::shared_ptr<Generation> generation, size_t index)
      : generation_(std::move(generation)), index_(index) {}

  bool on_token(const runtime::GeneratedToken& token) override {
    Generation& generation = *generation_;
    ChoiceState& choice = *generation.choices_[index_];
    if (choice.is_stopped.load()) return false;
    const Nanoseconds now = SteadyClock::instance().now();
    GenerationObserver& observer = generation.parts_.observer;
    if (choice.last_token) {
      observer.on_next_token(seconds_between(*choice.last_token, now));
    } else {
      observer.on_first_token(seconds_between(generation.started_, now));
    }
    choice.last_token = now;
    {
      const std::lock_guard lock(generation.mutex_);
      choice.queue.push_back(
          {.id = token.id, .logprob = token.logprob, .top = {token.top.begin(), token.top.end()}});
    }
    generation.schedule();
    return true;
  }

  void on_finished(const runtime::GenerationResult& result) override {
    // The last reference may be this sink's own: hold the generation until the pump has it.
    const std::shared_ptr<Generation> generation = std::move(generation_);
    {
      const std::lock_guard lock(generation->mutex_);
      generation->choices_[index_]->result = result;
    }
    generation->schedule();
  }

 private:
  std::shared_ptr<Generation> generation_;
  size_t index_;
};

Generation::Generation(const GenerationParts& parts, std::unique_ptr<AnswerReceiver> receiver)
    : parts_(parts), receiver_(std::move(receiver)), started_(SteadyClock::instance().now()) {}

Generation::~Generation() = default;

Result<std::shared_ptr<Generation>> Generation::start(const GenerationParts& parts,
                                                      std::vector<Choice> choices,
                                                      std::unique_ptr<AnswerReceiver> receiver) {
  std::shared_ptr<Generation> generation(new Generation(parts, std::move(receiver)));
  for (Choice& choice : choices) {
    ASSIGN_OR_RETURN(runtime::StopMatcher matcher,
                     runtime::StopMatcher::create(std::move(choice.stops)));
    generation->choices_.push_back(std::make_unique<ChoiceState>(
        parts.tokenizer, std::move(matcher), choice.reading.value_or(AnswerReading{})));
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    runtime::GenerationRequest request = std::move(choices[i].request);
    request.sink = std::make_shared<Sink>(generation, i);
    const auto id = parts.generator.submit(std::move(request));
    if (!id.is_ok()) {
      generation->cancel();
      return id.status();
    }
    const std::lock_guard lock(generation->mutex_);
    generation->choices_[i]->id = *id;
  }
  {
    const std::lock_guard lock(generation->mutex_);
    generation->is_open_ = true;
  }
  generation->schedule();
  return generation;
}

void Generation::cancel() {
  std::vector<runtime::RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& choice : choices_) {
      choice->is_stopped.store(true);
      if (choice->id != 0 && !choice->result) ids.push_back(choice->id);
    }
  }
  for (const runtime::RequestId id : ids) parts_.generator.cancel(id);
}

void Generation::resume() { schedule(); }

void Generation::schedule() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_open_ || std::exchange(is_scheduled_, true)) return;
  }
  parts_.workers.post([self = shared_from_this()] { self->pump(); });
}

void Generation::pump() {
  {
    const std::lock_guard lock(mutex_);
    is_scheduled_ = false;  // what comes from now on schedules the next one
  }
  if (!std::exchange(has_begun_, true)) receiver_->on_started();
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i]->has_ended || !pump_choice(i)) continue;
    if (++ended_ == choices_.size()) receiver_->on_all_ended();
  }
}

// Brings one choice up to date, as far as the receiver has room; true when that was its end.
bool Generation::pump_choice(size_t index) {
  ChoiceState& choice = *choices_[index];
  while (receiver_->has_room()) {  // else resume() goes on
    Batch batch = take_tokens(&choice);
    if (batch.tokens.empty() && !batch.result) return false;
    std::vector<AnswerPiece> pieces = read_tokens(&choice, &batch);
    // After a stop string the end waits for the scheduler all the same: it gives the counts.
    if (choice.has_enough() && !choice.is_stopped.load()) stop_at(&choice);
    for (AnswerPiece& piece : pieces) {
      if (piece.part == AnswerPart::kThought) choice.thought_tokens += piece.tokens.size();
      receiver_->on_piece(index, std::move(piece));
    }
    if (!batch.result) continue;
    end_choice(index, *batch.result);
    return true;
  }
  return false;
}

Generation::Batch Generation::take_tokens(ChoiceState* choice) {
  Batch batch;
  const std::lock_guard lock(mutex_);
  while (!choice->queue.empty() && batch.tokens.size() < kTokensAtOnce) {
    batch.tokens.push_back(std::move(choice->queue.front()));
    choice->queue.pop_front();
  }
  if (choice->queue.empty()) batch.result = choice->result;
  return batch;
}

void Generation::end_choice(size_t index, const runtime::GenerationResult& result) {
  ChoiceState& choice = *choices_[index];
  choice.has_ended = true;
  ChoiceEnd end{.reason = choice.has_enough() ? FinishReason::kStop : finish_reason(result),
                .status = result.status,
                .prompt_tokens = result.prompt_tokens,
                .cached_tokens = result.reused_tokens,
                .tokens = choice.tokens,
                .thought_tokens = choice.thought_tokens,
                .has_calls = choice.has_calls,
                .seconds = seconds_between(started_, SteadyClock::instance().now()),
                .prefill_seconds = result.prefill_seconds,
                .decode_seconds = result.decode_seconds};
  if (choice.text.stop()) end.stop = std::string(*choice.text.stop());
  parts_.observer.on_end(end);
  receiver_->on_choice_end(index, end);
}

text::AnswerEvents Generation::ChoiceState::parse(std::string_view words, bool is_last) {
  using Kind = text::AnswerEvent::Kind;
  text::AnswerEvents events;
  if (has_its_call) return events;
  parser->push(words, &events);
  if (is_last) parser->finish(&events);
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind == Kind::kCallBegin) has_calls = true;
    if (events[i].kind != Kind::kCallEnd || !ends_after_call) continue;
    has_its_call = true;
    events.resize(i + 1);
  }
  return events;
}

void Generation::ChoiceState::read(AnswerPiece piece, bool is_last,
                                   std::vector<AnswerPiece>* pieces) {
  text::AnswerEvents events = parse(piece.text, is_last);
  held.text += piece.text;
  for (AnswerToken& token : piece.tokens) held.tokens.push_back(std::move(token));
  if (events.empty() && !is_last) return;
  if (!events.empty()) held.part = part_of(events.front());
  if (!held.is_empty() || !events.empty()) {
    AnswerPiece& first = piece_of(held.part, pieces);
    first.text += std::exchange(held.text, {});
    for (AnswerToken& token : std::exchange(held.tokens, {})) {
      first.tokens.push_back(std::move(token));
    }
  }
  for (text::AnswerEvent& event : events) {
    held.part = part_of(event);
    text::AnswerEvents& said = piece_of(held.part, pieces).events;
    if (!said.empty() && said.back().kind == event.kind) {
      said.back().text += event.text;
    } else {
      said.push_back(std::move(event));
    }
  }
}

std::vector<AnswerPiece> Generation::read_tokens(ChoiceState* choice, Batch* batch) {
  std::vector<AnswerPiece> pieces;
  for (AnswerToken& token : batch->tokens) {
    if (choice->has_enough()) break;
    AnswerPiece piece;
    choice->text.push(std::move(token), &piece);
    ++choice->tokens;
    choice->read(std::move(piece), false, &pieces);
  }
  if (batch->result) {
    AnswerPiece rest;
    choice->text.finish(&rest);
    choice->read(std::move(rest), true, &pieces);
  }
  return pieces;
}

void Generation::stop_at(ChoiceState* choice) {
  choice->is_stopped.store(true);
  runtime::RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = choice->id;
  }
  parts_.generator.cancel(id);
}

}  // namespace shoal::server
