// GgufMetadata: the key-value pairs of a GGUF file, as views of its bytes.
//
// Nothing is copied: strings and arrays point into the mapped file, which must outlive them. The
// reader has checked every length and nested element before it built a value, so that walking an
// array here needs no further bounds. Format: docs/gguf.md. Thread rule: immutable once read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace shoal::model {

// The numbers are the format's.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u8", "string", ...
std::string_view value_type_name(ValueType type);
// Bytes of one value of a scalar type; 0 for strings, arrays and unknown types.
size_t value_type_bytes(ValueType type);
bool is_integer_type(ValueType type);

class MetadataArray {
 public:
  MetadataArray(ValueType element_type, uint64_t size, std::span<const std::byte> payload)
      : element_type_(element_type), size_(size), payload_(payload) {}

  ValueType element_type() const { return element_type_; }
  uint64_t size() const { return size_; }

  // Each needs the fitting element type, or gives nullopt. A u64 above the largest int64_t does
  // not fit; bools count as integers.
  std::optional<std::vector<std::string_view>> strings() const;
  std::optional<std::vector<int64_t>> integers() const;
  std::optional<std::vector<float>> floats() const;  // f32 and f64
  std::optional<std::vector<MetadataArray>> arrays() const;

 private:
  ValueType element_type_;
  uint64_t size_;
  std::span<const std::byte> payload_;
};

// Unsigned types are held as uint64_t, signed ones as int64_t, floats as double.
struct MetadataValue {
  ValueType type;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, MetadataArray> data;

  // The value as an integer: any integer type that fits, or a bool.
  std::optional<int64_t> integer() const;
  // Any integer or float type.
  std::optional<double> number() const;
  // A bool, or an integer 0 or 1.
  std::optional<bool> boolean() const;
  std::optional<std::string_view> string() const;
  const MetadataArray* array() const { return std::get_if<MetadataArray>(&data); }
};

class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    uint64_t offset;  // of the key in the file
    MetadataValue value;
  };

  // False when the key is there already.
  bool add(const Entry& entry);
  const MetadataValue* find(std::string_view key) const;
  // In the file's order.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace shoal::model
