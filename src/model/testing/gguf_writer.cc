#include "model/testing/gguf_writer.h"

#include "base/check.h"
#include "model/storage_type.h"

namespace shoal::model::testing {
namespace {

constexpr uint32_t kVersion = 3;

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  CHECK(alignment >= 8 && (alignment & (alignment - 1)) == 0);
  if (alignment != 32) add_u32("general.alignment", alignment);
}

void GgufWriter::start_value(std::string_view key, ValueType type) {
  CHECK(!key.empty() && names_.insert("key " + std::string(key)).second);
  ++key_count_;
  metadata_.write_string(key);
  metadata_.write(static_cast<uint32_t>(type));
}

void GgufWriter::add_encoded(std::string_view key, ValueType type,
                             std::span<const std::byte> value) {
  start_value(key, type);
  metadata_.write_bytes(value);
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  start_value(key, ValueType::kString);
  metadata_.write_string(value);
}

void GgufWriter::start_array(std::string_view key, ValueType element_type, size_t size) {
  start_value(key, ValueType::kArray);
  metadata_.write(static_cast<uint32_t>(element_type));
  metadata_.write(static_cast<uint64_t>(size));
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  start_array(key, ValueType::kString, values.size());
  for (const std::string& value : values) metadata_.write_string(value);
}

void GgufWriter::add_i32s(std::string_view key, std::span<const int32_t> values) {
  start_array(key, ValueType::kI32, values.size());
  metadata_.write_bytes(std::as_bytes(values));
}

void GgufWriter::add_f32s(std::string_view key, std::span<const float> values) {
  start_array(key, ValueType::kF32, values.size());
  metadata_.write_bytes(std::as_bytes(values));
}

void GgufWriter::add_tensor(std::string_view name, tensor::DType dtype, const Shape& shape,
                            std::span<const std::byte> data) {
  CHECK(!name.empty() && names_.insert("tensor " + std::string(name)).second);
  const StorageType type = storage_type(dtype);
  CHECK(shape.rank() <= 4 && shape.ne(0) % type.block_elements == 0);
  CHECK(shape.elements() / type.block_elements * type.block_bytes == data.size());
  tensors_.push_back({std::string(name), dtype, shape, data, data_bytes_});
  data_bytes_ += padded(data.size());
}

std::vector<std::byte> GgufWriter::header() const {
  ByteWriter out;
  out.write_bytes(bytes_of("GGUF"));
  out.write(kVersion);
  out.write(static_cast<uint64_t>(tensors_.size()));
  out.write(key_count_);
  out.write_bytes(metadata_.bytes());
  for (const Tensor& tensor : tensors_) {
    out.write_string(tensor.name);
    out.write(static_cast<uint32_t>(tensor.shape.rank()));
    for (size_t i = 0; i < tensor.shape.rank(); ++i) out.write(tensor.shape.ne(i));
    out.write(tensor::dtype_info(tensor.dtype).gguf_id);
    out.write(tensor.offset);
  }
  std::vector<std::byte> bytes = out.take();
  bytes.resize(padded(bytes.size()));
  return bytes;
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> out = header();
  for (const Tensor& tensor : tensors_) {
    out.insert(out.end(), tensor.data.begin(), tensor.data.end());
    out.resize(padded(out.size()));
  }
  return out;
}

}  // namespace shoal::model::testing
