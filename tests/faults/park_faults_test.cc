// SPDX-License-Identifier: Apache-2.0
//
// Reports about the end of a turn: a park that lost the sequence, or said that it had kept it.
#include <gtest/gtest.h>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

TEST(Faults, B24_AParkThatDoesNotFitKeepsTheSequenceRunning) {
  CacheSetup setup;
  setup.host_blocks = 2;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(24, 64));
  const Job job = cache.StartPark(a, FERMATA_PARK_KEEP);
  EXPECT_THAT(job.outcome, IsError(FERMATA_RESOURCE_EXHAUSTED, FERMATA_REASON_NO_SPACE));
  EXPECT_EQ(job.id.id, 0u);
  const fermata_sequence_info info = cache.Info(a);
  EXPECT_EQ(info.state, FERMATA_SEQUENCE_RUNNING);
  EXPECT_EQ(info.tokens, 64u);
  EXPECT_EQ(info.device_tokens, 64u);
  cache.CheckBytes(a);
  cache.Store(&a, Prompt(25, 16));  // still usable
  cache.CheckBytes(a);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_HOST).free_slots, 2u);
  cache.Release(&a);
}

TEST(Faults, B24_AParkThatMayDropKeepsTheHead) {
  CacheSetup setup;
  setup.host_blocks = 2;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(24, 64));
  const fermata_completion end = cache.Finish(cache.StartPark(a, FERMATA_PARK_DROP));
  EXPECT_EQ(end.status, FERMATA_OK);
  EXPECT_EQ(end.items_ok, 2u);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_HOST).free_slots, 0u);
  const fermata_completion back = cache.Resume(&a);
  EXPECT_EQ(back.status, FERMATA_OK);
  EXPECT_EQ(back.valid_tokens, 32u);
  EXPECT_EQ(a.tokens.size(), 32u);
  cache.CheckBytes(a);
  cache.Store(&a, Prompt(26, 32));  // recompute goes on from there
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B24_AParkCountsTheAncestorsThatADiskNeedsToo) {
  CacheSetup setup;
  setup.device_blocks = 16;
  setup.ssd_blocks = 4;
  TestCache cache(setup);
  const Tokens prompt = Prompt(24, 6 * 16);
  Seq a = cache.Stored(Prefix(prompt, 4 * 16));
  Seq b = cache.Fork(a, 1)[0];
  cache.Store(&b, Tokens(prompt.begin() + 4 * 16, prompt.end()));
  // Two blocks are b's own; on the disk they would stand on four that are not there.
  EXPECT_EQ(cache.StartPark(b, FERMATA_PARK_KEEP).outcome.reason,
            uint32_t{FERMATA_REASON_NO_SPACE});
  EXPECT_EQ(cache.Info(b).state, uint32_t{FERMATA_SEQUENCE_RUNNING});
  EXPECT_EQ(cache.HitTokens(prompt), 6u * 16);
  cache.Release(&a);
  cache.Release(&b);
}

TEST(Faults, B24_AParkUsesEveryTierThatHasRoom) {
  CacheSetup setup;
  setup.device_blocks = 16;
  setup.host_blocks = 4;
  setup.ssd_blocks = 64;
  TestCache cache(setup);
  const Tokens prompt = Prompt(24, 8 * 16);
  Seq a = cache.Stored(prompt);
  const fermata_completion end = cache.Park(&a, FERMATA_PARK_KEEP);
  EXPECT_EQ(end.status, FERMATA_OK);
  EXPECT_EQ(end.items_total, 8u);
  EXPECT_EQ(end.items_ok, 8u);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_DEVICE).cached_slots, 0u);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_HOST).cached_slots, 4u);
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 8u * 16);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B24_AParkWhoseWritesFailSaysSoAndLosesNothing) {
  CacheSetup setup;
  setup.device_blocks = 16;
  setup.sim_blocks = 16;
  setup.sim_faults.write_error_ppm = 1'000'000;
  TestCache cache(setup);
  const Tokens prompt = Prompt(24, 4 * 16);
  Seq a = cache.Stored(prompt);
  const fermata_completion end = cache.Park(&a, FERMATA_PARK_KEEP);
  EXPECT_EQ(end.status, FERMATA_UNAVAILABLE);
  EXPECT_EQ(end.items_total, 4u);
  EXPECT_EQ(end.items_ok, 0u);
  EXPECT_EQ(cache.HitTokens(prompt), 4u * 16);  // good on the device, and nobody needs the room
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 4u * 16);
  cache.CheckBytes(a);
  cache.Release(&a);
}

}  // namespace
}  // namespace fermata_test
