// SPDX-License-Identifier: Apache-2.0
//
// SimRun: one random life of a whole cache under one seed. Sizes, operations, faults of the lowest
// tier, order of completions and the clock all follow from the seed; after every operation the
// books are recounted, every hit that was loaded is compared with the oracle byte for byte, and no
// hit may be longer than what was published under exactly that identity. It knows nothing of the
// library but its C ABI.
//
// Thread safety: one owner. Cost: about 20 us a step.
#pragma once

#include <cstdint>
#include <string>

namespace fermata_test {

struct SimResult {
  std::string error;  // empty: nothing was wrong
  uint64_t steps = 0;
  uint64_t hits = 0;          // lookups that found something
  uint64_t loads = 0;         // loads that ended well
  uint64_t failed_loads = 0;  // that ended with lost data
  uint64_t checks = 0;        // comparisons with the oracle
};

SimResult RunSim(uint64_t seed, uint64_t steps);

// The command that does the same again.
std::string ReplayCommand(uint64_t seed, uint64_t steps);

}  // namespace fermata_test
