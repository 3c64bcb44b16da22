#include "model/gguf/vocabulary.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "base/foreign/quote.h"

namespace shoal::model {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
// A special token that the model does not have, in files that write the key all the same.
constexpr int64_t kNoToken = 0xFFFFFFFF;

class Reader {
 public:
  explicit Reader(const GgufMetadata& metadata) : metadata_(metadata) {}

  Result<std::optional<text::Vocabulary>> read() {
    if (find("model") == nullptr) return std::optional<text::Vocabulary>();
    text::Vocabulary out;
    RETURN_IF_ERROR(read_string("model", out.model));
    if (out.model == "none" || out.model == "no_vocab") return std::optional<text::Vocabulary>();
    RETURN_IF_ERROR(read_string("pre", out.pre));
    RETURN_IF_ERROR(read_strings("tokens", out.tokens));
    RETURN_IF_ERROR(read_strings("merges", out.merges));
    RETURN_IF_ERROR(read_scores(out));
    RETURN_IF_ERROR(read_types(out));
    RETURN_IF_ERROR(read_id("bos_token_id", out.bos));
    RETURN_IF_ERROR(read_id("eos_token_id", out.eos));
    RETURN_IF_ERROR(read_id("eot_token_id", out.eot));
    RETURN_IF_ERROR(read_id("eom_token_id", out.eom));
    RETURN_IF_ERROR(read_id("unknown_token_id", out.unk));
    RETURN_IF_ERROR(read_id("padding_token_id", out.pad));
    RETURN_IF_ERROR(read_bool("add_bos_token", out.add_bos));
    RETURN_IF_ERROR(read_bool("add_eos_token", out.add_eos));
    RETURN_IF_ERROR(read_bool("add_space_prefix", out.add_space_prefix));
    RETURN_IF_ERROR(text::validate(out));
    return std::optional(std::move(out));
  }

 private:
  const MetadataValue* find(std::string_view name) const {
    return metadata_.find(std::string(kPrefix) + std::string(name));
  }

  static Status refuse(std::string_view name, const MetadataValue& value,
                       std::string_view expected) {
    const MetadataArray* array = value.array();
    const std::string found =
        array == nullptr
            ? std::string(value_type_name(value.type))
            : fmt::format("array of {} {}", array->size(), value_type_name(array->element_type()));
    return Status::request(
        fmt::format("the key '{}{}' is of type {}, expected {}", kPrefix, name, found, expected));
  }

  Status read_string(std::string_view name, std::string& out) const {
    const MetadataValue* value = find(name);
    if (value == nullptr) return Status::ok();
    const auto text = value->string();
    if (!text) return refuse(name, *value, "string");
    out = *text;
    return Status::ok();
  }

  Status read_strings(std::string_view name, std::vector<std::string>& out) const {
    const MetadataValue* value = find(name);
    if (value == nullptr) return Status::ok();
    const auto texts = value->array() == nullptr ? std::nullopt : value->array()->strings();
    if (!texts) return refuse(name, *value, "array of strings");
    out.assign(texts->begin(), texts->end());
    return Status::ok();
  }

  Status read_scores(text::Vocabulary& out) const {
    const MetadataValue* value = find("scores");
    if (value == nullptr) return Status::ok();
    auto scores = value->array() == nullptr ? std::nullopt : value->array()->floats();
    if (!scores) {
      return refuse("scores", *value, fmt::format("array of {} f32", out.tokens.size()));
    }
    out.scores = *std::move(scores);
    return Status::ok();
  }

  // The format says i32; u32 and i64 are about, too.
  Status read_types(text::Vocabulary& out) const {
    const MetadataValue* value = find("token_type");
    if (value == nullptr) return Status::ok();
    const std::string expected = fmt::format("array of {} i32", out.tokens.size());
    const MetadataArray* array = value->array();
    const bool is_wide = array != nullptr && is_integer_type(array->element_type()) &&
                         value_type_bytes(array->element_type()) >= 4;
    const auto types = is_wide ? array->integers() : std::nullopt;
    if (!types) return refuse("token_type", *value, expected);
    out.types.reserve(types->size());
    for (const int64_t type : *types) {
      if (type < std::numeric_limits<int32_t>::min() ||
          type > std::numeric_limits<int32_t>::max()) {
        return refuse("token_type", *value, expected + " (one does not fit 32 bits)");
      }
      out.types.push_back(static_cast<int32_t>(type));
    }
    return Status::ok();
  }

  Status read_id(std::string_view name, std::optional<int64_t>& out) const {
    const MetadataValue* value = find(name);
    if (value == nullptr) return Status::ok();
    const auto id = is_integer_type(value->type) ? value->integer() : std::nullopt;
    if (!id) return refuse(name, *value, "u32");
    if (*id != kNoToken) out = id;
    return Status::ok();
  }

  Status read_bool(std::string_view name, std::optional<bool>& out) const {
    const MetadataValue* value = find(name);
    if (value == nullptr) return Status::ok();
    const auto flag = value->boolean();
    if (!flag) return refuse(name, *value, "bool");
    out = flag;
    return Status::ok();
  }

  const GgufMetadata& metadata_;
};

}  // namespace

Result<std::optional<text::Vocabulary>> read_vocabulary(const GgufMetadata& metadata,
                                                        std::string_view file_name) {
  auto vocabulary = Reader(metadata).read();
  if (!vocabulary.is_ok()) return vocabulary.status().with_context(file_name);
  return vocabulary;
}

}  // namespace shoal::model
