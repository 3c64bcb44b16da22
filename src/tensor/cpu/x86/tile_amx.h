// TileAmx: the tile product of panel_kernel.h with AMX-INT8.
//
// An object is one use of the thread's tile registers: made, they are configured; gone, they are
// released, so that the system need not save them. The process must have asked for them
// (allow_amx_tiles). Slot s has its sums in register s, its inputs in 4 + s % 2 and its codes in
// 6 + s % 2. The configuration goes to the processor by inline assembly: compilers are known to
// drop stores to a structure that only _tile_loadconfig reads.
// Only amx.cc includes it. Thread rule: one object at a time in a thread.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace shoal::tensor {
namespace {

class TileAmx {
 public:
  explicit TileAmx(int columns) {
    Configuration configuration;
    for (int i = 0; i < 4; ++i) configuration.set(i, 8, 64);
    for (int i = 4; i < 6; ++i) configuration.set(i, 8, columns);
    for (int i = 6; i < 8; ++i) configuration.set(i, columns / 4, 64);
    __asm__ __volatile__("ldtilecfg %0" : : "m"(configuration));
  }
  ~TileAmx() { __asm__ __volatile__("tilerelease"); }
  TileAmx(const TileAmx&) = delete;
  TileAmx& operator=(const TileAmx&) = delete;

  template <int Slot>
  void multiply(const int8_t* inputs, const std::byte* codes, int32_t* sums) {
    static_assert(Slot >= 0 && Slot < 4);
    _tile_zero(Slot);
    _tile_loadd(4 + Slot % 2, inputs, 32);
    _tile_loadd(6 + Slot % 2, codes, 64);
    _tile_dpbsud(Slot, 4 + Slot % 2, 6 + Slot % 2);
    _tile_stored(Slot, sums, 64);
  }

 private:
  // The memory operand of LDTILECFG, palette 1.
  struct alignas(64) Configuration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t column_bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, int row_count, int bytes) {
      rows[tile] = static_cast<uint8_t>(row_count);
      column_bytes[tile] = static_cast<uint16_t>(bytes);
    }
  };
  static_assert(sizeof(Configuration) == 64);
};

}  // namespace
}  // namespace shoal::tensor
