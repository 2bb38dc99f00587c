// SPDX-License-Identifier: Apache-2.0
#include "allocators/staging_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "allocators/fake_host_pool.h"

namespace fermata {
namespace {

TEST(StagingPool, GivesEachBufferOnce) {
  FakeHostPool memory(1 << 20);
  Result<std::unique_ptr<StagingPool>> pool = StagingPool::Create(&memory, 5000, 4);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  StagingPool& staging = **pool;
  EXPECT_EQ(staging.buffers(), 4u);
  EXPECT_EQ(staging.memory().size(), 4u * 8192);
  std::set<std::byte*> buffers;
  for (int i = 0; i < 4; ++i) {
    std::byte* const buffer = staging.Acquire();
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 4096, 0u);
    std::memset(buffer, 0x5a, 5000);  // inside its own piece, or AddressSanitizer says so
    buffers.insert(buffer);
  }
  EXPECT_EQ(buffers.size(), 4u);
  for (auto it = buffers.begin(); std::next(it) != buffers.end(); ++it) {
    EXPECT_GE(*std::next(it) - *it, 5000);
  }
  EXPECT_EQ(staging.free(), 0u);
  EXPECT_EQ(staging.Acquire(), nullptr);
  std::byte* const one = *buffers.begin();
  staging.Release(one);
  EXPECT_EQ(staging.free(), 1u);
  EXPECT_EQ(staging.Acquire(), one);
  for (std::byte* const buffer : buffers) staging.Release(buffer);
}

TEST(StagingPool, GivesItsMemoryBack) {
  FakeHostPool memory(1 << 20);
  { ASSERT_TRUE(StagingPool::Create(&memory, 4096, 8).ok()); }
  EXPECT_EQ(memory.allocated(), 0u);
}

TEST(StagingPool, WithoutBuffersNeedsNoMemory) {
  Result<std::unique_ptr<StagingPool>> pool = StagingPool::Create(nullptr, 4096, 0);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->Acquire(), nullptr);
  EXPECT_EQ((*pool)->buffers(), 0u);
  EXPECT_TRUE((*pool)->memory().empty());
}

TEST(StagingPool, RefusesWhatCannotBe) {
  FakeHostPool memory(1 << 20);
  EXPECT_EQ(StagingPool::Create(nullptr, 4096, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StagingPool::Create(&memory, 0, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StagingPool::Create(&memory, uint64_t{1} << 62, 8).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(StagingPool::Create(&memory, ~uint64_t{0}, 1).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(StagingPool::Create(&memory, 1 << 20, 2).status().reason(), Reason::kNoSpace);
}

TEST(StagingPoolDeathTest, WrongReleaseDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  FakeHostPool memory(1 << 20);
  Result<std::unique_ptr<StagingPool>> pool = StagingPool::Create(&memory, 4096, 2);
  ASSERT_TRUE(pool.ok());
  std::byte* const buffer = (*pool)->Acquire();
  EXPECT_DEATH((*pool)->Release(buffer + 1), "stride_");
  EXPECT_DEATH((*pool)->Release(buffer + 2 * 4096), "memory_");
  EXPECT_DEATH((*pool)->Release(buffer + 4096), "Held");
  (*pool)->Release(buffer);
  EXPECT_DEATH((*pool)->Release(buffer), "Held");
}

}  // namespace
}  // namespace fermata
