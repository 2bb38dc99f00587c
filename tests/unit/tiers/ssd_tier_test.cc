// SPDX-License-Identifier: Apache-2.0
//
// The SSD tier on a real directory: bytes, records, slots, reopen.
#include "tiers/ssd_tier.h"

#include <chrono>

#include "tests/support/mem_meta_store.h"
#include "tests/unit/tiers/ssd_test_util.h"
#include "tiers/ssd_format.h"

namespace fermata {
namespace {

TEST(SsdTier, ReadGivesWhatWasWritten) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store()));
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), slot, 1).ok());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 2).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), slot, 2).ok());
}

TEST(SsdTier, OddLengthsAndOddAddressesGoThroughBounceBuffers) {
  SsdTempDir dir;
  const uint64_t bytes = 3'098'112 - 1000;
  SsdTierOptions options = TestOptions(dir.store(), 4, bytes);
  const auto tier = OpenTier(options);
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 3, bytes, 0, 24).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), slot, 3, bytes, 0, 8).ok());
  // The padding on disk is zeros, not what lay behind the buffer.
  const int fd = open(dir.file("data").c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::byte> tail(4096 - bytes % 4096, std::byte{1});
  ASSERT_EQ(pread(fd, tail.data(), tail.size(), static_cast<off_t>(bytes)),
            static_cast<ssize_t>(tail.size()));
  close(fd);
  for (const std::byte b : tail) ASSERT_EQ(b, std::byte{0});
}

TEST(SsdTier, GroupsHaveTheirOwnSlots) {
  SsdTempDir dir;
  SsdTierOptions options = TestOptions(dir.store(), 4, 65536);
  options.groups.push_back({8192, 3});
  auto tier = OpenTier(options);
  EXPECT_EQ(tier->slots(0), 4u);
  EXPECT_EQ(tier->slots(1), 3u);
  const SlotId a = AcquireSlot(tier.get(), 0);
  const SlotId b = AcquireSlot(tier.get(), 1);
  EXPECT_TRUE(WriteBlock(tier.get(), a, 1, 65536, 0).ok());
  EXPECT_TRUE(WriteBlock(tier.get(), b, 2, 8192, 1).ok());
  EXPECT_TRUE(tier->Shutdown().ok());
  tier.reset();
  // Growing the first group moves nothing of the second.
  options.groups[0].slots = 9;
  tier = OpenTier(options);
  EXPECT_EQ(RecoverAll(tier.get()).size(), 2u);
  EXPECT_TRUE(ReadBlock(tier.get(), a, 1, 65536, 0).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), b, 2, 8192, 1).ok());
}

TEST(SsdTier, ReadOfAnotherBlockThanTheSlotHoldsIsRefusedWithoutIo) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store()));
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  const Status status = ReadBlock(tier.get(), slot, 2);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.reason(), Reason::kChecksum);
  EXPECT_EQ(StatValue(*tier, "ssd.reads"), 0u);
  EXPECT_EQ(StatValue(*tier, "ssd.stale_reads"), 1u);
}

TEST(SsdTier, ReopenFindsRecordsAndBytes) {
  SsdTempDir dir;
  std::map<uint64_t, SlotId> written;
  uint64_t first = 0;
  {
    const auto tier = OpenTier(TestOptions(dir.store()));
    first = tier->incarnation();
    for (uint64_t uid = 1; uid <= 16; ++uid) {
      written[uid] = AcquireSlot(tier.get());
      ASSERT_TRUE(WriteBlock(tier.get(), written[uid], uid).ok());
    }
    EXPECT_TRUE(tier->PutSpace({5, "space five"}, true).ok());
    EXPECT_TRUE(tier->PutSpace({6, "space six"}, false).ok());
    EXPECT_TRUE(tier->DropSpace(6, true).ok());
    EXPECT_TRUE(tier->Shutdown().ok());
    EXPECT_TRUE(tier->Shutdown().ok());  // once more is nothing
  }
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_EQ(tier->incarnation(), first + 1);
  std::map<uint64_t, SlotId> found;
  std::vector<SpaceRecord> spaces;
  ASSERT_TRUE(
      tier->Recover([&](const SpaceRecord& space) { spaces.push_back(space); },
                    [&](const BlockRecord& record, SlotId slot) { found[record.uid] = slot; })
          .ok());
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0].number, 5u);
  EXPECT_EQ(spaces[0].identity, "space five");
  EXPECT_EQ(found, written);
  EXPECT_EQ(tier->free_slots(0), 0u);
  for (const auto& [uid, slot] : found) EXPECT_TRUE(ReadBlock(tier.get(), slot, uid).ok());
  EXPECT_FALSE(tier->Recover([](const SpaceRecord&) {}, [](const BlockRecord&, SlotId) {}).ok());
}

TEST(SsdTier, FlippedBitOnDiskIsDataLoss) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store()));
  const SlotId slot = AcquireSlot(tier.get());
  ASSERT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  FlipByte(dir.file("data"), static_cast<off_t>(Raw(slot)) * 65536 + 40'000);
  const Status status = ReadBlock(tier.get(), slot, 1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.reason(), Reason::kChecksum);
  EXPECT_EQ(StatValue(*tier, "ssd.checksum_failures"), 1u);
  EXPECT_TRUE(tier->healthy());
}

TEST(SsdTier, ReleasedSlotIsUnreadableNowAndAfterReopen) {
  SsdTempDir dir;
  SlotId kept = SlotId::kNone;
  {
    const auto tier = OpenTier(TestOptions(dir.store()));
    const SlotId slot = AcquireSlot(tier.get());
    kept = AcquireSlot(tier.get());
    ASSERT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
    ASSERT_TRUE(WriteBlock(tier.get(), kept, 2).ok());
    tier->Release(0, std::span(&slot, 1));
    EXPECT_EQ(ReadBlock(tier.get(), slot, 1).code(), StatusCode::kDataLoss);
    EXPECT_TRUE(tier->Shutdown().ok());
  }
  const auto tier = OpenTier(TestOptions(dir.store()));
  const std::map<uint64_t, SlotId> found = RecoverAll(tier.get());
  EXPECT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(2), kept);
  EXPECT_EQ(tier->free_slots(0), 15u);
}

TEST(SsdTier, CatalogForgetsASlotBeforeItsNextWriteBegins) {
  SsdTempDir dir;
  const auto meta = std::make_shared<MemMeta>();
  SsdTierOptions options = TestOptions(dir.store());
  options.make_meta = [&](const std::string&) -> Result<std::unique_ptr<MetaStore>> {
    return std::unique_ptr<MetaStore>(std::make_unique<MemMetaStore>(meta));
  };
  const auto tier = OpenTier(options);
  const SlotId slot = AcquireSlot(tier.get());
  ASSERT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  const std::string key = EncodeBlockKey(0, slot);
  {
    MutexLock lock(&meta->mu);
    EXPECT_EQ(meta->entries.count(key), 1u);
  }
  const TestRecord record(2);
  const AlignedBuffer buffer(65536);
  const TierIo io{TierIo::Op::kWrite, IoClass::kWriteBack, 0, slot,
                  buffer.data(),      &record.record,      1};
  ASSERT_EQ(tier->Submit(std::span(&io, 1)), 1u);
  {
    MutexLock lock(&meta->mu);
    EXPECT_EQ(meta->entries.count(key), 0u);
  }
  Drain(tier.get());
  MutexLock lock(&meta->mu);
  EXPECT_EQ(meta->entries.count(key), 1u);
}

TEST(SsdTier, ASyncedSpaceTakesEarlierReleasesWithIt) {
  SsdTempDir dir;
  const auto meta = std::make_shared<MemMeta>();
  SsdTierOptions options = TestOptions(dir.store());
  options.make_meta = [&](const std::string&) -> Result<std::unique_ptr<MetaStore>> {
    return std::unique_ptr<MetaStore>(std::make_unique<MemMetaStore>(meta));
  };
  const auto tier = OpenTier(options);
  const SlotId slot = AcquireSlot(tier.get());
  ASSERT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  tier->Release(0, std::span(&slot, 1));
  ASSERT_TRUE(tier->PutSpace(SpaceRecord{1, "space"}, /*sync=*/true).ok());
  // What a crash now would leave behind.
  MutexLock lock(&meta->mu);
  EXPECT_EQ(meta->entries.count(EncodeBlockKey(0, slot)), 0u);
  EXPECT_GE(meta->synced, 1u);
}

TEST(SsdTier, FullTierGivesNothingAndFreedSlotsComeBack) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store(), 8));
  for (int round = 0; round < 100; ++round) {
    std::vector<SlotId> slots(8, SlotId::kNone);
    ASSERT_TRUE(tier->Acquire(0, slots).ok());
    SlotId more = SlotId::kNone;
    const Status full = tier->Acquire(0, std::span(&more, 1));
    EXPECT_EQ(full.reason(), Reason::kNoSpace);
    ASSERT_TRUE(WriteBlock(tier.get(), slots[static_cast<size_t>(round) % 8],
                           static_cast<uint64_t>(round) + 1)
                    .ok());
    tier->Release(0, slots);
    EXPECT_EQ(tier->free_slots(0), 8u);
  }
}

TEST(SsdTier, BurstIsTakenInPrefixesAndCompletesOnce) {
  SsdTempDir dir;
  SsdTierOptions options = TestOptions(dir.store(), 64, 4096);
  options.io_depth = 4;
  const auto tier = OpenTier(options);
  std::vector<SlotId> slots(64, SlotId::kNone);
  ASSERT_TRUE(tier->Acquire(0, slots).ok());
  std::vector<std::unique_ptr<TestRecord>> records;
  const AlignedBuffer buffer(64 * 4096);
  std::vector<TierIo> batch;
  for (uint64_t i = 0; i < 64; ++i) {
    records.push_back(std::make_unique<TestRecord>(i + 1));
    FillBlock(i + 1, buffer.span().subspan(i * 4096, 4096));
    batch.push_back({TierIo::Op::kWrite, IoClass::kWriteBack, 0, slots[i], buffer.data() + i * 4096,
                     &records[i]->record, i});
  }
  std::span<const TierIo> rest(batch);
  std::map<uint64_t, Status> all;
  while (!rest.empty()) {
    const size_t taken = tier->Submit(rest);
    ASSERT_GT(taken, 0u);
    EXPECT_LE(tier->in_flight(), 4u);
    EXPECT_EQ(tier->Submit(rest.subspan(taken)), 0u);  // full: Poll first
    rest = rest.subspan(taken);
    all.merge(Drain(tier.get()));
  }
  EXPECT_EQ(all.size(), 64u);
  for (uint64_t i = 0; i < 64; ++i) EXPECT_TRUE(ReadBlock(tier.get(), slots[i], i + 1, 4096).ok());
}

TEST(SsdTier, BadRequestsCompleteWithWhatIsWrong) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store(), 4));
  const AlignedBuffer buffer(65536);
  const TestRecord record(1);
  const TierIo bad[] = {
      {TierIo::Op::kRead, IoClass::kDemand, 7, SlotId{0}, buffer.data(), &record.record, 1},
      {TierIo::Op::kWrite, IoClass::kDemand, 0, SlotId{4}, buffer.data(), &record.record, 2},
      {TierIo::Op::kWrite, IoClass::kDemand, 0, SlotId{0}, nullptr, &record.record, 3},
      {TierIo::Op::kRead, IoClass::kDemand, 0, SlotId{0}, buffer.data(), nullptr, 4},
  };
  ASSERT_EQ(tier->Submit(bad), 4u);
  std::map<uint64_t, Status> done = Drain(tier.get());
  ASSERT_EQ(done.size(), 4u);
  for (const auto& [cookie, status] : done)
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << cookie;
}

TEST(SsdTier, RequestsInFlightKeepShutdownFromEnding) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store(), 4));
  const AlignedBuffer buffer(65536);
  const TestRecord record(1);
  const TierIo io{TierIo::Op::kWrite, IoClass::kDemand, 0, SlotId{0},
                  buffer.data(),      &record.record,   1};
  ASSERT_EQ(tier->Submit(std::span(&io, 1)), 1u);
  EXPECT_EQ(tier->Shutdown().code(), StatusCode::kFailedPrecondition);
  Drain(tier.get());
  EXPECT_TRUE(tier->Shutdown().ok());
  EXPECT_EQ(WriteBlock(tier.get(), SlotId{0}, 1).reason(), Reason::kClosed);
}

TEST(SsdTier, RecoversAHundredThousandRecordsWithinSeconds) {
  SsdTempDir dir;
  constexpr uint64_t kSlots = 100'000;
  {
    const auto tier = OpenTier(TestOptions(dir.store(), kSlots, 4096));
    ASSERT_TRUE(tier->Shutdown().ok());
  }
  {
    // Through the catalog only: the bytes do not matter here.
    Result<std::unique_ptr<MetaStore>> meta = OpenRocksMetaStore(dir.file("meta"));
    ASSERT_TRUE(meta.ok());
    std::vector<MetaOp> ops;
    for (uint64_t i = 0; i < kSlots; ++i) {
      const TestRecord record(i + 1);
      const SlotId slot{static_cast<uint32_t>(i)};
      ops.push_back({MetaOp::Kind::kPut, EncodeBlockKey(0, slot),
                     EncodeBlockValue({record.record, slot, i, i})});
      if (ops.size() == 1000) {
        ASSERT_TRUE((*meta)->Apply(ops, false).ok());
        ops.clear();
      }
    }
    ASSERT_TRUE((*meta)->Close().ok());
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto tier = OpenTier(TestOptions(dir.store(), kSlots, 4096));
  uint64_t count = 0;
  ASSERT_TRUE(
      tier->Recover([](const SpaceRecord&) {}, [&](const BlockRecord&, SlotId) { ++count; }).ok());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("open_and_recover_ms", static_cast<int>(seconds * 1000));
  EXPECT_EQ(count, kSlots);
  EXPECT_LT(seconds, 10.0);  // about 0.3 s; ten for a sanitizer on a busy machine
}

}  // namespace
}  // namespace fermata
