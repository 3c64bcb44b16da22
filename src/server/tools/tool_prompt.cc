#include "server/tools/tool_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "server/api/raw_json.h"

namespace shoal::server {
namespace {

using text::CallFormat;

// A content as one text: parts are joined as the template's library joins them.
std::string text_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (!content->is_array()) return text;
  for (const Json& part : *content) {
    if (!text.empty()) text += "\n";
    text += part.value("text", "");
  }
  return text;
}

// What a call looks like in an answer.
std::string call_text(CallFormat format, const std::string& name, const std::string& arguments) {
  switch (format) {
    case CallFormat::kLlama3:
      return fmt::format(R"({{"name": {}, "parameters": {}}})", json_text(name), arguments);
    case CallFormat::kDeepSeekFence:
    case CallFormat::kDeepSeek:
      return fmt::format(
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```"
          "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          name, arguments);
    case CallFormat::kHermes:
    case CallFormat::kMistralList:
    case CallFormat::kMistralNamed:
    case CallFormat::kHarmony:
      break;
  }
  return fmt::format("<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                     json_text(name), arguments);
}

std::string describe(const ToolOptions& tools, const text::AnswerFormat& format) {
  std::string text =
      "You can call functions. Each line between <tools> and </tools> describes one of them, its "
      "parameters as a JSON schema:\n<tools>\n";
  for (const Tool& tool : tools.tools) text += on_one_line(tool.definition) + "\n";
  text +=
      "</tools>\nTo call a function, answer with its name and its arguments, a JSON object, in "
      "this form:\n";
  text += call_text(format.calls, "NAME", R"({"PARAMETER": VALUE})");
  return text;
}

void add_system_text(const std::string& text, Json* messages) {
  if (!messages->empty() && messages->front()["role"] == "system") {
    Json& system = messages->front();
    const std::string own = text_of(system);
    system["content"] = own.empty() ? text : own + "\n\n" + text;
    return;
  }
  Json with_system = Json::array({Json::object({{"role", "system"}, {"content", text}})});
  for (Json& message : *messages) with_system.push_back(std::move(message));
  *messages = std::move(with_system);
}

std::string arguments_of(const Json& function) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end()) return "{}";
  const bool is_text = arguments->is_string();
  return is_text ? arguments->get<std::string>() : arguments->dump();
}

// Calls become what the model wrote, results what a user says.
void write_history(const text::AnswerFormat& format, Json* messages) {
  Json out = Json::array();
  bool is_after_result = false;
  for (Json& message : *messages) {
    const bool is_result = message["role"] == "tool";
    if (is_result) {
      const std::string result =
          fmt::format("<tool_response>\n{}\n</tool_response>", text_of(message));
      if (is_after_result) {
        Json& last = out.back()["content"];
        last = last.get<std::string>() + "\n" + result;
      } else {
        out.push_back(Json::object({{"role", "user"}, {"content", result}}));
      }
    } else {
      if (const auto calls = message.find("tool_calls"); calls != message.end()) {
        std::string text = text_of(message);
        for (const Json& call : *calls) {
          const Json& function = call.at("function");
          if (!text.empty()) text += "\n";
          text += call_text(format.calls, function.value("name", ""), arguments_of(function));
        }
        message["content"] = std::move(text);
        message.erase("tool_calls");
      }
      out.push_back(std::move(message));
    }
    is_after_result = is_result;
  }
  *messages = std::move(out);
}

// Nine letters and digits, as Mistral's templates demand.
std::string short_id(const std::string& id) {
  constexpr size_t kLength = 9;
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0; };
  if (id.size() == kLength && std::ranges::all_of(id, is_plain)) return id;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string text;
  for (; text.size() < kLength; hash /= kDigits.size()) text += kDigits[hash % kDigits.size()];
  return text;
}

void shorten_ids(Json* messages) {
  const auto shorten = [](Json* object, const char* name) {
    const auto id = object->find(name);
    if (id != object->end() && id->is_string()) *id = short_id(id->get<std::string>());
  };
  for (Json& message : *messages) {
    shorten(&message, "tool_call_id");
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    for (Json& call : *calls) shorten(&call, "id");
  }
}

// gpt-oss refuses a message with calls that has both content and thinking.
void copy_thoughts(Json* messages) {
  for (Json& message : *messages) {
    const auto thought = message.find("reasoning_content");
    if (thought == message.end()) continue;
    if (message.contains("tool_calls") && !text_of(message).empty()) continue;
    message["thinking"] = *thought;
  }
}

}  // namespace

void put_tools(const ToolOptions& tools, const text::AnswerFormat& format, Json* input) {
  Json& messages = (*input)["messages"];
  if (!format.has_call_history) write_history(format, &messages);
  if (format.wants_short_call_ids) shorten_ids(&messages);
  if (format.reads_message_thinking) copy_thoughts(&messages);
  if (!tools.are_offered()) return;
  if (!format.has_tools) {
    add_system_text(describe(tools, format), &messages);
    return;
  }
  std::string list;
  for (const Tool& tool : tools.tools) list += (list.empty() ? "[" : ", ") + tool.definition;
  (*input)["tools"] = list + "]";
}

}  // namespace shoal::server
