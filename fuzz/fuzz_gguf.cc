// Any bytes as a GGUF file: parsed, walked, and turned into a config, tensors, a tokenizer and a
// chat template, which are used.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "memory_file.h"
#include "model/gguf/reader.h"
#include "model/model.h"
#include "text_parts.h"

namespace shoal::model {
namespace {

// Touches every element, so that a sanitizer sees a view that leads out of the file.
size_t walk(const MetadataArray& array, int depth) {
  size_t sum = 0;
  if (const auto strings = array.strings()) {
    for (const std::string_view text : *strings) {
      for (const char c : text) sum += static_cast<unsigned char>(c);
    }
  }
  if (const auto integers = array.integers()) sum += integers->size();
  if (const auto floats = array.floats()) sum += floats->size();
  if (const auto arrays = array.arrays()) {
    for (const MetadataArray& inner : *arrays) sum += walk(inner, depth + 1);
  }
  return sum;
}

size_t walk(const ModelFile& file) {
  size_t sum = 0;
  for (const auto& entry : file.metadata().entries()) {
    if (const MetadataArray* array = entry.value.array()) sum += walk(*array, 0);
    if (const auto text = entry.value.string()) sum += text->size();
  }
  for (const TensorInfo& tensor : file.tensors()) {
    for (const std::byte byte : tensor.data) sum += static_cast<size_t>(byte);
  }
  return sum;
}

// Larger ones are the fuzzer's own copies of the small ones.
constexpr size_t kTokensMax = 4096;
constexpr size_t kTemplateBytesMax = 4096;

void use_text(const ModelFile& file) {
  const auto source = read_tokenizer_source(file);
  if (source.is_ok() && source->vocabulary && source->vocabulary->tokens.size() <= kTokensMax) {
    const auto tokenizer = text::Tokenizer::from_vocabulary(*source->vocabulary);
    fuzz::expect_no_panic(tokenizer.status());
    if (tokenizer.is_ok()) fuzz::use_tokenizer(**tokenizer);
  }
  const auto chat_template = read_chat_template(file);
  if (chat_template.is_ok() && !chat_template->empty() &&
      chat_template->size() <= kTemplateBytesMax) {
    fuzz::use_template(*chat_template);
  }
}

}  // namespace
}  // namespace shoal::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static shoal::fuzz::MemoryFile memory;
  memory.set(std::as_bytes(std::span(data, size)));
  const auto file = shoal::model::open_model(memory.path());
  if (!file.is_ok()) return 0;
  volatile size_t sum = shoal::model::walk(**file);
  sum = sum + 1;
  shoal::model::use_text(**file);
  const auto config = shoal::model::read_config(**file);
  if (!config.is_ok()) return 0;
  const auto tensors = shoal::model::resolve_tensors(**file, *config);
  if (tensors.is_ok()) sum = sum + tensors->layers.size();
  return 0;
}
