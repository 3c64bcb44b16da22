#include "model/gguf/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/bytes.h"
#include "base/foreign/quote.h"

namespace shoal::model {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersionMin = 2;
constexpr uint32_t kVersionMax = 3;
constexpr size_t kHeaderBytes = 24;
// The smallest entries that can be told from damage: empty names, one byte of value, no dimensions.
constexpr uint64_t kKeyEntryBytesMin = 8 + 4 + 1;
constexpr uint64_t kTensorEntryBytesMin = 8 + 4 + 4 + 8;

// Reads one file front to back. Sections: header, metadata, tensor entries, padding, data.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), reader_(bytes), name_(name) {}

  Result<GgufContents> parse() {
    RETURN_IF_ERROR(read_header());
    for (uint64_t i = 0; i < key_count_; ++i) RETURN_IF_ERROR(read_key_value());
    RETURN_IF_ERROR(read_alignment());
    RETURN_IF_ERROR(read_tensors());
    return std::move(contents_);
  }

 private:
  template <typename... Args>
  Status refuse_at(size_t offset, fmt::format_string<Args...> format, Args&&... args) const {
    return Status::request(fmt::format("{}: at byte {}: ", name_, offset) +
                           fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  Status refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return Status::request(fmt::format("{}: ", name_) +
                           fmt::format(format, std::forward<Args>(args)...));
  }
  Status ends_early(std::string_view within) const {
    return refuse_at(reader_.position(),
                     "the file ends within {}: it is cut off or damaged, fetch it again", within);
  }

  Status read_header();
  Status read_key_value();
  Result<MetadataValue> read_value(std::string_view key, ValueType type);
  Result<MetadataArray> read_array(std::string_view key, int depth);
  Status skip_strings(std::string_view key, uint64_t count);
  Status read_alignment();
  Status read_tensors();
  Result<TensorInfo> read_tensor_entry(uint64_t& offset);
  Status place_tensors(const std::vector<uint64_t>& offsets);

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  std::string_view name_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  GgufContents contents_;
};

Status Parser::read_header() {
  if (!has_gguf_magic(bytes_)) {
    return refuse("not a GGUF file: it {}",
                  bytes_.empty() ? "is empty" : "does not start with the letters GGUF");
  }
  if (bytes_.size() < kHeaderBytes) {
    return refuse("the GGUF file ends after {} bytes, within its header of {}: fetch it again",
                  bytes_.size(), kHeaderBytes);
  }
  RETURN_IF_ERROR(reader_.skip(kMagic.size()));
  const uint32_t version = *reader_.read<uint32_t>();
  // A small number whose low half is zero was written by a machine of the other byte order.
  if (version != 0 && (version & 0xffff) == 0) {
    return refuse(
        "the GGUF file has the other byte order (big-endian): convert it to little-endian");
  }
  if (version < kVersionMin) {
    return refuse("GGUF version {} is not supported (2 and 3 are): convert the model again",
                  version);
  }
  if (version > kVersionMax) {
    return refuse("GGUF version {} is too new for this Shoal (2 and 3 are known): update Shoal",
                  version);
  }
  contents_.version = version;
  tensor_count_ = *reader_.read<uint64_t>();
  key_count_ = *reader_.read<uint64_t>();
  const auto check_count = [&](std::string_view what, uint64_t count, uint64_t entry_bytes,
                               uint64_t count_max) -> Status {
    if (count > reader_.left() / entry_bytes) {
      return refuse("the header counts {} {}, more than the {} bytes after it can hold", count,
                    what, reader_.left());
    }
    if (count > count_max) {
      return refuse("the header counts {} {}, the limit is {}", count, what, count_max);
    }
    return Status::ok();
  };
  RETURN_IF_ERROR(check_count("tensors", tensor_count_, kTensorEntryBytesMin, kGgufTensorsMax));
  return check_count("metadata keys", key_count_, kKeyEntryBytesMin, kGgufKeysMax);
}

Status Parser::read_key_value() {
  const size_t offset = reader_.position();
  const auto key = reader_.read_string(kGgufKeyBytesMax);
  if (!key.is_ok()) {
    return refuse_at(offset, "a metadata key: {}", key.status().message());
  }
  if (key->empty()) return refuse_at(offset, "a metadata key is empty");
  const auto type = reader_.read<uint32_t>();
  if (!type.is_ok()) return ends_early("key " + quote(*key));
  auto value = read_value(*key, static_cast<ValueType>(*type));
  if (!value.is_ok()) return value.status();
  if (!contents_.metadata.add({*key, offset, *std::move(value)})) {
    return refuse_at(offset, "the metadata key {} is there twice", quote(*key));
  }
  return Status::ok();
}

Result<MetadataValue> Parser::read_value(std::string_view key, ValueType type) {
  const auto scalar = [&]<typename Stored, typename Held>() -> Result<MetadataValue> {
    const auto value = reader_.read<Stored>();
    if (!value.is_ok()) return ends_early("key " + quote(key));
    return MetadataValue{type, static_cast<Held>(*value)};
  };
  switch (type) {
    case ValueType::kU8:
      return scalar.template operator()<uint8_t, uint64_t>();
    case ValueType::kI8:
      return scalar.template operator()<int8_t, int64_t>();
    case ValueType::kU16:
      return scalar.template operator()<uint16_t, uint64_t>();
    case ValueType::kI16:
      return scalar.template operator()<int16_t, int64_t>();
    case ValueType::kU32:
      return scalar.template operator()<uint32_t, uint64_t>();
    case ValueType::kI32:
      return scalar.template operator()<int32_t, int64_t>();
    case ValueType::kU64:
      return scalar.template operator()<uint64_t, uint64_t>();
    case ValueType::kI64:
      return scalar.template operator()<int64_t, int64_t>();
    case ValueType::kF32:
      return scalar.template operator()<float, double>();
    case ValueType::kF64:
      return scalar.template operator()<double, double>();
    case ValueType::kBool:
      return scalar.template operator()<uint8_t, bool>();
    case ValueType::kString: {
      const size_t offset = reader_.position();
      const auto text = reader_.read_string(reader_.left());
      if (!text.is_ok()) {
        return refuse_at(offset, "the string of key {}: {}", quote(key), text.status().message());
      }
      return MetadataValue{type, *text};
    }
    case ValueType::kArray: {
      ASSIGN_OR_RETURN(MetadataArray array, read_array(key, 1));
      return MetadataValue{type, array};
    }
  }
  return refuse_at(reader_.position() - 4, "the key {} has the unknown value type {}", quote(key),
                   static_cast<uint32_t>(type));
}

Result<MetadataArray> Parser::read_array(std::string_view key, int depth) {
  if (depth > kGgufArrayDepthMax) {
    return refuse_at(reader_.position(), "the key {} nests arrays deeper than {}", quote(key),
                     kGgufArrayDepthMax);
  }
  const size_t offset = reader_.position();
  const auto raw_type = reader_.read<uint32_t>();
  const auto size = reader_.read<uint64_t>();
  if (!raw_type.is_ok() || !size.is_ok()) return ends_early("the array of key " + quote(key));
  const auto type = static_cast<ValueType>(*raw_type);
  // What one element takes at least: a string its length, an array its type and length.
  const size_t fixed_bytes = value_type_bytes(type);
  const size_t element_bytes_min = type == ValueType::kString  ? 8
                                   : type == ValueType::kArray ? 12
                                                               : fixed_bytes;
  if (element_bytes_min == 0) {
    return refuse_at(offset, "the array of key {} has the unknown element type {}", quote(key),
                     *raw_type);
  }
  if (*size > reader_.left() / element_bytes_min) {
    return refuse_at(offset, "the array of key {} says {} elements of {}, only {} bytes are left",
                     quote(key), *size, value_type_name(type), reader_.left());
  }
  const size_t start = reader_.position();
  if (type == ValueType::kString) {
    RETURN_IF_ERROR(skip_strings(key, *size));
  } else if (type == ValueType::kArray) {
    for (uint64_t i = 0; i < *size; ++i) {
      const auto inner = read_array(key, depth + 1);
      if (!inner.is_ok()) return inner.status();
    }
  } else {
    RETURN_IF_ERROR(reader_.skip(*size * fixed_bytes));
  }
  return MetadataArray(type, *size, bytes_.subspan(start, reader_.position() - start));
}

// Vocabularies have hundreds of thousands of strings: one comparison each, no Result per element.
Status Parser::skip_strings(std::string_view key, uint64_t count) {
  const std::byte* at = bytes_.data() + reader_.position();
  const std::byte* const end = bytes_.data() + bytes_.size();
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    const auto left = static_cast<uint64_t>(end - at);
    if (left >= sizeof(length)) std::memcpy(&length, at, sizeof(length));
    if (left < sizeof(length) || length > left - sizeof(length)) {
      return refuse_at(static_cast<size_t>(at - bytes_.data()),
                       "string {} of the array of key {} runs past the end of the file", i,
                       quote(key));
    }
    at += sizeof(length) + length;
  }
  return reader_.skip(static_cast<uint64_t>(at - bytes_.data()) - reader_.position());
}

Status Parser::read_alignment() {
  constexpr std::string_view kKey = "general.alignment";
  const MetadataValue* value = contents_.metadata.find(kKey);
  if (value == nullptr) return Status::ok();
  if (!is_integer_type(value->type)) {
    return refuse("the key {} is a {}, expected a u32", quote(kKey), value_type_name(value->type));
  }
  const int64_t alignment = value->integer().value_or(0);
  if (alignment < kGgufAlignmentMin || alignment > kGgufAlignmentMax ||
      (alignment & (alignment - 1)) != 0) {
    return refuse("the key {} is {}, expected a power of two from {} to {}", quote(kKey), alignment,
                  kGgufAlignmentMin, kGgufAlignmentMax);
  }
  contents_.alignment = static_cast<uint64_t>(alignment);
  return Status::ok();
}

Status Parser::read_tensors() {
  std::vector<uint64_t> offsets;
  offsets.reserve(tensor_count_);
  contents_.tensors.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    uint64_t offset = 0;
    ASSIGN_OR_RETURN(TensorInfo info, read_tensor_entry(offset));
    contents_.tensors.push_back(std::move(info));
    offsets.push_back(offset);
  }
  return place_tensors(offsets);
}

Result<TensorInfo> Parser::read_tensor_entry(uint64_t& offset) {
  const size_t start = reader_.position();
  const auto name = reader_.read_string(kTensorNameBytesMax);
  if (!name.is_ok()) return refuse_at(start, "a tensor name: {}", name.status().message());
  if (name->empty()) return refuse_at(start, "a tensor has an empty name");
  const auto rank = reader_.read<uint32_t>();
  if (!rank.is_ok()) return ends_early("the entry of tensor " + quote(*name));
  if (*rank > kGgufDimensionsMax) {
    return refuse_at(start, "tensor {} has {} dimensions, the limit is {}", quote(*name), *rank,
                     kGgufDimensionsMax);
  }
  std::array<uint64_t, kGgufDimensionsMax> dims{};
  for (uint32_t i = 0; i < *rank; ++i) {
    const auto dim = reader_.read<uint64_t>();
    if (!dim.is_ok()) return ends_early("the entry of tensor " + quote(*name));
    dims[*rank - 1 - i] = *dim;  // the file starts with the contiguous one
  }
  const auto type_id = reader_.read<uint32_t>();
  const auto data_offset = reader_.read<uint64_t>();
  if (!type_id.is_ok() || !data_offset.is_ok()) {
    return ends_early("the entry of tensor " + quote(*name));
  }
  const auto type = tensor::dtype_from_gguf(*type_id);
  if (!type) {
    return refuse_at(start, "tensor {} has the unknown type {}: the file may need a newer Shoal",
                     quote(*name), *type_id);
  }
  offset = *data_offset;
  return TensorInfo{
      std::string(*name), storage_type(*type), Shape(std::span(dims).first(*rank)), {}, 0};
}

// Gives every tensor its bytes of the data section, which starts at the next multiple of the
// alignment; none may overlap another or run past the end.
Status Parser::place_tensors(const std::vector<uint64_t>& offsets) {
  const uint64_t alignment = contents_.alignment;
  const uint64_t header_end = reader_.position();
  const uint64_t data_start =
      std::min<uint64_t>((header_end + alignment - 1) / alignment * alignment, bytes_.size());
  const uint64_t data_bytes = bytes_.size() - data_start;
  for (size_t i = 0; i < offsets.size(); ++i) {
    TensorInfo& info = contents_.tensors[i];
    const auto elements = info.shape.checked_elements();
    uint64_t needed = 0;
    if (!elements || __builtin_mul_overflow(*elements / info.type.block_elements,
                                            uint64_t{info.type.block_bytes}, &needed)) {
      return refuse("tensor {} of shape {} is too large", quote(info.name), info.shape.to_string());
    }
    if (info.shape.ne(0) % info.type.block_elements != 0) {
      return refuse("tensor {} of shape {}: rows of {} are no whole blocks of {} ({} elements)",
                    quote(info.name), info.shape.to_string(), info.shape.ne(0), info.type.name,
                    info.type.block_elements);
    }
    if (offsets[i] % alignment != 0) {
      return refuse("tensor {} starts at byte {} of the data, no multiple of the alignment {}",
                    quote(info.name), offsets[i], alignment);
    }
    if (offsets[i] > data_bytes || needed > data_bytes - offsets[i]) {
      return refuse(
          "tensor {} of shape {} needs {} bytes from byte {} of the data, but the data has {}: "
          "the file is cut off or damaged, fetch it again",
          quote(info.name), info.shape.to_string(), needed, offsets[i], data_bytes);
    }
    info.data = bytes_.subspan(data_start + offsets[i], needed);
  }
  std::vector<size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return offsets[i]; });
  const TensorInfo* previous = nullptr;
  for (const size_t i : order) {
    const TensorInfo& info = contents_.tensors[i];
    if (info.data.empty()) continue;
    if (previous != nullptr && info.data.data() < previous->data.data() + previous->data.size()) {
      return refuse("the tensors {} and {} overlap", quote(previous->name), quote(info.name));
    }
    previous = &info;
  }
  return Status::ok();
}

}  // namespace

bool has_gguf_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view name) {
  return Parser(bytes, name).parse();
}

}  // namespace shoal::model
