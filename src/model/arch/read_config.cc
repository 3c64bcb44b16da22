// The settings that every family shares, from GGUF metadata or config.json.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/foreign/quote.h"
#include "model/arch/family.h"
#include "model/arch/pooling.h"
#include "model/arch/rope_settings.h"
#include "model/arch/tensor_names.h"
#include "model/model.h"

namespace shoal::model {
namespace {

// The names of the common settings in one format.
struct Keys {
  std::string layers, hidden, heads, kv_heads, head_dim, value_head_dim, ffn, context, epsilon;
  std::string experts, vocab;
};

Keys gguf_keys(const std::string& architecture) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  return {.layers = key("block_count"),
          .hidden = key("embedding_length"),
          .heads = key("attention.head_count"),
          .kv_heads = key("attention.head_count_kv"),
          .head_dim = key("attention.key_length"),
          .value_head_dim = key("attention.value_length"),
          .ffn = key("feed_forward_length"),
          .context = key("context_length"),
          .epsilon = key("attention.layer_norm_rms_epsilon"),
          .experts = key("expert_count"),
          .vocab = key("vocab_size")};
}

Keys hf_keys() {
  return {.layers = "num_hidden_layers",
          .hidden = "hidden_size",
          .heads = "num_attention_heads",
          .kv_heads = "num_key_value_heads",
          .head_dim = "head_dim",
          .value_head_dim = "v_head_dim",
          .ffn = "intermediate_size",
          .context = "max_position_embeddings",
          .epsilon = "rms_norm_eps",
          .experts = "num_experts",
          .vocab = "vocab_size"};
}

std::string family_names(FileFormat format) {
  std::string names;
  for (const Family* family : families()) {
    const std::string_view name =
        format == FileFormat::kGguf ? family->gguf_architecture : family->hf_architecture;
    if (!name.empty()) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

Result<std::string> read_architecture(const ConfigReader& reader) {
  const ModelFile& file = reader.file();
  if (reader.is_gguf()) {
    ASSIGN_OR_RETURN(const auto architecture, reader.string("general.architecture"));
    if (!architecture) return reader.missing("general.architecture");
    return *architecture;
  }
  if (file.config() == nullptr) {
    return Status::request(fmt::format(
        "{}: there is no config.json beside it, so the model's shape is not known", file.name()));
  }
  ASSIGN_OR_RETURN(const auto architectures, reader.strings("architectures"));
  if (!architectures || architectures->empty()) return reader.missing("architectures");
  return architectures->front();
}

Result<const Family*> read_family(const ConfigReader& reader, const std::string& architecture) {
  const FileFormat format = reader.file().format();
  const Family* family = find_family(format, architecture);
  if (family != nullptr) return family;
  return reader.refuse(reader.is_gguf() ? "general.architecture" : "architectures",
                       fmt::format("is {}, which Shoal does not know (it knows {})",
                                   quote(architecture), family_names(format)));
}

// heads, kv_heads, head sizes and the feed-forward width of each layer.
Status read_layers(const ConfigReader& reader, const Keys& keys, const Family& family,
                   ModelConfig& config) {
  ASSIGN_OR_RETURN(const int64_t layers, reader.count(keys.layers, kLayersMax));
  const auto count = static_cast<size_t>(layers);
  ASSIGN_OR_RETURN(const auto heads, reader.per_layer(keys.heads, count));
  if (!heads) return reader.missing(keys.heads);
  ASSIGN_OR_RETURN(const auto kv_heads, reader.per_layer(keys.kv_heads, count));
  ASSIGN_OR_RETURN(const auto ffn, reader.per_layer(keys.ffn, count));
  if (!ffn) return reader.missing(keys.ffn);
  ASSIGN_OR_RETURN(auto head_dim, reader.integer(keys.head_dim));
  ASSIGN_OR_RETURN(const auto value_head_dim, reader.integer(keys.value_head_dim));
  if (!head_dim && !reader.is_gguf() && family.head_dim_default != 0) {
    head_dim = family.head_dim_default;
  }
  for (size_t i = 0; i < count; ++i) {
    LayerSpec layer;
    ASSIGN_OR_RETURN(const int64_t q, reader.check_count(keys.heads, (*heads)[i], kHeadsMax));
    ASSIGN_OR_RETURN(const int64_t kv,
                     reader.check_count(keys.kv_heads, kv_heads ? (*kv_heads)[i] : q, q));
    if (q % kv != 0) {
      return reader.refuse(keys.kv_heads,
                           fmt::format("is {}, which does not divide the {} heads of "
                                       "layer {} ({})",
                                       kv, q, i, quote(keys.heads)));
    }
    if (!head_dim && config.hidden % q != 0) {
      return reader.refuse(keys.hidden,
                           fmt::format("is {}, not divisible by the {} heads, and there is no {}",
                                       config.hidden, q, quote(keys.head_dim)));
    }
    ASSIGN_OR_RETURN(
        const int64_t dim,
        reader.check_count(keys.head_dim, head_dim.value_or(config.hidden / q), kHeadDimMax));
    if (value_head_dim.value_or(dim) != dim) {
      return reader.refuse(keys.value_head_dim,
                           fmt::format("is {}, but keys have {}: different sizes are not supported",
                                       *value_head_dim, dim));
    }
    ASSIGN_OR_RETURN(const int64_t columns, reader.check_count(keys.ffn, (*ffn)[i], kFfnMax));
    layer.heads = static_cast<uint32_t>(q);
    layer.kv_heads = static_cast<uint32_t>(kv);
    layer.head_dim = static_cast<uint32_t>(dim);
    layer.value_head_dim = layer.head_dim;
    layer.ffn = static_cast<uint32_t>(columns);
    config.layers.push_back(layer);
  }
  return Status::ok();
}

// Settings of checkpoints that would be silently ignored otherwise.
Status refuse_unsupported(const ConfigReader& reader, const Keys& keys) {
  ASSIGN_OR_RETURN(const auto experts, reader.integer(keys.experts));
  if (experts.value_or(0) != 0) {
    return reader.refuse(keys.experts, fmt::format("is {}: mixtures of experts are not supported "
                                                   "by this family's file",
                                                   *experts));
  }
  if (reader.is_gguf()) return Status::ok();
  if (reader.has("quantization_config")) {
    return reader.refuse("quantization_config",
                         "is there: quantized safetensors are not supported, use the original "
                         "weights or a GGUF file");
  }
  ASSIGN_OR_RETURN(const auto activation, reader.string("hidden_act"));
  if (activation && *activation != "silu" && *activation != "swish") {
    return reader.refuse("hidden_act", fmt::format("is {}, expected silu", quote(*activation)));
  }
  return Status::ok();
}

Status read_sizes(const ConfigReader& reader, const Keys& keys, ModelConfig& config) {
  ASSIGN_OR_RETURN(const int64_t hidden, reader.count(keys.hidden, kHiddenMax));
  ASSIGN_OR_RETURN(const int64_t context, reader.count(keys.context, kContextMax));
  ASSIGN_OR_RETURN(const auto epsilon, reader.number(keys.epsilon));
  if (!epsilon && reader.is_gguf()) return reader.missing(keys.epsilon);
  config.hidden = static_cast<uint32_t>(hidden);
  config.context = static_cast<uint32_t>(context);
  config.norm_epsilon = static_cast<float>(epsilon.value_or(1e-6));
  if (!(config.norm_epsilon >= 0.0F && config.norm_epsilon < 1.0F)) {
    return reader.refuse(keys.epsilon, fmt::format("is {}, expected 0 to 1", *epsilon));
  }
  return Status::ok();
}

// The rows of the embedding decide; the key, where there is one, must agree.
Status read_vocabulary_size(const ConfigReader& reader, const Keys& keys, ModelConfig& config) {
  const std::string name(tensor_names(reader.file()).token_embedding);
  ASSIGN_OR_RETURN(const auto said, reader.integer(keys.vocab));
  const TensorInfo* embedding = reader.file().find(name);
  int64_t rows = said.value_or(0);
  if (embedding != nullptr && embedding->shape.rank() == 2) {
    rows = static_cast<int64_t>(embedding->shape[0]);
    if (said && *said != rows) {
      return reader.refuse(keys.vocab, fmt::format("is {}, but the tensor {} has {} rows", *said,
                                                   quote(name), rows));
    }
  } else if (!said) {
    return Status::request(
        fmt::format("{}: the tensor {} is missing", reader.file().name(), quote(name)));
  }
  ASSIGN_OR_RETURN(rows, reader.check_count(keys.vocab, rows, kVocabMax));
  config.vocab = static_cast<uint32_t>(rows);
  return Status::ok();
}

Status read_names(const ConfigReader& reader, ModelConfig& config) {
  const ModelFile& file = reader.file();
  if (reader.is_gguf()) {
    // A name of another type is odd, but nothing depends on it.
    const MetadataValue* name = file.metadata().find("general.name");
    if (name != nullptr) config.display_name = std::string(name->string().value_or(""));
    config.tied_embeddings = file.find("output.weight") == nullptr;
  } else {
    const std::filesystem::path folder(file.folder());
    std::error_code error;
    config.display_name = std::filesystem::absolute(folder, error).filename().string();
    ASSIGN_OR_RETURN(const auto is_tied, reader.boolean("tie_word_embeddings"));
    config.tied_embeddings = is_tied.value_or(false);
  }
  if (config.display_name.empty()) {
    config.display_name = std::filesystem::path(file.name()).filename().string();
  }
  return Status::ok();
}

}  // namespace

Result<ModelConfig> read_config(const ModelFile& file) {
  const ConfigReader reader(file);
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, read_architecture(reader));
  ASSIGN_OR_RETURN(const Family* family, read_family(reader, config.architecture));
  config.family = family->name;
  const Keys keys = reader.is_gguf() ? gguf_keys(config.architecture) : hf_keys();
  RETURN_IF_ERROR(refuse_unsupported(reader, keys));
  RETURN_IF_ERROR(read_sizes(reader, keys, config));
  RETURN_IF_ERROR(read_layers(reader, keys, *family, config));
  RETURN_IF_ERROR(read_vocabulary_size(reader, keys, config));
  RETURN_IF_ERROR(read_names(reader, config));
  RETURN_IF_ERROR(read_rope(reader, config));
  RETURN_IF_ERROR(read_pooling(reader, config));
  RETURN_IF_ERROR(family->configure(reader, config));
  if (const Status status = validate(config); !status.is_ok()) {
    return status.with_context(file.name());
  }
  return config;
}

}  // namespace shoal::model
