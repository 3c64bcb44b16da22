// MatmulCase: a random weight and random inputs, what the naive product in float64 gives, and how
// far a kernel may be from it. For tests of this folder only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tensor/activations.h"
#include "tensor/byte_blocks.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/quant/quant_block.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {

// Every supported type, and those with blocks.
inline std::vector<DType> supported_types(bool only_quantized = false) {
  std::vector<DType> types;
  for (size_t i = 0; i < kSupportedTypes; ++i) {
    const auto type = static_cast<DType>(i);
    if (!only_quantized || !is_float_type(type)) types.push_back(type);
  }
  return types;
}

inline std::vector<float> random_floats(size_t count, uint32_t seed, float offset = 0.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(offset, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The same with a value now and then that dominates its neighbours, as in the inputs of real
// models.
inline std::vector<float> random_inputs(size_t count, uint32_t seed, float offset = 0.0F) {
  std::vector<float> values = random_floats(count, seed, offset);
  for (size_t i = seed % 53; i < count; i += 53) values[i] *= 50.0F;
  return values;
}

inline std::unique_ptr<WorkerPool> make_pool(KernelPath path, int workers = 1) {
  return std::move(WorkerPool::create({.workers = workers, .path = path})).value();
}

// A weight [rows, cols] as a file would hold it.
struct Weight {
  DType type;
  int64_t rows;
  int64_t cols;
  std::vector<std::byte> bytes;

  Weight(DType weight_type, int64_t row_count, int64_t col_count)
      : type(weight_type),
        rows(row_count),
        cols(col_count),
        bytes(quantize_matrix(type, random_floats(static_cast<size_t>(rows * cols), 11, 0.1F),
                              cols)) {}

  MatrixView view() const { return {type, rows, cols, bytes}; }
  std::span<const std::byte> row(int64_t index) const {
    const size_t size = bytes.size() / static_cast<size_t>(rows);
    return std::span(bytes).subspan(static_cast<size_t>(index) * size, size);
  }
};

// The bytes of a block that are f16 scales (in MXFP4 one byte), of quantized types.
inline bool is_scale_byte(DType type, size_t place) {
  switch (type) {
    case DType::kQ2_K:
      return place >= 80;
    case DType::kQ3_K:
      return place >= 108;
    case DType::kQ6_K:
      return place >= 208;
    case DType::kMXFP4:
      return place == 0;
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return place < 4;
    default:
      return place < 2;
  }
}

// Runs the ops of a step: x [tokens, shard columns] -> [tokens, shard rows].
inline std::vector<float> multiply(WorkerPool& pool, const PackedMatrix& matrix,
                                   const std::vector<float>& x, int64_t tokens) {
  const int64_t cols = matrix.cols();
  Activations activations = Activations::allocate({tokens, cols}).value();
  EXPECT_TRUE(pool.reserve_scratch(matmul_scratch_bytes(pool.path(), cols)).is_ok());
  std::vector<float> y(static_cast<size_t>(tokens * matrix.rows()), -99.0F);
  pool.run([&](Worker& me) {
    pack_activations(me, InputSource::rows({x.data(), tokens, cols, cols}), matrix.input_format(),
                     activations);
    me.barrier();
    matmul(me, matrix, activations, {y.data(), tokens, matrix.rows(), matrix.rows()});
  });
  return y;
}

// The inputs that a matrix's kernels read, x [tokens, format.cols] as packed by the pool's kernels:
// the rounding of inputs is the contract of pack_activations, and apart from that of the products.
inline std::vector<double> packed_inputs(WorkerPool& pool, const InputFormat& format,
                                         std::span<const float> x, int64_t tokens) {
  std::vector<double> values(x.begin(), x.end());
  if (format.kind != InputFormat::Kind::kByteBlocks) return values;
  Activations packed = Activations::allocate({tokens, format.cols}).value();
  pool.run([&](Worker& me) {
    pack_activations(me, InputSource::rows({x.data(), tokens, format.cols, format.cols}), format,
                     packed);
  });
  const int64_t blocks = blocks_of(format);
  const BlockInputs all = byte_blocks(packed.data(), tokens, blocks).inputs();
  for (int64_t token = 0; token < tokens; ++token) {
    const TokenPlace place = place_of(token, tokens, blocks);
    for (int64_t c = 0; c < format.cols; ++c) {
      const int64_t column = format.lead + c;
      const BlockInputs block = all.at(place.first + column / kQuantBlock * place.stride);
      const int64_t i = column % kQuantBlock;
      double steps = block.bytes[i];
      if (block.meta->has_second != 0) steps += block.second->inputs[i] / double{kSecondSteps};
      values[static_cast<size_t>(token * format.cols + c)] = steps * double{block.meta->scale};
    }
  }
  return values;
}

// One output in float64 from the inputs as packed, and how far a kernel may be from it: every term
// w x is made of parts no larger than (|scale| 255 + |offset|) |x| of the weight's block, and
// passes fewer than cols / 32 + 24 roundings of 2^-24 in the packed kernels, each three to a block
// (float types and the reference: cols / 2 + 24, for their partial sums).
struct Expected {
  double value = 0;
  double tolerance = 0;
};

inline Expected expected_output(const Weight& weight, const Shard& shard, int64_t row,
                                std::span<const double> x, KernelPath path) {
  std::vector<float> w(static_cast<size_t>(weight.cols));
  dequantize_row(weight.type, weight.row(row), 0, weight.cols, w.data());
  const DTypeInfo& info = dtype_info(weight.type);
  const bool in_blocks = info.is_quantized && path != KernelPath::kExact;
  double sum = 0;
  double magnitude = 0;
  for (int64_t c = shard.col_begin; c < shard.col_end; ++c) {
    const double value = x[static_cast<size_t>(c - shard.col_begin)];
    double parts = std::fabs(static_cast<double>(w[static_cast<size_t>(c)]));
    if (in_blocks) {
      const int64_t block = c / kQuantBlock;
      const int64_t per_block = info.block_elements / kQuantBlock;
      const BlockScales scales =
          load_scales(weight.type, weight.row(row).data() + block / per_block * info.block_bytes,
                      block % per_block);
      const auto half = static_cast<size_t>(c / 16 % 2);
      parts += std::fabs(static_cast<double>(scales.offset[half]));
      parts += std::fabs(static_cast<double>(scales.scale[half])) * 255;
    }
    sum += static_cast<double>(w[static_cast<size_t>(c)]) * value;
    magnitude += parts * std::fabs(value);
  }
  const double roundings =
      3 * static_cast<double>(in_blocks ? weight.cols / 32 : weight.cols / 6) + 24;
  return {sum, magnitude * roundings * 0x1p-24};
}

}  // namespace shoal::tensor
