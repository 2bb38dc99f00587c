// SPDX-License-Identifier: Apache-2.0
#include "allocators/slot_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/random.h"

namespace fermata {
namespace {

std::vector<uint32_t> Take(SlotPool* pool, size_t count) {
  std::vector<SlotId> slots(count, SlotId::kNone);
  EXPECT_TRUE(pool->Acquire(slots).ok());
  std::vector<uint32_t> numbers;
  for (const SlotId slot : slots) numbers.push_back(Raw(slot));
  return numbers;
}

void Give(SlotPool* pool, std::vector<uint32_t> numbers) {
  std::vector<SlotId> slots;
  for (const uint32_t number : numbers) slots.push_back(SlotId{number});
  pool->Release(slots);
}

TEST(SlotPool, FreshPoolGivesLowestFirst) {
  SlotPool pool(5);
  EXPECT_EQ(Take(&pool, 2), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(Take(&pool, 3), (std::vector<uint32_t>{2, 3, 4}));
  pool.Validate();
}

TEST(SlotPool, SlotFreedLastComesFirst) {
  SlotPool pool(5);
  Take(&pool, 4);
  Give(&pool, {1, 3, 0});
  EXPECT_EQ(Take(&pool, 4), (std::vector<uint32_t>{0, 3, 1, 4}));
  pool.Validate();
}

TEST(SlotPool, FullPoolTakesNothing) {
  SlotPool pool(64);
  Take(&pool, 61);
  std::vector<SlotId> out(8, SlotId::kNone);
  const Status status = pool.Acquire(out);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.reason(), Reason::kNoSpace);
  EXPECT_EQ(status.message(), "want 8, free 3 of 64");
  EXPECT_EQ(pool.free(), 3u);
  for (const SlotId slot : out) EXPECT_EQ(slot, SlotId::kNone);
  pool.Validate();
}

TEST(SlotPool, ZeroSlotsAreAlwaysThere) {
  SlotPool empty(0);
  EXPECT_TRUE(empty.Acquire({}).ok());
  empty.Release({});
  SlotId one = SlotId::kNone;
  EXPECT_FALSE(empty.Acquire(std::span<SlotId>(&one, 1)).ok());
  empty.Validate();
}

TEST(SlotPool, HoldTakesThatSlotAndNoOther) {
  SlotPool pool(6);
  EXPECT_TRUE(pool.Hold(SlotId{3}).ok());
  EXPECT_TRUE(pool.Hold(SlotId{0}).ok());
  EXPECT_TRUE(pool.IsHeld(SlotId{3}));
  EXPECT_FALSE(pool.IsHeld(SlotId{2}));
  EXPECT_EQ(pool.Hold(SlotId{3}).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(pool.Hold(SlotId{6}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(pool.Hold(SlotId::kNone).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(pool.free(), 4u);
  std::vector<uint32_t> rest = Take(&pool, 4);
  std::sort(rest.begin(), rest.end());
  EXPECT_EQ(rest, (std::vector<uint32_t>{1, 2, 4, 5}));
  pool.Validate();
  Give(&pool, {3});
  EXPECT_EQ(pool.free(), 1u);
}

// An engine may register an arena of the largest size that the header allows, under the core's
// lock.
TEST(SlotPool, SlotsThatWereNeverInUseCostNothing) {
  rusage before{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  constexpr uint32_t kSlots = 0x7fffffff;
  SlotPool pool(kSlots);
  EXPECT_EQ(pool.free(), kSlots);
  EXPECT_EQ(Take(&pool, 3), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_FALSE(pool.IsHeld(SlotId{3}));
  Give(&pool, {1});
  EXPECT_EQ(pool.free(), kSlots - 2);
  EXPECT_EQ(Take(&pool, 2), (std::vector<uint32_t>{1, 3}));
  pool.Validate();
  rusage after{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB for the books of three slots";
}

TEST(SlotPool, HoldPastWhatWasInUseKeepsWhatItSkippedFree) {
  SlotPool pool(1000);
  EXPECT_TRUE(pool.Hold(SlotId{5}).ok());
  EXPECT_EQ(pool.free(), 999u);
  pool.Validate();
  EXPECT_EQ(Take(&pool, 6), (std::vector<uint32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_TRUE(pool.Hold(SlotId{999}).ok());
  EXPECT_EQ(pool.Hold(SlotId{999}).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Take(&pool, 992).size(), 992u);
  EXPECT_EQ(pool.free(), 0u);
  pool.Validate();
}

TEST(SlotPoolDeathTest, DoubleReleaseDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SlotPool pool(4);
  Take(&pool, 2);
  Give(&pool, {1});
  EXPECT_DEATH(Give(&pool, {1}), "Held");
  EXPECT_DEATH(Give(&pool, {0, 0}), "Held");
  EXPECT_DEATH(Give(&pool, {3}), "Held");
  EXPECT_DEATH(Give(&pool, {4}), "capacity_");
}

TEST(SlotPool, AgreesWithAModel) {
  Random random(3);
  SlotPool pool(100);
  std::vector<uint32_t> held;
  for (int i = 0; i < 5000; ++i) {
    const size_t count = random.Below(9);
    switch (random.Below(3)) {
      case 0: {
        std::vector<SlotId> out(count, SlotId::kNone);
        ASSERT_EQ(pool.Acquire(out).ok(), held.size() + count <= 100);
        for (const SlotId slot : out) {
          if (slot != SlotId::kNone) held.push_back(Raw(slot));
        }
        break;
      }
      case 1: {
        const uint32_t number = static_cast<uint32_t>(random.Below(100));
        const bool is_held = std::find(held.begin(), held.end(), number) != held.end();
        ASSERT_EQ(pool.IsHeld(SlotId{number}), is_held);
        ASSERT_EQ(pool.Hold(SlotId{number}).ok(), !is_held);
        if (!is_held) held.push_back(number);
        break;
      }
      default: {
        for (size_t k = 0; k < count && !held.empty(); ++k) {
          std::swap(held[random.Below(held.size())], held.back());
          Give(&pool, {held.back()});
          held.pop_back();
        }
      }
    }
    ASSERT_EQ(pool.free(), 100 - held.size());
    pool.Validate();
  }
  std::sort(held.begin(), held.end());
  EXPECT_EQ(std::unique(held.begin(), held.end()), held.end());
}

TEST(SlotPool, ThreadsNeverShareASlot) {
  SlotPool pool(40);
  std::vector<std::atomic<int>> owners(40);
  std::atomic<int> shared{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t + 1);
      for (int i = 0; i < 5000; ++i) {
        std::vector<SlotId> slots(random.Below(16), SlotId::kNone);
        if (!pool.Acquire(slots).ok()) continue;
        for (const SlotId slot : slots) {
          if (owners[Raw(slot)].fetch_add(1) != 0) shared.fetch_add(1);
        }
        for (const SlotId slot : slots) owners[Raw(slot)].fetch_sub(1);
        pool.Release(slots);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.load(), 0);
  EXPECT_EQ(pool.free(), 40u);
  pool.Validate();
}

}  // namespace
}  // namespace fermata
