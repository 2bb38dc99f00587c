// SPDX-License-Identifier: Apache-2.0
#include "cache/space_table.h"

#include <gtest/gtest.h>

#include <set>

namespace fermata {
namespace {

TEST(SpaceTable, AnIdentityHasOneStateAndItsHighestNumber) {
  SpaceTable table;
  table.Restore({3, "a"});
  table.Restore({7, "a"});
  table.Restore({5, "b"});
  table.Settle();
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.Find("a")->number, 7u);
  EXPECT_EQ(table.Find("b")->number, 5u);
  EXPECT_EQ(table.Find("c"), nullptr);
  EXPECT_EQ(table.Add("c")->number, 8u);
  table.Renumber(table.Find("b"));
  EXPECT_EQ(table.Find("b")->number, 9u);
}

// One store knows a as 1 and b as 2, the other b as 1 and a as 2, and a third c by a number that
// was a's once.
TEST(SpaceTable, ANumberOfTwoIdentitiesIsNobodys) {
  SpaceTable table;
  for (const SpaceRecord& record : {SpaceRecord{1, "a"}, {2, "b"}, {1, "b"}, {2, "a"}, {4, "d"}})
    table.Restore(record);
  table.Restore({3, "e"});
  table.Restore({6, "e"});
  table.Restore({3, "c"});  // an old number of e's
  table.Settle();
  const std::set<uint32_t> numbers = {table.Find("a")->number, table.Find("b")->number,
                                      table.Find("c")->number};
  EXPECT_EQ(numbers.size(), 3u);
  for (const uint32_t number : numbers) EXPECT_GT(number, 6u);
  EXPECT_EQ(table.Find("d")->number, 4u);
  EXPECT_EQ(table.Find("e")->number, 6u);
}

TEST(SpaceTable, SweepForgetsWhatNobodyHasAndKeepsTheNewestNumber) {
  SpaceTable table;
  const auto used = [](uint32_t number) { return number == 10; };
  for (int i = 1; i < 64; ++i) table.Add("tenant " + std::to_string(i));
  EXPECT_TRUE(table.Sweep(used).empty());  // few
  table.Add("tenant 64");
  table.Find("tenant 20")->handles = 1;
  table.Find("tenant 30")->users = 1;
  const std::vector<uint32_t> gone = table.Sweep(used);
  EXPECT_EQ(gone.size(), 60u);
  EXPECT_EQ(table.size(), 4u);
  for (const char* kept : {"tenant 10", "tenant 20", "tenant 30", "tenant 64"})
    EXPECT_NE(table.Find(kept), nullptr) << kept;
  EXPECT_EQ(table.Add("tenant 65")->number, 65u);
}

}  // namespace
}  // namespace fermata
