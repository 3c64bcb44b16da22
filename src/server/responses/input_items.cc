#include "server/responses/input_items.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace shoal::server {
namespace {

constexpr size_t kItemsMax = 100'000;

void append_line(const std::string& line, std::string* text) {
  if (!text->empty()) *text += "\n";
  *text += line;
}

// Contents are texts or lists of parts; a list of the parts of both.
Json joined(Json content, Json more) {
  if (content.is_null()) return more;
  Json parts = Json::array();
  for (Json* one : {&content, &more}) {
    if (one->is_string()) *one = Json::array({Json::object({{"type", "text"}, {"text", *one}})});
    for (Json& part : *one) parts.push_back(std::move(part));
  }
  return parts;
}

// Messages, as items come.
class Conversation {
 public:
  explicit Conversation(Json* messages) : messages_(messages) {}

  // Whatever is not of an answer.
  void add(Json message) {
    finish();
    messages_->push_back(std::move(message));
    is_answer_ = false;
  }
  // Goes to the message that what follows is of.
  void add_thought(const std::string& thought) {
    if (!thought.empty()) append_line(thought, &thought_);
  }
  void add_text(Json content) {
    // An answer has one text, unless it says more behind its calls.
    const bool is_first = is_answer_ && messages_->back()["content"].is_null();
    Json& message = answer(is_first || (is_answer_ && messages_->back().contains("tool_calls")));
    message["content"] = joined(std::move(message["content"]), std::move(content));
  }
  void add_call(Json call) { answer(true)["tool_calls"].push_back(std::move(call)); }
  // A thought that nothing follows.
  void finish() {
    if (thought_.empty()) return;
    Json& message = answer(true);
    if (message["content"].is_null() && !message.contains("tool_calls")) message["content"] = "";
  }

 private:
  // The answer's message: the last one, where it goes on.
  Json& answer(bool goes_on) {
    if (!is_answer_ || !goes_on) {
      messages_->push_back(Json::object({{"role", "assistant"}, {"content", nullptr}}));
      is_answer_ = true;
    }
    Json& message = messages_->back();
    if (thought_.empty()) return message;
    std::string all = message.value("reasoning_content", "");
    append_line(std::exchange(thought_, {}), &all);
    message["reasoning_content"] = std::move(all);
    return message;
  }

  Json* messages_;
  std::string thought_;
  bool is_answer_ = false;  // the last message is one
};

constexpr std::string_view kNoParts = "its parts must be objects";

std::string needed_text(Fields* fields, std::string_view name) {
  auto text = fields->text(name);
  if (!text) fields->fail(name, "must be a string");
  return std::move(text).value_or("");
}

std::string read_text_part(Fields* part) {
  const auto type = part->text("type");
  const bool is_text = type == "input_text" || type == "output_text" || type == "text";
  if (!is_text) {
    const std::string path = part->path_of("type");
    part->fail(ApiError{.message = fmt::format("{}: this model reads text only, as input_text or "
                                               "output_text, no {}",
                                               path, type.value_or("other").substr(0, 64)),
                        .param = path,
                        .code = "unsupported_content"});
  }
  // What comes back with an answer of this server.
  part->refuse_unless("annotations", {Json::array()}, "is not served");
  (void)part->array("logprobs");
  return needed_text(part, "text");
}

// A text or parts of text, as a template takes them.
Json read_content(Fields* owner, std::string_view name) {
  const Json* content = owner->any(name);
  if (content != nullptr && content->is_string()) return *content;
  if (content == nullptr || !content->is_array() || content->empty()) {
    owner->fail(name, "must be a string or a list of at least one part of text");
    return "";
  }
  Json parts = Json::array();
  owner->each_object(name, *content, kNoParts, [&parts](Fields* part, size_t) {
    parts.push_back(Json::object({{"type", "text"}, {"text", read_text_part(part)}}));
  });
  return parts;
}

// What every item of an answer has.
void read_labels(Fields* item) {
  (void)item->text("id");
  (void)item->choice("status", {"in_progress", "completed", "incomplete"});
}

void read_message(Fields* message, Conversation* conversation) {
  const auto role = message->choice("role", {"user", "assistant", "system", "developer"});
  if (!role) message->fail("role", "must be one of: user, assistant, system, developer");
  read_labels(message);
  message->refuse("phase", "is not served");
  Json content = read_content(message, "content");
  if (role == "assistant") return conversation->add_text(std::move(content));
  // Templates know the older word for the same thing.
  conversation->add(Json::object({{"role", role == "developer" ? "system" : role.value_or("")},
                                  {"content", std::move(content)}}));
}

void refuse_callers(Fields* item) {
  item->refuse_unless("caller", {Json::object({{"type", "direct"}})}, "no program calls here");
  item->refuse("namespace", "is not served: functions have a name only");
}

void read_call(Fields* call, Conversation* conversation) {
  read_labels(call);
  refuse_callers(call);
  // The second name is what the dump of a call by OpenAI's Python client has.
  for (const char* name : {"async", "async_"}) {
    call->refuse_unless(name, {false}, "is not served");
  }
  conversation->add_call(Json::object(
      {{"id", needed_text(call, "call_id")},
       {"type", "function"},
       {"function",
        {{"name", needed_text(call, "name")}, {"arguments", needed_text(call, "arguments")}}}}));
}

void read_result(Fields* result, Conversation* conversation) {
  read_labels(result);
  refuse_callers(result);
  Json message = Json::object({{"role", "tool"},
                               {"tool_call_id", needed_text(result, "call_id")},
                               {"content", read_content(result, "output")}});
  if (auto name = result->text("name")) message["name"] = std::move(*name);
  conversation->add(std::move(message));
}

std::string read_thought(Fields* item, std::string_view name, std::string_view type) {
  std::string text;
  const Json* parts = item->array(name);
  if (parts == nullptr) return text;
  item->each_object(name, *parts, kNoParts, [&](Fields* part, size_t) {
    if (part->text("type") != type) part->fail("type", fmt::format("must be {}", type));
    append_line(needed_text(part, "text"), &text);
  });
  return text;
}

// The thought itself, or what another server has told of one.
void read_reasoning(Fields* item, Conversation* conversation) {
  read_labels(item);
  item->refuse("encrypted_content",
               "cannot be read here; send the item's content, or leave it out");
  const std::string thought = read_thought(item, "content", "reasoning_text");
  const std::string summary = read_thought(item, "summary", "summary_text");
  conversation->add_thought(thought.empty() ? summary : thought);
}

void refuse_item(Fields* item, std::string_view why) {
  const std::string path = item->path_of("type");
  item->fail(ApiError{
      .message = fmt::format("{}: {}", path, why), .param = path, .code = "unsupported_parameter"});
}

void read_item(Fields* item, Conversation* conversation) {
  const std::string type = item->text("type").value_or("message");
  if (type == "message") return read_message(item, conversation);
  if (type == "reasoning") return read_reasoning(item, conversation);
  if (type == "function_call") return read_call(item, conversation);
  if (type == "function_call_output") return read_result(item, conversation);
  if (type == "item_reference") {
    return refuse_item(item, "answers are not stored here; send the item itself");
  }
  refuse_item(item, fmt::format("{} is not served: only messages, reasoning, function_call and "
                                "function_call_output are",
                                type.substr(0, 64)));
}

}  // namespace

void read_input_items(Fields* fields, Json* messages) {
  const Json* input = fields->any("input");
  Conversation conversation(messages);
  if (input != nullptr && input->is_string()) {
    return conversation.add(Json::object({{"role", "user"}, {"content", *input}}));
  }
  if (input == nullptr || !input->is_array() || input->empty() || input->size() > kItemsMax) {
    fields->fail("input", "must be a string or a list of at least one item");
    return;
  }
  fields->each_object("input", *input, "",
                      [&](Fields* item, size_t) { read_item(item, &conversation); });
  conversation.finish();
  if (messages->empty()) fields->fail("input", "has no message, call or thought");
}

}  // namespace shoal::server
