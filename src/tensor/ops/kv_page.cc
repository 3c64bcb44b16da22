#include "tensor/ops/kv_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/cpu/kernels.h"
#include "tensor/float16.h"

namespace shoal::tensor {
namespace {

void write_floats(const KvLayout& layout, const KvHead& from, std::byte* page) {
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    std::memcpy(page + layout.key_offset(from.head, d, from.slot) * 4, from.k + d, 4);
  }
  std::memcpy(page + layout.value_offset(from.head, from.slot, 0) * 4, from.v,
              static_cast<size_t>(layout.head_dim) * 4);
}

void write_halves(const Kernels& kernels, const KvLayout& layout, const KvHead& from,
                  std::byte* page) {
  constexpr int64_t kPiece = 64;
  std::array<std::byte, 2 * kPiece> halves;
  for (int64_t begin = 0; begin < layout.head_dim; begin += kPiece) {
    const int64_t count = std::min(kPiece, layout.head_dim - begin);
    kernels.store_halves(from.k + begin, count, halves.data());
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(page + layout.key_offset(from.head, begin + i, from.slot) * 2,
                  halves.data() + 2 * i, 2);
    }
  }
  kernels.store_halves(from.v, layout.head_dim,
                       page + layout.value_offset(from.head, from.slot, 0) * 2);
}

// A head of 8-bit codes with their scale.
class CodedHead {
 public:
  CodedHead(const float* values, int64_t count) : values_(values) {
    float extreme = 0;
    bool is_finite = true;
    for (int64_t i = 0; i < count; ++i) {
      is_finite = is_finite && std::isfinite(values[i]);
      extreme = std::max(extreme, std::fabs(values[i]));
    }
    if (!is_finite) extreme = std::numeric_limits<float>::quiet_NaN();
    half_ = float_to_f16_saturated(extreme / 127.0F);
    const float scale = f16_to_float(half_);
    inverse_ = scale > 0.0F ? 1.0F / scale : 0.0F;
  }

  std::byte code(int64_t i) const {
    const float code = std::nearbyint(values_[i] * inverse_);
    if (std::isnan(code)) return std::byte{127};
    // A scale that f16 rounds down, below its normal numbers or above its largest, leaves more.
    return static_cast<std::byte>(static_cast<int8_t>(std::clamp(code, -127.0F, 127.0F)));
  }
  void store_scale(std::byte* to) const { std::memcpy(to, &half_, sizeof(half_)); }

 private:
  const float* values_;
  uint16_t half_ = 0;
  float inverse_ = 0;
};

void write_codes(const KvLayout& layout, const KvHead& from, std::byte* page) {
  const CodedHead k(from.k, layout.head_dim);
  const CodedHead v(from.v, layout.head_dim);
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    page[layout.key_offset(from.head, d, from.slot)] = k.code(d);
    page[layout.value_offset(from.head, from.slot, d)] = v.code(d);
  }
  k.store_scale(page + layout.key_scale_offset(from.head, from.slot));
  v.store_scale(page + layout.value_scale_offset(from.head, from.slot));
}

}  // namespace

void write_kv(const Kernels& kernels, const KvLayout& layout, const KvHead& from, std::byte* page) {
  if (layout.type == DType::kI8) return write_codes(layout, from, page);
  if (layout.type == DType::kF32) return write_floats(layout, from, page);
  write_halves(kernels, layout, from, page);
}

}  // namespace shoal::tensor
