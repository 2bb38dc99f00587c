// SPDX-License-Identifier: Apache-2.0
//
// Reports where an engine was given another prompt's KV: stale names, stale bytes, wrong order,
// wrong geometry.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <set>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

TEST(Faults, B01_TokensPastAStopAreNeverPartOfAHit) {
  TestCache cache;
  const Tokens prompt = Prompt(1, 20);
  Seq a = cache.Create();
  cache.Append(&a, prompt);
  cache.Write(a, 0, 20);
  cache.Mark(a, 20);
  cache.Truncate(&a, 18);
  cache.Release(&a);

  const Tokens other = Concat(Prefix(prompt, 18), Prompt(2, 14));
  Seq b = cache.Fetch(other);
  EXPECT_EQ(b.tokens.size(), 16u);
  cache.CheckBytes(b);
  // The same with the tokens that were past the stop.
  EXPECT_EQ(cache.HitTokens(Concat(prompt, Prompt(3, 12))), 16u);
  cache.Release(&b);

  // What a sequence appends after a stop is not written because what stood there before was.
  Seq c = cache.Stored(Prompt(4, 40));
  cache.Truncate(&c, 18);
  cache.Append(&c, Prompt(5, 14));
  cache.Mark(c, 18);
  EXPECT_EQ(cache.Info(c).marked_tokens, 18u);
  EXPECT_EQ(cache.HitTokens(c.tokens), 16u);
  cache.Release(&c);
}

TEST(Faults, B02_ReloadsInterleavedWithAppendsNeverMixPrompts) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  Stream random(2);
  std::vector<Seq> parked;
  std::vector<Tokens> prompts;
  for (uint32_t i = 0; i < 4; ++i) {
    prompts.push_back(Prompt(i, 64));
    parked.push_back(cache.Stored(prompts.back()));
    const fermata_completion end = cache.Park(&parked.back(), FERMATA_PARK_KEEP);
    ASSERT_EQ(end.status, FERMATA_OK);
  }
  uint64_t loads = 0;
  for (uint32_t round = 0; round < 1000; ++round) {
    Seq& seq = parked[random.Below(parked.size())];
    const Job job = cache.StartResume(seq);
    Seq churn = cache.Create();
    if (job.outcome.ok()) cache.Step(random.Below(6));
    // A newcomer takes whatever slots are free while the load is under way.
    const Outcome grown = cache.TryAppend(&churn, Prompt(1000 + round, 16 * (1 + random.Below(4))));
    if (grown.ok()) cache.Write(churn, 0, churn.tokens.size());
    if (job.outcome.ok()) {
      const fermata_completion end = cache.Finish(job);
      ASSERT_EQ(end.status, FERMATA_OK);
      ASSERT_EQ(end.valid_tokens, 64u);
      ++loads;
      ASSERT_EQ(cache.BytesError(seq, 64), "") << "round " << round;
      ASSERT_EQ(cache.BytesError(churn, churn.tokens.size()), "") << "round " << round;
      // No slot belongs to both.
      std::set<uint32_t> slots;
      size_t held = 0;
      for (const Seq* s : {&seq, &churn}) {
        for (const uint32_t slot : cache.Slots(*s)) {
          slots.insert(slot);
          ++held;
        }
      }
      ASSERT_EQ(slots.size(), held);
      if (random.Chance(50)) {
        ASSERT_EQ(cache.Park(&seq, FERMATA_PARK_KEEP).status, FERMATA_OK);
      } else {
        cache.ParkLazy(&seq);
      }
    }
    cache.Release(&churn);
    if (round % 50 == 0) cache.Audit();
  }
  EXPECT_GT(loads, 900u);
  for (Seq& seq : parked) cache.Release(&seq);
}

TEST(Faults, B03_AnEvictedBlockIsNeverFoundUnderItsOldName) {
  TestCache cache;
  const Tokens p = Prompt(1, 128);
  const Tokens q = Prompt(2, 128);
  Seq a = cache.Stored(p);
  cache.Release(&a);
  EXPECT_EQ(cache.HitTokens(p), 128u);
  Seq b = cache.Stored(q);
  cache.Release(&b);
  EXPECT_EQ(cache.HitTokens(p), 0u);
  const Stats stats = cache.GetStats();
  EXPECT_EQ(stats.total.blocks, 8u);
  EXPECT_EQ(stats.tiers[0].cached_slots, 8u);
  Seq c = cache.Fetch(q);  // every entry points to the bytes it names
  EXPECT_EQ(c.tokens.size(), 128u);
  cache.Release(&c);
}

TEST(Faults, B04_AWhollyCachedPromptLeavesWhatTheEngineAsksFor) {
  TestCache cache;
  const Tokens prompt = Prompt(4, 32);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  const struct {
    uint64_t leave;
    uint64_t hit;
    size_t slots;
  } cases[] = {{1, 16, 1}, {0, 32, 2}, {16, 16, 1}, {17, 0, 0}, {32, 0, 0}, {1000, 0, 0}};
  for (const auto& c : cases) {
    LookupOptions options;
    options.leave = c.leave;
    Seq b = cache.Fetch(prompt, options);
    EXPECT_EQ(b.tokens.size(), c.hit) << "leave " << c.leave;
    EXPECT_EQ(cache.Slots(b).size(), c.slots) << "leave " << c.leave;
    cache.Release(&b);
  }
}

// Four blocks of one chain, the first two in host memory, the last two on disk.
TEST(Faults, B31_BlocksFromTwoTiersComeBackInOrder) {
  CacheSetup setup;
  setup.device_blocks = 4;
  setup.host_blocks = 2;
  setup.ssd_blocks = 64;
  TestCache cache(setup);
  const Tokens p = Prompt(31, 64);
  Seq a = cache.Stored(p);
  cache.Release(&a);
  Seq filler = cache.Create();
  cache.Append(&filler, Prompt(32, 64));  // pushes all four down, deepest first
  cache.Release(&filler);
  cache.Settle();
  const Hit hit = cache.Lookup(p);
  EXPECT_EQ(hit.tokens, 64u);
  EXPECT_THAT(hit.tiers, ::testing::ElementsAre(0, 32, 32));
  EXPECT_THAT(cache.Drop(hit), IsOk());
  cache.ScribbleFreeMemory();
  Seq b = cache.Fetch(p);
  EXPECT_EQ(b.tokens.size(), 64u);
  // The tail of a prefix is not a prefix.
  EXPECT_EQ(cache.HitTokens(Tokens(p.begin() + 32, p.end())), 0u);
  cache.Release(&b);
}

TEST(Faults, B57_EveryLayoutOfSlotsRoundTripsByteIdentical) {
  const std::vector<std::vector<uint64_t>> layouts = {
      {32768, 32768},                  // split K and V
      {65536},                         // packed
      {16384},                         // K only
      {4096, 8192, 1024, 520, 64, 7},  // a region per layer, each of its own width
  };
  for (const std::vector<uint64_t>& planes : layouts) {
    for (const uint64_t pad : {uint64_t{0}, uint64_t{192}}) {
      CacheSetup setup = AllTiers();
      setup.host_blocks = 2;
      setup.groups[0].planes = planes;
      setup.groups[0].stride_pad = pad;
      TestCache cache(setup);
      const Tokens p = Prompt(57, 64);
      Seq a = cache.Stored(p);
      cache.Release(&a);
      Seq filler = cache.Create();
      cache.Append(&filler, Prompt(58, 128));
      cache.Release(&filler);
      cache.Settle();
      cache.DeviceLost();
      Seq b = cache.Fetch(p);
      EXPECT_EQ(b.tokens.size(), 64u) << planes.size() << " planes, pad " << pad;
      cache.Release(&b);
    }
  }
}

TEST(Faults, B57_RegionsThatDisagreeWithTheGroupAreRefused) {
  CacheSetup setup;
  setup.register_arenas = false;
  TestCache cache(setup);
  std::vector<std::byte> memory(8 * 65536);
  for (const uint64_t slot_bytes : {uint64_t{32768}, uint64_t{65535}, uint64_t{65537}}) {
    fermata_region region = {memory.data(), slot_bytes, 0};
    fermata_arena_config config = {};
    config.struct_size = sizeof(config);
    config.slots = 4;
    config.regions = &region;
    config.region_count = 1;
    fermata_arena arena = {0};
    fermata_error error = FERMATA_ERROR_INIT;
    EXPECT_EQ(fermata_arena_register(cache.id(), &config, &arena, &error),
              FERMATA_INVALID_ARGUMENT);
    EXPECT_EQ(error.reason, FERMATA_REASON_BAD_LAYOUT) << error.message;
    EXPECT_EQ(arena.id, 0u);
  }
}

TEST(Faults, B58_APlaneOfScalesTravelsWithTheData) {
  CacheSetup setup;
  setup.host_blocks = 16;
  setup.groups[0].planes = {65536, 2048};
  TestCache cache(setup);
  const Tokens p = Prompt(58, 64);
  Seq a = cache.Stored(p);
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.DeviceLost();
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 64u);
  EXPECT_EQ(a.tokens.size(), 64u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

// One slot of 100,000 x 1 MiB: the offset of the last passes 2^36. Only address space is taken.
TEST(Faults, B59_TheOffsetOfTheLastSlotIsExact) {
  constexpr uint32_t kSlots = 100'000;
  constexpr uint64_t kMiB = 1 << 20;
  HeldDevice device;
  CacheSetup setup;
  setup.groups[0].planes = {kMiB};
  setup.host_blocks = 1;
  setup.register_arenas = false;
  setup.max_sequences = 131'072;
  setup.device_ops = device.ops();
  TestCache cache(setup);
  void* base = mmap(nullptr, kSlots * kMiB, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) GTEST_SKIP() << "no 100 GB of address space here";
  fermata_region region = {base, kMiB, 0};
  fermata_arena_config config = {};
  config.struct_size = sizeof(config);
  config.slots = kSlots;
  config.regions = &region;
  config.region_count = 1;
  fermata_arena arena = {0};
  fermata_error error = FERMATA_ERROR_INIT;
  ASSERT_EQ(fermata_arena_register(cache.id(), &config, &arena, &error), FERMATA_OK)
      << error.message;
  std::vector<Seq> sequences;
  size_t last = kSlots;
  for (uint32_t i = 0; i < kSlots; ++i) {
    sequences.push_back(cache.Create());
    ASSERT_THAT(cache.TryAppend(&sequences.back(), Prompt(i, 16)), IsOk());
    uint32_t slot = 0;
    size_t count = 0;
    ASSERT_EQ(fermata_sequence_slots(sequences.back().id, 0, 0, &slot, 1, &count, nullptr),
              FERMATA_OK);
    if (slot == kSlots - 1) last = i;
  }
  ASSERT_LT(last, kSlots) << "slot " << kSlots - 1 << " was never handed out";
  cache.Mark(sequences[last], 16);
  EXPECT_EQ(cache.Park(&sequences[last], FERMATA_PARK_KEEP).status, FERMATA_OK);
  const std::vector<fermata_copy_run> runs = device.runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(reinterpret_cast<uint64_t>(runs[0].source) - reinterpret_cast<uint64_t>(base),
            uint64_t{99'999} * 1'048'576);
  EXPECT_EQ(runs[0].bytes, kMiB);
  for (Seq& seq : sequences) cache.Release(&seq);
  cache.Audit();
  cache.Close();
  munmap(base, kSlots * kMiB);
}

TEST(Faults, B59_FiveMillionSlotsCountAndAnOverflowIsRefused) {
  CacheSetup setup;
  setup.metadata_only = true;
  setup.groups[0].planes = {1 << 20};
  setup.device_blocks = 5'000'000;
  {
    TestCache cache(setup);
    uint64_t evictable = 1;
    EXPECT_EQ(cache.Room(0, &evictable), 5'000'000u);
    EXPECT_EQ(evictable, 0u);
    Seq a = cache.Stored(Prompt(59, 4096));
    EXPECT_EQ(cache.Room(0, &evictable), 5'000'000u - 256);
    cache.Release(&a);
  }
  setup.register_arenas = false;
  TestCache cache(setup);
  fermata_region region = {nullptr, 1 << 20, uint64_t{1} << 60};
  fermata_arena_config config = {};
  config.struct_size = sizeof(config);
  config.slots = 5'000'000;
  config.regions = &region;
  config.region_count = 1;
  fermata_arena arena = {0};
  EXPECT_EQ(fermata_arena_register(cache.id(), &config, &arena, nullptr), FERMATA_INVALID_ARGUMENT);
}

TEST(Faults, B70_AfterDeviceLossOnlyOtherTiersHit) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  const Tokens p = Prompt(70, 48);
  const Tokens q = Prompt(71, 32);
  Seq a = cache.Stored(p);
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  Seq b = cache.Stored(q);  // on the device only, released
  cache.Release(&b);
  Seq c = cache.Stored(Prompt(72, 16));  // on the device only, running
  EXPECT_EQ(cache.HitTokens(q), 32u);
  cache.DeviceLost();
  EXPECT_EQ(cache.HitTokens(q), 0u);
  EXPECT_EQ(cache.HitTokens(c.tokens), 0u);
  EXPECT_EQ(cache.Info(c).marked_tokens, 0u);
  EXPECT_EQ(cache.Slots(c).size(), 1u);  // it keeps its slot
  const Hit hit = cache.Lookup(p);
  EXPECT_THAT(hit.tiers, ::testing::ElementsAre(0, 48));
  EXPECT_THAT(cache.Drop(hit), IsOk());
  Seq d = cache.Fetch(p);
  EXPECT_EQ(d.tokens.size(), 48u);
  for (Seq* seq : {&a, &c, &d}) cache.Release(seq);
}

TEST(Faults, B70_ASequenceCanBeCutAfterTheDeviceWasLost) {
  TestCache cache{CacheSetup()};
  const Tokens prompt = Prompt(70, 64);
  Seq a = cache.Stored(prompt);
  cache.DeviceLost();
  for (const uint64_t tokens : {40u, 32u, 7u, 0u}) {
    cache.Truncate(&a, tokens);
    EXPECT_EQ(cache.Info(a).tokens, tokens);
    cache.Audit();
  }
  EXPECT_EQ(cache.HitTokens(prompt), 0u);
  cache.Release(&a);
}

TEST(Faults, B70_ANewArenaStartsWithoutTheOldOnesEntries) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  const Tokens p = Prompt(70, 48);
  const Tokens q = Prompt(71, 32);
  Seq a = cache.Stored(p);
  EXPECT_THAT(cache.UnregisterArena(0),
              IsError(FERMATA_FAILED_PRECONDITION, FERMATA_REASON_IN_USE));
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.Release(&a);
  Seq b = cache.Stored(q);
  cache.Release(&b);
  ASSERT_THAT(cache.UnregisterArena(0), IsOk());
  EXPECT_EQ(cache.HitTokens(q), 0u);
  EXPECT_EQ(cache.HitTokens(p), 48u);  // in host memory
  ASSERT_THAT(cache.RegisterArena(0), IsOk());
  EXPECT_EQ(cache.HitTokens(q), 0u);
  Seq c = cache.Fetch(p);
  EXPECT_EQ(c.tokens.size(), 48u);
  cache.Release(&c);
}

}  // namespace
}  // namespace fermata_test
