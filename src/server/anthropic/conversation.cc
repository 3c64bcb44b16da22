#include "server/anthropic/conversation.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/raw_json.h"

namespace shoal::server {
namespace {

Json message(std::string_view role, std::string content) {
  return Json::object({{"role", role}, {"content", std::move(content)}});
}

void append_line(const std::string& line, std::string* text) {
  if (!text->empty()) *text += "\n";
  *text += line;
}

// Reads one block of a kind that its owner takes; false: this kind is not taken.
using ReadBlock = std::function<bool(std::string_view type, Fields* block, size_t index)>;

void read_blocks(Fields* owner, std::string_view name, const Json& list, const ReadBlock& read) {
  if (list.empty()) owner->fail(name, "must be a string or a list of blocks");
  owner->each_object(name, list, "its blocks must be objects", [&](Fields* block, size_t i) {
    const auto type = block->text("type");
    if (!type) block->fail("type", "must be a string");
    (void)block->object("cache_control");  // what is alike is cached without being asked for
    if (type && !read(*type, block, i)) refuse_content(block, *type);
  });
}

bool read_text_block(std::string_view type, Fields* block, std::string* text) {
  if (type != "text") return false;
  block->refuse_unless("citations", {Json::array()}, "is not served");
  const auto part = block->text("text");
  if (!part) block->fail("text", "must be a string");
  append_line(part.value_or(""), text);
  return true;
}

// A text, or a list of blocks of text.
std::string read_text(Fields* owner, std::string_view name) {
  const Json* value = owner->any(name);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  std::string text;
  if (value == nullptr || !value->is_array()) {
    owner->fail(name, "must be a string or a list of blocks of text");
    return text;
  }
  read_blocks(owner, name, *value, [&text](std::string_view type, Fields* block, size_t) {
    return read_text_block(type, block, &text);
  });
  return text;
}

Json read_result(Fields* block) {
  const auto id = block->text("tool_use_id");
  if (!id) block->fail("tool_use_id", "must be a string");
  std::string text = block->any("content") == nullptr ? "" : read_text(block, "content");
  if (block->boolean("is_error").value_or(false)) text = "Error: " + text;
  Json result = message("tool", std::move(text));
  result["tool_call_id"] = id.value_or("");
  return result;
}

// What a user says, and what tools gave, in order.
void read_user(Fields* entry, const Json& blocks, Json* out) {
  std::string text;
  bool has_text = false;
  const auto flush = [&] {
    if (has_text) out->push_back(message("user", std::exchange(text, "")));
    has_text = false;
  };
  read_blocks(entry, "content", blocks, [&](std::string_view type, Fields* block, size_t) {
    if (type == "tool_result") {
      flush();
      out->push_back(read_result(block));
      return true;
    }
    has_text = true;
    return read_text_block(type, block, &text);
  });
  flush();
}

// raw: this message as it was written.
Json read_assistant(Fields* entry, const Json& blocks, std::string_view raw) {
  const auto raw_blocks = raw_items(raw_member(raw, "content"));
  std::string text;
  std::string thought;
  Json calls = Json::array();
  read_blocks(entry, "content", blocks, [&](std::string_view type, Fields* block, size_t i) {
    if (type == "thinking") {
      append_line(block->text("thinking").value_or(""), &thought);
      (void)block->text("signature");  // thoughts are the client's to keep: nothing is proven
      return true;
    }
    if (type != "tool_use") return read_text_block(type, block, &text);
    const auto id = block->text("id");
    const auto name = block->text("name");
    if (!id) block->fail("id", "must be a string");
    if (!name) block->fail("name", "must be a string");
    if (block->object("input") == nullptr) block->fail("input", "must be an object");
    calls.push_back(Json::object({{"id", id.value_or("")},
                                  {"type", "function"},
                                  {"function",
                                   {{"name", name.value_or("")},
                                    {"arguments", raw_member(item_of(raw_blocks, i), "input")}}}}));
    return true;
  });
  const bool has_text = !text.empty();
  Json out = message("assistant", std::move(text));
  if (!calls.empty()) {
    if (!has_text) out["content"] = nullptr;
    out["tool_calls"] = std::move(calls);
  }
  if (!thought.empty()) out["reasoning_content"] = std::move(thought);
  return out;
}

void read_message(Fields* entry, std::string_view raw, Json* out) {
  const auto role = entry->choice("role", {"user", "assistant"});
  if (!role) entry->fail("role", "must be one of: user, assistant");
  const Json* content = entry->any("content");
  if (content == nullptr || !content->is_array()) {
    out->push_back(message(role.value_or(""), read_text(entry, "content")));
  } else if (role == "assistant") {
    out->push_back(read_assistant(entry, *content, raw));
  } else {
    read_user(entry, *content, out);
  }
}

}  // namespace

Json read_conversation(Fields* fields, std::string_view body) {
  Json out = Json::array();
  if (fields->any("system") != nullptr) {
    out.push_back(message("system", read_text(fields, "system")));
  }
  const Json* messages = fields->array("messages");
  if (messages == nullptr || messages->empty()) {
    fields->fail("messages", "must be a list of at least one message");
    return out;
  }
  const auto raw = raw_items(raw_member(body, "messages"));
  fields->each_object("messages", *messages, "",
                      [&](Fields* entry, size_t i) { read_message(entry, item_of(raw, i), &out); });
  return out;
}

}  // namespace shoal::server
