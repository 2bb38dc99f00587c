// SPDX-License-Identifier: Apache-2.0
//
// Seeded randomness (xoshiro256**, Blackman and Vigna 2018). Equal seeds give equal streams in
// every build. Thread safety: none; one owner.
#pragma once

#include <cstdint>

#include "base/hash.h"

namespace fermata {

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = seed = MixU64(seed);
  }

  uint64_t Next() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }
  // Uniform in [0, bound); bound > 0. Bias below 2^-32 for the bounds used here.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // Uniform in [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(uint32_t ppm) { return ppm != 0 && Below(1'000'000) < ppm; }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace fermata
