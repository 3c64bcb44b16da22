#include "tensor/quant/pack.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {
namespace {

constexpr size_t kRows = kGroupRows;
using GroupCodes = std::array<Codes, kRows>;

uint8_t* as_u8(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

// The low four bits of every code.
void pack_nibbles(const GroupCodes& codes, uint8_t* out) {
  for (size_t k = 0; k < 4; ++k) {
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < 4; ++i) {
        const int low = codes[r][4 * k + i] & 15;
        const int high = codes[r][16 + 4 * k + i] & 15;
        *out++ = static_cast<uint8_t>(low | (high << 4));
      }
    }
  }
}

// Bit 4 of every code.
void pack_bit4(const GroupCodes& codes, uint8_t* out) {
  for (size_t j = 0; j < 8; ++j) {
    uint64_t word = 0;
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < 4; ++i) {
        word |= static_cast<uint64_t>((codes[r][4 * j + i] >> 4) & 1) << (4 * r + i);
      }
    }
    std::memcpy(out + 8 * j, &word, sizeof(word));
  }
}

// Bits 4 and 5 of every code.
void pack_bits45(const GroupCodes& codes, uint8_t* out) {
  for (size_t h = 0; h < 2; ++h) {
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < 4; ++i) {
        int byte = 0;
        for (size_t q = 0; q < 4; ++q) {
          byte |= (codes[r][4 * (4 * h + q) + i] >> 4) << (2 * q);
        }
        *out++ = static_cast<uint8_t>(byte);
      }
    }
  }
}

void pack_bytes(const GroupCodes& codes, uint8_t* out) {
  for (size_t j = 0; j < 8; ++j) {
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < 4; ++i) *out++ = codes[r][4 * j + i];
    }
  }
}

// The place of row r's block in the file.
const std::byte* block_of(const GroupSource& source, size_t r, int64_t block) {
  const DTypeInfo& info = dtype_info(source.type);
  const int64_t per_block = info.block_elements / kQuantBlock;
  return source.row + static_cast<int64_t>(r) * source.row_bytes +
         block / per_block * info.block_bytes;
}

void copy_half(std::byte* out, size_t lane, const std::byte* half) {
  std::memcpy(out + 2 * lane, half, 2);
}

void pack_header(const GroupSource& source, int64_t block, std::byte* out) {
  for (size_t r = 0; r < static_cast<size_t>(source.rows); ++r) {
    const std::byte* from = block_of(source, r, block);
    if (source.type == DType::kQ6_K) {
      copy_half(out, r, from + q6_k::kScale);
    } else {
      copy_half(out, r, from + q4_k::kScale);
      copy_half(out + 32, r, from + q4_k::kMin);
    }
  }
}

void pack_scales(const GroupSource& source, int64_t block, std::byte* out) {
  const int64_t sub = block % kBlocksPerSuper;
  for (size_t r = 0; r < static_cast<size_t>(source.rows); ++r) {
    const std::byte* from = block_of(source, r, block);
    switch (source.type) {
      case DType::kQ4_1:
      case DType::kQ5_1:
        copy_half(out + 32, r, from + 2);
        [[fallthrough]];
      case DType::kQ4_0:
      case DType::kQ5_0:
      case DType::kQ8_0:
        copy_half(out, r, from);
        break;
      case DType::kQ4_K:
      case DType::kQ5_K: {
        const ScaleMin codes = load_scale_min(from + q4_k::kScales, sub);
        out[r] = std::byte{codes.scale};
        out[16 + r] = std::byte{codes.min};
        break;
      }
      case DType::kQ6_K:
        out[r] = from[q6_k::kScales + 2 * sub];
        out[16 + r] = from[q6_k::kScales + 2 * sub + 1];
        break;
      default:
        CHECK_MSG(false, "a type without packed scales");
    }
  }
}

// Returns where the scales go.
std::byte* pack_codes(DType type, const GroupCodes& codes, std::byte* out) {
  if (type == DType::kQ8_0) {
    pack_bytes(codes, as_u8(out));
    return out + 512;
  }
  pack_nibbles(codes, as_u8(out));
  out += 256;
  if (type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5_K) {
    pack_bit4(codes, as_u8(out));
    return out + 64;
  }
  if (type == DType::kQ6_K) {
    pack_bits45(codes, as_u8(out));
    return out + 128;
  }
  return out;
}

void pack_quantized(const GroupSource& source, std::byte* out) {
  const PackedShape shape = packed_shape(source.type);
  GroupCodes codes{};
  for (int64_t b = 0; b < source.blocks; ++b) {
    const int64_t block = source.first_block + b;
    if (shape.header_bytes > 0 && (b == 0 || block % kBlocksPerSuper == 0)) {
      pack_header(source, block, out);
      out += shape.header_bytes;
    }
    const int64_t per_block = dtype_info(source.type).block_elements / kQuantBlock;
    for (size_t r = 0; r < static_cast<size_t>(source.rows); ++r) {
      load_codes(source.type, block_of(source, r, block), block % per_block, codes[r]);
    }
    pack_scales(source, block, pack_codes(source.type, codes, out));
    out += shape.block_bytes;
  }
}

// [cols][16] elements; `size` bytes each.
void pack_float(const GroupSource& source, size_t size, std::byte* out) {
  for (size_t r = 0; r < static_cast<size_t>(source.rows); ++r) {
    const std::byte* from = source.row + static_cast<int64_t>(r) * source.row_bytes +
                            source.first_block * static_cast<int64_t>(size);
    for (size_t c = 0; c < static_cast<size_t>(source.blocks); ++c) {
      std::memcpy(out + (c * kRows + r) * size, from + c * size, size);
    }
  }
}

}  // namespace

void pack_group(const GroupSource& source, std::byte* out) {
  const DTypeInfo& info = dtype_info(source.type);
  if (info.is_quantized) return pack_quantized(source, out);
  pack_float(source, info.block_bytes, out);
}

int64_t packed_group_bytes(DType type, int64_t first_block, int64_t blocks) {
  const PackedShape shape = packed_shape(type);
  if (blocks == 0) return 0;
  int64_t headers = 0;
  if (shape.header_bytes > 0) {
    headers = (first_block + blocks - 1) / kBlocksPerSuper - first_block / kBlocksPerSuper + 1;
  }
  return (headers * shape.header_bytes + blocks * shape.block_bytes + 63) / 64 * 64;
}

}  // namespace shoal::tensor
