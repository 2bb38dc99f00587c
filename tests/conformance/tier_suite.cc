// SPDX-License-Identifier: Apache-2.0
//
// The tests that tier_suite.h is about. Compiled once; each implementation's binary links them and
// instantiates them for itself.
#include "tests/conformance/tier_suite.h"

#include <gmock/gmock.h>

#include <set>

namespace fermata {

TEST_P(TierContract, SaysWhatItIs) {
  EXPECT_FALSE(tier().info().name.empty());
  for (GroupIndex group = 0; group < 2; ++group) {
    EXPECT_EQ(tier().slots(group), ConformanceGroups()[group].slots);
    EXPECT_EQ(tier().free_slots(group), tier().slots(group));
  }
  EXPECT_TRUE(tier().healthy());
  EXPECT_GE(tier().incarnation(), 1u);
}

TEST_P(TierContract, AcquireTakesAllOrNothing) {
  const size_t count = tier().slots(0);
  std::vector<SlotId> too_many(count + 1, SlotId::kNone);
  const Status status = tier().Acquire(0, too_many);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.reason(), Reason::kNoSpace);
  EXPECT_EQ(tier().free_slots(0), count);

  const std::vector<SlotId> most = Acquire(0, count - 2);
  std::vector<SlotId> three(3, SlotId::kNone);
  EXPECT_EQ(tier().Acquire(0, three).reason(), Reason::kNoSpace);
  EXPECT_EQ(tier().free_slots(0), 2u);
  const std::vector<SlotId> rest = Acquire(0, 2);

  std::set<uint32_t> distinct;
  for (const SlotId slot : most) distinct.insert(Raw(slot));
  for (const SlotId slot : rest) distinct.insert(Raw(slot));
  EXPECT_EQ(distinct.size(), count);
  EXPECT_LT(*distinct.rbegin(), count);
  EXPECT_EQ(tier().free_slots(0), 0u);
  EXPECT_TRUE(tier().Acquire(0, std::span<SlotId>()).ok());
  EXPECT_EQ(tier().free_slots(1), tier().slots(1)) << "groups share no slots";
  tier().Release(0, most);
  tier().Release(0, rest);
}

TEST_P(TierContract, ReleasedSlotsAreHandedOutAgain) {
  const std::vector<SlotId> all = Acquire(1, tier().slots(1));
  const std::vector<SlotId> some = {all[4], all[1], all[6]};
  tier().Release(1, some);
  EXPECT_EQ(tier().free_slots(1), 3u);
  EXPECT_THAT(Acquire(1, 3), testing::UnorderedElementsAreArray(some));
  tier().Release(1, all);
  EXPECT_EQ(tier().free_slots(1), tier().slots(1));
}

TEST_P(TierContract, DoubleReleaseDies) {
  const std::vector<SlotId> slots = Acquire(0, 2);
  tier().Release(0, slots);
  EXPECT_DEATH(tier().Release(0, std::span<const SlotId>(slots).first(1)), "");
}

TEST_P(TierContract, ForeignSlotReleaseDies) {
  const SlotId beyond{static_cast<uint32_t>(tier().slots(1))};
  EXPECT_DEATH(tier().Release(1, std::span<const SlotId>(&beyond, 1)), "");
}

TEST_P(TierContract, GivesBackWhatWasWrittenInEverySlotOfBothGroups) {
  std::vector<std::unique_ptr<TestBlock>> blocks;
  std::vector<std::unique_ptr<TestBlock>> twins;
  std::vector<TierIo> writes;
  std::vector<TierIo> reads;
  for (GroupIndex group = 0; group < 2; ++group) {
    for (const SlotId slot : Acquire(group, tier().slots(group))) {
      blocks.push_back(NewBlock(group));
      blocks.back()->FillRight();
      writes.push_back(Io(TierIo::Op::kWrite, slot, blocks.back().get()));
      twins.push_back(Twin(*blocks.back()));
      twins.back()->FillWrong();
      reads.push_back(Io(TierIo::Op::kRead, slot, twins.back().get()));
    }
  }
  Random random(7);
  for (size_t i = reads.size(); i > 1; --i) std::swap(reads[i - 1], reads[random.Below(i)]);
  for (const auto& [cookie, status] : Run(writes)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& [cookie, status] : Run(reads)) EXPECT_TRUE(status.ok()) << status.ToString();
  if (!HasBytes()) return;
  for (const auto& twin : twins) EXPECT_TRUE(twin->IsRight()) << "uid " << twin->record.uid;
  for (const auto& block : blocks) EXPECT_TRUE(block->IsRight()) << "a write changed its source";
}

TEST_P(TierContract, TouchesNothingBehindABuffer) {
  if (!HasBytes()) GTEST_SKIP() << "moves no bytes";
  for (GroupIndex group = 0; group < 2; ++group) {
    const SlotId slot = Acquire(group, 1)[0];
    const auto block = NewBlock(group);
    EXPECT_TRUE(Write(slot, block.get()).ok());
    EXPECT_TRUE(block->CanariesLive()) << "write, group " << group;
    EXPECT_TRUE(Read(slot, block.get()).ok());
    EXPECT_TRUE(block->IsRight());
    EXPECT_TRUE(block->CanariesLive()) << "read, group " << group;
  }
}

TEST_P(TierContract, FullQueueTakesAPrefixAndLosesNothing) {
  const SlotId slot = Acquire(1, 1)[0];
  const auto block = NewBlock(1);
  ASSERT_TRUE(Write(slot, block.get()).ok());
  constexpr size_t kReads = 1500;  // more than any queue takes
  std::vector<std::unique_ptr<TestBlock>> twins;
  std::vector<TierIo> reads;
  for (size_t i = 0; i < kReads; ++i) {
    twins.push_back(Twin(*block));
    twins.back()->FillWrong();
    reads.push_back(Io(TierIo::Op::kRead, slot, twins.back().get()));
  }
  const size_t accepted = tier().Submit(reads);
  ASSERT_GT(accepted, 0u);
  ASSERT_LT(accepted, kReads) << "a queue without a bound";
  EXPECT_EQ(tier().in_flight(), accepted);
  std::map<uint64_t, Status> done;
  while (done.size() < accepted && !HasFatalFailure()) Collect(&done);
  for (size_t i = 0; i < kReads; ++i) {
    EXPECT_EQ(done.count(reads[i].cookie), i < accepted ? 1u : 0u) << "request " << i;
  }
  const std::vector<TierIo> rest(reads.begin() + static_cast<ptrdiff_t>(accepted), reads.end());
  for (auto& [cookie, status] : Run(rest)) done.emplace(cookie, std::move(status));
  EXPECT_EQ(done.size(), kReads);
  for (const auto& [cookie, status] : done) EXPECT_TRUE(status.ok()) << status.ToString();
  if (!HasBytes()) return;
  for (const auto& twin : twins) EXPECT_TRUE(twin->IsRight());
}

TEST_P(TierContract, LastWriteIsWhatIsRead) {
  if (!HasBytes()) GTEST_SKIP() << "moves no bytes";
  const SlotId slot = Acquire(0, 1)[0];
  const auto first = NewBlock(0);
  const auto second = NewBlock(0);
  EXPECT_TRUE(Write(slot, first.get()).ok());
  EXPECT_TRUE(Write(slot, second.get()).ok());
  EXPECT_TRUE(Read(slot, second.get()).ok());
  EXPECT_TRUE(second->IsRight());
  if (HasIdentity()) ExpectLost(Read(slot, first.get()));
}

TEST_P(TierContract, AnotherRecordIsNotGivenTheBytes) {
  if (!HasIdentity()) GTEST_SKIP() << "memory: does not know what it holds";
  const SlotId slot = Acquire(0, 1)[0];
  const auto block = NewBlock(0);
  ASSERT_TRUE(Write(slot, block.get()).ok());
  const auto other_uid = Twin(*block);
  other_uid->record.uid += 1000;
  ExpectLost(Read(slot, other_uid.get()));
  const auto other_key = Twin(*block);
  other_key->record.key.hi ^= 1;
  ExpectLost(Read(slot, other_key.get()));
  EXPECT_TRUE(Read(slot, block.get()).ok()) << "it is still there";
  EXPECT_TRUE(block->IsRight());
}

TEST_P(TierContract, UnwrittenSlotGivesNothing) {
  if (!HasIdentity()) GTEST_SKIP() << "memory: does not know what it holds";
  const SlotId slot = Acquire(0, 1)[0];
  ExpectLost(Read(slot, NewBlock(0).get()));
}

TEST_P(TierContract, ReleaseMakesUnreadable) {
  if (!HasIdentity()) GTEST_SKIP() << "memory: does not know what it holds";
  const std::vector<SlotId> all = Acquire(1, tier().slots(1));  // so that the same slot comes back
  const auto block = NewBlock(1);
  ASSERT_TRUE(Write(all[3], block.get()).ok());
  tier().Release(1, std::span<const SlotId>(&all[3], 1));
  ASSERT_EQ(Acquire(1, 1)[0], all[3]);
  ExpectLost(Read(all[3], block.get()));
  const auto next = NewBlock(1);
  EXPECT_TRUE(Write(all[3], next.get()).ok());
  EXPECT_TRUE(Read(all[3], next.get()).ok());
  EXPECT_TRUE(next->IsRight());
}

TEST_P(TierContract, FailedWriteLeavesNothingReadable) {
  const SlotId slot = Acquire(0, 1)[0];
  const auto first = NewBlock(0);
  const auto second = NewBlock(0);
  ASSERT_TRUE(Write(slot, first.get()).ok());
  if (!harness_->FailNextWrite()) GTEST_SKIP() << "cannot fail";
  const Status failed = Write(slot, second.get());
  EXPECT_FALSE(failed.ok());
  if (HasIdentity()) {
    EXPECT_FALSE(Read(slot, second.get()).ok());
    EXPECT_FALSE(Read(slot, first.get()).ok());
  }
  EXPECT_TRUE(Write(slot, second.get()).ok()) << "one failure does not end the slot";
  EXPECT_TRUE(Read(slot, second.get()).ok());
  EXPECT_TRUE(second->IsRight());
}

TEST_P(TierContract, FailedReadIsAnErrorAndPasses) {
  const SlotId slot = Acquire(0, 1)[0];
  const auto block = NewBlock(0);
  ASSERT_TRUE(Write(slot, block.get()).ok());
  if (!harness_->FailNextRead()) GTEST_SKIP() << "cannot fail";
  EXPECT_FALSE(Read(slot, block.get()).ok());
  EXPECT_TRUE(Read(slot, block.get()).ok());
  EXPECT_TRUE(block->IsRight());
}

TEST_P(TierContract, MapIsTheSlotsMemory) {
  const SlotId slot = Acquire(1, 1)[0];
  std::byte* const mapped = tier().Map(1, slot);
  if (!tier().has(kTierMapped)) {
    EXPECT_EQ(mapped, nullptr);
    return;
  }
  ASSERT_NE(mapped, nullptr);
  const auto block = NewBlock(1);
  ASSERT_TRUE(Write(slot, block.get()).ok());
  EXPECT_TRUE(std::equal(block->span().begin(), block->span().end(), mapped));

  TierIo in_place = Io(TierIo::Op::kWrite, slot, block.get());
  in_place.buffer = mapped;
  EXPECT_TRUE(RunOne(in_place).ok());
  in_place.op = TierIo::Op::kRead;
  EXPECT_TRUE(RunOne(in_place).ok());
  EXPECT_TRUE(Read(slot, block.get()).ok());
  EXPECT_TRUE(block->IsRight());

  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (GroupIndex group = 0; group < 2; ++group) {
    for (uint32_t i = 0; i < tier().slots(group); ++i) {
      const uintptr_t start = reinterpret_cast<uintptr_t>(tier().Map(group, SlotId{i}));
      EXPECT_EQ(start % 4096, 0u);
      ranges.emplace_back(start, start + BlockBytes(group));
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST_P(TierContract, StatsHaveNames) {
  std::set<std::string> names;
  tier().VisitStats([&](const char* name, uint64_t, const char*) {
    ASSERT_NE(name, nullptr);
    EXPECT_TRUE(names.insert(name).second) << name << " comes twice";
  });
  EXPECT_FALSE(names.empty());
}

// Several hundred rounds of acquire, write, read and release with many in flight, against a model.
TEST_P(TierContract, AgreesWithAModel) {
  struct Held {
    SlotId slot;
    std::unique_ptr<TestBlock> block;
  };
  Random random(20261130);
  std::vector<Held> held[2];
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    const GroupIndex group = static_cast<GroupIndex>(random.Below(2));
    const size_t want = random.Below(tier().slots(group) / 2 + 1);
    std::vector<SlotId> slots(want, SlotId::kNone);
    const bool fits = want + held[group].size() <= tier().slots(group);
    ASSERT_EQ(tier().Acquire(group, slots).ok(), fits);
    if (!fits) slots.clear();
    std::vector<TierIo> writes;
    for (const SlotId slot : slots) {
      held[group].push_back(Held{slot, NewBlock(group)});
      held[group].back().block->FillRight();
      writes.push_back(Io(TierIo::Op::kWrite, slot, held[group].back().block.get()));
    }
    for (const auto& [cookie, status] : Run(writes)) ASSERT_TRUE(status.ok()) << status.ToString();

    std::vector<TierIo> reads;
    std::vector<std::unique_ptr<TestBlock>> twins;
    for (GroupIndex g = 0; g < 2; ++g) {
      for (const Held& one : held[g]) {
        if (random.Below(3) != 0) continue;
        twins.push_back(Twin(*one.block));
        twins.back()->FillWrong();
        reads.push_back(Io(TierIo::Op::kRead, one.slot, twins.back().get()));
      }
    }
    for (const auto& [cookie, status] : Run(reads)) ASSERT_TRUE(status.ok()) << status.ToString();
    for (const auto& twin : twins) ASSERT_TRUE(!HasBytes() || twin->IsRight());

    std::vector<SlotId> leaving;
    for (size_t i = held[group].size(); i > 0; --i) {
      if (random.Below(2) != 0) continue;
      leaving.push_back(held[group][i - 1].slot);
      held[group].erase(held[group].begin() + static_cast<ptrdiff_t>(i - 1));
    }
    tier().Release(group, leaving);
    ASSERT_EQ(tier().free_slots(group), tier().slots(group) - held[group].size());
  }
}

}  // namespace fermata
