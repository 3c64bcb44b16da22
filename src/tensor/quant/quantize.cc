#include "tensor/quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/float16.h"
#include "tensor/quant/quantize_block.h"

namespace shoal::tensor {
namespace {

void store_high_bits(const Codes& codes, std::byte* out) {
  uint32_t word = 0;
  for (size_t i = 0; i < codes.size(); ++i) word |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(out, &word, sizeof(word));
}

// Q4_0, Q5_0: the value of largest magnitude gets code 0, so that its sign's range is used fully.
void quantize_symmetric(DType type, Values values, std::byte* out) {
  const int center = packed_format(type).zero_code;
  const uint16_t half = float_to_f16(extreme_of(values) / static_cast<float>(-center));
  const float scale = f16_to_float(half);
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = code_of(values[i], scale, static_cast<float>(center), 2 * center - 1);
  }
  store_f16(out, half);
  if (type == DType::kQ4_0) return store_split_nibbles(codes, out + 2);
  store_high_bits(codes, out + 2);
  store_split_nibbles(codes, out + 6);
}

// Q4_1, Q5_1: codes span [minimum, maximum].
void quantize_with_minimum(DType type, Values values, std::byte* out) {
  const int code_max = type == DType::kQ4_1 ? 15 : 31;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const uint16_t half_scale = float_to_f16((*high - *low) / static_cast<float>(code_max));
  const uint16_t half_min = float_to_f16(*low);
  const float scale = f16_to_float(half_scale);
  const float min = f16_to_float(half_min);
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = code_of(values[i] - min, scale, 0.0F, code_max);
  }
  store_f16(out, half_scale);
  store_f16(out + 2, half_min);
  if (type == DType::kQ4_1) return store_split_nibbles(codes, out + 4);
  store_high_bits(codes, out + 4);
  store_split_nibbles(codes, out + 8);
}

void quantize_q8_0(Values values, std::byte* out) {
  const uint16_t half = float_to_f16(std::fabs(extreme_of(values)) / 127.0F);
  const float scale = f16_to_float(half);
  store_f16(out, half);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t code = code_of(values[i], scale, 128.0F, 255);
    out[2 + i] = static_cast<std::byte>(code ^ 0x80U);
  }
}

// IQ4_NL: the value of largest magnitude gets the table's.
void quantize_iq4_nl(Values values, std::byte* out) {
  const uint16_t half = float_to_f16(extreme_of(values) / -127.0F);
  store_f16(out, half);
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = nearest_in_table(kIq4Values, values[i], f16_to_float(half));
  }
  store_split_nibbles(codes, out + 2);
}

// MXFP4: the power of two that puts the largest magnitude between 4 and 8, of which 6 is reached.
void quantize_mxfp4(Values values, std::byte* out) {
  const float extreme = std::fabs(extreme_of(values));
  const bool is_plain = extreme > 0.0F && std::isfinite(extreme);
  const int exponent = is_plain ? std::clamp(std::ilogb(extreme) - 2 + 127, 0, 254) : 0;
  out[0] = static_cast<std::byte>(exponent);
  const float scale = load_scales(DType::kMXFP4, out, 0).scale[0];
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = nearest_in_table(kMxfp4Values, values[i], scale);
  }
  store_split_nibbles(codes, out + 1);
}

void quantize_block(DType type, Values values, std::byte* out) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
      return quantize_symmetric(type, values, out);
    case DType::kQ4_1:
    case DType::kQ5_1:
      return quantize_with_minimum(type, values, out);
    case DType::kQ8_0:
      return quantize_q8_0(values, out);
    case DType::kIQ4_NL:
      return quantize_iq4_nl(values, out);
    case DType::kMXFP4:
      return quantize_mxfp4(values, out);
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_XS:
      return quantize_super_block(type, values, out);
    case DType::kF32:
      std::memcpy(out, values.data(), sizeof(float));
      return;
    case DType::kF16:
      return store_f16(out, float_to_f16(values[0]));
    case DType::kBF16:
      return store_f16(out, float_to_bf16(values[0]));
    default:
      CHECK_MSG(false, "quantize_row to a type that is not supported");
  }
}

}  // namespace

void quantize_row(DType type, std::span<const float> values, std::span<std::byte> out) {
  const DTypeInfo& info = dtype_info(type);
  const auto bytes = row_bytes(type, values.size());
  CHECK(bytes.has_value() && *bytes == out.size());
  std::fill(out.begin(), out.end(), std::byte{0});
  for (size_t block = 0; block * info.block_elements < values.size(); ++block) {
    quantize_block(type, values.subspan(block * info.block_elements, info.block_elements),
                   out.data() + block * info.block_bytes);
  }
}

std::vector<std::byte> quantize_matrix(DType type, std::span<const float> values, int64_t cols) {
  CHECK(cols > 0 && values.size() % static_cast<size_t>(cols) == 0);
  const auto bytes = row_bytes(type, static_cast<uint64_t>(cols));
  CHECK(bytes.has_value());
  const size_t rows = values.size() / static_cast<size_t>(cols);
  std::vector<std::byte> out(rows * *bytes);
  for (size_t row = 0; row < rows; ++row) {
    quantize_row(type, values.subspan(row * static_cast<size_t>(cols), static_cast<size_t>(cols)),
                 std::span(out).subspan(row * *bytes, *bytes));
  }
  return out;
}

}  // namespace shoal::tensor
