#include "model/gguf/metadata.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"

namespace shoal::model {
namespace {

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename To, typename From>
std::vector<To> convert(std::span<const std::byte> payload, uint64_t size) {
  std::vector<To> out;
  out.reserve(size);
  for (uint64_t i = 0; i < size; ++i) {
    out.push_back(static_cast<To>(load<From>(payload.data() + i * sizeof(From))));
  }
  return out;
}

// Bytes of an element of variable length, which the reader has checked already.
size_t string_bytes(const std::byte* bytes) { return 8 + load<uint64_t>(bytes); }

size_t array_bytes(const std::byte* bytes) {
  const auto type = static_cast<ValueType>(load<uint32_t>(bytes));
  const auto size = load<uint64_t>(bytes + 4);
  if (const size_t each = value_type_bytes(type); each != 0) return 12 + each * size;
  size_t total = 12;
  for (uint64_t i = 0; i < size; ++i) {
    total += type == ValueType::kString ? string_bytes(bytes + total) : array_bytes(bytes + total);
  }
  return total;
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::kU8:
      return "u8";
    case ValueType::kI8:
      return "i8";
    case ValueType::kU16:
      return "u16";
    case ValueType::kI16:
      return "i16";
    case ValueType::kU32:
      return "u32";
    case ValueType::kI32:
      return "i32";
    case ValueType::kF32:
      return "f32";
    case ValueType::kBool:
      return "bool";
    case ValueType::kString:
      return "string";
    case ValueType::kArray:
      return "array";
    case ValueType::kU64:
      return "u64";
    case ValueType::kI64:
      return "i64";
    case ValueType::kF64:
      return "f64";
  }
  return "unknown type";
}

size_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

bool is_integer_type(ValueType type) {
  return value_type_bytes(type) != 0 && type != ValueType::kF32 && type != ValueType::kF64 &&
         type != ValueType::kBool;
}

std::optional<std::vector<std::string_view>> MetadataArray::strings() const {
  if (element_type_ != ValueType::kString) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(size_);
  const std::byte* at = payload_.data();
  for (uint64_t i = 0; i < size_; ++i) {
    const size_t bytes = string_bytes(at);
    out.emplace_back(reinterpret_cast<const char*>(at + 8), bytes - 8);
    at += bytes;
  }
  return out;
}

std::optional<std::vector<int64_t>> MetadataArray::integers() const {
  switch (element_type_) {
    case ValueType::kU8:
    case ValueType::kBool:
      return convert<int64_t, uint8_t>(payload_, size_);
    case ValueType::kI8:
      return convert<int64_t, int8_t>(payload_, size_);
    case ValueType::kU16:
      return convert<int64_t, uint16_t>(payload_, size_);
    case ValueType::kI16:
      return convert<int64_t, int16_t>(payload_, size_);
    case ValueType::kU32:
      return convert<int64_t, uint32_t>(payload_, size_);
    case ValueType::kI32:
      return convert<int64_t, int32_t>(payload_, size_);
    case ValueType::kI64:
      return convert<int64_t, int64_t>(payload_, size_);
    case ValueType::kU64: {
      // As a signed number, one that does not fit is negative.
      auto out = convert<int64_t, int64_t>(payload_, size_);
      for (const int64_t value : out) {
        if (value < 0) return std::nullopt;
      }
      return out;
    }
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<float>> MetadataArray::floats() const {
  if (element_type_ == ValueType::kF32) return convert<float, float>(payload_, size_);
  if (element_type_ == ValueType::kF64) return convert<float, double>(payload_, size_);
  return std::nullopt;
}

std::optional<std::vector<MetadataArray>> MetadataArray::arrays() const {
  if (element_type_ != ValueType::kArray) return std::nullopt;
  std::vector<MetadataArray> out;
  const std::byte* at = payload_.data();
  for (uint64_t i = 0; i < size_; ++i) {
    const size_t bytes = array_bytes(at);
    out.emplace_back(static_cast<ValueType>(load<uint32_t>(at)), load<uint64_t>(at + 4),
                     std::span(at + 12, bytes - 12));
    at += bytes;
  }
  return out;
}

std::optional<int64_t> MetadataValue::integer() const {
  if (const auto* value = std::get_if<uint64_t>(&data)) {
    if (*value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(*value);
  }
  if (const auto* value = std::get_if<int64_t>(&data)) return *value;
  if (const auto* value = std::get_if<bool>(&data)) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> MetadataValue::number() const {
  if (const auto* value = std::get_if<double>(&data)) return *value;
  if (const auto* value = std::get_if<uint64_t>(&data)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<int64_t>(&data)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> MetadataValue::boolean() const {
  const std::optional<int64_t> value = integer();
  if (!value || *value < 0 || *value > 1) return std::nullopt;
  return *value == 1;
}

std::optional<std::string_view> MetadataValue::string() const {
  if (const auto* value = std::get_if<std::string_view>(&data)) return *value;
  return std::nullopt;
}

bool GgufMetadata::add(const Entry& entry) {
  if (!index_.try_emplace(entry.key, entries_.size()).second) return false;
  entries_.push_back(entry);
  return true;
}

const MetadataValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

}  // namespace shoal::model
