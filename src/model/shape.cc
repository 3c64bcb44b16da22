#include "model/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace shoal::model {

Shape::Shape(std::initializer_list<uint64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const uint64_t> dims) : rank_(dims.size()) {
  CHECK(dims.size() <= kRankMax);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::optional<uint64_t> Shape::checked_elements() const {
  uint64_t product = 1;
  bool is_empty = false;
  for (const uint64_t dim : dims()) {
    // Zeros are left out, so that what is too large is refused whatever the order.
    if (dim == 0) {
      is_empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product) || product >> 63 != 0) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : product;
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

}  // namespace shoal::model
