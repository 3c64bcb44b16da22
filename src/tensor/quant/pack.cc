#include "tensor/quant/pack.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {
namespace {

constexpr size_t kRows = kGroupRows;
constexpr size_t kWords = kQuantBlock / 4;
using GroupCodes = std::array<Codes, kRows>;
// A row's codes, four to a word; shifts within a word are masked to their bytes.
using CodeWords = std::array<uint32_t, kWords>;

uint8_t* as_u8(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

CodeWords words_of(const Codes& codes) { return std::bit_cast<CodeWords>(codes); }

void store_word(uint32_t word, uint8_t* out) { std::memcpy(out, &word, sizeof(word)); }

// Bits `bit` to `bit` + 3 of every code.
void pack_nibbles(const GroupCodes& codes, int bit, uint8_t* out) {
  constexpr uint32_t kMask = 0x0f0f0f0f;
  for (size_t r = 0; r < kRows; ++r) {
    const CodeWords words = words_of(codes[r]);
    for (size_t k = 0; k < 4; ++k) {
      const uint32_t low = (words[k] >> bit) & kMask;
      const uint32_t high = (words[4 + k] >> bit) & kMask;
      store_word(low | (high << 4), out + 4 * (kRows * k + r));
    }
  }
}

// Bit `bit` of every code.
void pack_bit(const GroupCodes& codes, int bit, uint8_t* out) {
  std::array<uint64_t, kWords> packed{};
  for (size_t r = 0; r < kRows; ++r) {
    const CodeWords words = words_of(codes[r]);
    for (size_t j = 0; j < kWords; ++j) {
      const uint32_t bits = (words[j] >> bit) & 0x01010101;
      const uint32_t four = (bits | (bits >> 7) | (bits >> 14) | (bits >> 21)) & 15;
      packed[j] |= uint64_t{four} << (4 * r);
    }
  }
  std::memcpy(out, packed.data(), sizeof(packed));
}

// Bits `bit` and `bit` + 1 of every code.
void pack_pairs(const GroupCodes& codes, int bit, uint8_t* out) {
  for (size_t r = 0; r < kRows; ++r) {
    const CodeWords words = words_of(codes[r]);
    for (size_t h = 0; h < 2; ++h) {
      uint32_t word = 0;
      for (size_t q = 0; q < 4; ++q) word |= ((words[4 * h + q] >> bit) & 0x03030303) << (2 * q);
      store_word(word, out + 4 * (kRows * h + r));
    }
  }
}

void pack_bytes(const GroupCodes& codes, uint8_t* out) {
  for (size_t r = 0; r < kRows; ++r) {
    const CodeWords words = words_of(codes[r]);
    for (size_t j = 0; j < kWords; ++j) store_word(words[j], out + 4 * (kRows * j + r));
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

// Where a super-block keeps the scale and the minimum of its scales.
struct HeaderPlaces {
  int scale;
  int min;
};

HeaderPlaces header_places(DType type) {
  switch (type) {
    case DType::kQ2_K:
      return {q2_k::kScale, q2_k::kMin};
    case DType::kQ3_K:
      return {q3_k::kScale, 0};
    case DType::kQ6_K:
      return {q6_k::kScale, 0};
    default:
      return {q4_k::kScale, q4_k::kMin};  // Q5_K and IQ4_XS have theirs in the same places
  }
}

void pack_header(const GroupSource& source, int64_t block, std::byte* out) {
  const HeaderPlaces places = header_places(source.type);
  for (size_t r = 0; r < static_cast<size_t>(source.rows); ++r) {
    const std::byte* from = block_of(source, r, block);
    copy_half(out, r, from + places.scale);
    if (packed_format(source.type).header_halves == 2) copy_half(out + 32, r, from + places.min);
  }
}

// One row's scales of 32-block `sub` of its block at `from` into lane r.
void pack_row_scales(DType type, const std::byte* from, int64_t sub, size_t r, std::byte* out) {
  switch (packed_format(type).scales) {
    case ScaleLayout::kHalfAndMin:
      copy_half(out + 32, r, from + 2);
      return copy_half(out, r, from);
    case ScaleLayout::kHalf:
      return copy_half(out, r, from);
    case ScaleLayout::kCodes: {
      const ScaleMin codes = load_scale_min(from + q4_k::kScales, sub);
      out[r] = std::byte{codes.scale};
      out[16 + r] = std::byte{codes.min};
      return;
    }
    case ScaleLayout::kTwoCodes:
      out[r] = from[q2_k::kScales + 2 * sub];
      out[16 + r] = from[q2_k::kScales + 2 * sub + 1];
      return;
    case ScaleLayout::kSigned:
      out[r] = static_cast<std::byte>(load_iq4_xs_scale(from, sub));
      return;
    case ScaleLayout::kTwoSigned:
      for (int64_t h = 0; h < 2; ++h) {
        out[16 * h + static_cast<int64_t>(r)] =
            type == DType::kQ6_K
                ? from[q6_k::kScales + 2 * sub + h]
                : static_cast<std::byte>(load_q3_k_scale(from + q3_k::kScales, 2 * sub + h));
      }
      return;
    case ScaleLayout::kPowerOfTwo:
      out[r] = from[0];
      return;
    case ScaleLayout::kNone:
      CHECK_MSG(false, "a type without packed scales");
  }
}

void pack_codes(DType type, const GroupCodes& codes, uint8_t* out) {
  const CodeLayout layout = packed_format(type).codes;
  const CodeBits bits = code_bits(layout);
  const int main = is_biased(type) ? bits.rest_bits : 0;
  const int rest = is_biased(type) ? 0 : bits.main_bits;
  switch (layout) {
    case CodeLayout::kBytes:
      return pack_bytes(codes, out);
    case CodeLayout::kPairsBit:
      pack_bit(codes, rest, out + 128);
      return pack_pairs(codes, main, out);
    case CodeLayout::kPairs:
      return pack_pairs(codes, main, out);
    case CodeLayout::kNibblesBit:
      pack_bit(codes, rest, out + 256);
      return pack_nibbles(codes, main, out);
    case CodeLayout::kNibblesPairs:
      pack_pairs(codes, rest, out + 256);
      return pack_nibbles(codes, main, out);
    case CodeLayout::kNibbles:
      return pack_nibbles(codes, main, out);
    case CodeLayout::kTable:
      return pack_nibbles(codes, 0, out);
    case CodeLayout::kNone:
      CHECK_MSG(false, "a type without packed codes");
  }
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
    const int64_t sub = block % (dtype_info(source.type).block_elements / kQuantBlock);
    std::byte* scales = out + codes_bytes(packed_format(source.type).codes);
    for (size_t r = 0; r < static_cast<size_t>(source.rows); ++r) {
      const std::byte* from = block_of(source, r, block);
      load_codes(source.type, from, sub, codes[r]);
      pack_row_scales(source.type, from, sub, r, scales);
    }
    pack_codes(source.type, codes, as_u8(out));
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
