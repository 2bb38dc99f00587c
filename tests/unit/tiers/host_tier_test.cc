// SPDX-License-Identifier: Apache-2.0
//
// What is the host tier's own beyond the contract in tests/conformance: its memory.
#include "tiers/host_tier.h"

#include <gtest/gtest.h>

#include "allocators/fake_host_pool.h"

namespace fermata {
namespace {

TEST(HostTier, AllSlotsLieInOnePieceOfExactlyTheirSize) {
  FakeHostPool pool(uint64_t{1} << 20);
  Result<std::unique_ptr<HostTier>> made =
      HostTier::Create(2, {{5000, 3}, {4096, 0}, {4096, 5}}, &pool);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  HostTier& tier = **made;
  EXPECT_EQ(tier.info().name, "host:2");
  EXPECT_TRUE(tier.has(kTierMapped));
  EXPECT_EQ(tier.memory().size(), 3u * 8192 + 5 * 4096);
  EXPECT_EQ(pool.allocated(), tier.memory().size());
  EXPECT_EQ(tier.slots(1), 0u);
  EXPECT_EQ(tier.Map(0, SlotId{0}), tier.memory().data());
  EXPECT_EQ(tier.Map(2, SlotId{4}) + 4096, tier.memory().data() + tier.memory().size());
  *made = nullptr;
  EXPECT_EQ(pool.allocated(), 0u);
}

TEST(HostTier, SaysWhatItCannotHave) {
  FakeHostPool pool(uint64_t{1} << 20);
  EXPECT_EQ(HostTier::Create(0, {{4096, 257}}, &pool).status().reason(), Reason::kNoSpace);
  EXPECT_EQ(HostTier::Create(0, {{0, 1}}, &pool).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HostTier::Create(0, {{4096, uint64_t{1} << 32}}, &pool).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(HostTier::Create(0, {{uint64_t{1} << 60, 1000}}, &pool).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(HostTier::Create(0, {{~uint64_t{0}, 1}}, &pool).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.allocated(), 0u);
  FakeHostPool failing(uint64_t{1} << 20, 1);
  EXPECT_EQ(HostTier::Create(0, {{4096, 1}}, &failing).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(HostTier, WithoutSlotsNeedsNoMemory) {
  Result<std::unique_ptr<HostTier>> tier = HostTier::Create(0, {{4096, 0}}, nullptr);
  ASSERT_TRUE(tier.ok());
  EXPECT_TRUE((*tier)->memory().empty());
}

TEST(HostTierDeathTest, IoOnASlotThatIsNotHeldDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  FakeHostPool pool(uint64_t{1} << 20);
  Result<std::unique_ptr<HostTier>> tier = HostTier::Create(0, {{4096, 2}}, &pool);
  ASSERT_TRUE(tier.ok());
  TierIo io;
  io.slot = SlotId{1};
  io.buffer = (*tier)->Map(0, SlotId{0});
  EXPECT_DEATH((void)(*tier)->Submit(std::span<const TierIo>(&io, 1)), "IsHeld");
  EXPECT_DEATH((void)(*tier)->Map(0, SlotId{2}), "slots");
}

}  // namespace
}  // namespace fermata
