// ChatTemplate: a model's own Jinja template, which writes a conversation as one prompt.
//
// Renders as Hugging Face transformers does (block trimming, loop controls, Python's tojson and
// string methods). A template comes from a foreign file: it runs without access to anything but
// its variables, with bounds on its steps, memory and time; each rendering has a thread of its own.
// Thread rule: immutable after parse; render may be called from many threads.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer.h"

struct ShoalTemplate;

namespace shoal::text {

// The special tokens' texts, as the template's variables of the same names; undefined in the
// template where there is none.
struct ChatTemplateOptions {
  std::optional<std::string> bos_token{};
  std::optional<std::string> eos_token{};
  std::optional<std::string> unk_token{};
  std::optional<std::string> pad_token{};
};

// The options for a tokenizer's own special tokens.
ChatTemplateOptions chat_template_options(const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  // kRequest with the line, and the tag if it is unknown, when the source is no valid template.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source,
                                                     const ChatTemplateOptions& options);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // request_json is an object: "messages" (OpenAI's form), optional "tools" (a list, or the JSON
  // text of one), "add_generation_prompt" (true when absent), and any further variables for the
  // template ("enable_thinking", ...). Before the template sees them:
  //  - a content array of text parts becomes the joined string; another part type is kRequest;
  //  - a tool call's arguments given as JSON text become the value; text that is no JSON stays.
  // A template that fails on those values, or on a content of null, is given the text instead.
  // now is the time that strftime_now shows, in the local time zone.
  //
  // kRequest when the template refuses the conversation (is_refusal() then holds), when it fails
  // (the message has the line), or when the request is malformed. A template that passed its bounds
  // on memory or time once is refused from then on.
  Result<std::string> render(std::string_view request_json,
                             std::time_t now = std::time(nullptr)) const;

  // The status is the template's own raise_exception: its text follows the kRefusal prefix.
  static bool is_refusal(const Status& status);
  static constexpr std::string_view kRefusal = "the chat template refuses this conversation: ";

 private:
  struct Free {
    void operator()(ShoalTemplate* impl) const;
  };
  explicit ChatTemplate(ShoalTemplate* impl) : impl_(impl) {}

  std::unique_ptr<ShoalTemplate, Free> impl_;
};

}  // namespace shoal::text
