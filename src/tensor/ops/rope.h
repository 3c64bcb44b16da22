// Rotary position embedding: frequencies from a model's settings, angles once per step, rotation.
//
// Frequencies follow the published formulas: plain (RoFormer), linear scaling, Llama 3's frequency
// bands, YaRN; a file may also give divisors per pair (GGUF's rope_freqs.weight).
// Thread rule: RopeTable is immutable; compute_rope_angles is SPMD and ends without a barrier.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

enum class RopePairing : uint8_t {
  kInterleaved,  // dimensions (2i, 2i+1): GGUF files of the llama family ("norm")
  kHalfSplit,    // dimensions (i, i + rotary_dims / 2): Hugging Face's order ("neox")
};

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  int64_t rotary_dims = 0;  // even, at most the head's size; the dimensions after them stay
  double theta = 10000.0;
  RopePairing pairing = RopePairing::kInterleaved;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;               // kLinear, kLlama3, kYarn
  double original_context = 0;       // kLlama3, kYarn
  double low_frequency_factor = 1;   // kLlama3
  double high_frequency_factor = 4;  // kLlama3
  double beta_fast = 32;             // kYarn
  double beta_slow = 1;              // kYarn
  bool truncate_bounds = true;       // kYarn: correction bounds rounded to whole pairs
  // kYarn: factor on cos and sin; 0: the default, 0.1 ln(factor) + 1.
  double attention_factor = 0;
  // Divisors of the frequencies, one per pair, or empty.
  std::vector<float> frequency_divisors = {};
};

// 0.1 * mscale * ln(factor) + 1, or 1 where factor <= 1.
double yarn_mscale(double factor, double mscale);

class RopeTable {
 public:
  // kRequest when a setting makes no sense (odd or negative size, theta or factor not positive,
  // wrong number of divisors).
  static Result<RopeTable> create(const RopeConfig& config);

  const RopeConfig& config() const { return config_; }
  int64_t pairs() const { return static_cast<int64_t>(inverse_frequencies_.size()); }
  std::span<const float> inverse_frequencies() const { return inverse_frequencies_; }
  float attention_factor() const { return attention_factor_; }

 private:
  RopeConfig config_;
  std::vector<float> inverse_frequencies_;  // [pairs]
  float attention_factor_ = 1.0F;
};

// cos and sin of one step's positions, shared by all its layers: rope_angles_floats(...) floats.
struct RopeAngles {
  const RopeTable* table = nullptr;
  std::span<float> values;  // [tokens, 2, pairs]: cos, then sin, times the attention factor

  // Rotates one head of the step's token in place: [head_dim >= rotary_dims].
  void rotate(int64_t token, float* head) const;
};

inline int64_t rope_angles_floats(const RopeTable& table, int64_t tokens) {
  return tokens * 2 * table.pairs();
}

// Fills angles.values for the tokens at these positions.
void compute_rope_angles(Worker& me, std::span<const int32_t> positions, const RopeAngles& angles);

}  // namespace shoal::tensor
