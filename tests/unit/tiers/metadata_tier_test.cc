// SPDX-License-Identifier: Apache-2.0
#include "tiers/metadata_tier.h"

#include <gtest/gtest.h>

namespace fermata {
namespace {

TEST(MetadataTier, LooksLikeTheKindItStandsFor) {
  const MetadataTier host(TierKind::kHost, 0, {{4096, 4}});
  EXPECT_EQ(host.info().name, "host:0");
  EXPECT_TRUE(host.has(kTierNoBytes));
  EXPECT_FALSE(host.has(kTierDurable));
  const MetadataTier ssd(TierKind::kSsd, 7, {{4096, 4}});
  EXPECT_EQ(ssd.info().name, "ssd:7");
  EXPECT_TRUE(ssd.has(kTierNoBytes));
  EXPECT_TRUE(ssd.has(kTierDurable));
}

TEST(MetadataTier, HasNothingToRecover) {
  MetadataTier ssd(TierKind::kSsd, 0, {{4096, 4}});
  EXPECT_TRUE(ssd.Recover([](const SpaceRecord&) { ADD_FAILURE(); },
                          [](const BlockRecord&, SlotId) { ADD_FAILURE(); })
                  .ok());
  EXPECT_EQ(ssd.free_slots(0), 4u);
}

TEST(MetadataTier, CompletesAtTheNextPollInOrder) {
  MetadataTier tier(TierKind::kHost, 0, {{4096, 4}});
  std::vector<SlotId> slots(3, SlotId::kNone);
  ASSERT_TRUE(tier.Acquire(0, slots).ok());
  std::vector<TierIo> batch(3);
  for (size_t i = 0; i < 3; ++i) {
    batch[i].slot = slots[i];
    batch[i].cookie = 10 + i;
  }
  ASSERT_EQ(tier.Submit(batch), 3u);
  EXPECT_EQ(tier.in_flight(), 3u);
  std::vector<TierCompletion> done(2);
  ASSERT_EQ(tier.Poll(done), 2u);
  EXPECT_EQ(done[0].cookie, 10u);
  EXPECT_EQ(done[1].cookie, 11u);
  ASSERT_EQ(tier.Poll(done), 1u);
  EXPECT_EQ(done[0].cookie, 12u);
  EXPECT_EQ(tier.in_flight(), 0u);
}

}  // namespace
}  // namespace fermata
