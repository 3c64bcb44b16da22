// OutputItems: what a response puts out, item by item, as the answer comes: thoughts, messages and
// calls of functions, and the events that tell of them.
//
// Thoughts are items "reasoning" with a content "reasoning_text", as OpenAI documents it for its
// open models (cookbook.openai.com/articles/gpt-oss/handle-raw-cot).
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/generate/answer_json.h"
#include "server/generate/generation.h"

namespace shoal::server {

struct OutputOptions {
  const text::Tokenizer* tokenizer = nullptr;
  bool wants_logprobs = false;
};

// What status a response or an item has that ends like this.
std::string_view status_of(const ChoiceEnd& end);

class OutputItems {
 public:
  using WriteEvent = std::function<void(const std::string& type, const OrderedJson& fields)>;

  // write: empty where nobody reads events.
  explicit OutputItems(const OutputOptions& options, WriteEvent write = {})
      : options_(options), write_(std::move(write)) {}

  void add(AnswerPiece piece);
  // The end of the answer: an item that is open ends with this status, unless it is a call that is
  // whole. An answer that says nothing is a message without text.
  void end(std::string_view status);
  // The items that have ended.
  const OrderedJson& items() const { return items_; }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  void begin(Kind kind, std::string name = {});
  void begin_unless_open(Kind kind) {
    if (kind_ != kind) begin(kind);
  }
  void append(const std::string& text, std::vector<AnswerToken> tokens);
  void close(std::string_view status);
  bool is_whole_call() const;

  // Of the open item.
  OrderedJson item(std::string_view status, OrderedJson content) const;
  OrderedJson part() const;
  OrderedJson logprobs(const std::vector<AnswerToken>& tokens) const;
  void write_part_end(const OrderedJson& part) const;
  void write_item(const std::string& type, OrderedJson item) const;
  void write(const std::string& type, const OrderedJson& fields) const;

  const OutputOptions options_;
  const WriteEvent write_;
  OrderedJson items_ = OrderedJson::array();

  // The open item.
  Kind kind_ = Kind::kNone;
  std::string id_;
  std::string call_id_;
  std::string name_;
  std::string text_;  // or the arguments
  std::vector<AnswerToken> tokens_;
};

}  // namespace shoal::server
