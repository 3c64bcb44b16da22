// Any bytes as a safetensors file, or, where they start as a JSON text, as a config.json.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/foreign/json.h"
#include "memory_file.h"
#include "model/model.h"
#include "model/safetensors/reader.h"

namespace shoal::model {
namespace {

void read_tensors(std::span<const std::byte> bytes) {
  const auto tensors = parse_safetensors(bytes, "fuzz");
  if (!tensors.is_ok()) return;
  volatile size_t sum = 0;
  for (const TensorInfo& tensor : *tensors) {
    for (const std::byte byte : tensor.data) sum = sum + static_cast<size_t>(byte);
    // Reads elements at whatever address they have.
    const auto floats = read_floats(tensor);
    if (floats.is_ok()) sum = sum + floats->size();
  }
}

void read_settings(std::span<const std::byte> bytes) {
  auto config = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz");
  if (!config.is_ok()) return;
  static const fuzz::MemoryFile empty;
  ModelFileParts parts;
  parts.format = FileFormat::kSafetensors;
  parts.files.push_back(*MappedFile::open(empty.path()));
  parts.config = std::make_unique<nlohmann::json>(*std::move(config));
  const auto file = ModelFile::create(std::move(parts));
  CHECK(file.is_ok());
  const auto settings = read_config(**file);
  // There are no tensors, so this ends in a refusal; it must be a clean one.
  if (settings.is_ok()) CHECK(!resolve_tensors(**file, *settings).is_ok());
}

}  // namespace
}  // namespace shoal::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size != 0 && data[0] == '{') {
    shoal::model::read_settings(bytes);
  } else {
    shoal::model::read_tensors(bytes);
  }
  return 0;
}
