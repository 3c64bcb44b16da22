#include "model/model.h"

#include <fmt/format.h>

#include <cstring>

#include "base/foreign/quote.h"
#include "model/gguf/vocabulary.h"
#include "tensor/float16.h"

namespace shoal::model {
namespace {

// More tokens than the embedding has rows would be looked up past its end.
Status check_vocabulary_fits(const Model& model) {
  const MetadataValue* value = model.file->metadata().find("tokenizer.ggml.tokens");
  if (value == nullptr || value->array() == nullptr) return Status::ok();
  const uint64_t tokens = value->array()->size();
  if (tokens <= model.config.vocab) return Status::ok();
  return Status::request(
      fmt::format("{}: the key 'tokenizer.ggml.tokens' has {} tokens, the embedding only {} rows",
                  model.file->name(), tokens, model.config.vocab));
}

}  // namespace

Result<TokenizerSource> read_tokenizer_source(const ModelFile& file) {
  TokenizerSource source;
  if (file.format() == FileFormat::kSafetensors) {
    source.folder = file.folder().empty() ? "." : file.folder();
    return source;
  }
  ASSIGN_OR_RETURN(source.vocabulary, read_vocabulary(file.metadata(), file.name()));
  return source;
}

Result<std::string> read_chat_template(const ModelFile& file) {
  const MetadataValue* value = file.metadata().find("tokenizer.chat_template");
  if (value == nullptr) return std::string();
  const auto text = value->string();
  if (!text) {
    return Status::request(
        fmt::format("{}: the key 'tokenizer.chat_template' is a {}, expected a "
                    "string",
                    file.name(), value_type_name(value->type)));
  }
  return std::string(*text);
}

Result<std::vector<float>> read_floats(const TensorInfo& tensor) {
  const size_t count = tensor.shape.elements();
  std::vector<float> out(count);
  const auto widen = [&](auto to_float) {
    for (size_t i = 0; i < count; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, tensor.data.data() + i * sizeof(bits), sizeof(bits));
      out[i] = to_float(bits);
    }
  };
  const auto dtype = tensor.dtype();
  if (dtype == tensor::DType::kF32) {
    if (count != 0) std::memcpy(out.data(), tensor.data.data(), count * sizeof(float));
  } else if (dtype == tensor::DType::kF16) {
    widen([](uint16_t bits) { return tensor::f16_to_float(bits); });
  } else if (dtype == tensor::DType::kBF16) {
    widen([](uint16_t bits) { return tensor::bf16_to_float(bits); });
  } else {
    return Status::request(fmt::format("tensor {} has type {}, expected F32, F16 or BF16",
                                       quote(tensor.name), tensor.type.name));
  }
  return out;
}

tensor::MatrixView matrix_view(const TensorInfo& tensor) {
  CHECK(tensor.shape.rank() == 2 && tensor.dtype().has_value());
  return {*tensor.dtype(), static_cast<int64_t>(tensor.shape[0]),
          static_cast<int64_t>(tensor.shape[1]), tensor.data};
}

Result<std::unique_ptr<Model>> load_model(const std::string& path) {
  auto model = std::make_unique<Model>();
  ASSIGN_OR_RETURN(model->file, open_model(path));
  ASSIGN_OR_RETURN(model->config, read_config(*model->file));
  ASSIGN_OR_RETURN(model->tensors, resolve_tensors(*model->file, model->config));
  RETURN_IF_ERROR(check_vocabulary_fits(*model));
  return model;
}

}  // namespace shoal::model
