// SPDX-License-Identifier: Apache-2.0
//
// Both clocks go forward only and never read 0, which stands for "no time" in deadlines.
#include "base/clock.h"

#include <gtest/gtest.h>

namespace fermata {
namespace {

TEST(ManualClock, StartsAtOneAndMovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.NowNs(), 1u);
  EXPECT_EQ(clock.NowNs(), 1u);
  clock.AdvanceNs(41);
  EXPECT_EQ(clock.NowNs(), 42u);
}

TEST(SystemClock, IsMonotonicAndMoves) {
  const SystemClock clock;
  const uint64_t start = clock.NowNs();
  EXPECT_GT(start, 0u);
  uint64_t last = start;
  while (last == start) {
    const uint64_t now = clock.NowNs();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, start);
}

}  // namespace
}  // namespace fermata
