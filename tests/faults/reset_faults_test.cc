// SPDX-License-Identifier: Apache-2.0
//
// Reports about resets and erasures that reached one tier only, or came undone.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

// What a killed process leaves: a copy of the cache's directory as it is now.
class Crash {
 public:
  explicit Crash(const TestCache& cache) : setup_(cache.setup()) {
    setup_.directory = cache.directory() + ".crash";
    std::filesystem::copy(cache.directory(), setup_.directory,
                          std::filesystem::copy_options::recursive);
  }
  ~Crash() { std::filesystem::remove_all(setup_.directory); }
  Crash(const Crash&) = delete;
  Crash& operator=(const Crash&) = delete;
  const CacheSetup& setup() const { return setup_; }

 private:
  CacheSetup setup_;
};

TEST(Faults, B69_AResetReachesEveryTierAndEverySequence) {
  CacheSetup setup;
  setup.device_blocks = 4;
  setup.host_blocks = 2;
  setup.ssd_blocks = 16;
  TestCache cache(setup);
  const Tokens old = Prompt(69, 64);
  Seq a = cache.Stored(old);
  cache.Release(&a);
  Seq running = cache.Stored(Prompt(70, 32));
  Seq idle = cache.Stored(Prompt(71, 32));
  cache.Release(&idle);
  cache.Settle();
  EXPECT_EQ(cache.HitTokens(old), 64u);
  EXPECT_EQ(cache.HitTokens(running.tokens), 32u);
  const Stats before = cache.GetStats();
  uint64_t blocks[3] = {};
  fermata_error error = FERMATA_ERROR_INIT;
  ASSERT_EQ(fermata_reset(cache.id(), FERMATA_RESET_ALL, 0, blocks, 3, &error), FERMATA_OK)
      << error.message;
  for (size_t tier = 1; tier < 3; ++tier) {
    EXPECT_EQ(blocks[tier], before.tiers[tier].cached_slots + before.tiers[tier].live_slots)
        << "tier " << tier;
    EXPECT_GT(blocks[tier], 0u);
  }
  for (const Tokens& tokens : {old, running.tokens, Prompt(71, 32)}) {
    EXPECT_EQ(cache.HitTokens(tokens), 0u);
  }
  cache.CheckBytes(running);  // it may go on,
  cache.Store(&running, Prompt(72, 32));
  cache.CheckBytes(running);
  cache.Release(&running);
  EXPECT_EQ(cache.HitTokens(Prompt(70, 32)), 0u);  // but what it had stays unfindable
  // New work is cached as before.
  Seq fresh = cache.Stored(old);
  cache.Release(&fresh);
  EXPECT_EQ(cache.HitTokens(old), 64u);
  cache.Settle();
  cache.Reopen();
  EXPECT_EQ(cache.HitTokens(Prompt(70, 32)), 0u);
  EXPECT_EQ(cache.HitTokens(Prompt(71, 32)), 0u);
}

TEST(Faults, B69_AStoreBegunBeforeAResetIsNeverFound) {
  for (const bool on_disk : {false, true}) {
    CacheSetup setup;
    (on_disk ? setup.ssd_blocks : setup.host_blocks) = 16;
    TestCache cache(setup);
    const Tokens tokens = Prompt(69, 64);
    for (uint64_t steps = 0; steps < 8; ++steps) {
      Seq a = cache.Stored(tokens);
      const Job job = cache.StartPark(a, FERMATA_PARK_KEEP);
      ASSERT_THAT(job.outcome, IsOk());
      cache.Step(steps);
      uint64_t blocks[2] = {};
      ASSERT_EQ(fermata_reset(cache.id(), FERMATA_RESET_ALL, 0, blocks, 2, nullptr), FERMATA_OK);
      EXPECT_EQ(cache.HitTokens(tokens), 0u);
      cache.Finish(job);
      cache.Settle();
      EXPECT_EQ(cache.HitTokens(tokens), 0u) << "after " << steps << " steps";
      cache.Release(&a);
      EXPECT_EQ(cache.HitTokens(tokens), 0u);
      cache.Audit();
      cache.Settle();
      const Stats stats = cache.GetStats();  // nor does it lie there unfindable
      EXPECT_EQ(stats.total.blocks, 0u) << "after " << steps << " steps";
      for (const fermata_tier_stats& tier : stats.tiers) EXPECT_EQ(tier.free_slots, tier.slots);
    }
    if (on_disk) {
      cache.Reopen();
      EXPECT_EQ(cache.HitTokens(tokens), 0u);
    }
  }
}

// Erased while it is on its way down, whichever step of that is under way: a process that is killed
// the moment the erase has answered leaves nothing behind that comes back.
TEST(Faults, B69_AnErasedBlockOnItsWayToDiskDoesNotComeBackAfterACrash) {
  for (uint64_t steps = 0; steps < 16; ++steps) {
    SCOPED_TRACE(testing::Message() << steps << " steps");
    CacheSetup setup;
    setup.ssd_blocks = 16;
    TestCache cache(setup);
    const Tokens prompt = Prompt(69, 64);
    Seq a = cache.Stored(prompt);
    const Job park = cache.StartPark(a, FERMATA_PARK_KEEP);
    ASSERT_THAT(park.outcome, IsOk());
    cache.Step(steps);
    fermata_lookup_item item = {};
    item.struct_size = sizeof(item);
    item.tokens = prompt.data();
    item.token_count = prompt.size();
    uint64_t erased = 0;
    ASSERT_EQ(fermata_erase(cache.space(0), &item, 0, &erased, nullptr), FERMATA_OK);
    EXPECT_EQ(erased, 4u);
    // What a kill would leave now, before the transfers have ended, and when they have.
    for (const bool ended : {false, true}) {
      if (ended) cache.Settle();
      const Crash crash(cache);
      TestCache survivor(crash.setup());
      EXPECT_EQ(survivor.HitTokens(prompt), 0u) << (ended ? "ended" : "under way");
    }
    cache.Finish(park);
    cache.Release(&a);
  }
}

TEST(Faults, B69_AnEraseWritesOneRecordHoweverManyTenantsThereAre) {
  CacheSetup setup;
  setup.ssd_blocks = 16;
  TestCache cache(setup);
  for (int i = 0; i < 40; ++i) {
    Fingerprint tenant;
    tenant.tenant_salt = "tenant " + std::to_string(i);
    cache.AddSpace(tenant);
  }
  const Tokens prompt = Prompt(69, 64);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  cache.Settle();
  const auto puts = [&cache] { return std::stoull(cache.VisitStats()["ssd.space_puts"]); };
  const uint64_t before = puts();
  EXPECT_GE(before, 40u);
  fermata_lookup_item item = {};
  item.struct_size = sizeof(item);
  item.tokens = prompt.data();
  item.token_count = prompt.size();
  uint64_t erased = 0;
  ASSERT_EQ(fermata_erase(cache.space(0), &item, 0, &erased, nullptr), FERMATA_OK);
  EXPECT_EQ(puts(), before + 1);
  ASSERT_EQ(fermata_reset(cache.id(), FERMATA_RESET_SPACE, cache.space(3).id, nullptr, 0, nullptr),
            FERMATA_OK);
  EXPECT_EQ(puts(), before + 2);
}

TEST(Faults, B69_AResetOfASpaceLeavesTheOthers) {
  TestCache cache;
  Fingerprint other;
  other.weights = "other";
  CreateOptions create;
  create.space = cache.AddSpace(other);
  LookupOptions lookup;
  lookup.space = create.space;
  const Tokens tokens = Prompt(69, 48);
  Seq a = cache.Stored(tokens);
  Seq b = cache.Stored(tokens, create);
  cache.Release(&a);
  cache.Release(&b);
  uint64_t blocks[1] = {};
  ASSERT_EQ(fermata_reset(cache.id(), FERMATA_RESET_SPACE, cache.space(0).id, blocks, 1, nullptr),
            FERMATA_OK);
  EXPECT_EQ(blocks[0], 3u);
  EXPECT_EQ(cache.HitTokens(tokens), 0u);
  EXPECT_EQ(cache.HitTokens(tokens, lookup), 48u);
}

}  // namespace
}  // namespace fermata_test
