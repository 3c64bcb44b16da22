// CounterRandom: the random numbers of one request, the same on every platform.
//
// The i-th draw is a pure function of (seed, i): Philox4x32-10 (Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the seed as key and i as counter. So
// a replayed session goes on with the draws it would have had.
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace shoal::runtime {

// The block function, with its published test vectors in the test.
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

class CounterRandom {
 public:
  explicit CounterRandom(uint64_t seed) : seed_(seed) {}

  // The next uniform number in [0, 1), a multiple of 2^-53; the same one until advance().
  double peek() const;
  void advance() { ++drawn_; }
  uint64_t seed() const { return seed_; }
  uint64_t drawn() const { return drawn_; }

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
};

}  // namespace shoal::runtime
