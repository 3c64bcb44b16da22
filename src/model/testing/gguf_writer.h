// GgufWriter: makes GGUF files of version 3, for tests (models for use: tools/make_model.py).
//
// Keys and tensors come out in the order in which they were added. Only valid files are made:
// repeated names, shapes that do not fit their bytes and bad alignments are CHECKed. Borrows the
// tensors' bytes until bytes(). Format: docs/gguf.md. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "model/gguf/metadata.h"
#include "model/shape.h"
#include "tensor/dtype.h"

namespace shoal::model::testing {

class GgufWriter {
 public:
  // A power of two from 8; other than the format's 32 it is written as general.alignment.
  explicit GgufWriter(uint32_t alignment = 32);

  void add_u32(std::string_view key, uint32_t value) { add_scalar(key, ValueType::kU32, value); }
  void add_f32(std::string_view key, float value) { add_scalar(key, ValueType::kF32, value); }
  void add_bool(std::string_view key, bool value) {
    add_scalar(key, ValueType::kBool, static_cast<uint8_t>(value));
  }
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_i32s(std::string_view key, std::span<const int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  // Any value in the format's own bytes, for types without a method of their own.
  void add_encoded(std::string_view key, ValueType type, std::span<const std::byte> value);

  // data holds exactly what type and shape need.
  void add_tensor(std::string_view name, tensor::DType dtype, const Shape& shape,
                  std::span<const std::byte> data);

  // The whole file.
  std::vector<std::byte> bytes() const;

 private:
  struct Tensor {
    std::string name;
    tensor::DType dtype;
    Shape shape;
    std::span<const std::byte> data;
    uint64_t offset;
  };

  template <typename T>
  void add_scalar(std::string_view key, ValueType type, T value) {
    add_encoded(key, type, std::as_bytes(std::span(&value, 1)));
  }
  void start_array(std::string_view key, ValueType element_type, size_t size);
  void start_value(std::string_view key, ValueType type);
  // Everything before the data section, padded to its start.
  std::vector<std::byte> header() const;
  uint64_t padded(uint64_t bytes) const {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }

  uint64_t alignment_;
  uint64_t key_count_ = 0;
  ByteWriter metadata_;
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;
  std::unordered_set<std::string> names_;  // keys and tensors, apart by a prefix
};

}  // namespace shoal::model::testing
