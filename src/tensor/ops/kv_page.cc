#include "tensor/ops/kv_page.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/float16.h"

namespace shoal::tensor {
namespace {

void store_element(const KvLayout& layout, std::byte* page, int64_t element, float value) {
  if (layout.type == DType::kF32) {
    std::memcpy(page + element * 4, &value, sizeof(value));
    return;
  }
  const uint16_t half = float_to_f16_saturated(value);
  std::memcpy(page + element * 2, &half, sizeof(half));
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

void write_kv(const KvLayout& layout, const KvHead& from, std::byte* page) {
  if (layout.has_scales()) return write_codes(layout, from, page);
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    store_element(layout, page, layout.key_offset(from.head, d, from.slot), from.k[d]);
    store_element(layout, page, layout.value_offset(from.head, from.slot, d), from.v[d]);
  }
}

}  // namespace shoal::tensor
