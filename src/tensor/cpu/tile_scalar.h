// TileScalar: the tile product of panel_kernel.h in plain C++, which stands in for a matrix unit so
// that the panel kernels are tested on any processor.
//
// Only one source includes it. Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::tensor {
namespace {

class TileScalar {
 public:
  explicit TileScalar(int columns) : columns_(columns) {}

  template <int Slot>
  void multiply(const int8_t* inputs, const std::byte* codes, int32_t* sums) {
    static_assert(Slot >= 0 && Slot < 4);
    for (int row = 0; row < 8; ++row) {
      for (int lane = 0; lane < 16; ++lane) {
        int32_t sum = 0;
        for (int c = 0; c < columns_; ++c) {
          sum += inputs[32 * row + c] * static_cast<int32_t>(codes[c / 4 * 64 + 4 * lane + c % 4]);
        }
        sums[16 * row + lane] = sum;
      }
    }
  }

 private:
  int columns_;
};

}  // namespace
}  // namespace shoal::tensor
