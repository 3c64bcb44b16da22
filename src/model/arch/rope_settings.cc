#include "model/arch/rope_settings.h"

#include <fmt/format.h>

#include "base/foreign/quote.h"
#include "model/model.h"

namespace shoal::model {
namespace {

using tensor::RopeConfig;
using tensor::RopeScaling;

constexpr double kThetaDefault = 10000.0;

// Sets `out` where the key is there.
Status read_number(const ConfigReader& reader, const std::string& key, double& out) {
  ASSIGN_OR_RETURN(const auto value, reader.number(key));
  if (value) out = *value;
  return Status::ok();
}

Status unknown_scaling(const ConfigReader& reader, const std::string& key,
                       const std::string& type) {
  return reader.refuse(key, "is " + quote(type) +
                                ", a scaling that Shoal does not compute (it knows linear, llama3 "
                                "and yarn)");
}

Status read_divisors(const ConfigReader& reader, RopeConfig& rope) {
  const TensorInfo* factors = reader.file().find("rope_freqs.weight");
  if (factors == nullptr) return Status::ok();
  const auto pairs = static_cast<uint64_t>(rope.rotary_dims / 2);
  if (factors->shape != Shape{pairs}) {
    return Status::request(fmt::format("{}: tensor 'rope_freqs.weight' has shape {}, expected [{}]",
                                       reader.file().name(), factors->shape.to_string(), pairs));
  }
  ASSIGN_OR_RETURN(rope.frequency_divisors, read_floats(*factors));
  return Status::ok();
}

Status read_gguf_yarn(const ConfigReader& reader, const std::string& prefix, RopeConfig& rope) {
  RETURN_IF_ERROR(read_number(reader, prefix + "yarn_beta_fast", rope.beta_fast));
  RETURN_IF_ERROR(read_number(reader, prefix + "yarn_beta_slow", rope.beta_slow));
  // A factor on top of YaRN's own.
  double extra = 1.0;
  RETURN_IF_ERROR(read_number(reader, prefix + "attn_factor", extra));
  RETURN_IF_ERROR(read_number(reader, prefix + "yarn_attn_factor", extra));
  rope.attention_factor = extra * tensor::yarn_mscale(rope.factor, 1.0);
  return Status::ok();
}

Status read_gguf_scaling(const ConfigReader& reader, const std::string& architecture,
                         RopeConfig& rope) {
  const std::string prefix = architecture + ".rope.scaling.";
  ASSIGN_OR_RETURN(const auto type, reader.string(prefix + "type"));
  // The spelling before there were types.
  RETURN_IF_ERROR(read_number(reader, architecture + ".rope.scale_linear", rope.factor));
  RETURN_IF_ERROR(read_number(reader, prefix + "factor", rope.factor));
  RETURN_IF_ERROR(read_number(reader, prefix + "original_context_length", rope.original_context));
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    return read_gguf_yarn(reader, prefix, rope);
  }
  if (type == "none") {
    rope.factor = 1.0;
  } else if (!type || *type == "linear") {
    // A factor without a type is linear; 0 and 1 change nothing.
    if (rope.factor == 0.0) rope.factor = 1.0;
    if (rope.factor != 1.0) rope.scaling = RopeScaling::kLinear;
  } else {
    return unknown_scaling(reader, prefix + "type", *type);
  }
  return Status::ok();
}

Status read_gguf_rope(const ConfigReader& reader, const std::string& architecture,
                      RopeConfig& rope) {
  const std::string prefix = architecture + ".rope.";
  RETURN_IF_ERROR(read_number(reader, prefix + "freq_base", rope.theta));
  ASSIGN_OR_RETURN(const auto dims, reader.integer(prefix + "dimension_count"));
  if (dims) {
    ASSIGN_OR_RETURN(rope.rotary_dims,
                     reader.check_count(prefix + "dimension_count", *dims, rope.rotary_dims));
  }
  RETURN_IF_ERROR(read_gguf_scaling(reader, architecture, rope));
  return read_divisors(reader, rope);
}

Status read_hf_yarn(const ConfigReader& reader, const std::string& prefix, RopeConfig& rope) {
  RETURN_IF_ERROR(read_number(reader, prefix + "beta_fast", rope.beta_fast));
  RETURN_IF_ERROR(read_number(reader, prefix + "beta_slow", rope.beta_slow));
  RETURN_IF_ERROR(read_number(reader, prefix + "attention_factor", rope.attention_factor));
  ASSIGN_OR_RETURN(const auto truncate, reader.boolean(prefix + "truncate"));
  rope.truncate_bounds = truncate.value_or(true);
  double mscale = 0;
  double mscale_all_dim = 0;
  RETURN_IF_ERROR(read_number(reader, prefix + "mscale", mscale));
  RETURN_IF_ERROR(read_number(reader, prefix + "mscale_all_dim", mscale_all_dim));
  if (rope.attention_factor != 0) return Status::ok();
  rope.attention_factor = mscale != 0 && mscale_all_dim != 0
                              ? tensor::yarn_mscale(rope.factor, mscale) /
                                    tensor::yarn_mscale(rope.factor, mscale_all_dim)
                              : tensor::yarn_mscale(rope.factor, 1.0);
  return Status::ok();
}

Status read_hf_rope(const ConfigReader& reader, RopeConfig& rope) {
  // "rope_parameters" holds everything in newer files; older ones have "rope_theta" beside an
  // optional "rope_scaling".
  const std::string prefix =
      reader.has("rope_parameters.rope_type") || reader.has("rope_parameters.rope_theta")
          ? "rope_parameters."
          : "rope_scaling.";
  RETURN_IF_ERROR(read_number(reader, "rope_theta", rope.theta));
  RETURN_IF_ERROR(read_number(reader, prefix + "rope_theta", rope.theta));
  double share = 1.0;
  RETURN_IF_ERROR(read_number(reader, "partial_rotary_factor", share));
  RETURN_IF_ERROR(read_number(reader, prefix + "partial_rotary_factor", share));
  if (!(share > 0.0 && share <= 1.0)) {
    return reader.refuse("partial_rotary_factor", fmt::format("is {}, expected 0 to 1", share));
  }
  rope.rotary_dims = static_cast<int64_t>(static_cast<double>(rope.rotary_dims) * share);

  const bool has_new_name = reader.has(prefix + "rope_type");
  const std::string type_key = prefix + (has_new_name ? "rope_type" : "type");
  ASSIGN_OR_RETURN(const auto type, reader.string(type_key));
  if (!type || *type == "default") return Status::ok();
  const std::string factor_key = prefix + "factor";
  ASSIGN_OR_RETURN(const auto factor, reader.number(factor_key));
  if (!factor) return reader.missing(factor_key);
  rope.factor = *factor;
  RETURN_IF_ERROR(
      read_number(reader, prefix + "original_max_position_embeddings", rope.original_context));
  if (*type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return Status::ok();
  }
  if (*type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    RETURN_IF_ERROR(read_number(reader, prefix + "low_freq_factor", rope.low_frequency_factor));
    return read_number(reader, prefix + "high_freq_factor", rope.high_frequency_factor);
  }
  if (*type != "yarn") return unknown_scaling(reader, type_key, *type);
  rope.scaling = RopeScaling::kYarn;
  return read_hf_yarn(reader, prefix, rope);
}

}  // namespace

Status read_rope(const ConfigReader& reader, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  CHECK(!config.layers.empty());
  rope.rotary_dims = config.layers.front().head_dim;
  rope.theta = kThetaDefault;
  RETURN_IF_ERROR(reader.is_gguf() ? read_gguf_rope(reader, config.architecture, rope)
                                   : read_hf_rope(reader, rope));
  if (rope.original_context == 0) rope.original_context = config.context;
  return Status::ok();
}

}  // namespace shoal::model
