// SPDX-License-Identifier: Apache-2.0
//
// Reports where a promise did not hold: a hit that could not be loaded, a head evicted before its
// tail, a park that lost the sequence, a reset that reset one tier only.
#include <gtest/gtest.h>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

TEST(Faults, B23_AResumeSaysWhatIsLeftOfThePath) {
  CacheSetup setup;
  setup.device_blocks = 8;
  setup.host_blocks = 0;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(23, 6 * 16));
  cache.ParkLazy(&a);
  Seq b = cache.Stored(Prompt(24, 5 * 16));  // Three of the six go, the deepest first.
  const fermata_completion resumed = cache.Resume(&a);
  EXPECT_EQ(resumed.status, FERMATA_OK);
  EXPECT_EQ(resumed.valid_tokens, 48u);
  EXPECT_EQ(cache.Info(a).tokens, 48u);
  EXPECT_EQ(cache.Slots(a).size(), 3u);
  cache.CheckBytes(a);
  cache.Release(&a);
  cache.Release(&b);
}

TEST(Faults, B23_AResumeLoadsOnlyWhatTheDeviceLacks) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(23, 34));
  cache.Store(&a, Prompt(24, 16));
  ASSERT_EQ(a.tokens.size(), 50u);
  cache.ParkLazy(&a);
  EXPECT_EQ(a.tokens.size(), 48u);  // the partial tail is let go
  const fermata_completion warm = cache.Resume(&a);
  EXPECT_EQ(warm.status, FERMATA_OK);
  EXPECT_EQ(warm.items_total, 0u);
  EXPECT_EQ(warm.valid_tokens, 48u);
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).items_ok, 3u);
  cache.DeviceLost();
  const fermata_completion cold = cache.Resume(&a);
  EXPECT_EQ(cold.status, FERMATA_OK);
  EXPECT_EQ(cold.items_total, 3u);
  EXPECT_EQ(cold.items_ok, 3u);
  EXPECT_EQ(cold.valid_tokens, 48u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B25_ALongPrefixLosesItsTailFirst) {
  CacheSetup setup;
  setup.device_blocks = 12;
  TestCache cache(setup);
  const Tokens prompt = Prompt(25, 192);
  Seq a = cache.Create();
  for (const uint64_t commit : {64u, 128u, 192u}) {
    cache.Append(&a, Tokens(prompt.begin() + static_cast<std::ptrdiff_t>(commit - 64),
                            prompt.begin() + static_cast<std::ptrdiff_t>(commit)));
    cache.Write(a, commit - 64, commit);
    cache.Mark(a, commit);
  }
  cache.Release(&a);
  Seq head = cache.Create();
  ASSERT_THAT(cache.Take(cache.Lookup(Prefix(prompt, 64)), &head), IsOk());
  cache.Release(&head);  // the head was touched on its own
  Seq others = cache.Stored(Prompt(26, 64));
  EXPECT_EQ(cache.HitTokens(prompt), 128u);
  Seq b = cache.Fetch(prompt);
  EXPECT_EQ(b.tokens.size(), 128u);
  cache.Release(&b);
  cache.Release(&others);
}

// The head leaves the device last, whoever was touched last.
TEST(Faults, B25_OneBlockAfterTheOtherGoesFromTheTail) {
  TestCache cache;
  const Tokens prompt = Prompt(25, 128);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  Seq others = cache.Create();
  for (uint64_t gone = 1; gone <= 8; ++gone) {
    cache.Append(&others, Prompt(static_cast<uint32_t>(100 + gone), 16));
    EXPECT_EQ(cache.HitTokens(prompt), 128 - 16 * gone);
  }
  cache.Release(&others);
}

TEST(Faults, B26_AChildIsNeverFoundWithoutItsParent) {
  uint64_t cut = 0;
  for (const uint64_t host_blocks : {1u, 2u, 3u}) {
    CacheSetup setup;
    setup.device_blocks = 2;
    setup.host_blocks = host_blocks;
    TestCache cache(setup);
    const Tokens prompt = Prompt(26, 32);
    for (uint32_t round = 0; round < 6; ++round) {
      Seq a = cache.Stored(prompt);
      cache.Release(&a);
      Seq filler = cache.Stored(Prompt(100 + round, 16 * (1 + round % 2)));
      cache.Audit();
      cache.Release(&filler);
      cache.Settle();
      cache.Audit();
      const uint64_t hit = cache.HitTokens(prompt);
      Seq b = cache.Fetch(prompt);  // and what is found comes back right
      EXPECT_EQ(b.tokens.size(), hit);
      cache.Release(&b);
      cut += hit < 32 ? 1 : 0;
    }
  }
  EXPECT_GT(cut, 0u);  // some of it did go
}

// The parent lies on the device alone, its child below: when the parent goes, the child goes too.
TEST(Faults, B26_AParentThatIsLostTakesItsChildrenAlong) {
  CacheSetup setup;
  setup.device_blocks = 2;
  setup.host_blocks = 2;
  TestCache cache(setup);
  const Tokens prompt = Prompt(26, 32);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  Seq filler = cache.Create();
  cache.Append(&filler, Prompt(100, 16));  // sends the child down
  cache.Release(&filler);
  cache.Settle();
  const Hit hit = cache.Lookup(prompt);
  EXPECT_THAT(hit.tiers, ::testing::ElementsAre(16, 16));
  EXPECT_THAT(cache.Drop(hit), IsOk());
  cache.DeviceLost();
  cache.Audit();
  EXPECT_EQ(cache.HitTokens(prompt), 0u);
  EXPECT_EQ(cache.GetStats().total.blocks, 0u);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_HOST).free_slots, 2u);
  Seq b = cache.Stored(prompt);
  EXPECT_EQ(cache.HitTokens(prompt), 32u);
  cache.Release(&b);
}

TEST(Faults, B28_ALoadHasItsWholeNeedOrHoldsNothing) {
  CacheSetup setup;
  setup.device_blocks = 7;
  setup.host_blocks = 16;
  TestCache cache(setup);
  Seq a = cache.Stored(Prompt(1, 64));
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  Seq b = cache.Stored(Prompt(2, 48));
  ASSERT_EQ(cache.Park(&b, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.DeviceLost();
  LoadOptions need_a;
  need_a.reserve_tokens = 80;
  const Job job_a = cache.StartResume(a, need_a);
  ASSERT_THAT(job_a.outcome, IsOk());
  LoadOptions need_b;
  need_b.reserve_tokens = 64;
  const Job job_b = cache.StartResume(b, need_b);
  EXPECT_THAT(job_b.outcome, IsError(FERMATA_UNAVAILABLE, FERMATA_REASON_WOULD_BLOCK));
  EXPECT_EQ(job_b.id.id, 0u);
  EXPECT_EQ(cache.Room(0, nullptr), 2u);  // B holds nothing
  ASSERT_EQ(cache.Finish(job_a).valid_tokens, 64u);
  EXPECT_GE(cache.Info(a).reserved_tokens, 80u);
  EXPECT_THAT(cache.TryAppend(&a, Prompt(3, 16)), IsOk());  // without failing, as promised
  cache.CheckBytes(a, 64);
  cache.Release(&a);
  EXPECT_EQ(cache.Resume(&b, need_b).valid_tokens, 48u);
  cache.CheckBytes(b);
  cache.Release(&b);
}

TEST(Faults, B28_AnAppendThatCannotEverFitIsNotToldToWait) {
  HeldDevice device;
  CacheSetup setup;
  setup.host_blocks = 16;
  setup.device_ops = device.ops();
  TestCache cache(setup);
  Seq held = cache.Stored(Prompt(1, 6 * 16));
  Seq idle = cache.Stored(Prompt(2, 2 * 16));
  cache.Release(&idle);
  device.Hold();  // what leaves for the host does not arrive
  Seq want = cache.Create();
  EXPECT_EQ(cache.TryAppend(&want, Prompt(3, 2 * 16)).reason, uint32_t{FERMATA_REASON_WOULD_BLOCK});
  // Two slots are being freed, and there will be no third.
  EXPECT_EQ(cache.TryAppend(&want, Prompt(3, 3 * 16)).reason, uint32_t{FERMATA_REASON_NO_SPACE});
  device.LetGo();
  cache.Append(&want, Prompt(3, 2 * 16));
  cache.Release(&want);
  cache.Release(&held);
}

TEST(Faults, ASessionThatIsCutAndGoesOnDifferentlySupersedesWhatWasCut) {
  CacheSetup setup;
  setup.policy = "lru-superseded";
  TestCache cache(setup);
  fermata_session_options options = {};
  options.struct_size = sizeof(options);
  CreateOptions create;
  ASSERT_EQ(fermata_session_open(cache.id(), &options, &create.session, nullptr), FERMATA_OK);
  Seq a = cache.Stored(Prompt(1, 64), create);
  cache.Truncate(&a, 32);
  cache.Store(&a, Prompt(2, 32));  // as long as before, so only the blocks tell
  EXPECT_EQ(cache.GetStats().total.superseded_blocks, 2u);
  LookupOptions look;
  look.session = create.session;
  Hit hit = cache.Lookup(Concat(Prefix(Prompt(1, 64), 32), Prompt(2, 32)), look);
  EXPECT_EQ(hit.tokens, 64u);
  EXPECT_THAT(cache.Drop(hit), IsOk());
  EXPECT_EQ(cache.GetStats().total.superseded_blocks, 2u);  // the path is what it is now
  cache.Release(&a);
}

TEST(Faults, B30_ALeaseHoldsWhatTheLookupFound) {
  CacheSetup setup;
  setup.host_blocks = 3;
  setup.lease_ns = 1000;
  TestCache cache(setup);
  const Tokens prompt = Prompt(30, 48);
  Seq a = cache.Stored(prompt);
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.Release(&a);
  cache.DeviceLost();
  const Hit hit = cache.Lookup(prompt);
  ASSERT_EQ(hit.tokens, 48u);
  // Host memory is all leased: who wants room there is told so.
  Seq filler = cache.Stored(Prompt(31, 48));
  EXPECT_THAT(cache.StartPark(filler, FERMATA_PARK_KEEP).outcome,
              IsError(FERMATA_RESOURCE_EXHAUSTED, FERMATA_REASON_NO_SPACE));
  Seq b = cache.Create();
  ASSERT_THAT(cache.Take(hit, &b), IsOk());
  EXPECT_EQ(cache.Load(&b).valid_tokens, 48u);
  cache.CheckBytes(b);
  cache.Release(&b);

  const Hit late = cache.Lookup(prompt);
  ASSERT_EQ(late.tokens, 48u);
  cache.Advance(1001);
  Seq c = cache.Create();
  EXPECT_THAT(cache.Take(late, &c),
              IsError(FERMATA_FAILED_PRECONDITION, FERMATA_REASON_LEASE_EXPIRED));
  EXPECT_EQ(cache.Info(c).tokens, 0u);
  EXPECT_EQ(cache.GetStats().total.leases, 0u);
  cache.Release(&c);
  cache.Release(&filler);
}

TEST(Faults, B34_AJointHitIsWholeInEveryGroup) {
  CacheSetup setup;
  setup.groups.resize(2);
  setup.groups[1].block_tokens = 64;
  setup.groups[1].planes = {73728};  // one plane, as multi-head latent attention has
  setup.device_blocks = 16;
  setup.host_blocks = 16;
  TestCache cache(setup);
  const Tokens prompt = Prompt(34, 200);
  Seq a = cache.Stored(prompt);
  EXPECT_EQ(cache.Slots(a, 0).size(), 13u);
  EXPECT_EQ(cache.Slots(a, 1).size(), 4u);
  cache.Release(&a);
  EXPECT_EQ(cache.HitTokens(prompt), 192u);
  Seq b = cache.Fetch(prompt);
  EXPECT_EQ(b.tokens.size(), 192u);
  EXPECT_EQ(cache.Slots(b, 0).size(), 12u);
  EXPECT_EQ(cache.Slots(b, 1).size(), 3u);
  // 16 tokens less than three blocks of 64: the second group gives two.
  EXPECT_EQ(cache.HitTokens(Prefix(prompt, 191)), 128u);
  ASSERT_EQ(cache.Park(&b, FERMATA_PARK_KEEP).items_ok, 15u);
  cache.DeviceLost();
  EXPECT_EQ(cache.Resume(&b).valid_tokens, 192u);
  cache.CheckBytes(b);
  std::vector<Seq> child = cache.Fork(b, 1);
  cache.Store(&child[0], Prompt(35, 40));
  cache.CheckBytes(child[0]);
  cache.CheckBytes(b);
  cache.Release(&child[0]);
  cache.Release(&b);
}

TEST(Faults, B30_TheLongestLeaseDoesNotExpireAtOnce) {
  CacheSetup setup;
  setup.lease_ns = ~uint64_t{0};
  TestCache cache(setup);
  const Tokens prompt = Prompt(30, 32);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  cache.Advance(1'000'000'000);
  const Hit hit = cache.Lookup(prompt);
  cache.Advance(uint64_t{1} << 60);
  Seq b = cache.Create();
  EXPECT_THAT(cache.Take(hit, &b), IsOk());
  cache.Release(&b);
}

TEST(Faults, B61_AnExpiredLeaseStaysExpiredAndOnlyThatOne) {
  TestCache cache;
  const Tokens prompt = Prompt(61, 48);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  const uint64_t now = cache.Now();
  LookupOptions short_life;
  short_life.deadline_ns = now + 100;
  LookupOptions long_life;
  long_life.deadline_ns = now + 10'000;
  const Hit first = cache.Lookup(prompt, long_life);
  const Hit expired = cache.Lookup(prompt, short_life);
  const Hit last = cache.Lookup(prompt, long_life);
  cache.Advance(101);
  EXPECT_EQ(cache.HitTokens(prompt), 48u);  // reading the blocks renews no lease
  Seq seqs[3] = {cache.Create(), cache.Create(), cache.Create()};
  EXPECT_THAT(cache.Take(first, &seqs[0]), IsOk());
  EXPECT_THAT(cache.Take(expired, &seqs[1]),
              IsError(FERMATA_FAILED_PRECONDITION, FERMATA_REASON_LEASE_EXPIRED));
  EXPECT_THAT(cache.Take(last, &seqs[2]), IsOk());
  EXPECT_EQ(cache.Info(seqs[1]).tokens, 0u);
  EXPECT_EQ(cache.GetStats().total.leases, 0u);
  for (Seq& seq : seqs) cache.Release(&seq);
}

}  // namespace
}  // namespace fermata_test
