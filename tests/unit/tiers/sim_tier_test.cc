// SPDX-License-Identifier: Apache-2.0
//
// What is the sim tier's own beyond the contract in tests/conformance: that every fault it can
// inject comes out as an error and never as wrong bytes, that time is the clock's, and that equal
// seeds give equal runs.
#include "tiers/sim_tier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

namespace fermata {
namespace {

constexpr uint64_t kBlockBytes = 512;
constexpr uint64_t kSlots = 16;

class SimTierTest : public testing::Test {
 protected:
  SimTierOptions Options() {
    SimTierOptions options;
    options.groups = {{kBlockBytes, kSlots}};
    options.clock = &clock_;
    return options;
  }
  void Open(SimTierOptions options) {
    tier_ = std::make_unique<SimTier>(std::move(options));
    slots_.assign(kSlots, SlotId::kNone);
    ASSERT_TRUE(tier_->Acquire(0, slots_).ok());
  }
  static BlockRecord RecordOf(uint64_t uid) {
    BlockRecord record;
    record.uid = uid;
    record.key = Hash128{MixU64(uid), uid};
    return record;
  }
  static std::vector<std::byte> BytesOf(uint64_t uid) {
    Random random(uid);
    std::vector<std::byte> bytes(kBlockBytes);
    for (std::byte& byte : bytes) byte = std::byte{static_cast<uint8_t>(random.Next())};
    return bytes;
  }
  TierIo Io(TierIo::Op op, uint32_t slot, std::vector<std::byte>* buffer,
            const BlockRecord* record) {
    TierIo io;
    io.op = op;
    io.slot = slots_[slot];
    io.buffer = buffer->data();
    io.record = record;
    io.cookie = slot;
    return io;
  }
  Status RunOne(const TierIo& io) {
    EXPECT_EQ(tier_->Submit(std::span<const TierIo>(&io, 1)), 1u);
    const uint64_t due = tier_->NextDueNs();
    if (due > clock_.NowNs()) clock_.AdvanceNs(due - clock_.NowNs());
    TierCompletion done;
    EXPECT_EQ(tier_->Poll(std::span<TierCompletion>(&done, 1)), 1u);
    return done.status;
  }
  Status Write(uint32_t slot, uint64_t uid) {
    std::vector<std::byte> bytes = BytesOf(uid);
    const BlockRecord record = RecordOf(uid);
    return RunOne(Io(TierIo::Op::kWrite, slot, &bytes, &record));
  }
  // OK only with the right bytes.
  Status Read(uint32_t slot, uint64_t uid) {
    std::vector<std::byte> bytes(kBlockBytes, std::byte{0});
    const BlockRecord record = RecordOf(uid);
    Status status = RunOne(Io(TierIo::Op::kRead, slot, &bytes, &record));
    EXPECT_TRUE(!status.ok() || bytes == BytesOf(uid)) << "WRONG BYTES of uid " << uid;
    return status;
  }
  uint64_t Stat(const std::string& wanted) {
    uint64_t found = 0;
    bool known = false;
    tier_->VisitStats([&](const char* name, uint64_t value, const char*) {
      if (name != wanted) return;
      found = value;
      known = true;
    });
    EXPECT_TRUE(known) << wanted;
    return found;
  }

  ManualClock clock_;
  std::unique_ptr<SimTier> tier_;
  std::vector<SlotId> slots_;
};

TEST_F(SimTierTest, TornWriteIsFoundOut) {
  SimTierOptions options = Options();
  options.torn_write_ppm = 1'000'000;
  Open(options);
  EXPECT_TRUE(Write(0, 1).ok()) << "it reports success";
  EXPECT_EQ(Read(0, 1).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Stat("injected_torn_writes"), 1u);
  EXPECT_EQ(Stat("checksum_errors"), 1u);
}

TEST_F(SimTierTest, LostWriteOverAnOlderOneOfTheSameRecordIsFoundOut) {
  SimTierOptions options = Options();
  options.lost_write_ppm = 500'000;
  Open(options);
  // The same record again and again: only the generation tells old from new.
  int lost = 0;
  for (int i = 0; i < 64; ++i) {
    const uint64_t before = Stat("injected_lost_writes");
    EXPECT_TRUE(Write(0, 1).ok());
    const bool is_lost = Stat("injected_lost_writes") > before;
    EXPECT_EQ(Read(0, 1).ok(), !is_lost);
    lost += is_lost ? 1 : 0;
  }
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 64);
}

TEST_F(SimTierTest, MisdirectedWriteSpoilsTwoSlotsAndBothAreFoundOut) {
  SimTierOptions options = Options();
  options.misdirected_write_ppm = 100'000;
  Open(options);
  for (uint64_t uid = 1; uid <= 200; ++uid) {
    EXPECT_TRUE(Write(static_cast<uint32_t>(uid % kSlots), uid).ok());
  }
  ASSERT_GT(Stat("injected_misdirected"), 0u);
  int bad = 0;
  for (uint64_t uid = 200 - kSlots + 1; uid <= 200; ++uid) {
    const Status status = Read(static_cast<uint32_t>(uid % kSlots), uid);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    ++bad;
  }
  EXPECT_GT(bad, 0);
  EXPECT_LT(bad, static_cast<int>(kSlots));
}

TEST_F(SimTierTest, BitFlipIsFoundOut) {
  SimTierOptions options = Options();
  options.bit_flip_ppm = 1'000'000;
  Open(options);
  EXPECT_TRUE(Write(0, 1).ok());
  const Status status = Read(0, 1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.reason(), Reason::kChecksum);
}

TEST_F(SimTierTest, ShortReadIsTorn) {
  SimTierOptions options = Options();
  options.short_read_ppm = 1'000'000;
  Open(options);
  EXPECT_TRUE(Write(0, 1).ok());
  const Status status = Read(0, 1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.reason(), Reason::kTorn);
}

TEST_F(SimTierTest, IoErrorsAreUnavailable) {
  SimTierOptions options = Options();
  options.read_error_ppm = 1'000'000;
  Open(options);
  EXPECT_TRUE(Write(0, 1).ok());
  EXPECT_EQ(Read(0, 1).code(), StatusCode::kUnavailable);
  options = Options();
  options.write_error_ppm = 1'000'000;
  Open(options);
  EXPECT_EQ(Write(0, 1).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Read(0, 1).code(), StatusCode::kDataLoss) << "nothing is there";
}

// All faults at once, many blocks: whatever is answered OK has the right bytes (Read checks), and
// some is.
TEST_F(SimTierTest, NeverWrongBytes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimTierOptions options = Options();
    options.seed = seed;
    options.read_error_ppm = options.write_error_ppm = options.short_read_ppm = 20'000;
    options.torn_write_ppm = options.misdirected_write_ppm = 50'000;
    options.bit_flip_ppm = options.lost_write_ppm = 50'000;
    options.latency_max_ns = 1000;
    Open(options);
    Random random(seed);
    std::map<uint32_t, uint64_t> in_slot;
    int good = 0;
    int bad = 0;
    uint64_t uid = 1;
    for (int i = 0; i < 1000; ++i) {
      const uint32_t slot = static_cast<uint32_t>(random.Below(kSlots));
      if (random.Below(2) == 0) {
        in_slot[slot] = random.Below(4) == 0 && in_slot.count(slot) ? in_slot[slot] : uid++;
        (void)Write(slot, in_slot[slot]);
      } else if (in_slot.count(slot) != 0) {
        ++(Read(slot, in_slot[slot]).ok() ? good : bad);
      }
      if (!tier_->healthy()) tier_->Heal();
    }
    EXPECT_GT(good, 100) << "seed " << seed;
    EXPECT_GT(bad, 10) << "seed " << seed;
  }
}

TEST_F(SimTierTest, RequestsWaitForTheClock) {
  SimTierOptions options = Options();
  options.latency_min_ns = options.latency_max_ns = 100;
  Open(options);
  std::vector<std::byte> bytes = BytesOf(1);
  const BlockRecord record = RecordOf(1);
  const TierIo io = Io(TierIo::Op::kWrite, 0, &bytes, &record);
  ASSERT_EQ(tier_->Submit(std::span<const TierIo>(&io, 1)), 1u);
  TierCompletion done;
  clock_.AdvanceNs(99);
  EXPECT_EQ(tier_->Poll(std::span<TierCompletion>(&done, 1)), 0u);
  clock_.AdvanceNs(1);
  tier_->HoldCompletions(true);
  EXPECT_EQ(tier_->Poll(std::span<TierCompletion>(&done, 1)), 0u);
  EXPECT_EQ(tier_->in_flight(), 1u);
  tier_->HoldCompletions(false);
  EXPECT_EQ(tier_->Poll(std::span<TierCompletion>(&done, 1)), 1u);
  EXPECT_TRUE(done.status.ok());
}

TEST_F(SimTierTest, EqualSeedsGiveEqualRuns) {
  const auto run = [&](uint64_t seed) {
    SimTierOptions options = Options();
    options.seed = seed;
    options.write_error_ppm = 300'000;
    options.latency_max_ns = 10'000;
    Open(options);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<BlockRecord> records;
    for (uint32_t i = 0; i < kSlots; ++i) {
      bytes.push_back(BytesOf(i + 1));
      records.push_back(RecordOf(i + 1));
    }
    std::vector<TierIo> batch;
    for (uint32_t i = 0; i < kSlots; ++i) {
      batch.push_back(Io(TierIo::Op::kWrite, i, &bytes[i], &records[i]));
    }
    EXPECT_EQ(tier_->Submit(batch), kSlots);
    clock_.AdvanceNs(10'000);
    std::vector<TierCompletion> done(kSlots);
    EXPECT_EQ(tier_->Poll(done), kSlots);
    std::string trace;
    for (const TierCompletion& one : done) {
      trace += std::to_string(one.cookie) + (one.status.ok() ? "+ " : "- ");
    }
    return trace;
  };
  const std::string first = run(5);
  EXPECT_EQ(run(5), first);
  EXPECT_NE(run(6), first);
  EXPECT_NE(first.find('-'), std::string::npos);
}

TEST_F(SimTierTest, CrashLosesWhatIsInFlightAndNothingElse) {
  SimTierOptions options = Options();
  options.latency_min_ns = options.latency_max_ns = 100;
  Open(options);
  ASSERT_TRUE(Write(0, 1).ok());
  ASSERT_TRUE(Write(1, 2).ok());
  std::vector<std::byte> bytes = BytesOf(3);
  const BlockRecord record = RecordOf(3);
  const TierIo io = Io(TierIo::Op::kWrite, 1, &bytes, &record);
  ASSERT_EQ(tier_->Submit(std::span<const TierIo>(&io, 1)), 1u);
  tier_->Crash();
  TierCompletion done;
  ASSERT_EQ(tier_->Poll(std::span<TierCompletion>(&done, 1)), 1u) << "without waiting for its time";
  EXPECT_EQ(done.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(tier_->in_flight(), 0u);
  EXPECT_TRUE(Read(0, 1).ok());
  EXPECT_EQ(Read(1, 2).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Read(1, 3).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Write(1, 3).ok());
  EXPECT_TRUE(Read(1, 3).ok());
}

TEST_F(SimTierTest, ReleaseDuringAWriteMakesItUnreadable) {
  SimTierOptions options = Options();
  options.latency_min_ns = options.latency_max_ns = 100;
  Open(options);
  std::vector<std::byte> bytes = BytesOf(1);
  const BlockRecord record = RecordOf(1);
  const TierIo io = Io(TierIo::Op::kWrite, 4, &bytes, &record);
  ASSERT_EQ(tier_->Submit(std::span<const TierIo>(&io, 1)), 1u);
  tier_->Release(0, std::span<const SlotId>(&slots_[4], 1));
  SlotId again = SlotId::kNone;
  ASSERT_TRUE(tier_->Acquire(0, std::span<SlotId>(&again, 1)).ok());
  ASSERT_EQ(again, slots_[4]);
  clock_.AdvanceNs(100);
  TierCompletion done;
  ASSERT_EQ(tier_->Poll(std::span<TierCompletion>(&done, 1)), 1u);
  EXPECT_FALSE(done.status.ok());
  EXPECT_EQ(Read(4, 1).code(), StatusCode::kDataLoss);
}

TEST_F(SimTierTest, BreakerOpensAfterErrorsInARowAndAProbeClosesIt) {
  Open(Options());
  ASSERT_TRUE(Write(0, 1).ok());
  const int kFailures = static_cast<int>(SimTier::kSickAfter);
  tier_->FailNext(TierIo::Op::kRead, ErrorF(StatusCode::kUnavailable, "on request"), kFailures + 1);
  for (int i = 0; i < kFailures; ++i) {
    EXPECT_TRUE(tier_->healthy()) << "after " << i;
    EXPECT_EQ(Read(0, 1).code(), StatusCode::kUnavailable);
  }
  EXPECT_FALSE(tier_->healthy());
  EXPECT_EQ(Read(0, 1).reason(), Reason::kTierSick);
  EXPECT_EQ(Write(1, 2).reason(), Reason::kTierSick);
  clock_.AdvanceNs(SimTier::kProbeNs);
  EXPECT_TRUE(tier_->healthy()) << "a probe may pass";
  EXPECT_NE(Read(0, 1).reason(), Reason::kTierSick) << "the probe reaches the device, and fails";
  EXPECT_FALSE(tier_->healthy());
  EXPECT_EQ(Read(0, 1).reason(), Reason::kTierSick);
  clock_.AdvanceNs(SimTier::kProbeNs);
  EXPECT_TRUE(Read(0, 1).ok()) << "the second probe succeeds";
  EXPECT_TRUE(tier_->healthy());
  EXPECT_TRUE(Read(0, 1).ok());
}

TEST_F(SimTierTest, HealClosesTheBreaker) {
  Open(Options());
  ASSERT_TRUE(Write(0, 1).ok());
  tier_->FailNext(TierIo::Op::kRead, ErrorF(StatusCode::kUnavailable, "on request"),
                  static_cast<int>(SimTier::kSickAfter));
  for (uint32_t i = 0; i < SimTier::kSickAfter; ++i) (void)Read(0, 1);
  ASSERT_FALSE(tier_->healthy());
  tier_->Heal();
  EXPECT_TRUE(tier_->healthy());
  EXPECT_TRUE(Read(0, 1).ok());
}

TEST_F(SimTierTest, ASuccessBetweenErrorsKeepsItHealthy) {
  Open(Options());
  ASSERT_TRUE(Write(0, 1).ok());
  for (uint32_t i = 0; i < 3 * SimTier::kSickAfter; ++i) {
    tier_->FailNext(TierIo::Op::kRead, ErrorF(StatusCode::kUnavailable, "on request"), 1);
    EXPECT_FALSE(Read(0, 1).ok());
    EXPECT_TRUE(Read(0, 1).ok());
  }
  EXPECT_TRUE(tier_->healthy());
}

}  // namespace
}  // namespace fermata
