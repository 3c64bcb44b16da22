// RawGguf: GGUF bytes piece by piece, right or wrong, for tests of the reader.
//
// Unlike GgufWriter nothing is checked: counts, types, lengths and offsets are what the test says.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "model/gguf/metadata.h"

namespace shoal::model::testing {

class RawGguf {
 public:
  // Counts that the header claims instead of the true ones.
  std::optional<uint64_t> claimed_tensors;
  std::optional<uint64_t> claimed_keys;
  uint32_t version = 3;

  // The start of a pair; the value's bytes follow through value() and string().
  RawGguf& key(std::string_view name, uint32_t type) {
    ++keys_;
    metadata_.write_string(name);
    metadata_.write(type);
    return *this;
  }
  RawGguf& key(std::string_view name, ValueType type) {
    return key(name, static_cast<uint32_t>(type));
  }
  template <typename T>
  RawGguf& value(T number) {
    metadata_.write(number);
    return *this;
  }
  RawGguf& string(std::string_view text) {
    metadata_.write_string(text);
    return *this;
  }
  // The head of an array value.
  RawGguf& array(ValueType element_type, uint64_t size) {
    metadata_.write(static_cast<uint32_t>(element_type));
    metadata_.write(size);
    return *this;
  }

  // ne in the file's order.
  RawGguf& tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                  uint64_t offset) {
    ++tensors_;
    entries_.write_string(name);
    entries_.write(static_cast<uint32_t>(ne.size()));
    for (const uint64_t dim : ne) entries_.write(dim);
    entries_.write(type);
    entries_.write(offset);
    return *this;
  }
  // The data section, after padding to the alignment of 32 (or what the test declares).
  RawGguf& data(std::vector<std::byte> bytes, size_t alignment = 32) {
    data_ = std::move(bytes);
    alignment_ = alignment;
    return *this;
  }

  std::vector<std::byte> bytes() const {
    ByteWriter out;
    out.write_bytes(bytes_of("GGUF"));
    out.write(version);
    out.write(claimed_tensors.value_or(tensors_));
    out.write(claimed_keys.value_or(keys_));
    out.write_bytes(metadata_.bytes());
    out.write_bytes(entries_.bytes());
    std::vector<std::byte> all = out.take();
    if (!data_.empty()) all.resize((all.size() + alignment_ - 1) / alignment_ * alignment_);
    all.insert(all.end(), data_.begin(), data_.end());
    return all;
  }

 private:
  uint64_t keys_ = 0;
  uint64_t tensors_ = 0;
  ByteWriter metadata_;
  ByteWriter entries_;
  std::vector<std::byte> data_;
  size_t alignment_ = 32;
};

}  // namespace shoal::model::testing
