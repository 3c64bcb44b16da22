#include "model/arch/config_reader.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/foreign/quote.h"

namespace shoal::model {
namespace {

std::optional<int64_t> json_integer(const nlohmann::json& value) {
  // Unsigned is tested first: the library counts it as an integer too.
  if (const auto* number = value.get_ptr<const nlohmann::json::number_unsigned_t*>()) {
    if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(*number);
  }
  if (const auto* number = value.get_ptr<const nlohmann::json::number_integer_t*>()) return *number;
  return std::nullopt;
}

std::optional<double> json_number(const nlohmann::json& value) {
  if (const auto* number = value.get_ptr<const nlohmann::json::number_float_t*>()) return *number;
  if (const auto integer = json_integer(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string kind(const MetadataValue& value) {
  const MetadataArray* array = value.array();
  if (array == nullptr) return std::string(value_type_name(value.type));
  return fmt::format("array of {} {}", array->size(), value_type_name(array->element_type()));
}

}  // namespace

const MetadataValue* ConfigReader::metadata(const std::string& key) const {
  return is_gguf() ? file_->metadata().find(key) : nullptr;
}

const nlohmann::json* ConfigReader::json(const std::string& key) const {
  const nlohmann::json* at = is_gguf() ? nullptr : file_->config();
  for (size_t start = 0; at != nullptr && start <= key.size();) {
    const size_t end = std::min(key.find('.', start), key.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key.substr(start, end - start));
    if (found == at->end()) return nullptr;
    at = &*found;
    start = end + 1;
  }
  return at;
}

bool ConfigReader::has(const std::string& key) const {
  return metadata(key) != nullptr || json(key) != nullptr;
}

Status ConfigReader::refuse(const std::string& key, std::string_view reason) const {
  const std::string where =
      is_gguf() ? file_->name()
                : (file_->folder().empty() ? "." : file_->folder()) + "/config.json";
  return Status::request(fmt::format("{}: the key {} {}", where, quote(key), reason));
}

Result<std::optional<int64_t>> ConfigReader::integer(const std::string& key) const {
  if (const MetadataValue* value = metadata(key)) {
    const auto integer = is_integer_type(value->type) ? value->integer() : std::nullopt;
    if (!integer) return refuse(key, "is a " + kind(*value) + ", expected an integer");
    return integer;
  }
  const auto* value = json(key);
  if (value == nullptr || value->is_null()) return std::optional<int64_t>();
  const auto integer = json_integer(*value);
  if (!integer) return refuse(key, fmt::format("is a {}, expected an integer", value->type_name()));
  return integer;
}

Result<std::optional<double>> ConfigReader::number(const std::string& key) const {
  if (const MetadataValue* value = metadata(key)) {
    const auto number = value->number();
    if (!number) return refuse(key, "is a " + kind(*value) + ", expected a number");
    return number;
  }
  const auto* value = json(key);
  if (value == nullptr || value->is_null()) return std::optional<double>();
  const auto number = json_number(*value);
  if (!number) return refuse(key, fmt::format("is a {}, expected a number", value->type_name()));
  return number;
}

Result<std::optional<bool>> ConfigReader::boolean(const std::string& key) const {
  if (const MetadataValue* value = metadata(key)) {
    const auto boolean = value->boolean();
    if (!boolean) return refuse(key, "is a " + kind(*value) + ", expected a bool");
    return boolean;
  }
  const auto* value = json(key);
  if (value == nullptr || value->is_null()) return std::optional<bool>();
  const auto* boolean = value->get_ptr<const nlohmann::json::boolean_t*>();
  if (boolean == nullptr) {
    return refuse(key, fmt::format("is a {}, expected a bool", value->type_name()));
  }
  return std::optional(*boolean);
}

Result<std::optional<std::string>> ConfigReader::string(const std::string& key) const {
  if (const MetadataValue* value = metadata(key)) {
    const auto text = value->string();
    if (!text) return refuse(key, "is a " + kind(*value) + ", expected a string");
    return std::optional(std::string(*text));
  }
  const auto* value = json(key);
  if (value == nullptr || value->is_null()) return std::optional<std::string>();
  const auto* text = value->get_ptr<const std::string*>();
  if (text == nullptr) {
    return refuse(key, fmt::format("is a {}, expected a string", value->type_name()));
  }
  return std::optional(*text);
}

Result<std::optional<std::vector<int64_t>>> ConfigReader::per_layer(const std::string& key,
                                                                    size_t layers) const {
  using Numbers = std::optional<std::vector<int64_t>>;
  Numbers numbers;
  if (const MetadataValue* value = metadata(key); value != nullptr && value->array() != nullptr) {
    if (is_integer_type(value->array()->element_type())) numbers = value->array()->integers();
    if (!numbers) return refuse(key, "is an " + kind(*value) + ", expected integers");
  } else if (const auto* list = json(key); list != nullptr && list->is_array()) {
    numbers.emplace();
    for (const auto& element : *list) {
      const auto number = json_integer(element);
      if (!number) return refuse(key, "is a list, expected integers in it");
      numbers->push_back(*number);
    }
  } else {
    ASSIGN_OR_RETURN(const auto number, integer(key));
    if (!number) return Numbers();
    return Numbers(std::vector<int64_t>(layers, *number));
  }
  if (numbers->size() != layers) {
    return refuse(key, fmt::format("has {} elements, expected one for each of {} layers",
                                   numbers->size(), layers));
  }
  return numbers;
}

Result<std::optional<std::vector<std::string>>> ConfigReader::strings(
    const std::string& key) const {
  std::vector<std::string> out;
  if (const MetadataValue* value = metadata(key)) {
    const auto texts = value->array() == nullptr ? std::nullopt : value->array()->strings();
    if (!texts) return refuse(key, "is a " + kind(*value) + ", expected an array of strings");
    out.assign(texts->begin(), texts->end());
    return std::optional(std::move(out));
  }
  const auto* list = json(key);
  if (list == nullptr || list->is_null()) return std::optional<std::vector<std::string>>();
  if (!list->is_array()) return refuse(key, "is no list of strings");
  for (const auto& element : *list) {
    const auto* text = element.get_ptr<const std::string*>();
    if (text == nullptr) return refuse(key, "is no list of strings");
    out.push_back(*text);
  }
  return std::optional(std::move(out));
}

Result<int64_t> ConfigReader::check_count(const std::string& key, int64_t value,
                                          int64_t max) const {
  if (value >= 1 && value <= max) return value;
  return refuse(key, fmt::format("is {}, expected 1 to {}", value, max));
}

Result<int64_t> ConfigReader::count(const std::string& key, int64_t max) const {
  ASSIGN_OR_RETURN(const auto value, integer(key));
  if (!value) return missing(key);
  return check_count(key, *value, max);
}

}  // namespace shoal::model
