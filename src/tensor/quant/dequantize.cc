#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"
#include "tensor/quant/quant_block.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

void dequantize_block(DType type, const std::byte* block, int64_t sub, float* out) {
  Codes codes;
  load_codes(type, block, sub, codes);
  const BlockScales scales = load_scales(type, block, sub);
  for (size_t half = 0; half < 2; ++half) {
    const float scale = scales.scale[half];
    for (size_t i = half * 16; i < half * 16 + 16; ++i) {
      out[i] = scale * static_cast<float>(code_value(type, codes[i])) + scales.offset[half];
    }
  }
}

void dequantize_quantized(DType type, const std::byte* row, int64_t begin, int64_t end,
                          float* out) {
  const DTypeInfo& info = dtype_info(type);
  const int64_t subs = info.block_elements / kQuantBlock;
  int64_t at = begin;
  while (at < end) {
    const int64_t block = at / kQuantBlock;
    const std::byte* source = row + block / subs * info.block_bytes;
    const int64_t skip = at - block * kQuantBlock;
    const int64_t count = std::min(kQuantBlock - skip, end - at);
    if (count == kQuantBlock) {
      dequantize_block(type, source, block % subs, out);
    } else {
      std::array<float, kQuantBlock> values;
      dequantize_block(type, source, block % subs, values.data());
      std::copy_n(values.begin() + skip, count, out);
    }
    at += count;
    out += count;
  }
}

}  // namespace

void dequantize_row(DType type, std::span<const std::byte> row, int64_t begin, int64_t end,
                    float* out) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(info.is_supported && begin >= 0 && begin <= end);
  const auto blocks = static_cast<int64_t>(row.size() / info.block_bytes);
  CHECK(end <= blocks * info.block_elements);
  switch (type) {
    case DType::kF32:
      if (end > begin) {
        std::memcpy(out, row.data() + begin * 4, static_cast<size_t>(end - begin) * 4);
      }
      return;
    case DType::kF16:
      for (int64_t i = begin; i < end; ++i) out[i - begin] = f16_to_float(load_u16(&row[i * 2]));
      return;
    case DType::kBF16:
      for (int64_t i = begin; i < end; ++i) out[i - begin] = bf16_to_float(load_u16(&row[i * 2]));
      return;
    default:
      return dequantize_quantized(type, row.data(), begin, end, out);
  }
}

}  // namespace shoal::tensor
