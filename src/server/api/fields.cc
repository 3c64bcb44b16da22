#include "server/api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace shoal::server {
int nesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiResult<Json> parse_body(std::string_view body) {
  if (nesting(body) > kNestingMax) {
    return ApiError{.message =
                        fmt::format("the body is nested more than {} levels deep", kNestingMax)};
  }
  Json json = Json::parse(body, nullptr, false);
  if (json.is_discarded()) {
    return ApiError{.message = body.empty() ? "the body is empty: a JSON object is expected"
                                            : "the body is no valid JSON in UTF-8"};
  }
  if (!json.is_object()) {
    return ApiError{.message = "the body is JSON, but no object"};
  }
  return json;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  CHECK(object.is_object());
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::fail(std::string_view name, std::string_view message) {
  fail(ApiError{.message = fmt::format("{}: {}", path_of(name), message), .param = path_of(name)});
}

const Json* Fields::any(std::string_view name) {
  const auto known = known_.emplace(name).first;
  const auto found = object_.find(*known);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "must be true or false");
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, IntegerRange range) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    fail(name, "must be an integer");
    return std::nullopt;
  }
  const bool is_huge = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  const int64_t number = is_huge ? INT64_MAX : value->get<int64_t>();
  if (is_huge || number < range.min || number > range.max) {
    fail(name, fmt::format("must be an integer from {} to {}", range.min, range.max));
    return std::nullopt;
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name, NumberRange range) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(name, "must be a number");
    return std::nullopt;
  }
  const auto number = value->get<double>();
  // Written so that NaN fails.
  const bool is_good = number >= range.min && number <= range.max;
  if (is_good) return number;
  fail(name, fmt::format("must be a number from {} to {}", range.min, range.max));
  return std::nullopt;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, "must be a string");
  return std::nullopt;
}

std::optional<std::string> Fields::choice(std::string_view name,
                                          const std::vector<std::string_view>& choices) {
  auto value = text(name);
  if (!value || std::ranges::find(choices, *value) != choices.end()) return value;
  fail(name, fmt::format("must be one of: {}", fmt::join(choices, ", ")));
  return std::nullopt;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr || value->is_object()) return value;
  fail(name, "must be an object");
  return nullptr;
}

const Json* Fields::array(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr || value->is_array()) return value;
  fail(name, "must be a list");
  return nullptr;
}

void Fields::each_object(std::string_view name, const Json& list, std::string_view wrong,
                         const ReadEntry& read) {
  for (size_t i = 0; i < list.size() && !has_failed(); ++i) {
    const std::string path = fmt::format("{}[{}]", path_of(name), i);
    if (list[i].is_object()) {
      Fields entry(list[i], path);
      read(&entry, i);
      if (auto error = entry.finish()) fail(std::move(*error));
    } else if (wrong.empty()) {
      fail(ApiError{.message = path + ": must be an object", .param = path});
    } else {
      fail(name, wrong);
    }
  }
}

void Fields::refuse(std::string_view name, std::string_view why) { refuse_unless(name, {}, why); }

void Fields::refuse_unless(std::string_view name, const std::vector<Json>& harmless,
                           std::string_view why) {
  const Json* value = any(name);
  if (value == nullptr || std::ranges::find(harmless, *value) != harmless.end()) return;
  fail(ApiError{.message = fmt::format("{}: {}", path_of(name), why),
                .param = path_of(name),
                .code = "unsupported_parameter"});
}

std::optional<ApiError> Fields::finish() {
  if (error_) return error_;
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name)) continue;
    // The name is the client's own text: shown to it, cut where it is long.
    const std::string shown = path_of(name.substr(0, 64));
    return ApiError{.message = fmt::format("{}: this server knows no such field", shown),
                    .param = shown,
                    .code = "unknown_parameter"};
  }
  return std::nullopt;
}

void refuse_content(Fields* part, std::string_view type) {
  const std::string path = part->path_of("type");
  part->fail(ApiError{
      .message = fmt::format("{}: this model reads text only, no {}", path, type.substr(0, 64)),
      .param = path,
      .code = "unsupported_content"});
}

}  // namespace shoal::server
