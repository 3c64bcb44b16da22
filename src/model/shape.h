// Shape: the dimensions of a tensor in row-major order, as a value of at most eight numbers.
//
// Thread rule: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

namespace shoal::model {

// [0] is the outermost dimension, the last one is contiguous in memory: a weight of a linear layer
// is [outputs, inputs]. GGUF writes the same numbers in the other order: ne(0) is the contiguous
// one. A dimension may be 0: such a tensor has no bytes.
class Shape {
 public:
  static constexpr size_t kRankMax = 8;

  Shape() = default;
  Shape(std::initializer_list<uint64_t> dims);
  // dims.size() <= kRankMax.
  explicit Shape(std::span<const uint64_t> dims);

  size_t rank() const { return rank_; }
  uint64_t operator[](size_t i) const { return dims_[i]; }
  uint64_t ne(size_t i) const { return i < rank_ ? dims_[rank_ - 1 - i] : 1; }
  std::span<const uint64_t> dims() const { return std::span(dims_).first(rank_); }

  // The product, 1 for a scalar; nothing where it does not fit in 63 bits.
  std::optional<uint64_t> checked_elements() const;
  // For a shape that a reader has checked.
  uint64_t elements() const { return *checked_elements(); }

  // "[576, 1536]".
  std::string to_string() const;
  bool operator==(const Shape& other) const = default;

 private:
  std::array<uint64_t, kRankMax> dims_{};  // zero from rank_ on
  size_t rank_ = 0;
};

}  // namespace shoal::model
