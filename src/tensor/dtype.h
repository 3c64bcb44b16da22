// DType: the element types of model files, their block sizes and their GGUF numbers.
//
// Every type that GGUF knows has a name and a size, so that a reader can skip it, count it and name
// it in an error; is_supported says which ones Shoal computes with. docs/quantization.md specifies
// the blocks. Thread rule: constant data and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal::tensor {

// NOLINTBEGIN(readability-identifier-naming): GGUF's own names.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  // Known by name and size only.
  kQ8_1,
  kQ8_K,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
  kNVFP4,
  kQ1_0,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
};
// NOLINTEND(readability-identifier-naming)

inline constexpr size_t kSupportedTypes = 16;  // the first ones: kF32 to kMXFP4
constexpr bool is_float_type(DType type) { return type <= DType::kBF16; }

struct DTypeInfo {
  DType type;
  std::string_view name;    // "Q4_1"
  uint32_t gguf_id;         // the number in a GGUF tensor record
  uint32_t block_elements;  // consecutive elements of one row that share scales; 1 for plain types
  uint32_t block_bytes;
  bool is_supported;  // weights of this type can be computed with
  bool is_quantized;  // block_elements > 1: integers with scales
};

const DTypeInfo& dtype_info(DType type);
// "F32, F16, ... or MXFP4", for errors.
std::string supported_dtype_names();
inline std::string_view dtype_name(DType type) { return dtype_info(type).name; }

// nullopt for numbers that GGUF has not given out or has withdrawn.
std::optional<DType> dtype_from_gguf(uint32_t gguf_id);
// By GGUF's name, case matters: "Q4_K".
std::optional<DType> dtype_from_name(std::string_view name);

// Bytes of one row of `cols` elements; nullopt when cols is no whole number of blocks or the
// product does not fit 64 bits.
std::optional<uint64_t> row_bytes(DType type, uint64_t cols);

}  // namespace shoal::tensor
