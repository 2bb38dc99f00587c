// SPDX-License-Identifier: Apache-2.0
//
// Reports where the books were wrong: slots freed twice or never, leases that outlived their
// request, counters that drifted, disks that filled up, memory that grew.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

void ExpectConserved(const Stats& stats) {
  for (const fermata_tier_stats& tier : stats.tiers) {
    ASSERT_EQ(tier.free_slots + tier.live_slots + tier.cached_slots + tier.in_flight_slots,
              tier.slots)
        << "tier kind " << tier.kind << ": free " << tier.free_slots << " live " << tier.live_slots
        << " cached " << tier.cached_slots << " in flight " << tier.in_flight_slots;
  }
}

uint64_t Used(const fermata_tier_stats& tier) { return tier.slots - tier.free_slots; }

uint64_t OpenDescriptors() {
  uint64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(Faults, B12_AHandleListedTwiceIsReleasedOnce) {
  TestCache cache;
  Seq a = cache.Create();
  Seq b = cache.Create();
  cache.Append(&a, Prompt(1, 16));
  cache.Append(&b, Prompt(2, 16));
  const fermata_sequence list[] = {a.id, a.id, {0}, b.id};
  fermata_error error = FERMATA_ERROR_INIT;
  EXPECT_EQ(fermata_release(cache.id(), list, 4, &error), FERMATA_INVALID_ARGUMENT);
  EXPECT_EQ(error.reason, FERMATA_REASON_BAD_HANDLE);
  EXPECT_EQ(cache.GetStats().total.sequences, 0u);  // the rest was done all the same
  EXPECT_EQ(cache.Room(0, nullptr), 8u);
  Seq c = cache.Create();
  cache.Append(&c, Prompt(3, 128));
  const std::vector<uint32_t> slots = cache.Slots(c);
  EXPECT_EQ(std::set<uint32_t>(slots.begin(), slots.end()).size(), 8u);
  cache.Release(&c);
}

TEST(Faults, B13_DroppedLeasesPinNothing) {
  TestCache cache;
  const Tokens prompt = Prompt(13, 128);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  Hit hit;
  for (int i = 0; i < 1000; ++i) {
    hit = cache.Lookup(prompt);
    ASSERT_EQ(hit.tokens, 128u);
    ASSERT_THAT(cache.Drop(hit), IsOk());
  }
  const Stats before = cache.GetStats();
  EXPECT_EQ(before.total.leases, 0u);
  EXPECT_EQ(before.tiers[0].live_slots, 0u);
  EXPECT_THAT(cache.Drop(hit), IsError(FERMATA_INVALID_ARGUMENT, FERMATA_REASON_BAD_HANDLE));
  const Stats after = cache.GetStats();
  EXPECT_EQ(after.total.leases, 0u);
  EXPECT_EQ(after.tiers[0].cached_slots, before.tiers[0].cached_slots);
  EXPECT_EQ(after.tiers[0].live_slots, 0u);
  Seq b = cache.Create();
  EXPECT_THAT(cache.TryAppend(&b, Prompt(14, 128)), IsOk());
  cache.Release(&b);
}

TEST(Faults, B13_AForgottenLeaseEndsAtItsDeadline) {
  CacheSetup setup;
  setup.lease_ns = 100;
  TestCache cache(setup);
  const Tokens prompt = Prompt(13, 128);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  const Hit hit = cache.Lookup(prompt);
  Seq b = cache.Create();
  EXPECT_THAT(cache.TryAppend(&b, Prompt(14, 16)), HasStatus(FERMATA_RESOURCE_EXHAUSTED));
  cache.Advance(101);
  cache.Settle();
  EXPECT_THAT(cache.TryAppend(&b, Prompt(14, 16)), IsOk());
  EXPECT_EQ(cache.GetStats().total.leases, 0u);
  cache.Release(&b);
}

TEST(Faults, B14_EveryTiersSlotsAddUpAfterEveryCall) {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.device_blocks = 4;
  setup.host_blocks = 4;
  TestCache cache(setup);
  Stream random(14);
  std::vector<Seq> live;
  for (int round = 0; round < 10'000; ++round) {
    const uint64_t dice = random.Below(10);
    if (dice < 4) {
      Seq seq = cache.Create();
      const Tokens tokens =
          Prompt(static_cast<uint32_t>(random.Below(12)), 16 * (1 + random.Below(3)));
      if (cache.TryAppend(&seq, tokens).ok()) {
        cache.Write(seq, 0, tokens.size());
        cache.Mark(seq, tokens.size());
      }
      live.push_back(std::move(seq));
    } else if (dice < 7 && !live.empty()) {
      const size_t victim = random.Below(live.size());
      cache.Release(&live[victim]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    } else if (dice < 9) {
      const Hit hit = cache.Lookup(Prompt(static_cast<uint32_t>(random.Below(12)), 48));
      if (hit.lease.id != 0) {
        ASSERT_THAT(cache.Drop(hit), IsOk());
      }
    } else {
      cache.Step(random.Below(5));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectConserved(cache.GetStats())) << "round " << round;
    if (live.size() > 3) {
      cache.Release(&live.front());
      live.erase(live.begin());
    }
    if (round % 100 == 0) {
      ASSERT_EQ(cache.AuditError(), "") << "round " << round;
    }
  }
  EXPECT_GT(cache.GetStats().tiers[0].evictions, 100u);
  for (Seq& seq : live) cache.Release(&seq);
}

TEST(Faults, B15_AnAppendThatDoesNotFitTakesNothing) {
  TestCache cache;
  Seq a = cache.Create();
  cache.Append(&a, Prompt(15, 80));
  cache.Write(a, 0, 80);
  const fermata_sequence_info before = cache.Info(a);
  EXPECT_THAT(cache.TryAppend(&a, Prompt(16, 64)),
              IsError(FERMATA_RESOURCE_EXHAUSTED, FERMATA_REASON_NO_SPACE));
  const fermata_sequence_info after = cache.Info(a);
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(after.reserved_tokens, before.reserved_tokens);
  EXPECT_EQ(cache.Slots(a).size(), 5u);
  EXPECT_EQ(cache.Room(0, nullptr), 3u);
  cache.Audit();
  EXPECT_THAT(cache.TryAppend(&a, Prompt(16, 48)), IsOk());
  EXPECT_EQ(cache.Room(0, nullptr), 0u);
  cache.CheckBytes(a, 80);
  cache.Release(&a);
}

// The first group has room, the second has not: what the first had given comes back.
TEST(Faults, B15_AnAppendThatFitsOneGroupOnlyTakesNothing) {
  CacheSetup setup;
  setup.groups.resize(2);
  setup.groups[0].block_tokens = 64;
  setup.groups[1].slots = 8;
  TestCache cache(setup);
  Seq a = cache.Create();
  cache.Append(&a, Prompt(15, 80));
  EXPECT_THAT(cache.TryAppend(&a, Prompt(16, 64)),
              IsError(FERMATA_RESOURCE_EXHAUSTED, FERMATA_REASON_NO_SPACE));
  EXPECT_EQ(cache.Info(a).tokens, 80u);
  EXPECT_EQ(cache.Room(0, nullptr), 6u);
  EXPECT_EQ(cache.Room(1, nullptr), 3u);
  cache.Audit();
  EXPECT_THAT(cache.TryAppend(&a, Prompt(16, 48)), IsOk());
  EXPECT_EQ(cache.Room(0, nullptr), 6u);
  EXPECT_EQ(cache.Room(1, nullptr), 0u);
  cache.Release(&a);
}

TEST(Faults, B16_TwoSequencesThatComputeThePrefixBothKeepTheirBlocks) {
  TestCache cache;
  const Tokens prompt = Prompt(16, 32);
  Seq a = cache.Create();
  Seq b = cache.Create();
  cache.Append(&a, prompt);
  cache.Append(&b, prompt);
  cache.Write(a, 0, 32);
  cache.Write(b, 0, 32);
  const std::vector<uint32_t> slots_a = cache.Slots(a);
  const std::vector<uint32_t> slots_b = cache.Slots(b);
  cache.Mark(a, 32);
  cache.Mark(b, 32);
  EXPECT_EQ(cache.HitTokens(prompt), 32u);
  // The engine goes on using the slots it was given.
  EXPECT_EQ(cache.Slots(a), slots_a);
  EXPECT_EQ(cache.Slots(b), slots_b);
  cache.CheckBytes(a);
  cache.CheckBytes(b);
  // Whatever is handed out now belongs to neither table.
  Seq c = cache.Create();
  const uint64_t free = cache.Room(0, nullptr);
  cache.Append(&c, Prompt(17, free * 16));
  cache.Write(c, 0, free * 16);
  cache.CheckBytes(a);
  cache.CheckBytes(b);
  cache.Release(&c);
  cache.Release(&a);
  EXPECT_EQ(cache.HitTokens(prompt), 32u);
  cache.CheckBytes(b);
  cache.Release(&b);
  EXPECT_EQ(cache.HitTokens(prompt), 32u);
  EXPECT_LE(cache.GetStats().tiers[0].cached_slots, 4u);
  EXPECT_EQ(cache.GetStats().tiers[0].live_slots, 0u);
  Seq d = cache.Fetch(prompt);
  EXPECT_EQ(d.tokens.size(), 32u);
  cache.Release(&d);
}

uint64_t EraseAll(TestCache* cache, const Tokens& tokens) {
  fermata_lookup_item item = {};
  item.struct_size = sizeof(item);
  item.tokens = tokens.data();
  item.token_count = tokens.size();
  uint64_t blocks = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  EXPECT_EQ(fermata_erase(cache->space(0), &item, 0, &blocks, &error), FERMATA_OK) << error.message;
  return blocks;
}

TEST(Faults, B40_SpaceFreedByRemovalsComesBack) {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.ssd_blocks = 8;
  TestCache cache(setup);
  for (uint32_t round = 0; round < 1000; ++round) {
    const Tokens prompt = Prompt(round, 64);
    Seq a = cache.Stored(prompt);
    ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK) << "round " << round;
    cache.Release(&a);
    ASSERT_EQ(Used(cache.TierStats(FERMATA_TIER_SSD)), 4u) << "round " << round;
    if (round % 20 < 18) {
      ASSERT_EQ(EraseAll(&cache, prompt), 4u) << "round " << round;
    } else {
      uint64_t blocks[2] = {};
      const bool all = round % 20 == 18;
      ASSERT_EQ(fermata_reset(cache.id(), all ? FERMATA_RESET_ALL : FERMATA_RESET_SPACE,
                              all ? 0 : cache.space(0).id, blocks, 2, nullptr),
                FERMATA_OK);
      ASSERT_EQ(blocks[1], 4u);
    }
    cache.Settle();
    for (const fermata_tier_stats& tier : cache.GetStats().tiers) ASSERT_EQ(Used(tier), 0u);
    ASSERT_EQ(cache.HitTokens(prompt), 0u);
  }
  cache.Reopen();  // a recount of the disk
  EXPECT_EQ(Used(cache.TierStats(FERMATA_TIER_SSD)), 0u);
  Seq a = cache.Stored(Prompt(1001, 64));
  EXPECT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).items_ok, 4u);
  cache.Release(&a);
  cache.DeviceLost();
  EXPECT_EQ(cache.HitTokens(Prompt(1001, 64)), 64u);
}

TEST(Faults, B39_AFullDiskEvictsInsteadOfFailing) {
  CacheSetup setup;
  setup.ssd_blocks = 8;
  TestCache cache(setup);
  for (uint32_t i = 0; i < 25; ++i) {
    Seq a = cache.Stored(Prompt(i, 64));
    const fermata_completion end = cache.Park(&a, FERMATA_PARK_KEEP);
    ASSERT_EQ(end.status, FERMATA_OK) << "round " << i;
    ASSERT_EQ(end.items_ok, 4u);
    cache.Release(&a);
    ASSERT_LE(Used(cache.TierStats(FERMATA_TIER_SSD)), 8u);
    uint64_t largest = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.directory())) {
      if (entry.is_regular_file()) largest = std::max<uint64_t>(largest, entry.file_size());
    }
    ASSERT_LE(largest, (8 + 1) * 65536u + 65536u) << "a file outgrows the cap";
  }
  cache.DeviceLost();
  EXPECT_EQ(cache.HitTokens(Prompt(24, 64)), 64u);
  EXPECT_EQ(cache.HitTokens(Prompt(23, 64)), 64u);
  EXPECT_EQ(cache.HitTokens(Prompt(0, 64)), 0u);
}

TEST(Faults, B46_UsageOfADiskIsRecountedAtOpen) {
  CacheSetup setup;
  setup.ssd_blocks = 16;
  TestCache cache(setup);
  for (uint32_t i = 0; i < 4; ++i) {
    Seq a = cache.Stored(Prompt(i, 64));
    ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
    cache.Release(&a);
  }
  EXPECT_EQ(Used(cache.TierStats(FERMATA_TIER_SSD)), 16u);
  cache.Reopen();
  EXPECT_EQ(Used(cache.TierStats(FERMATA_TIER_SSD)), 16u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(cache.HitTokens(Prompt(i, 64)), 64u);
  Seq a = cache.Stored(Prompt(4, 64));
  EXPECT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.Release(&a);
  EXPECT_LE(Used(cache.TierStats(FERMATA_TIER_SSD)), 16u);
  cache.DeviceLost();
  EXPECT_EQ(cache.HitTokens(Prompt(4, 64)), 64u);
}

TEST(Faults, B49_ARequestCountsOnce) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  const Tokens prompt = Prompt(49, 64);
  Seq a = cache.Stored(Prefix(prompt, 32));
  cache.Release(&a);
  Seq b = cache.Create();
  for (int i = 0; i < 4; ++i) {
    const Hit hit = cache.Lookup(prompt);
    EXPECT_EQ(hit.tokens, 32u);
    ASSERT_THAT(cache.Drop(hit), IsOk());
  }
  ASSERT_THAT(cache.Take(cache.Lookup(prompt), &b), IsOk());
  const Stats stats = cache.GetStats();
  EXPECT_EQ(stats.total.query_tokens, 64u);
  EXPECT_EQ(stats.total.hit_tokens, 32u);
  EXPECT_EQ(stats.tiers[0].hit_tokens, 32u);
  EXPECT_EQ(stats.tiers[1].hit_tokens, 0u);
  cache.Release(&b);
  // A miss is a query as well.
  EXPECT_EQ(cache.Lookup(Prompt(50, 48)).tokens, 0u);
  EXPECT_EQ(cache.GetStats().total.query_tokens, 112u);
  EXPECT_EQ(cache.GetStats().total.hit_tokens, 32u);
}

TEST(Faults, B50_FinishedSequencesUseNothing) {
  TestCache cache;
  for (uint32_t i = 0; i < 100; ++i) {
    Seq a = cache.Stored(Prompt(i, 32));
    cache.Release(&a);
  }
  const Stats stats = cache.GetStats();
  EXPECT_EQ(stats.tiers[0].live_slots, 0u);
  EXPECT_EQ(stats.tiers[0].cached_slots, 8u);
  EXPECT_EQ(stats.total.sequences, 0u);
  Seq b = cache.Create();
  EXPECT_THAT(cache.TryAppend(&b, Prompt(1000, 128)), IsOk());
  cache.Release(&b);
}

TEST(Faults, B51_TheHostCapHoldsAtEveryInstant) {
  CacheSetup setup;
  setup.host_blocks = 4;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(51, 96));
  const Job job = cache.StartPark(a, FERMATA_PARK_DROP);
  ASSERT_THAT(job.outcome, IsOk());
  uint64_t steps = 0;
  do {
    const fermata_tier_stats host = cache.TierStats(FERMATA_TIER_HOST);
    ASSERT_EQ(host.slots, 4u);
    ASSERT_LE(Used(host), 4u);
    ++steps;
  } while (cache.Step(1) != 0);
  EXPECT_GT(steps, 1u);
  const fermata_completion end = cache.Finish(job);
  EXPECT_EQ(end.status, FERMATA_OK);
  EXPECT_EQ(end.items_ok, 4u);
  EXPECT_EQ(Used(cache.TierStats(FERMATA_TIER_HOST)), 4u);
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 64u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B52_EvictedBranchesLeaveNoMemoryBehind) {
  constexpr uint32_t kCycles = 100'000;
  CacheSetup setup;
  setup.metadata_only = true;
  TestCache cache(setup);
  const Tokens system_prompt = Prompt(52, 32);
  Seq first = cache.Stored(system_prompt);
  cache.Release(&first);
  [[maybe_unused]] uint64_t warm = 0;
  for (uint32_t i = 0; i < kCycles; ++i) {
    if (i == kCycles / 10) warm = ResidentBytes();
    Seq seq = cache.Create();
    ASSERT_THAT(cache.Take(cache.Lookup(system_prompt), &seq), IsOk());
    ASSERT_EQ(seq.tokens.size(), 32u);
    ASSERT_THAT(cache.TryAppend(&seq, Prompt(100 + i, 16)), IsOk());
    cache.Mark(seq, 48);
    cache.Release(&seq);
  }
  EXPECT_EQ(cache.GetStats().total.blocks, 8u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
  EXPECT_LT(ResidentBytes(), warm + (1 << 20));
#endif
}

TEST(Faults, B60_TwentyThousandTransfersOpenNoDescriptors) {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.ssd_blocks = 64;
  TestCache cache(setup);
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const uint64_t baseline = OpenDescriptors();
  rlimit tight = old;
  tight.rlim_cur = baseline + 8;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (uint32_t round = 0; round < 2500; ++round) {  // 8 blocks in, 4 stored and 4 loaded
    const Tokens prompt = Prompt(round, 64);
    Seq a = cache.Stored(prompt);
    ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).items_ok, 4u) << "round " << round;
    cache.DeviceLost();
    ASSERT_EQ(cache.Resume(&a).items_ok, 4u) << "round " << round;
    if (round % 100 == 0) {
      ASSERT_EQ(cache.BytesError(a, 64), "");
      ASSERT_LE(OpenDescriptors(), baseline + 8);
    }
    cache.Release(&a);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
}

}  // namespace
}  // namespace fermata_test
