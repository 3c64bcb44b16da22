#include "text/tokenizer_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/foreign/json.h"
#include "base/mapped_file.h"

namespace shoal::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The largest published template is below 100 kB.
constexpr size_t kTemplateBytesMax = size_t{64} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<std::string> read_text(const fs::path& path) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::open(path.string()));
  if (file->bytes().size() > kTemplateBytesMax) {
    return Status::request(path.string() + " is larger than 64 MiB");
  }
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

// The object in the file, an empty one where there is no file.
Result<Json> read_object(const fs::path& path) {
  if (!is_there(path)) return Json::object();
  ASSIGN_OR_RETURN(Json json, read_json_file(path.string()));
  if (!json.is_object()) return Status::request(path.string() + " is not a JSON object");
  return json;
}

// The string under the key, nullptr where there is none.
const std::string* string_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

// A token is written as its text or as an object with its text as "content".
std::optional<std::string> token_text(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  const std::string* text =
      found->is_object() ? string_at(*found, "content") : found->get_ptr<const std::string*>();
  return text == nullptr ? std::nullopt : std::optional(*text);
}

std::optional<bool> switch_value(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_boolean()) return std::nullopt;
  return found->get<bool>();
}

std::vector<int64_t> ids_of(const Json& config, const char* key) {
  std::vector<int64_t> ids;
  const auto found = config.find(key);
  if (found == config.end()) return ids;
  if (found->is_number_integer()) ids.push_back(found->get<int64_t>());
  if (!found->is_array()) return ids;
  for (const Json& id : *found) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// The template in chat_template.jinja, or in the configuration: a text, or a list of named ones of
// which "default" is taken. Empty where there is none.
Result<std::string> template_source(const fs::path& folder, const Json& config) {
  const fs::path file = folder / "chat_template.jinja";
  if (is_there(file)) return read_text(file);
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::string();
  if (const auto* text = found->get_ptr<const std::string*>()) return *text;
  if (!found->is_array()) return std::string();
  for (const Json& entry : *found) {
    if (!entry.is_object()) continue;
    const std::string* name = string_at(entry, "name");
    if (name != nullptr && *name == "default") {
      return token_text(entry, "template").value_or(std::string());
    }
  }
  return std::string();
}

}  // namespace

Result<TokenizerFolder> load_tokenizer_folder(const std::string& folder_name) {
  const fs::path folder(folder_name);
  const fs::path tokenizer_file = folder / "tokenizer.json";
  if (!is_there(tokenizer_file)) {
    return Status::request(folder_name + " has no tokenizer.json");
  }
  ASSIGN_OR_RETURN(const Json config, read_object(folder / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const Json map, read_object(folder / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const Json generation, read_object(folder / "generation_config.json"));
  const auto token = [&](const char* key) {
    auto text = token_text(config, key);
    return text.has_value() ? text : token_text(map, key);
  };
  const TokenizerFileOptions options = {
      .bos_token = token("bos_token"),
      .eos_token = token("eos_token"),
      .unk_token = token("unk_token"),
      .pad_token = token("pad_token"),
      .add_bos = switch_value(config, "add_bos_token"),
      .add_eos = switch_value(config, "add_eos_token"),
      .end_of_generation = ids_of(generation, "eos_token_id"),
  };
  TokenizerFolder result;
  ASSIGN_OR_RETURN(result.tokenizer, Tokenizer::from_json_file(tokenizer_file.string(), options));
  ASSIGN_OR_RETURN(result.chat_template_source, template_source(folder, config));
  if (!result.chat_template_source.empty()) {
    auto parsed =
        ChatTemplate::parse(result.chat_template_source, chat_template_options(*result.tokenizer));
    if (parsed.is_ok()) {
      result.chat_template = std::move(parsed).value();
    } else {
      result.chat_template_status = parsed.status();
    }
  }
  return result;
}

}  // namespace shoal::text
