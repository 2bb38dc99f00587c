// SPDX-License-Identifier: Apache-2.0
//
// One seed, one stream: what makes a simulation reproducible.
#include "base/random.h"

#include <gtest/gtest.h>

namespace fermata {
namespace {

TEST(Random, EqualSeedsGiveEqualStreams) {
  Random a(42);
  Random b(42);
  Random c(43);
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = a.Next();
    ASSERT_EQ(value, b.Next());
    differs |= value != c.Next();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, SeedZeroIsNotStuck) {
  Random random(0);
  uint64_t seen = 0;
  for (int i = 0; i < 64; ++i) seen |= random.Next();
  EXPECT_EQ(seen, ~uint64_t{0});
}

TEST(Random, StaysInItsBounds) {
  Random random(7);
  for (int i = 0; i < 10000; ++i) {
    ASSERT_LT(random.Below(3), 3u);
    const double unit = random.Unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
  }
}

TEST(Random, ChanceIsNeverAtZeroAlwaysAtAMillionAndAboutRightBetween) {
  Random random(9);
  int hits = 0;
  for (int i = 0; i < 100000; ++i) {
    ASSERT_FALSE(random.Chance(0));
    ASSERT_TRUE(random.Chance(1'000'000));
    hits += random.Chance(250'000) ? 1 : 0;
  }
  // Mean 25,000, deviation 137: eight deviations either way.
  EXPECT_NEAR(hits, 25000, 1100);
}

}  // namespace
}  // namespace fermata
