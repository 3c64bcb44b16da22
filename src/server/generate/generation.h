// Generation: the answers to one request, n of them, from their tokens to a receiver.
//
// It submits every choice, keeps their tokens while the receiver has no room, turns them into text
// on a thread apart from the scheduler's, and stops the scheduler where a stop string was met or
// the client has gone. What waits for a slow reader is tokens only, at most a context of them each.
// Thread rule: any thread. Kept alive by the scheduler until every choice ended, and by the
// callbacks of its receiver's exchange.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/generate/answer_text.h"
#include "server/generate/generator.h"
#include "server/http/workers.h"
#include "text/answer_format/answer_format.h"

namespace shoal::server {

enum class FinishReason { kStop, kLength, kCancelled, kFailed };

struct ChoiceEnd {
  FinishReason reason = FinishReason::kStop;
  std::optional<std::string> stop{};  // the stop string that was met
  Status status{};                    // of kFailed
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;   // of the prompt
  size_t tokens = 0;          // of the answer, up to the stop string
  size_t thought_tokens = 0;  // of these
  bool has_calls = false;
  double seconds = 0;  // from start() to here
  double prefill_seconds = 0;
  double decode_seconds = 0;

  // There is less of an answer than was asked for, and nobody to blame but this side.
  bool has_broken_off() const {
    return reason == FinishReason::kFailed || reason == FinishReason::kCancelled;
  }
};

// Where the answers go. All calls come from one thread at a time, never during start().
class AnswerReceiver {
 public:
  virtual ~AnswerReceiver() = default;
  virtual bool has_room() const = 0;
  // Every choice was taken: what follows is the answer.
  virtual void on_started() = 0;
  // All of a piece is of one part of the answer. A mark between two parts is of one of them.
  virtual void on_piece(size_t choice, AnswerPiece piece) = 0;
  virtual void on_choice_end(size_t choice, const ChoiceEnd& end) = 0;
  // After the last choice's end.
  virtual void on_all_ended() = 0;
};

// What is measured of every choice, whoever it is for. Calls come from several threads.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  virtual void on_first_token(double seconds) = 0;
  virtual void on_next_token(double seconds_since_the_last) = 0;
  virtual void on_end(const ChoiceEnd& end) = 0;
  // Of a text to embed, which has no tokens of an answer.
  virtual void on_embedding_end(const ChoiceEnd& end) = 0;
};

struct GenerationParts {
  Generator& generator;
  const text::Tokenizer& tokenizer;
  Workers& workers;  // one thread suffices: texts of all requests are made there
  GenerationObserver& observer;
};

// How an answer to a chat is taken apart.
struct AnswerReading {
  text::AnswerFormat format{};
  text::AnswerParserOptions options{};
  std::vector<runtime::TokenId> shown_tokens{};  // control tokens that the format is made of
  bool ends_after_call = false;
};

struct Choice {
  runtime::GenerationRequest request{};  // without a sink
  std::vector<std::string> stops{};
  std::optional<AnswerReading> reading{};  // none: all of it is content
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits the choices. On an error none of them runs on, and the receiver is never called.
  // Shared with the scheduler and the client's connection, whichever ends last.
  static Result<std::shared_ptr<Generation>> start(const GenerationParts& parts,
                                                   std::vector<Choice> choices,
                                                   std::unique_ptr<AnswerReceiver> receiver);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // The client has gone: ends every choice.
  void cancel();
  // The receiver has room again.
  void resume();

 private:
  class Sink;
  struct ChoiceState;
  Generation(const GenerationParts& parts, std::unique_ptr<AnswerReceiver> receiver);
  void schedule();
  void pump();
  bool pump_choice(size_t index);
  // The next tokens that came, a few, and the result where there are no more.
  struct Batch {
    std::vector<AnswerToken> tokens{};
    std::optional<runtime::GenerationResult> result{};
  };
  Batch take_tokens(ChoiceState* choice);
  // What they say.
  static std::vector<AnswerPiece> read_tokens(ChoiceState* choice, Batch* batch);
  void stop_at(ChoiceState* choice);
  void end_choice(size_t index, const runtime::GenerationResult& result);

  GenerationParts parts_;
  std::unique_ptr<AnswerReceiver> receiver_;
  const Nanoseconds started_;
  std::vector<std::unique_ptr<ChoiceState>> choices_;
  size_t ended_ = 0;  // of the pump's thread
  bool has_begun_ = false;
  std::mutex mutex_;  // below, and the choices' queues
  bool is_scheduled_ = false;
  bool is_open_ = false;  // every choice was submitted
};

}  // namespace shoal::server
