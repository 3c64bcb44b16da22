#include "tensor/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace shoal::tensor {
namespace {

Status check_yarn(const RopeConfig& config) {
  const auto is_positive = [](double value) { return value > 0 && std::isfinite(value); };
  if (!is_positive(config.beta_fast) || !is_positive(config.beta_slow)) {
    return Status::request("YaRN needs positive numbers as beta_fast and beta_slow");
  }
  if (config.attention_factor != 0 && !is_positive(config.attention_factor)) {
    return Status::request("YaRN's attention factor must be positive");
  }
  // Its ramp is laid out by the logarithm of the base.
  if (!(config.theta > 1)) return Status::request("YaRN needs a rotary base above 1");
  return Status::ok();
}

Status check_config(const RopeConfig& config) {
  if (config.rotary_dims <= 0 || config.rotary_dims % 2 != 0) {
    return Status::request("rotary embedding of " + std::to_string(config.rotary_dims) +
                           " dimensions: the number must be even and positive");
  }
  if (!(config.theta > 0) || !std::isfinite(config.theta)) {
    return Status::request("the rotary base must be positive");
  }
  if (config.scaling != RopeScaling::kNone && !(config.factor > 0)) {
    return Status::request("the rotary scaling factor must be positive");
  }
  const bool needs_context =
      config.scaling == RopeScaling::kLlama3 || config.scaling == RopeScaling::kYarn;
  if (needs_context && !(config.original_context > 0)) {
    return Status::request("this rotary scaling needs the original context length");
  }
  if (config.scaling == RopeScaling::kLlama3 &&
      !(config.high_frequency_factor > config.low_frequency_factor &&
        config.low_frequency_factor > 0)) {
    return Status::request("Llama 3 rotary scaling needs 0 < low < high frequency factor");
  }
  if (config.scaling == RopeScaling::kYarn) RETURN_IF_ERROR(check_yarn(config));
  const size_t divisors = config.frequency_divisors.size();
  if (divisors != 0 && divisors != static_cast<size_t>(config.rotary_dims / 2)) {
    return Status::request("rotary divisors: " + std::to_string(divisors) + " for " +
                           std::to_string(config.rotary_dims / 2) + " pairs");
  }
  for (const float divisor : config.frequency_divisors) {
    if (!(divisor > 0)) return Status::request("a rotary divisor is not positive");
  }
  return Status::ok();
}

// Llama 3.1: long waves are slowed by the factor, short ones kept, those between blended.
double scale_llama3(const RopeConfig& config, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double rotations = config.original_context / wavelength;
  if (rotations < config.low_frequency_factor) return frequency / config.factor;
  if (rotations > config.high_frequency_factor) return frequency;
  const double smooth = (rotations - config.low_frequency_factor) /
                        (config.high_frequency_factor - config.low_frequency_factor);
  return (1 - smooth) * frequency / config.factor + smooth * frequency;
}

// YaRN (Peng and others 2023): the pair that turns `rotations` times within the original context.
double yarn_pair(const RopeConfig& config, double rotations) {
  return static_cast<double>(config.rotary_dims) *
         std::log(config.original_context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

double scale_yarn(const RopeConfig& config, double frequency, int64_t pair) {
  double low = yarn_pair(config, config.beta_fast);
  double high = yarn_pair(config, config.beta_slow);
  if (config.truncate_bounds) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.rotary_dims - 1));
  if (low == high) high += 0.001;  // as the published code does, against a division by zero
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return frequency / config.factor * ramp + frequency * (1 - ramp);
}

double scale_frequency(const RopeConfig& config, double frequency, int64_t pair) {
  switch (config.scaling) {
    case RopeScaling::kNone:
      return frequency;
    case RopeScaling::kLinear:
      return frequency / config.factor;
    case RopeScaling::kLlama3:
      return scale_llama3(config, frequency);
    case RopeScaling::kYarn:
      return scale_yarn(config, frequency, pair);
  }
  return frequency;
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Result<RopeTable> RopeTable::create(const RopeConfig& config) {
  RETURN_IF_ERROR(check_config(config));
  RopeTable table;
  table.config_ = config;
  if (config.scaling == RopeScaling::kYarn) {
    table.attention_factor_ = static_cast<float>(
        config.attention_factor > 0 ? config.attention_factor : yarn_mscale(config.factor, 1.0));
  }
  const int64_t pairs = config.rotary_dims / 2;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const double exponent = static_cast<double>(2 * pair) / static_cast<double>(config.rotary_dims);
    double frequency = scale_frequency(config, std::pow(config.theta, -exponent), pair);
    if (!config.frequency_divisors.empty()) {
      frequency /= static_cast<double>(config.frequency_divisors[static_cast<size_t>(pair)]);
    }
    table.inverse_frequencies_.push_back(static_cast<float>(frequency));
  }
  return table;
}

// Angles are float32 products, as the models were trained with; their cosines are exact.
void compute_rope_angles(Worker& me, std::span<const int32_t> positions, const RopeAngles& angles) {
  const RopeTable& table = *angles.table;
  const int64_t pairs = table.pairs();
  const auto tokens = static_cast<int64_t>(positions.size());
  CHECK(static_cast<int64_t>(angles.values.size()) >= rope_angles_floats(table, tokens));
  const auto factor = static_cast<double>(table.attention_factor());
  const Range mine = me.share(tokens * pairs);
  for (int64_t item = mine.begin; item < mine.end; ++item) {
    const int64_t token = item / pairs;
    const int64_t pair = item % pairs;
    const float angle = static_cast<float>(positions[static_cast<size_t>(token)]) *
                        table.inverse_frequencies()[static_cast<size_t>(pair)];
    float* cosines = angles.values.data() + token * 2 * pairs;
    cosines[pair] = static_cast<float>(std::cos(static_cast<double>(angle)) * factor);
    cosines[pairs + pair] = static_cast<float>(std::sin(static_cast<double>(angle)) * factor);
  }
}

void RopeAngles::rotate(int64_t token, float* head) const {
  const int64_t pairs = table->pairs();
  const float* cosines = values.data() + token * 2 * pairs;
  const float* sines = cosines + pairs;
  const bool is_interleaved = table->config().pairing == RopePairing::kInterleaved;
  const int64_t step = is_interleaved ? 2 : 1;
  const int64_t distance = is_interleaved ? 1 : pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    float& first = head[i * step];
    float& second = head[i * step + distance];
    const float x = first;
    const float y = second;
    first = x * cosines[i] - y * sines[i];
    second = x * sines[i] + y * cosines[i];
  }
}

}  // namespace shoal::tensor
