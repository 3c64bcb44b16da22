// The header of a safetensors file: a JSON object of tensors, read without building a tree.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "base/bytes.h"
#include "base/foreign/quote.h"
#include "model/safetensors/reader.h"

namespace shoal::model {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// Accepts exactly {"name": {"dtype": "F32", "shape": [..], "data_offsets": [a, b]}, ...} and one
// "__metadata__" object of strings. Any event that does not fit the place where it comes up ends
// the parse, so nesting never grows.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  bool null() override { return misplaced("null"); }
  bool boolean(bool /*value*/) override { return misplaced("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override {
    return misplaced("a negative number");
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return misplaced("a number with a fraction, or one above 2^64");
  }
  bool binary(binary_t& /*value*/) override { return misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kList) return misplaced("a number");
    std::vector<uint64_t>& list = field_ == "shape" ? entry_.shape : entry_.offsets;
    const size_t size_max = field_ == "shape" ? Shape::kRankMax : 2;
    if (list.size() == size_max) {
      return fail(fmt::format("{} has more than {} numbers", quote(field_), size_max));
    }
    list.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") return misplaced("a string");
    entry_.dtype = value;
    entry_.has_dtype = true;
    return true;
  }

  bool key(string_t& value) override {
    switch (place_) {
      case Place::kTop:
        entry_ = {};
        entry_.name = value;
        field_.clear();
        if (!names_.insert(value).second) return fail("the name is there twice (duplicate)");
        if (value.empty()) return fail("a tensor has an empty name");
        if (value.size() > kTensorNameBytesMax) return fail("the name is too long");
        return true;
      case Place::kTensor: {
        bool* seen = value == "shape"          ? &entry_.has_shape
                     : value == "data_offsets" ? &entry_.has_offsets
                                               : &entry_.has_dtype;
        field_ = value;
        if (value != "dtype" && value != "shape" && value != "data_offsets") {
          return fail("unknown field " + quote(value));
        }
        if (*seen) return fail("the field " + quote(value) + " is there twice (duplicate)");
        return true;
      }
      case Place::kMetadata:
        if (!metadata_keys_.insert(value).second) {
          return fail("the key " + quote(value) + " is there twice (duplicate)");
        }
        return true;
      default:
        return misplaced("a key");
    }
  }

  bool start_object(std::size_t /*elements*/) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop) {
      place_ = entry_.name == kMetadataKey ? Place::kMetadata : Place::kTensor;
    } else {
      return misplaced("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    const bool is_tensor = place_ == Place::kTensor;
    place_ = Place::kTop;
    if (!is_tensor) return true;
    field_.clear();
    if (!entry_.has_dtype || !entry_.has_shape || !entry_.has_offsets) {
      return fail("needs the fields dtype, shape and data_offsets");
    }
    if (entry_.offsets.size() != 2) return fail("data_offsets needs two numbers");
    entries_.push_back(std::move(entry_));
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::kTensor || field_ == "dtype") return misplaced("a list");
    (field_ == "shape" ? entry_.has_shape : entry_.has_offsets) = true;
    place_ = Place::kList;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    problem_ = fmt::format("the header is not valid JSON at byte {}", kLengthBytes + position);
    return false;
  }

  const std::string& problem() const { return problem_; }
  std::vector<Entry> take_entries() { return std::move(entries_); }

 private:
  enum class Place { kStart, kTop, kTensor, kList, kMetadata, kEnd };

  bool misplaced(std::string_view what) {
    if (place_ == Place::kStart) {
      problem_ = "the header is no JSON object";
      return false;
    }
    if (place_ == Place::kMetadata) return fail(fmt::format("holds {}, expected strings", what));
    const std::string within = field_.empty() ? "its description" : quote(field_);
    return fail(fmt::format("{} in {} is not allowed", what, within));
  }
  bool fail(const std::string& reason) {
    problem_ = entry_.name == kMetadataKey
                   ? fmt::format("{} {}", kMetadataKey, reason)
                   : fmt::format("tensor {}: {}", quote(entry_.name), reason);
    return false;
  }

  Place place_ = Place::kStart;
  std::string field_;
  Entry entry_;
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
  std::string problem_;
};

// Type, shape and bytes of one entry, against the data section.
Result<TensorInfo> check_entry(const Entry& entry, std::span<const std::byte> data) {
  const auto refuse = [&](const std::string& reason) {
    return Status::request(fmt::format("tensor {}: {}", quote(entry.name), reason));
  };
  const auto type = safetensors_storage_type(entry.dtype);
  if (!type) return refuse("the type " + quote(entry.dtype) + " is not known");
  const Shape shape(entry.shape);
  const auto elements = shape.checked_elements();
  uint64_t needed = 0;
  if (!elements || __builtin_mul_overflow(*elements, uint64_t{type->block_bytes}, &needed)) {
    return refuse(fmt::format("the shape {} is too large", shape.to_string()));
  }
  const uint64_t begin = entry.offsets[0];
  const uint64_t end = entry.offsets[1];
  if (begin > end) return refuse(fmt::format("data_offsets [{}, {}] are reversed", begin, end));
  if (end > data.size()) {
    return refuse(fmt::format(
        "data_offsets [{}, {}] run past the {} bytes of data: the file is cut off, fetch it again",
        begin, end, data.size()));
  }
  if (end - begin != needed) {
    return refuse(fmt::format("{} of shape {} needs {} bytes, data_offsets [{}, {}] give {}",
                              entry.dtype, shape.to_string(), needed, begin, end, end - begin));
  }
  return TensorInfo{entry.name, *type, shape, data.subspan(begin, needed), 0};
}

// The tensors must cover the data exactly: no overlap, no hole, nothing after the last one.
Status check_cover(const std::vector<TensorInfo>& tensors, std::span<const std::byte> data) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& info : tensors) order.push_back(&info);
  std::ranges::sort(order, {}, [](const TensorInfo* info) {
    return std::pair(info->data.data(), info->data.size());
  });
  const std::byte* at = data.data();
  for (const TensorInfo* info : order) {
    if (info->data.data() != at) {
      return Status::request(fmt::format(
          "tensor {}: its data starts at byte {}, but the tensor before it ends at {} ({})",
          quote(info->name), info->data.data() - data.data(), at - data.data(),
          info->data.data() < at ? "they overlap" : "there is a hole"));
    }
    at += info->data.size();
  }
  if (at != data.data() + data.size()) {
    return Status::request(fmt::format("{} bytes of data, but the tensors cover only {}",
                                       data.size(), at - data.data()));
  }
  return Status::ok();
}

Result<std::vector<TensorInfo>> parse(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto length = reader.read<uint64_t>();
  if (!length.is_ok()) {
    return Status::request(
        fmt::format("not a safetensors file: {} bytes, the header's length alone takes {}",
                    bytes.size(), kLengthBytes));
  }
  if (*length > reader.left()) {
    return Status::request(
        fmt::format("the header says {} bytes, but only {} follow: not a safetensors file, or one "
                    "that is cut off",
                    *length, reader.left()));
  }
  if (*length > kSafetensorsHeaderBytesMax) {
    return Status::request(fmt::format("the header has {} bytes, the limit is {}", *length,
                                       kSafetensorsHeaderBytesMax));
  }
  const auto header = *reader.read_bytes(*length);
  const auto data = bytes.subspan(reader.position());
  HeaderHandler handler;
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  if (!json::sax_parse(text, &handler)) return Status::request(handler.problem());
  std::vector<TensorInfo> tensors;
  for (const Entry& entry : handler.take_entries()) {
    ASSIGN_OR_RETURN(TensorInfo info, check_entry(entry, data));
    tensors.push_back(std::move(info));
  }
  RETURN_IF_ERROR(check_cover(tensors, data));
  return tensors;
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes,
                                                  std::string_view name) {
  auto tensors = parse(bytes);
  if (!tensors.is_ok()) return tensors.status().with_context(name);
  return tensors;
}

}  // namespace shoal::model
