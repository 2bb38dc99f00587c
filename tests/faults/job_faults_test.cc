// SPDX-License-Identifier: Apache-2.0
//
// Reports about jobs: copies whose slots were reused, aborts that kept buffers, failures counted as
// successes, closes that hung.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

using SteadyClock = std::chrono::steady_clock;

CacheSetup WithHost(const HeldDevice* device) {
  CacheSetup setup;
  setup.host_blocks = 32;
  if (device != nullptr) setup.device_ops = device->ops();
  return setup;
}

Seq ParkedInHost(TestCache* cache, const Tokens& tokens) {
  Seq seq = cache->Stored(tokens);
  EXPECT_EQ(cache->Park(&seq, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache->DeviceLost();
  return seq;
}

TEST(Faults, B18_TargetsOfALoadAreNotReusedWhenAnotherPublishesThePrefix) {
  HeldDevice device;
  TestCache cache(WithHost(&device));
  const Tokens prompt = Prompt(18, 64);
  Seq p = ParkedInHost(&cache, prompt);
  device.Hold();
  const Job job = cache.StartResume(p);
  ASSERT_THAT(job.outcome, IsOk());
  cache.Step(100);
  ASSERT_GT(device.outstanding(), 0u);
  Seq c = cache.Stored(prompt);  // computes and publishes the same prefix
  Seq d = cache.Create();
  EXPECT_FALSE(cache.TryAppend(&d, Prompt(19, 16)).ok());  // four slots load, four are held
  cache.CheckBytes(c);
  device.LetGo();
  EXPECT_EQ(cache.Finish(job).status, FERMATA_OK);
  cache.CheckBytes(p);
  cache.CheckBytes(c);
  cache.Release(&c);
  cache.CheckBytes(p);
  cache.Release(&p);
  cache.Append(&d, Prompt(19, 128));
  cache.Release(&d);
}

TEST(Faults, B18_SourcesOfAStoreAreNotReusedBeforeItEnds) {
  HeldDevice device;
  TestCache cache(WithHost(&device));
  const Tokens prompt = Prompt(18, 128);
  Seq a = cache.Stored(prompt);
  device.Hold();
  const Job job = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(job.outcome, IsOk());
  cache.Step(100);
  ASSERT_GT(device.outstanding(), 0u);
  Seq b = cache.Create();
  const Outcome early = cache.TryAppend(&b, Prompt(19, 128));
  EXPECT_FALSE(early.ok());
  device.LetGo();
  EXPECT_EQ(cache.Finish(job).items_ok, 8u);
  cache.Append(&b, Prompt(19, 128));
  cache.Write(b, 0, 128);
  cache.Release(&b);
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 128u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

// The fixture overwrites every argument array right after each call (0xff), so a job that looked at
// one later would be wrong.
TEST(Faults, B19_ArgumentsAreCapturedAtSubmit) {
  HeldDevice device;
  TestCache cache(WithHost(&device));
  device.Hold();
  Seq a = cache.Create();
  cache.Append(&a, Prompt(19, 64));
  cache.Write(a, 0, 64);
  cache.Mark(a, 64);
  const Job store = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(store.outcome, IsOk());
  cache.Step(10);
  device.LetGo();
  const fermata_completion stored = cache.Finish(store);
  EXPECT_EQ(stored.items_ok, 4u);
  EXPECT_NE(stored.user_data, ~uint64_t{0});
  cache.DeviceLost();
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 64u);
  cache.CheckBytes(a);
  EXPECT_EQ(cache.HitTokens(Prompt(19, 64)), 64u);
  cache.Release(&a);
}

TEST(Faults, B20_CancelledLoadsKeepNoBuffers) {
  for (const bool on_disk : {false, true}) {
    CacheSetup setup;
    setup.groups = {SmallBlocks()};
    (on_disk ? setup.ssd_blocks : setup.sim_blocks) = 16;
    TestCache cache(setup);
    const Tokens prompt = Prompt(20, 64);
    Seq a = ParkedInHost(&cache, prompt);
    cache.Release(&a);
    Stream random(20);
    uint64_t cancelled = 0;
    for (int round = 0; round < 200; ++round) {
      Seq b = cache.Create();
      ASSERT_THAT(cache.Take(cache.Lookup(prompt), &b), IsOk()) << "round " << round;
      const Job job = cache.StartLoad(b);
      ASSERT_THAT(job.outcome, IsOk()) << "round " << round;
      cache.Step(random.Below(12));
      const Outcome outcome = cache.Cancel(job);
      EXPECT_TRUE(outcome.ok() || outcome.status == FERMATA_NOT_FOUND);
      const fermata_completion end = cache.Finish(job);
      EXPECT_TRUE(end.status == FERMATA_OK || end.status == FERMATA_CANCELLED)
          << fermata_status_name(end.status);
      cancelled += end.status == FERMATA_CANCELLED;
      cache.Release(&b);
      cache.Settle();
      const Stats stats = cache.GetStats();
      ASSERT_EQ(stats.total.jobs, 0u);
      for (const fermata_tier_stats& tier : stats.tiers) {
        ASSERT_EQ(tier.in_flight_slots, 0u);
        ASSERT_EQ(tier.live_slots, 0u);
      }
      ASSERT_EQ(cache.AuditError(), "");
      cache.DeviceLost();
    }
    EXPECT_GT(cancelled, 20u);
    Seq last = cache.Fetch(prompt);
    EXPECT_EQ(last.tokens.size(), 64u);
    cache.Release(&last);
  }
}

// Cancelled while it waits for slots, of which it has some already.
TEST(Faults, B20_ALoadCancelledBeforeItHasItsSlotsKeepsNone) {
  HeldDevice device;
  CacheSetup setup = WithHost(&device);
  setup.groups = {SmallBlocks()};
  setup.device_blocks = 4;
  TestCache cache(setup);
  Seq a = ParkedInHost(&cache, Prompt(20, 64));
  for (uint32_t round = 0; round < 8; ++round) {
    Seq other = cache.Stored(Prompt(100 + round, 48));
    cache.Release(&other);
    device.Hold();
    const Job job = cache.StartResume(a);  // one slot is free, three are to be vacated
    ASSERT_THAT(job.outcome, IsOk());
    cache.Step(100);
    ASSERT_GT(device.outstanding(), 0u);
    EXPECT_THAT(cache.Cancel(job), IsOk());
    fermata_completion end = {};
    ASSERT_TRUE(cache.TakeCompletion(job, &end));  // at once: none of its copies has begun
    EXPECT_EQ(end.status, FERMATA_CANCELLED);
    device.LetGo();
    cache.Settle();
    EXPECT_EQ(cache.GetStats().total.jobs, 0u);
    uint64_t evictable = 0;
    const uint64_t free = cache.Room(0, &evictable);
    EXPECT_EQ(free + evictable, 4u) << "round " << round;
    cache.Audit();
    cache.ParkLazy(&a);
  }
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 64u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B22_ACancelledJobEndsOnceAndKeepsItsBuffersUntilThen) {
  HeldDevice device;
  TestCache cache(WithHost(&device));
  Seq a = ParkedInHost(&cache, Prompt(22, 64));
  device.Hold();
  const Job job = cache.StartResume(a);
  ASSERT_THAT(job.outcome, IsOk());
  cache.Step(100);
  ASSERT_GT(device.outstanding(), 0u);
  EXPECT_THAT(cache.Cancel(job), IsOk());
  cache.Release(&a);  // the handle is gone, the device still writes
  cache.Step(100);
  fermata_completion early = {};
  EXPECT_FALSE(cache.TakeCompletion(job, &early));
  Seq b = cache.Create();
  EXPECT_FALSE(cache.TryAppend(&b, Prompt(23, 128)).ok());  // the targets are not free yet
  device.LetGo();
  EXPECT_EQ(cache.Finish(job).status, FERMATA_CANCELLED);
  cache.Settle();
  fermata_completion again = {};
  EXPECT_FALSE(cache.TakeCompletion(job, &again));
  EXPECT_THAT(cache.Cancel(job),
              ::testing::AnyOf(HasStatus(FERMATA_NOT_FOUND), HasStatus(FERMATA_INVALID_ARGUMENT)));
  cache.Append(&b, Prompt(23, 128));
  cache.Release(&b);
}

TEST(Faults, B37_OneLoadServesAllWhoAskForThePrefix) {
  HeldDevice device;
  CacheSetup setup = WithHost(&device);
  setup.device_blocks = 16;
  TestCache cache(setup);
  const Tokens prompt = Prompt(37, 256);
  Seq first = ParkedInHost(&cache, prompt);
  cache.Release(&first);
  const uint64_t before = cache.TierStats(FERMATA_TIER_HOST).bytes_read;
  device.Hold();
  std::vector<Seq> seqs;
  std::vector<Job> jobs;
  for (int i = 0; i < 50; ++i) {
    const Hit hit = cache.Lookup(prompt);
    EXPECT_EQ(hit.tokens, 256u);
    if (i > 0) {
      EXPECT_EQ(hit.pending, 256u);
    }
    seqs.push_back(cache.Create());
    ASSERT_THAT(cache.Take(hit, &seqs.back()), IsOk());
    jobs.push_back(cache.StartLoad(seqs.back()));
    ASSERT_THAT(jobs.back().outcome, IsOk()) << i;
    cache.Step(4);
  }
  device.LetGo();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const fermata_completion end = cache.Finish(jobs[i]);
    EXPECT_EQ(end.status, FERMATA_OK);
    EXPECT_EQ(end.valid_tokens, 256u);
  }
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_HOST).bytes_read - before, 16u * 65536);
  for (Seq& seq : seqs) {
    cache.CheckBytes(seq);
    cache.Release(&seq);
  }
}

TEST(Faults, B62_AProcessThatNeverClosesEndsAtOnce) {
  // RocksDB's threads of earlier tests do not survive a plain fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = SteadyClock::now();
  EXPECT_EXIT(
      {
        CacheSetup setup = AllTiers();
        setup.real_time = true;
        auto* cache = new TestCache(setup);
        Seq a = cache->Stored(Prompt(62, 64));
        cache->StartPark(a, FERMATA_PARK_KEEP);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_LT(SteadyClock::now() - start, std::chrono::seconds(5));
}

TEST(Faults, B62_CloseKeepsItsDeadlineAndCanBeAskedAgain) {
  HeldDevice device;
  CacheSetup setup = WithHost(&device);
  setup.real_time = true;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(62, 64));
  device.Hold();
  const Job job = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(job.outcome, IsOk());
  while (device.outstanding() == 0) cache.Pump();
  const auto start = SteadyClock::now();
  EXPECT_THAT(cache.TryClose(cache.Now() + 200'000'000), HasStatus(FERMATA_DEADLINE_EXCEEDED));
  const auto waited = SteadyClock::now() - start;
  EXPECT_GE(waited, std::chrono::milliseconds(190));
  EXPECT_LT(waited, std::chrono::milliseconds(1000));
  Seq b;
  EXPECT_THAT(cache.TryCreate({}, &b), IsError(FERMATA_FAILED_PRECONDITION, FERMATA_REASON_CLOSED));
  EXPECT_THAT(cache.TryAppend(&a, Prompt(63, 16)),
              IsError(FERMATA_FAILED_PRECONDITION, FERMATA_REASON_CLOSED));
  device.LetGo();
  const fermata_cache id = cache.id();
  cache.Close();
  fermata_error error = FERMATA_ERROR_INIT;
  EXPECT_EQ(fermata_cache_close(id, 0, &error), FERMATA_INVALID_ARGUMENT);
  EXPECT_EQ(error.reason, FERMATA_REASON_BAD_HANDLE);
  fermata_completion end = {};
  EXPECT_TRUE(cache.TakeCompletion(job, &end));  // the queue outlives the cache
}

TEST(Faults, B63_NoCallWaitsForIo) {
  HeldDevice device;
  CacheSetup setup = WithHost(&device);
  setup.real_time = true;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(63, 64));
  device.Hold();
  const Job job = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(job.outcome, IsOk());
  while (device.outstanding() == 0) cache.Pump();
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, &done, t] {
      for (uint32_t i = 0; i < 20; ++i) {
        Seq seq = cache.Create();
        EXPECT_THAT(cache.TryAppend(&seq, Prompt(t * 100 + i, 8)), IsOk());
        cache.HitTokens(Prompt(63, 64));
        cache.GetStats();
        cache.Release(&seq);
      }
      done.fetch_add(1);
    });
  }
  for (std::thread& thread : threads)
    thread.join();  // hangs here, not later, if a call waits for the copy
  EXPECT_EQ(done.load(), 4);
  EXPECT_GT(device.outstanding(), 0u);  // it was held all the while
  EXPECT_THAT(cache.Cancel(job), IsOk());
  device.LetGo();
  cache.Finish(job);
  cache.Release(&a);
}

// Every read fails, or some do: what comes back is a right prefix, and what is lost is not found
// again.
TEST(Faults, B66_AFailedBlockEndsThePrefixAndIsNotOfferedAgain) {
  for (const uint32_t ppm : {1'000'000u, 300'000u}) {
    uint64_t failures = 0;
    uint64_t partial = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      CacheSetup setup;
      setup.groups = {SmallBlocks()};
      setup.sim_blocks = 16;
      setup.sim_faults.read_error_ppm = ppm;
      setup.seed = seed;
      TestCache cache(setup);
      const Tokens prompt = Prompt(66, 64);
      Seq a = ParkedInHost(&cache, prompt);
      cache.Release(&a);
      Seq b = cache.Create();
      ASSERT_THAT(cache.Take(cache.Lookup(prompt), &b), IsOk());
      const fermata_completion end = cache.Load(&b);
      if (end.status == FERMATA_OK) {
        EXPECT_EQ(end.valid_tokens, 64u);
      } else {
        EXPECT_TRUE(end.status == FERMATA_UNAVAILABLE || end.status == FERMATA_DATA_LOSS);
        ++failures;
        EXPECT_LT(end.valid_tokens, 64u);
        partial += end.valid_tokens > 0;
        EXPECT_LT(end.items_ok, end.items_total);
        EXPECT_EQ(cache.Info(b).tokens, end.valid_tokens);
        EXPECT_EQ(cache.HitTokens(prompt), end.valid_tokens);
      }
      cache.CheckBytes(b, end.valid_tokens);
      cache.Audit();
      cache.Release(&b);
      EXPECT_EQ(cache.HitTokens(prompt), end.valid_tokens);
    }
    EXPECT_GT(failures, 20u) << ppm;
    if (ppm == 1'000'000) {
      EXPECT_EQ(failures, 60u);
      EXPECT_EQ(partial, 0u);
    } else {
      EXPECT_GT(partial, 5u);
    }
  }
}

// Bytes that are not those that were stored are found out, whatever the device said.
TEST(Faults, B66_ACancelledLoadThatLosesABlockIsCutToo) {
  CacheSetup setup;
  setup.sim_blocks = 16;
  setup.sim_faults.read_error_ppm = 1'000'000;
  setup.sim_faults.latency_min_ns = setup.sim_faults.latency_max_ns = 1000;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(66, 64));
  const Job park = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(park.outcome, IsOk());
  cache.Step(100);
  cache.Advance(2000);
  ASSERT_EQ(cache.Finish(park).status, FERMATA_OK);
  const Job load = cache.StartResume(a);
  ASSERT_THAT(load.outcome, IsOk());
  cache.Step(100);
  ASSERT_THAT(cache.Cancel(load), IsOk());
  cache.Advance(2000);
  const fermata_completion end = cache.Finish(load);
  EXPECT_EQ(end.status, FERMATA_CANCELLED);
  EXPECT_EQ(end.valid_tokens, 0u);
  EXPECT_EQ(cache.Info(a).tokens, 0u);
  EXPECT_EQ(cache.Info(a).published_tokens, 0u);
  cache.Release(&a);
}

TEST(Faults, B66_AFlippedBitIsNeverHandedOut) {
  for (const uint32_t kind : {0u, 1u, 2u, 3u, 4u}) {
    CacheSetup setup;
    setup.groups = {SmallBlocks()};
    setup.sim_blocks = 16;
    fermata_x_sim_faults& faults = setup.sim_faults;
    uint32_t* const fields[] = {&faults.bit_flip_ppm, &faults.short_read_ppm,
                                &faults.torn_write_ppm, &faults.misdirected_write_ppm,
                                &faults.lost_write_ppm};
    *fields[kind] = 1'000'000;
    TestCache cache(setup);
    const Tokens prompt = Prompt(66, 64);
    Seq a = ParkedInHost(&cache, prompt);
    cache.Release(&a);
    Seq b = cache.Create();
    const Hit hit = cache.Lookup(prompt);
    ASSERT_EQ(hit.tokens, 64u) << "fault " << kind;
    ASSERT_THAT(cache.Take(hit, &b), IsOk());
    const fermata_completion end = cache.Load(&b);
    EXPECT_THAT(end.status, ::testing::AnyOf(FERMATA_DATA_LOSS, FERMATA_UNAVAILABLE))
        << "fault " << kind;
    EXPECT_LT(end.valid_tokens, 64u);
    cache.CheckBytes(b, end.valid_tokens);
    EXPECT_GT(cache.GetStats().total.lost_blocks, 0u);
    cache.Release(&b);
  }
}

}  // namespace
}  // namespace fermata_test
