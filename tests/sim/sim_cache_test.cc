// SPDX-License-Identifier: Apache-2.0
//
// Many seeds of SimRun, or the one named by --seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tests/sim/sim_run.h"

namespace fermata_test {
namespace {

uint64_t g_seed = 0;  // 0: all of them
uint64_t g_steps = 400;

TEST(SimCache, EverySeedKeepsEveryInvariant) {
  constexpr uint64_t kSeeds = 150;
  uint64_t hits = 0;
  uint64_t loads = 0;
  uint64_t failed_loads = 0;
  uint64_t checks = 0;
  const uint64_t first = g_seed != 0 ? g_seed : 1;
  const uint64_t last = g_seed != 0 ? g_seed : kSeeds;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const SimResult result = RunSim(seed, g_steps);
    ASSERT_EQ(result.error, "") << "seed " << seed << " at step " << result.steps
                                << "\nreplay: " << ReplayCommand(seed, result.steps);
    hits += result.hits;
    loads += result.loads;
    failed_loads += result.failed_loads;
    checks += result.checks;
  }
  std::cout << "hits " << hits << ", loads " << loads << ", failed loads " << failed_loads
            << ", byte checks " << checks << "\n";
  if (g_seed == 0) {  // A run in which nothing happens proves nothing.
    EXPECT_GT(hits, kSeeds);
    EXPECT_GT(loads, kSeeds);
    EXPECT_GT(failed_loads, 10u);
    EXPECT_GT(checks, kSeeds);
  }
}

TEST(SimCache, OneSeedGivesOneRun) {
  const SimResult a = RunSim(7, 300);
  const SimResult b = RunSim(7, 300);
  EXPECT_EQ(a.error, b.error);
  EXPECT_EQ(a.hits, b.hits);
  EXPECT_EQ(a.loads, b.loads);
  EXPECT_EQ(a.checks, b.checks);
}

}  // namespace
}  // namespace fermata_test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) {
      fermata_test::g_seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else if (std::strncmp(argv[i], "--steps=", 8) == 0) {
      fermata_test::g_steps = std::strtoull(argv[i] + 8, nullptr, 10);
    } else {
      std::cerr << "unknown argument " << argv[i] << "; known: --seed=N --steps=M\n";
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
