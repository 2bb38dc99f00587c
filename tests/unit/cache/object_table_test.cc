// SPDX-License-Identifier: Apache-2.0
#include "cache/object_table.h"

#include <gtest/gtest.h>

#include <map>

namespace fermata {
namespace {

ObjectId Add(ObjectTable<int>* table, int value) {
  return table->Add(std::make_unique<int>(value));
}

TEST(ObjectTable, FindsWhatWasAdded) {
  ObjectTable<int> table(4);
  const ObjectId a = Add(&table, 10);
  const ObjectId b = Add(&table, 20);
  EXPECT_NE(a, b);
  ASSERT_NE(table.Find(a), nullptr);
  EXPECT_EQ(*table.Find(a), 10);
  ASSERT_NE(table.Find(b), nullptr);
  EXPECT_EQ(*table.Find(b), 20);
  EXPECT_EQ(table.size(), 2u);
}

TEST(ObjectTable, ZeroAndForeignIdsFindNothing) {
  ObjectTable<int> table(4);
  const ObjectId id = Add(&table, 1);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_EQ(table.Find(id + 1), nullptr);                    // an index that was never used
  EXPECT_EQ(table.Find(id + (uint64_t{1} << 24)), nullptr);  // the next generation
  EXPECT_EQ(table.Find(id | (uint64_t{1} << 48)), nullptr);  // beyond index and generation
  EXPECT_EQ(table.Find(~uint64_t{0}), nullptr);
}

TEST(ObjectTable, AStaleIdNeverFindsItsSuccessor) {
  ObjectTable<int> table(1);
  const ObjectId first = Add(&table, 1);
  const std::unique_ptr<int> removed = table.Remove(first);
  ASSERT_NE(removed, nullptr);
  EXPECT_EQ(*removed, 1);
  EXPECT_EQ(table.Find(first), nullptr);
  const ObjectId second = Add(&table, 2);
  EXPECT_EQ(first & 0xffffff, second & 0xffffff);  // the same slot
  EXPECT_NE(first, second);
  EXPECT_EQ(table.Find(first), nullptr);
  EXPECT_EQ(table.Remove(first), nullptr);  // a double close does not hit the successor
  ASSERT_NE(table.Find(second), nullptr);
  EXPECT_EQ(*table.Find(second), 2);
  EXPECT_EQ(table.size(), 1u);
}

TEST(ObjectTable, IsFullAtItsCapacityAndHasRoomAfterARemoval) {
  ObjectTable<int> table(2);
  const ObjectId a = Add(&table, 1);
  EXPECT_FALSE(table.full());
  Add(&table, 2);
  EXPECT_TRUE(table.full());
  table.Remove(a);
  EXPECT_FALSE(table.full());
  EXPECT_EQ(table.size(), 1u);
}

TEST(ObjectTable, TablesOfDifferentFirstGenerationShareNoIds) {
  ObjectTable<int> one(4, 5);
  ObjectTable<int> other(4, 6);
  const ObjectId of_one = Add(&one, 1);
  Add(&other, 2);
  EXPECT_EQ(of_one >> 24, 5u);
  EXPECT_EQ(other.Find(of_one), nullptr);
}

TEST(ObjectTable, GenerationsWrapPastZero) {
  ObjectTable<int> table(1, 0xffffff);
  const ObjectId last = Add(&table, 1);
  EXPECT_EQ(last >> 24, 0xffffffu);
  table.Remove(last);
  EXPECT_EQ(Add(&table, 2) >> 24, 1u);
  ObjectTable<int> zero(1, 0);  // 0 would make an id of index 0 zero, which means "none"
  EXPECT_EQ(Add(&zero, 1) >> 24, 1u);
  ObjectTable<int> cut(1, 1u << 24);
  EXPECT_EQ(Add(&cut, 1) >> 24, 1u);
}

TEST(ObjectTable, ForEachVisitsTheLivingUnderTheirIds) {
  ObjectTable<int> table(4);
  const ObjectId a = Add(&table, 1);
  const ObjectId b = Add(&table, 2);
  const ObjectId c = Add(&table, 3);
  table.Remove(b);
  std::map<ObjectId, int> seen;
  table.ForEach([&seen](ObjectId id, int value) { seen[id] = value; });
  EXPECT_EQ(seen, (std::map<ObjectId, int>{{a, 1}, {c, 3}}));
}

}  // namespace
}  // namespace fermata
