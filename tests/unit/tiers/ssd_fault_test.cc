// SPDX-License-Identifier: Apache-2.0
//
// The SSD tier on a scripted device and a scripted catalog: what the kernel may answer, and what
// becomes of it.
#include <cerrno>

#include "tests/support/mem_meta_store.h"
#include "tests/support/sim_block_device.h"
#include "tests/unit/tiers/ssd_test_util.h"
#include "tiers/ssd_format.h"

namespace fermata {
namespace {

class SsdFault : public testing::Test {
 protected:
  SsdFault() : meta_(std::make_shared<MemMeta>()) { Open(); }

  SsdTierOptions Options() {
    SsdTierOptions options = TestOptions(dir_.store());
    options.clock = &clock_;
    options.make_device = SimDeviceFactory(&script_);
    options.make_meta = [this](const std::string&) -> Result<std::unique_ptr<MetaStore>> {
      return std::unique_ptr<MetaStore>(std::make_unique<MemMetaStore>(meta_));
    };
    return options;
  }
  void Open() {
    tier_.reset();
    tier_ = OpenTier(Options());
  }
  void FailMeta(bool fail) {
    MutexLock lock(&meta_->mu);
    meta_->fail_apply = fail;
  }
  SlotId Written(uint64_t uid) {
    const SlotId slot = AcquireSlot(tier_.get());
    EXPECT_TRUE(WriteBlock(tier_.get(), slot, uid).ok());
    return slot;
  }
  void Next(std::initializer_list<SimFault> faults) {
    script_.next.assign(faults.begin(), faults.end());
  }
  uint64_t Stat(const char* name) { return StatValue(*tier_, name); }

  SsdTempDir dir_;
  ManualClock clock_;
  SimScript script_;
  std::shared_ptr<MemMeta> meta_;
  std::unique_ptr<SsdTier> tier_;
};

TEST_F(SsdFault, ShortReadIsContinued) {
  const SlotId slot = Written(1);
  script_.log.clear();
  Next({{SimFault::kNone, 4096}, {SimFault::kNone, 5000}});  // the second is no multiple of 4096
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
  ASSERT_EQ(script_.log.size(), 3u);
  EXPECT_EQ(script_.log[1].offset - script_.log[0].offset, 4096u);
  EXPECT_EQ(script_.log[2].offset - script_.log[0].offset, 8192u);
  EXPECT_EQ(script_.log[2].bytes, 65536u - 8192);
  EXPECT_EQ(Stat("ssd.short_transfers"), 2u);
}

TEST_F(SsdFault, ShortWriteIsContinued) {
  const SlotId slot = AcquireSlot(tier_.get());
  Next({{SimFault::kNone, 8192}});
  EXPECT_TRUE(WriteBlock(tier_.get(), slot, 1).ok());
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
}

TEST_F(SsdFault, EndlessShortReadsEndAsTorn) {
  const SlotId slot = Written(1);
  script_.submitted = 0;
  script_.always = {SimFault::kNone, 100};  // never an aligned step
  const Status status = ReadBlock(tier_.get(), slot, 1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.reason(), Reason::kTorn);
  EXPECT_EQ(script_.submitted, 9u);
}

TEST_F(SsdFault, NothingAtEndOfFileIsTornAtOnce) {
  const SlotId slot = Written(1);
  script_.submitted = 0;
  Next({{0}});
  const Status status = ReadBlock(tier_.get(), slot, 1);
  EXPECT_EQ(status.reason(), Reason::kTorn);
  EXPECT_EQ(script_.submitted, 1u);
}

TEST_F(SsdFault, InterruptedRequestsAreRetried) {
  const SlotId slot = Written(1);
  Next({{-EINTR}, {-EAGAIN}, {-EAGAIN}});
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
  EXPECT_EQ(Stat("ssd.io_retries"), 3u);
  EXPECT_EQ(Stat("ssd.io_errors"), 0u);
}

TEST_F(SsdFault, RetriesHaveABound) {
  const SlotId slot = Written(1);
  script_.submitted = 0;
  script_.always = {-EAGAIN};
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).code(), StatusCode::kUnavailable);
  EXPECT_EQ(script_.submitted, 9u);
}

TEST_F(SsdFault, ReadErrorIsUnavailableAndTheBlockStays) {
  const SlotId slot = Written(1);
  Next({{-EIO}});
  const Status status = ReadBlock(tier_.get(), slot, 1);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("Input/output error"), std::string::npos) << status.message();
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
}

TEST_F(SsdFault, FailedWriteLeavesNothingReadableNowOrAfterReopen) {
  const SlotId slot = Written(1);
  for (const int error : {EIO, ENOSPC}) {
    Next({{-error}});
    EXPECT_EQ(WriteBlock(tier_.get(), slot, 2).code(), StatusCode::kUnavailable);
    EXPECT_EQ(ReadBlock(tier_.get(), slot, 2).code(), StatusCode::kDataLoss);
    EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).code(), StatusCode::kDataLoss);
  }
  Open();
  EXPECT_TRUE(RecoverAll(tier_.get()).empty());
}

TEST_F(SsdFault, WriteThatLiesIsCaughtAtTheRead) {
  const SlotId slot = Written(1);
  for (const uint32_t stored : {0u, 4096u, 61440u}) {  // lost, torn early, torn late
    Next({{SimFault::kNone, stored, true}});
    EXPECT_TRUE(WriteBlock(tier_.get(), slot, 7 + stored).ok());
    const Status status = ReadBlock(tier_.get(), slot, 7 + stored);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << stored;
    EXPECT_EQ(status.reason(), Reason::kChecksum) << stored;
  }
}

// Equal key and equal bytes: only the generation tells a lost rewrite from the block before.
TEST_F(SsdFault, LostRewriteOfTheSameBlockWithOtherBytesIsCaught) {
  const SlotId slot = Written(1);
  const TestRecord record(1);
  const AlignedBuffer buffer(65536);
  FillBlock(1, buffer.span());
  buffer.data()[65535] ^= std::byte{1};
  Next({{SimFault::kNone, 0, true}});
  EXPECT_TRUE(RunOne(tier_.get(), {TierIo::Op::kWrite, IoClass::kDemand, 0, slot, buffer.data(),
                                   &record.record, 0})
                  .ok());
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kChecksum);
}

TEST_F(SsdFault, EinvalOnDirectIoGoesOnBuffered) {
  if (StatText(*tier_, "ssd.io_mode") != "io_uring+direct")
    GTEST_SKIP() << "no O_DIRECT on this file system";
  const SlotId slot = AcquireSlot(tier_.get());
  Next({{-EINVAL}});
  EXPECT_TRUE(WriteBlock(tier_.get(), slot, 1).ok());
  EXPECT_EQ(StatText(*tier_, "ssd.io_mode"), "io_uring+buffered");
  EXPECT_NE(StatText(*tier_, "ssd.io_fallback").find("O_DIRECT request: Invalid argument"),
            std::string::npos);
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
}

TEST_F(SsdFault, EinvalForEverIsAnErrorNotALoop) {
  const SlotId slot = AcquireSlot(tier_.get());
  script_.always = {-EINVAL};
  EXPECT_EQ(WriteBlock(tier_.get(), slot, 1).code(), StatusCode::kUnavailable);
}

TEST_F(SsdFault, EopnotsuppSwitchesToPreadAndAllInFlightComplete) {
  std::vector<SlotId> slots(4, SlotId::kNone);
  ASSERT_TRUE(tier_->Acquire(0, slots).ok());
  std::vector<std::unique_ptr<TestRecord>> records;
  const AlignedBuffer buffer(4 * 65536);
  std::vector<TierIo> batch;
  for (uint64_t i = 0; i < 4; ++i) {
    records.push_back(std::make_unique<TestRecord>(i + 1));
    FillBlock(i + 1, buffer.span().subspan(i * 65536, 65536));
    batch.push_back({TierIo::Op::kWrite, IoClass::kDemand, 0, slots[i], buffer.data() + i * 65536,
                     &records[i]->record, i});
  }
  Next({{-EOPNOTSUPP}, {}, {-EOPNOTSUPP}, {}});
  ASSERT_EQ(tier_->Submit(batch), 4u);
  for (const auto& [cookie, status] : Drain(tier_.get()))
    EXPECT_TRUE(status.ok()) << cookie << status.ToString();
  EXPECT_EQ(StatText(*tier_, "ssd.io_mode").rfind("pread", 0), 0u);
  EXPECT_EQ(script_.made,
            (std::vector<BlockDeviceKind>{BlockDeviceKind::kUring, BlockDeviceKind::kPread}));
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(ReadBlock(tier_.get(), slots[i], i + 1).ok());
}

TEST_F(SsdFault, EightErrorsSwitchTheTierOffAndAProbeASecondBringsItBack) {
  const SlotId slot = Written(1);
  script_.always = {-EIO};
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(tier_->healthy());
    EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kNone);
  }
  EXPECT_FALSE(tier_->healthy());
  script_.submitted = 0;
  for (int i = 0; i < 100; ++i) {
    const Status refused = ReadBlock(tier_.get(), slot, 1);
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(refused.reason(), Reason::kTierSick);
  }
  EXPECT_EQ(script_.submitted, 0u);
  clock_.AdvanceNs(1'000'000'000);
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kNone);  // the probe, which fails
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kTierSick);
  EXPECT_EQ(script_.submitted, 1u);
  script_.always = {};
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kTierSick);
  clock_.AdvanceNs(1'000'000'000);
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
  EXPECT_TRUE(tier_->healthy());
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
}

TEST_F(SsdFault, ErrorsWithSuccessesBetweenDoNotSwitchOff) {
  const SlotId slot = Written(1);
  for (int i = 0; i < 20; ++i) {
    Next({{-EIO}});
    (void)ReadBlock(tier_.get(), slot, 1);
    EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
  }
  EXPECT_TRUE(tier_->healthy());
}

TEST_F(SsdFault, WriteRefusedByTheBreakerStillClearsItsSlot) {
  const SlotId slot = Written(1);
  script_.always = {-EIO};
  for (int i = 0; i < 8; ++i) (void)ReadBlock(tier_.get(), slot, 1);
  EXPECT_EQ(WriteBlock(tier_.get(), slot, 2).reason(), Reason::kTierSick);
  script_.always = {};
  clock_.AdvanceNs(2'000'000'000);
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).code(), StatusCode::kDataLoss);
}

TEST_F(SsdFault, CatalogErrorDetachesItAndTheTierGoesOn) {
  const SlotId before = Written(1);
  FailMeta(true);
  const SlotId after = Written(2);
  EXPECT_EQ(StatText(*tier_, "ssd.meta").rfind("detached: ", 0), 0u)
      << StatText(*tier_, "ssd.meta");
  EXPECT_TRUE(ReadBlock(tier_.get(), before, 1).ok());
  EXPECT_TRUE(ReadBlock(tier_.get(), after, 2).ok());
  EXPECT_EQ(tier_->PutSpace({1, "x"}, true).code(), StatusCode::kUnavailable);
  FailMeta(false);
  EXPECT_TRUE(tier_->Shutdown().ok());
  Open();
  const std::map<uint64_t, SlotId> found = RecoverAll(tier_.get());
  EXPECT_EQ(found, (std::map<uint64_t, SlotId>{{1, before}}));
  EXPECT_TRUE(ReadBlock(tier_.get(), before, 1).ok());
}

TEST_F(SsdFault, BlockReleasedWhileDetachedDoesNotComeBack) {
  const SlotId slot = Written(1);
  FailMeta(true);
  tier_->Release(0, std::span(&slot, 1));
  EXPECT_TRUE(tier_->Shutdown().ok());
  EXPECT_EQ(Stat("ssd.scrubbed_slots"), 1u);
  FailMeta(false);
  Open();
  // The record is still there; its bytes are not.
  EXPECT_EQ(RecoverAll(tier_.get()).size(), 1u);
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kChecksum);
}

TEST_F(SsdFault, StaleRecordOfAnOverwrittenSlotFailsItsChecksum) {
  const SlotId slot = Written(1);
  FailMeta(true);
  EXPECT_TRUE(WriteBlock(tier_.get(), slot, 2).ok());
  FailMeta(false);
  Open();
  EXPECT_EQ(RecoverAll(tier_.get()).count(1), 1u);
  EXPECT_EQ(ReadBlock(tier_.get(), slot, 1).reason(), Reason::kChecksum);
}

TEST_F(SsdFault, DamagedAndDuplicateRecordsAreDroppedAndCounted) {
  Written(1);
  Written(2);
  const SlotId third = Written(3);
  {
    MutexLock lock(&meta_->mu);
    ASSERT_EQ(meta_->entries.size(), 3u);
    auto it = meta_->entries.begin();
    it->second[20] = static_cast<char>(it->second[20] ^ 1);
    // Uid 3 under a second slot, whole in itself.
    const TestRecord record(3);
    meta_->entries[EncodeBlockKey(0, SlotId{15})] =
        EncodeBlockValue({record.record, SlotId{15}, 1, 1});
  }
  Open();
  const std::map<uint64_t, SlotId> found = RecoverAll(tier_.get());
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(found.at(3), third);
  EXPECT_EQ(Stat("ssd.dropped_records"), 2u);
  MutexLock lock(&meta_->mu);
  EXPECT_EQ(meta_->entries.size(), 2u);  // and will not be met again
}

TEST_F(SsdFault, CatalogThatCannotBeScannedStartsCold) {
  Written(1);
  {
    MutexLock lock(&meta_->mu);
    meta_->fail_scan = true;
  }
  Open();
  EXPECT_TRUE(RecoverAll(tier_.get()).empty());
  EXPECT_EQ(StatText(*tier_, "ssd.meta").rfind("detached", 0), 0u);
  const SlotId slot = AcquireSlot(tier_.get());
  EXPECT_TRUE(WriteBlock(tier_.get(), slot, 2).ok());
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 2).ok());
}

TEST_F(SsdFault, CatalogThatCannotBeOpenedStartsDetached) {
  SsdTierOptions options = Options();
  options.make_meta = [](const std::string&) -> Result<std::unique_ptr<MetaStore>> {
    return ErrorF(StatusCode::kUnavailable, "injected: open");
  };
  tier_.reset();
  tier_ = OpenTier(options);
  EXPECT_TRUE(RecoverAll(tier_.get()).empty());
  const SlotId slot = AcquireSlot(tier_.get());
  EXPECT_TRUE(WriteBlock(tier_.get(), slot, 1).ok());
  EXPECT_TRUE(ReadBlock(tier_.get(), slot, 1).ok());
  EXPECT_TRUE(tier_->Shutdown().ok());
}

TEST_F(SsdFault, OneCatalogBatchPerPollRound) {
  std::vector<SlotId> slots(8, SlotId::kNone);
  ASSERT_TRUE(tier_->Acquire(0, slots).ok());
  ASSERT_TRUE(tier_->Recover([](const SpaceRecord&) {}, [](const BlockRecord&, SlotId) {}).ok());
  std::vector<std::unique_ptr<TestRecord>> records;
  const AlignedBuffer buffer(65536);
  std::vector<TierIo> batch;
  for (uint64_t i = 0; i < 8; ++i) {
    records.push_back(std::make_unique<TestRecord>(i + 1));
    batch.push_back(
        {TierIo::Op::kWrite, IoClass::kDemand, 0, slots[i], buffer.data(), &records[i]->record, i});
  }
  ASSERT_EQ(tier_->Submit(batch), 8u);
  Drain(tier_.get());
  MutexLock lock(&meta_->mu);
  EXPECT_EQ(meta_->batches, 1u);
  EXPECT_EQ(meta_->entries.size(), 8u);
}

}  // namespace
}  // namespace fermata
