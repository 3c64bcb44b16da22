#include "runtime/sampling/random.h"

namespace shoal::runtime {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

uint32_t high(uint64_t product) { return static_cast<uint32_t>(product >> 32); }
uint32_t low(uint64_t product) { return static_cast<uint32_t>(product); }

}  // namespace

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * counter[2];
    counter = {high(p1) ^ counter[1] ^ key[0], low(p1), high(p0) ^ counter[3] ^ key[1], low(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double CounterRandom::peek() const {
  const auto block = philox4x32_10({low(drawn_), high(drawn_), 0, 0}, {low(seed_), high(seed_)});
  const uint64_t bits = (uint64_t{block[0]} << 32) | block[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace shoal::runtime
