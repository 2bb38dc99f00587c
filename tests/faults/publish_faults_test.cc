// SPDX-License-Identifier: Apache-2.0
//
// Reports where something was findable that was not written, or written although it was findable:
// partial blocks, rejected drafts, truncation, copy-on-write.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

TEST(Faults, B10_APartialBlockIsNeverShared) {
  TestCache cache;
  const Tokens prompt = Prompt(10, 20);
  Seq a = cache.Stored(prompt);
  Seq b = cache.Create();
  const Hit hit = cache.Lookup(prompt);
  EXPECT_EQ(hit.tokens, 16u);
  ASSERT_THAT(cache.Take(hit, &b), IsOk());
  cache.Store(&b, Tokens(prompt.begin() + 16, prompt.end()));
  cache.Store(&a, Prompt(11, 12));
  cache.Store(&b, Prompt(12, 12));
  const std::vector<uint32_t> slots_a = cache.Slots(a);
  const std::vector<uint32_t> slots_b = cache.Slots(b);
  ASSERT_EQ(slots_a.size(), 2u);
  ASSERT_EQ(slots_b.size(), 2u);
  EXPECT_EQ(slots_a[0], slots_b[0]);  // one block, two references
  EXPECT_NE(slots_a[1], slots_b[1]);
  cache.CheckBytes(a);
  cache.CheckBytes(b);
  EXPECT_EQ(cache.GetStats().tiers[0].live_slots, 3u);
  cache.Release(&a);
  EXPECT_EQ(cache.GetStats().tiers[0].live_slots, 2u);
  cache.CheckBytes(b);
  cache.Release(&b);
  EXPECT_EQ(cache.HitTokens(Concat(prompt, Prompt(11, 12))), 32u);
  EXPECT_EQ(cache.HitTokens(Concat(prompt, Prompt(12, 12))), 32u);
}

TEST(Faults, B11_BeamsCopyOnceEachAndTheLastWritesInPlace) {
  TestCache cache;
  Seq a = cache.Stored(Prompt(11, 20));
  std::vector<Seq> beams = cache.Fork(a, 2);
  Seq& b = beams[0];
  Seq& c = beams[1];
  const std::vector<uint32_t> before = cache.Slots(a);
  size_t copies_made = 0;
  const auto grow = [&](Seq* seq, uint32_t prompt) {
    std::vector<fermata_block_copy> copies;
    cache.Append(seq, Prompt(prompt, 4), &copies);
    for (const fermata_block_copy& copy : copies) {
      EXPECT_EQ(copy.source_slot, before[1]);
      EXPECT_NE(copy.target_slot, before[1]);
      EXPECT_EQ(copy.valid_tokens, 4u);
    }
    copies_made += copies.size();
    cache.Write(*seq, 20, 24);
  };
  grow(&b, 1);
  EXPECT_EQ(copies_made, 1u);
  grow(&c, 2);
  EXPECT_EQ(copies_made, 2u);
  grow(&a, 3);
  EXPECT_EQ(copies_made, 2u);
  EXPECT_EQ(cache.Slots(a), before);
  for (const Seq* seq : {&a, &b, &c}) cache.CheckBytes(*seq);
  cache.Release(&a);
  cache.Truncate(&b, 16);
  std::vector<fermata_block_copy> copies;
  cache.Append(&b, Prompt(4, 8), &copies);
  EXPECT_EQ(copies.size(), 0u);  // no record of the old beams is left
  cache.Write(b, 16, 24);
  cache.CheckBytes(b);
  cache.CheckBytes(c);
  cache.Release(&b);
  cache.Release(&c);
  uint64_t evictable = 0;
  EXPECT_EQ(cache.Room(0, &evictable), 7u);  // all of it back but the one published block,
  EXPECT_EQ(evictable, 1u);                  // which anybody may have
}

TEST(Faults, B17_NothingIsPublishedBeforeItsEventFires) {
  HeldDevice device;
  CacheSetup setup;
  setup.host_blocks = 16;
  setup.device_ops = device.ops();
  TestCache cache(setup);
  const Tokens prompt = Prompt(17, 16);
  std::atomic<bool> kernel_done{false};
  Seq a = cache.Create();
  cache.Append(&a, prompt);
  ASSERT_THAT(cache.TryMark(a, 16, &kernel_done), IsOk());
  cache.Step(100);
  EXPECT_EQ(cache.HitTokens(prompt), 0u);
  EXPECT_EQ(cache.Info(a).published_tokens, 0u);
  cache.Write(a, 0, 16);  // only now does the kernel write
  kernel_done = true;
  for (int i = 0; i < 100 && cache.Info(a).published_tokens == 0; ++i) cache.Pump();
  EXPECT_EQ(cache.HitTokens(prompt), 16u);
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.DeviceLost();
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 16u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B17_AParkWaitsForTheEventAndReleaseGivesNothingUpBefore) {
  HeldDevice device;
  CacheSetup setup;
  setup.host_blocks = 16;
  setup.device_ops = device.ops();
  std::atomic<bool> kernel_done{false};
  TestCache cache(setup);
  const Tokens prompt = Prompt(17, 16);
  Seq a = cache.Create();
  cache.Append(&a, prompt);
  ASSERT_THAT(cache.TryMark(a, 16, &kernel_done), IsOk());
  const std::vector<std::vector<uint32_t>> slots = cache.AllSlots(a);
  const Seq kernel = a;
  const Job park = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(park.outcome, IsOk());
  EXPECT_EQ(cache.Info(a).state, uint32_t{FERMATA_SEQUENCE_PARKING});
  EXPECT_EQ(cache.StartResume(a).outcome.reason, uint32_t{FERMATA_REASON_WOULD_BLOCK});
  cache.Release(&a);
  cache.Step(1000);
  EXPECT_EQ(device.submitted(), 0u);  // nothing was read
  fermata_completion end = {};
  EXPECT_FALSE(cache.TakeCompletion(park, &end));
  Seq b = cache.Create();
  EXPECT_EQ(cache.TryAppend(&b, Prompt(1, 8 * 16)).reason, uint32_t{FERMATA_REASON_NO_SPACE});
  cache.Store(&b, Prompt(1, 7 * 16));
  cache.WriteInto(kernel, 0, 16, slots);
  kernel_done = true;
  end = cache.Finish(park);
  EXPECT_EQ(end.status, FERMATA_OK);
  EXPECT_EQ(end.items_ok, 1u);
  EXPECT_EQ(cache.GetStats().total.sequences, 1u);
  cache.CheckBytes(b);
  cache.Release(&b);
  cache.DeviceLost();
  Seq c = cache.Fetch(prompt);
  EXPECT_EQ(c.tokens.size(), 16u);
  cache.Release(&c);
}

TEST(Faults, B17_ACancelledParkLeavesTheSequenceRunning) {
  HeldDevice device;
  CacheSetup setup;
  setup.host_blocks = 16;
  setup.device_ops = device.ops();
  std::atomic<bool> kernel_done{false};
  TestCache cache(setup);
  Seq a = cache.Create();
  cache.Append(&a, Prompt(17, 16));
  ASSERT_THAT(cache.TryMark(a, 16, &kernel_done), IsOk());
  const Job park = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(cache.Cancel(park), IsOk());
  EXPECT_EQ(cache.Finish(park).status, FERMATA_CANCELLED);
  EXPECT_EQ(cache.Info(a).state, uint32_t{FERMATA_SEQUENCE_RUNNING});
  EXPECT_EQ(cache.Info(a).tokens, 16u);
  cache.Write(a, 0, 16);
  kernel_done = true;
  cache.Step(1000);
  EXPECT_EQ(cache.Info(a).published_tokens, 16u);
  cache.Release(&a);
}

TEST(Faults, B17_AnEventThatCannotBeAskedAboutFreesNothingBeforeTheDeviceIsLost) {
  HeldDevice device;
  CacheSetup setup;
  setup.device_ops = device.ops();
  std::atomic<bool> fired{false};
  std::atomic<bool> never{false};
  TestCache cache(setup);
  Seq a = cache.Create();
  Seq b = cache.Create();
  cache.Append(&a, Prompt(17, 16));
  cache.Append(&b, Prompt(18, 16));
  ASSERT_THAT(cache.TryMark(a, 16, &fired), IsOk());
  ASSERT_THAT(cache.TryMark(b, 16, &never), IsOk());
  cache.Release(&a);
  cache.Release(&b);
  device.RefuseQueries(true);
  EXPECT_LT(cache.Step(1000), 1000u);
  Seq c = cache.Create();
  EXPECT_EQ(cache.TryAppend(&c, Prompt(1, 7 * 16)).reason, uint32_t{FERMATA_REASON_NO_SPACE});
  device.RefuseQueries(false);  // it was for a moment
  fired = true;
  cache.Step(1000);
  EXPECT_EQ(cache.HitTokens(Prompt(17, 16)), 16u);
  EXPECT_EQ(cache.GetStats().total.sequences, 2u);
  device.RefuseQueries(true);
  cache.DeviceLost();
  EXPECT_EQ(cache.GetStats().total.sequences, 1u);
  EXPECT_EQ(cache.Room(0, nullptr), 8u);
  cache.Append(&c, Prompt(1, 8 * 16));
  cache.Release(&c);
}

TEST(Faults, B17_ACutSlotGoesToOthersWhenTheKernelHasWrittenIt) {
  HeldDevice device;
  CacheSetup setup;
  setup.device_ops = device.ops();
  std::atomic<bool> first_done{false};
  std::atomic<bool> second_done{false};
  TestCache cache(setup);
  Seq a = cache.Create();
  cache.Append(&a, Prompt(17, 4 * 16));
  ASSERT_THAT(cache.TryMark(a, 4 * 16, &first_done), IsOk());
  cache.Truncate(&a, 16);
  ASSERT_THAT(cache.TryMark(a, 16, &second_done), IsOk());
  Seq b = cache.Create();
  EXPECT_EQ(cache.TryAppend(&b, Prompt(1, 5 * 16)).reason, uint32_t{FERMATA_REASON_NO_SPACE});
  first_done = true;  // the later mark says nothing about what was cut before it
  cache.Step(1000);
  cache.Append(&b, Prompt(1, 7 * 16));
  EXPECT_EQ(cache.Info(a).marked_tokens, 16u);
  second_done = true;
  cache.Step(1000);
  cache.Release(&a);
  cache.Release(&b);
}

TEST(Faults, B11_TheSourceOfACopyIsNobodyElsesBeforeTheCopyHasRun) {
  CacheSetup setup;
  setup.device_blocks = 4;
  TestCache cache(setup);
  const Tokens prompt = Prompt(11, 32);
  Seq a = cache.Stored(prompt);
  cache.Release(&a);
  Seq b = cache.Fetch(prompt);
  cache.Truncate(&b, 24);
  std::vector<fermata_block_copy> copies;
  cache.Append(&b, Prompt(12, 4), &copies);
  ASSERT_EQ(copies.size(), 1u);
  // The engine's copy is still in its queue: two blocks of b, the source, and one free slot.
  Seq c = cache.Create();
  EXPECT_EQ(cache.TryAppend(&c, Prompt(1, 32)).reason, uint32_t{FERMATA_REASON_NO_SPACE});
  cache.Append(&c, Prompt(1, 16));
  EXPECT_NE(cache.Slots(c)[0], copies[0].source_slot);
  cache.Mark(b, 24);  // what was copied was marked before: says nothing
  EXPECT_EQ(cache.TryAppend(&c, Prompt(2, 16)).reason, uint32_t{FERMATA_REASON_NO_SPACE});
  cache.Write(b, 24, 28);
  cache.Mark(b, 28);  // behind the copy, so it has run
  cache.Append(&c, Prompt(2, 16));
  EXPECT_EQ(cache.Slots(c)[1], copies[0].source_slot);
  cache.CheckBytes(b);
  cache.Release(&b);
  cache.Release(&c);
}

TEST(Faults, B21_OnlyComputedBlocksOfAnAbortedRequestAreStored) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  const Tokens prompt = Prompt(21, 64);
  Seq a = cache.Create();
  cache.Append(&a, prompt);
  cache.Write(a, 0, 20);
  cache.Mark(a, 20);
  const Job job = cache.StartPark(a, FERMATA_PARK_KEEP);
  ASSERT_THAT(job.outcome, IsOk());
  cache.Release(&a);  // the client has gone
  const fermata_completion end = cache.Finish(job);
  EXPECT_EQ(end.items_total, 1u);
  EXPECT_EQ(cache.GetStats().total.blocks, 1u);
  EXPECT_EQ(cache.GetStats().total.jobs, 0u);
  EXPECT_EQ(cache.HitTokens(prompt), 16u);
  uint64_t evictable = 0;
  const uint64_t free = cache.Room(0, &evictable);
  EXPECT_EQ(free + evictable, 8u);
  EXPECT_GE(free, 7u);
}

TEST(Faults, B21_AStoreThatEndsHoldsExactlyTheComputedBlock) {
  CacheSetup setup;
  setup.host_blocks = 16;
  TestCache cache(setup);
  const Tokens prompt = Prompt(21, 64);
  Seq a = cache.Create();
  cache.Append(&a, prompt);
  cache.Write(a, 0, 20);
  cache.Mark(a, 20);
  const fermata_completion end = cache.Park(&a, FERMATA_PARK_KEEP);
  EXPECT_EQ(end.status, FERMATA_OK);
  EXPECT_EQ(end.items_total, 1u);
  EXPECT_EQ(end.items_ok, 1u);
  cache.Release(&a);
  cache.DeviceLost();
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_HOST).cached_slots, 1u);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_DEVICE).free_slots, 8u);
  Seq b = cache.Fetch(prompt);
  EXPECT_EQ(b.tokens.size(), 16u);
  cache.Release(&b);
}

TEST(Faults, B32_RejectedDraftsAreNeverFound) {
  TestCache cache;
  const Tokens prompt = Prompt(32, 30);
  const Tokens drafts = Prompt(33, 5);
  Seq a = cache.Stored(prompt);
  cache.Append(&a, drafts);
  cache.Write(a, 30, 35);
  cache.Truncate(&a, 31);
  cache.Mark(a, 31);
  EXPECT_EQ(cache.HitTokens(Concat(prompt, Prefix(drafts, 2))), 16u);
  cache.Store(&a, Prompt(34, 1));
  const Tokens truth = a.tokens;
  ASSERT_EQ(truth.size(), 32u);
  EXPECT_EQ(cache.HitTokens(Concat(prompt, Prefix(drafts, 2))), 16u);
  Seq b = cache.Fetch(truth);
  EXPECT_EQ(b.tokens.size(), 32u);
  cache.Release(&a);
  cache.Release(&b);
}

TEST(Faults, B35_AGrownBlockIsAnnouncedOnce) {
  CacheSetup setup;
  setup.event_capacity = 64;
  TestCache cache(setup);
  const Tokens prompt = Prompt(35, 20);
  Seq a = cache.Create();
  cache.Append(&a, prompt);
  cache.Write(a, 0, 20);
  cache.Mark(a, 8);
  EXPECT_EQ(cache.PollEvents().size(), 0u);
  EXPECT_EQ(cache.HitTokens(prompt), 0u);
  cache.Mark(a, 16);
  cache.Mark(a, 16);
  cache.Mark(a, 8);  // less than before: nothing happens
  cache.Mark(a, 20);
  const std::vector<fermata_event> events = cache.PollEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, FERMATA_EVENT_STORED);
  EXPECT_EQ(events[0].tier, 0u);
  EXPECT_EQ(events[0].group, 0u);
  EXPECT_EQ(events[0].end_token, 16u);
  EXPECT_EQ(cache.GetStats().tiers[0].cached_slots + cache.GetStats().tiers[0].live_slots, 2u);
  EXPECT_EQ(cache.HitTokens(prompt), 16u);
  cache.Release(&a);
}

TEST(Faults, B36_ANameFollowsTheTokensThatWereKept) {
  TestCache cache;
  Tokens base = Prompt(36, 15);
  const Tokens wrong = Concat(base, {99});
  const Tokens right = Concat(base, {16});
  Seq a = cache.Create();
  cache.Append(&a, wrong);
  cache.Write(a, 0, 15);
  cache.Mark(a, 15);
  cache.Truncate(&a, 15);
  cache.Append(&a, {16});
  cache.Write(a, 15, 16);
  cache.Mark(a, 16);
  EXPECT_EQ(cache.HitTokens(wrong), 0u);
  EXPECT_EQ(cache.HitTokens(right), 16u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, B36_ANameDoesNotDependOnHowItWasAppended) {
  const Tokens tokens = Prompt(36, 48);
  const Extras picture = {{FERMATA_EXTRA_IMAGE, "p", 10, 20}};
  CreateOptions create;
  create.extras = picture;
  std::vector<std::vector<uint64_t>> keys;
  for (uint64_t cut = 0; cut <= 48; ++cut) {
    CacheSetup setup;
    setup.event_capacity = 16;
    TestCache cache(setup);
    Seq a = cache.Create(create);
    cache.Append(&a, Prefix(tokens, cut));
    cache.Append(&a, Prompt(37, 5));  // and takes them back
    cache.Truncate(&a, cut);
    cache.Write(a, 0, cut);
    cache.Mark(a, cut);
    cache.Store(&a, Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(cut), tokens.end()));
    std::vector<uint64_t> names;
    for (const fermata_event& event : cache.PollEvents()) {
      names.push_back(event.end_token);
      names.push_back(event.key[0]);
      names.push_back(event.key[1]);
    }
    ASSERT_EQ(names.size(), 9u) << "cut " << cut;
    keys.push_back(names);
    ASSERT_EQ(keys.back(), keys.front()) << "cut " << cut;
    cache.Release(&a);
  }
}

TEST(Faults, NothingOfANoStoreSequenceIsFound) {
  TestCache cache;
  CreateOptions create;
  create.flags = FERMATA_SEQUENCE_NO_STORE;
  Seq a = cache.Stored(Prompt(1, 48), create);
  EXPECT_EQ(cache.HitTokens(a.tokens), 0u);
  cache.Release(&a);
  EXPECT_EQ(cache.HitTokens(Prompt(1, 48)), 0u);
  EXPECT_EQ(cache.GetStats().tiers[0].free_slots, 8u);
}

}  // namespace
}  // namespace fermata_test
