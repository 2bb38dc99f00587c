// SPDX-License-Identifier: Apache-2.0
//
// Eight threads on one cache with the library's own thread: appends, lookups, loads, parks and
// releases of a few shared prompts. Every block that comes back is compared with the oracle.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

constexpr uint32_t kThreads = 8;
constexpr uint32_t kRounds = 150;
constexpr uint32_t kPrompts = 16;

CacheSetup Shared(uint32_t device_blocks) {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.device_blocks = device_blocks;
  setup.host_blocks = 24;
  setup.sim_blocks = 48;
  setup.real_time = true;
  return setup;
}

bool Retry(const Outcome& outcome) {
  return outcome.status == FERMATA_UNAVAILABLE && outcome.reason == FERMATA_REASON_WOULD_BLOCK;
}

struct Tally {
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> checked{0};
  std::atomic<uint64_t> refused{0};
};

// One request: what is cached is loaded and checked, the rest is computed, the turn ends.
void OneRequest(TestCache* cache, Stream* random, Tally* tally) {
  const uint32_t number = static_cast<uint32_t>(random->Below(kPrompts));
  const Tokens prompt = Concat(Prompt(number / 4, 32), Prompt(100 + number, 40));
  Seq seq = cache->Create();
  const Hit hit = cache->Lookup(prompt);
  if (hit.tokens > 0) {
    ASSERT_THAT(cache->Take(hit, &seq), IsOk());
    Job job = cache->StartLoad(seq);
    for (int i = 0; Retry(job.outcome) && i < 1000; ++i) {
      cache->Pump();
      job = cache->StartLoad(seq);
    }
    if (!job.outcome.ok()) {
      ASSERT_THAT(job.outcome, ::testing::AnyOf(HasStatus(FERMATA_RESOURCE_EXHAUSTED),
                                                HasStatus(FERMATA_UNAVAILABLE)));
      tally->refused.fetch_add(1);
      cache->Release(&seq);
      return;
    }
    const fermata_status end = cache->Finish(job).status;
    if (end == FERMATA_RESOURCE_EXHAUSTED) {
      // Others took hold of what was evictable when it was accepted.
      tally->refused.fetch_add(1);
      cache->Release(&seq);
      return;
    }
    ASSERT_EQ(end, FERMATA_OK);
    ASSERT_EQ(cache->BytesError(seq, seq.tokens.size()), "");
    tally->hits.fetch_add(1);
  }
  const uint64_t have = seq.tokens.size();
  const Tokens rest(prompt.begin() + static_cast<std::ptrdiff_t>(have), prompt.end());
  Outcome outcome = cache->TryAppend(&seq, rest);
  for (int i = 0; Retry(outcome) && i < 1000; ++i) {
    cache->Pump();
    outcome = cache->TryAppend(&seq, rest);
  }
  if (!outcome.ok()) {
    ASSERT_THAT(outcome, ::testing::AnyOf(HasStatus(FERMATA_RESOURCE_EXHAUSTED),
                                          HasStatus(FERMATA_UNAVAILABLE)));
    tally->refused.fetch_add(1);
    cache->Release(&seq);
    return;
  }
  cache->Write(seq, have, prompt.size());
  cache->Mark(seq, prompt.size());
  ASSERT_EQ(cache->BytesError(seq, prompt.size()), "");
  tally->checked.fetch_add(1);
  if (random->Chance(40)) {
    const Job park = cache->StartPark(seq, FERMATA_PARK_DROP);
    if (park.outcome.ok()) {
      if (random->Chance(30)) cache->Cancel(park);
      if (random->Chance(50)) {
        cache->Release(&seq);  // while its job runs
        cache->Finish(park);
        return;
      }
      cache->Finish(park);
    }
  }
  cache->Release(&seq);
}

void RunThreads(TestCache* cache, Tally* tally) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([=] {
      Stream random(t);
      for (uint32_t round = 0; round < kRounds && !::testing::Test::HasFatalFailure(); ++round) {
        OneRequest(cache, &random, tally);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, EightRequestsAtOnceGetRightBytes) {
  TestCache cache(Shared(64));
  Tally tally;
  RunThreads(&cache, &tally);
  EXPECT_GT(tally.hits.load(), kThreads * kRounds / 4);
  EXPECT_GT(tally.checked.load(), kThreads * kRounds / 2);
  EXPECT_EQ(cache.GetStats().total.sequences, 0u);
  cache.Settle();
  EXPECT_EQ(cache.GetStats().tiers[0].live_slots, 0u);
}

// Room for fewer requests than there are: some are refused, none waits for ever, all that run are
// right.
TEST(Threads, TooLittleRoomRefusesAndNeverHangs) {
  TestCache cache(Shared(24));
  Tally tally;
  RunThreads(&cache, &tally);
  EXPECT_GT(tally.checked.load(), 0u);
  cache.Settle();
  EXPECT_EQ(cache.GetStats().total.sequences, 0u);
  EXPECT_EQ(cache.GetStats().total.jobs, 0u);
}

}  // namespace
}  // namespace fermata_test
