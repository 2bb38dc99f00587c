// SPDX-License-Identifier: Apache-2.0
#include "allocators/host_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocators/fake_host_pool.h"

namespace fermata {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// What every HostPool must do.
struct PoolCase {
  std::string name;
  std::function<std::unique_ptr<HostPool>(uint64_t cap)> make;
};
std::ostream& operator<<(std::ostream& os, const PoolCase& pool_case) {
  return os << pool_case.name;
}

class HostPoolContract : public testing::TestWithParam<PoolCase> {};

TEST_P(HostPoolContract, GivesZeroedAlignedMemory) {
  const auto pool = GetParam().make(16 * kMiB);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4097}, 3 * kMiB + 5}) {
    Result<std::span<std::byte>> piece = pool->Allocate(bytes);
    ASSERT_TRUE(piece.ok()) << piece.status().ToString();
    EXPECT_EQ(piece->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece->data()) % kHostPoolAlignment, 0u);
    EXPECT_TRUE(
        std::all_of(piece->begin(), piece->end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(piece->begin(), piece->end(), std::byte{0xff});
    pool->Free(*piece);
  }
  EXPECT_EQ(pool->allocated(), 0u);
}

TEST_P(HostPoolContract, CapHoldsOverEverythingAllocated) {
  const auto pool = GetParam().make(8 * kMiB);
  Result<std::span<std::byte>> first = pool->Allocate(5 * kMiB);
  ASSERT_TRUE(first.ok());
  Result<std::span<std::byte>> second = pool->Allocate(3 * kMiB + 1);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(second.status().reason(), Reason::kNoSpace);
  EXPECT_EQ(pool->allocated(), 5 * kMiB) << "what failed is not charged";
  second = pool->Allocate(3 * kMiB);
  ASSERT_TRUE(second.ok()) << "exactly the cap";
  EXPECT_EQ(pool->allocated(), 8 * kMiB);
  pool->Free(*first);
  first = pool->Allocate(5 * kMiB);
  EXPECT_TRUE(first.ok()) << "freed memory can be had again";
  pool->Free(*first);
  pool->Free(*second);
}

TEST_P(HostPoolContract, AbsurdSizesAreErrors) {
  const auto pool = GetParam().make(8 * kMiB);
  EXPECT_EQ(pool->Allocate(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool->Allocate(~uint64_t{0}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->Allocate(~uint64_t{0} - 4094).status().code(), StatusCode::kResourceExhausted);
  const auto boundless = GetParam().make(~uint64_t{0});
  EXPECT_EQ(boundless->Allocate(~uint64_t{0} - 1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(boundless->Allocate(uint64_t{1} << 62).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(boundless->allocated(), 0u);
}

TEST_P(HostPoolContract, CapHoldsBetweenThreads) {
  const auto pool = GetParam().make(4 * kMiB);
  std::atomic<uint64_t> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Result<std::span<std::byte>> piece = pool->Allocate(3 * kMiB / 2);
        if (!piece.ok()) continue;
        if (held.fetch_add(3 * kMiB / 2) + 3 * kMiB / 2 > 4 * kMiB) exceeded = true;
        if (pool->allocated() > 4 * kMiB) exceeded = true;
        held.fetch_sub(3 * kMiB / 2);
        pool->Free(*piece);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded.load());
  EXPECT_EQ(pool->allocated(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, HostPoolContract,
    testing::Values(
        PoolCase{"HugePages",
                 [](uint64_t cap) { return std::make_unique<HugePagePool>(cap, true); }},
        PoolCase{"SmallPages",
                 [](uint64_t cap) { return std::make_unique<HugePagePool>(cap, false); }},
        PoolCase{"Fake", [](uint64_t cap) { return std::make_unique<FakeHostPool>(cap); }}),
    [](const testing::TestParamInfo<PoolCase>& param) { return param.param.name; });

TEST(HugePagePool, SaysWhichPagesItHas) {
  HugePagePool small(8 * kMiB, false);
  Result<std::span<std::byte>> piece = small.Allocate(8 * kMiB);
  ASSERT_TRUE(piece.ok());
  EXPECT_STREQ(small.mode(), "small_pages");
  EXPECT_EQ(small.HugePageBytes(), 0u);
  small.Free(*piece);

  HugePagePool huge(9 * kMiB, true);
  piece = huge.Allocate(9 * kMiB);
  ASSERT_TRUE(piece.ok());
  // 8 MiB where the kernel gave them all; a kernel without them says "small_pages" and backs none.
  EXPECT_LE(huge.HugePageBytes(), 8 * kMiB) << "the last MiB has no room for a 2 MiB page";
  if (std::string(huge.mode()) == "small_pages") {
    EXPECT_EQ(huge.HugePageBytes(), 0u);
  }
  RecordProperty("huge_page_bytes", std::to_string(huge.HugePageBytes()));
  EXPECT_EQ(huge.peak(), 9 * kMiB);
  huge.Free(*piece);
  EXPECT_EQ(huge.peak(), 9 * kMiB);
}

TEST(HugePagePoolDeathTest, ForeignMemoryIsNotFreed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  HugePagePool pool(8 * kMiB, true);
  Result<std::span<std::byte>> piece = pool.Allocate(2 * kMiB);
  ASSERT_TRUE(piece.ok());
  EXPECT_DEATH(pool.Free(piece->first(4096)), "pieces_");
  EXPECT_DEATH(pool.Free(piece->subspan(4096)), "pieces_");
}

TEST(FakeHostPool, FailsTheCallItWasToldTo) {
  FakeHostPool pool(kMiB, 2);
  Result<std::span<std::byte>> first = pool.Allocate(4096);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(pool.Allocate(4096).status().code(), StatusCode::kResourceExhausted);
  Result<std::span<std::byte>> third = pool.Allocate(4096);
  ASSERT_TRUE(third.ok());
  pool.Free(*first);
  pool.Free(*third);
}

}  // namespace
}  // namespace fermata
