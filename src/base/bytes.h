// ByteReader and ByteWriter: the bounded little-endian codec for foreign bytes; FieldWriter: the
// same into a place of fixed size, without allocation.
//
// A reader checks every length against what is left before it touches anything; a failed read
// leaves it where it was. Formats built on it are specified in docs/.
// Thread rule: one thread at a time. Reader and FieldWriter borrow their bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace shoal {

static_assert(std::endian::native == std::endian::little,
              "the codec and GGUF readers copy little-endian values as they are");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  // Reads an integer, float or enum-free POD scalar.
  template <typename T>
  Result<T> read() {
    static_assert(std::is_arithmetic_v<T>);
    if (left() < sizeof(T)) return short_of(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  // The next `count` bytes, borrowed.
  Result<std::span<const std::byte>> read_bytes(uint64_t count);
  // A u64 length, then that many bytes, borrowed; refuses a length above length_max.
  Result<std::string_view> read_string(uint64_t length_max);
  Status skip(uint64_t count);

 private:
  Status short_of(uint64_t wanted) const;

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

class ByteWriter {
 public:
  template <typename T>
  void write(T value) {
    static_assert(std::is_arithmetic_v<T>);
    write_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void write_bytes(std::span<const std::byte> bytes);
  // A u64 length, then the bytes.
  void write_string(std::string_view text);

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Fields one after another into `place`; more than it holds is a bug.
class FieldWriter {
 public:
  explicit FieldWriter(std::span<std::byte> place) : left_(place) {}

  size_t left() const { return left_.size(); }

  template <typename T>
  void write(T value) {
    static_assert(std::is_arithmetic_v<T>);
    CHECK(sizeof(T) <= left_.size());
    std::memcpy(left_.data(), &value, sizeof(T));
    left_ = left_.subspan(sizeof(T));
  }

 private:
  std::span<std::byte> left_;
};

// The bytes of a text, borrowed.
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace shoal
