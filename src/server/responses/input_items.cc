#include "server/responses/input_items.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace shoal::server {
namespace {

constexpr size_t kItemsMax = 100'000;

void refuse_item(Fields* request, const std::string& path, std::string_view why) {
  request->fail(ApiError{.message = fmt::format("{}.type: {}", path, why),
                         .param = path + ".type",
                         .code = "unsupported_parameter"});
}

// The text of a part as a template's part; none where it is refused.
std::optional<Json> read_part(const Json& json, const std::string& path, Fields* message) {
  if (!json.is_object()) {
    message->fail("content", "its parts must be objects");
    return std::nullopt;
  }
  Fields part(json, path);
  const auto type = part.text("type");
  const bool is_text = type == "input_text" || type == "output_text" || type == "text";
  if (!is_text) {
    part.fail(
        ApiError{.message = fmt::format("{}.type: this model reads text only, as input_text or "
                                        "output_text, no {}",
                                        path, type.value_or("other").substr(0, 64)),
                 .param = path + ".type",
                 .code = "unsupported_content"});
  }
  const auto text = part.text("text");
  if (!text) part.fail("text", "must be a string");
  // What comes back with an answer of this server.
  part.refuse_unless("annotations", {Json::array()}, "is not served");
  (void)part.array("logprobs");
  if (auto error = part.finish()) {
    message->fail(std::move(*error));
    return std::nullopt;
  }
  return Json::object({{"type", "text"}, {"text", *text}});
}

Json read_content(Fields* message) {
  const Json* content = message->any("content");
  if (content != nullptr && content->is_string()) return *content;
  if (content == nullptr || !content->is_array() || content->empty()) {
    message->fail("content", "must be a string or a list of at least one part of text");
    return "";
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content->size() && !message->has_failed(); ++i) {
    const std::string path = fmt::format("{}[{}]", message->path_of("content"), i);
    if (auto part = read_part((*content)[i], path, message)) parts.push_back(std::move(*part));
  }
  return parts;
}

Json read_message(Fields* message) {
  const auto role = message->choice("role", {"user", "assistant", "system", "developer"});
  if (!role) message->fail("role", "must be one of: user, assistant, system, developer");
  Json content = read_content(message);
  (void)message->text("id");
  (void)message->choice("status", {"in_progress", "completed", "incomplete"});
  message->refuse("phase", "is not served");
  // Templates know the older word for the same thing.
  return Json::object({{"role", role == "developer" ? "system" : role.value_or("")},
                       {"content", std::move(content)}});
}

void read_item(const Json& json, const std::string& path, Fields* request, Json* messages) {
  if (!json.is_object()) {
    request->fail(ApiError{.message = path + ": must be an object", .param = path});
    return;
  }
  Fields item(json, path);
  const std::string type = item.text("type").value_or("message");
  if (type == "function_call" || type == "function_call_output") {
    return refuse_item(request, path, "tools are not served yet");
  }
  if (type == "item_reference") {
    return refuse_item(request, path, "answers are not stored here; send the item itself");
  }
  if (type != "message") {
    return refuse_item(request, path, fmt::format("{} is not served", type.substr(0, 64)));
  }
  messages->push_back(read_message(&item));
  if (auto error = item.finish()) request->fail(std::move(*error));
}

}  // namespace

void read_input_items(Fields* fields, Json* messages) {
  const Json* input = fields->any("input");
  if (input != nullptr && input->is_string()) {
    messages->push_back(Json::object({{"role", "user"}, {"content", *input}}));
    return;
  }
  if (input == nullptr || !input->is_array() || input->empty() || input->size() > kItemsMax) {
    fields->fail("input", "must be a string or a list of at least one item");
    return;
  }
  for (size_t i = 0; i < input->size() && !fields->has_failed(); ++i) {
    read_item((*input)[i], fmt::format("{}[{}]", fields->path_of("input"), i), fields, messages);
  }
}

}  // namespace shoal::server
