// SPDX-License-Identifier: Apache-2.0
//
// The contract of tiers/tier.h as tests (tier_suite.cc). An implementation joins by a file of its
// own that defines a TierHarness (how to make one, how to let time pass, how to make it fail) and
// instantiates TierContract; it gets every test here for nothing. A test that does not concern an
// implementation says so by skipping.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "tiers/tier.h"

namespace fermata {

// What every harness builds its tier from: two groups, one of them with a size that no page or
// sector divides.
inline std::vector<TierGroup> ConformanceGroups() { return {{8192, 24}, {5000, 9}}; }

class TierHarness {
 public:
  virtual ~TierHarness() = default;
  virtual Tier& tier() = 0;
  virtual void LetTimePass() {}
  // Arrange that the next write (read) fails. False: this implementation cannot fail so.
  virtual bool FailNextWrite() { return false; }
  virtual bool FailNextRead() { return false; }
};

struct TierCase {
  std::string name;
  std::function<std::unique_ptr<TierHarness>()> make;
};
inline std::ostream& operator<<(std::ostream& os, const TierCase& tier_case) {
  return os << tier_case.name;
}

// A block in memory: its record and a buffer with canaries behind it.
class TestBlock {
 public:
  TestBlock(uint64_t uid, GroupIndex group, uint64_t bytes)
      : bytes_(bytes), memory_(static_cast<std::byte*>(::operator new(Whole(), kAlign))) {
    std::memset(memory_.get(), kCanary, Whole());
    identity_.assign(16 + uid % 7, std::byte{static_cast<uint8_t>(uid)});
    record.uid = uid;
    record.space = 1;
    record.group = group;
    record.key = Hash128{MixU64(uid), MixU64(~uid)};
    record.identity = identity_;
  }
  TestBlock(TestBlock&&) = delete;

  // The bytes that belong to this uid.
  void FillRight() {
    Random random(record.uid);
    for (std::byte& byte : span()) byte = std::byte{static_cast<uint8_t>(random.Next())};
  }
  void FillWrong() { std::memset(memory_.get(), 0x11, bytes_); }
  bool IsRight() const {
    Random random(record.uid);
    return std::all_of(memory_.get(), memory_.get() + bytes_, [&](std::byte byte) {
      return byte == std::byte{static_cast<uint8_t>(random.Next())};
    });
  }
  bool CanariesLive() const {
    return std::all_of(memory_.get() + bytes_, memory_.get() + Whole(),
                       [](std::byte byte) { return byte == std::byte{kCanary}; });
  }
  std::byte* data() { return memory_.get(); }
  std::span<std::byte> span() { return {memory_.get(), bytes_}; }

  BlockRecord record;

 private:
  static constexpr std::align_val_t kAlign{4096};
  static constexpr uint8_t kCanary = 0xc7;
  struct Deleter {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlign); }
  };
  size_t Whole() const { return (bytes_ + 4095) / 4096 * 4096 + 4096; }

  const uint64_t bytes_;
  std::unique_ptr<std::byte, Deleter> memory_;
  std::vector<std::byte> identity_;
};

class TierContract : public testing::TestWithParam<TierCase> {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    harness_ = GetParam().make();
    ASSERT_NE(harness_, nullptr);
    if (tier().has(kTierDurable)) {
      ASSERT_TRUE(tier().PutSpace(SpaceRecord{1, "conformance"}, false).ok());
    }
  }
  void TearDown() override {
    if (harness_ == nullptr) return;
    EXPECT_EQ(tier().in_flight(), 0u);
    const Status status = tier().Shutdown();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  Tier& tier() { return harness_->tier(); }
  bool HasBytes() { return !tier().has(kTierNoBytes); }
  // Memory tiers are trusted and do not know what they hold.
  bool HasIdentity() {
    return HasBytes() && !tier().has(kTierMapped) && tier().info().kind != TierKind::kDevice;
  }
  static uint64_t BlockBytes(GroupIndex group) { return ConformanceGroups()[group].block_bytes; }
  std::unique_ptr<TestBlock> NewBlock(GroupIndex group) {
    return std::make_unique<TestBlock>(next_uid_++, group, BlockBytes(group));
  }
  // A second block of the same record, with room for what a read gives.
  static std::unique_ptr<TestBlock> Twin(const TestBlock& block) {
    return std::make_unique<TestBlock>(block.record.uid, block.record.group,
                                       BlockBytes(block.record.group));
  }

  std::vector<SlotId> Acquire(GroupIndex group, size_t count) {
    std::vector<SlotId> slots(count, SlotId::kNone);
    const Status status = tier().Acquire(group, slots);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return slots;
  }
  TierIo Io(TierIo::Op op, SlotId slot, TestBlock* block) {
    TierIo io;
    io.op = op;
    io.group = block->record.group;
    io.slot = slot;
    io.buffer = HasBytes() ? block->data() : nullptr;
    io.record = &block->record;
    io.cookie = next_cookie_++;
    return io;
  }

  // Takes what has completed. Waits for something while anything is in flight, up to a deadline.
  void Collect(std::map<uint64_t, Status>* done) {
    std::vector<TierCompletion> batch(7);
    const uint64_t deadline = clock_.NowNs() + 20'000'000'000;
    while (true) {
      const size_t count = tier().Poll(batch);
      ASSERT_LE(count, batch.size());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(done->emplace(batch[i].cookie, std::move(batch[i].status)).second)
            << "cookie " << batch[i].cookie << " came twice";
      }
      if (count > 0) return;
      ASSERT_LT(clock_.NowNs(), deadline) << tier().in_flight() << " requests never completed";
      harness_->LetTimePass();
      if (tier().completion_fd() >= 0) {
        pollfd readable = {tier().completion_fd(), POLLIN, 0};
        ::poll(&readable, 1, 10);
      } else {
        std::this_thread::yield();
      }
    }
  }

  // Submits all of `ios`, as many as the tier takes at a time, and waits for all.
  std::map<uint64_t, Status> Run(const std::vector<TierIo>& ios) {
    std::map<uint64_t, Status> done;
    std::span<const TierIo> rest(ios);
    while (!rest.empty() && !HasFatalFailure()) {
      const size_t accepted = tier().Submit(rest);
      EXPECT_LE(accepted, rest.size());
      rest = rest.subspan(std::min(accepted, rest.size()));
      if (accepted == 0 && tier().in_flight() == 0) {
        ADD_FAILURE() << "nothing is in flight, yet nothing is accepted";
        return done;
      }
      if (!rest.empty()) Collect(&done);
    }
    while (done.size() < ios.size() && !HasFatalFailure()) Collect(&done);
    EXPECT_EQ(tier().in_flight(), 0u);
    std::vector<TierCompletion> none(4);
    EXPECT_EQ(tier().Poll(none), 0u) << "more completions than requests";
    for (const TierIo& io : ios) EXPECT_EQ(done.count(io.cookie), 1u) << "cookie " << io.cookie;
    return done;
  }
  Status RunOne(const TierIo& io) {
    std::map<uint64_t, Status> done = Run({io});
    const auto it = done.find(io.cookie);
    return it == done.end() ? ErrorF(StatusCode::kInternal, "no completion") : it->second;
  }
  Status Write(SlotId slot, TestBlock* block) {
    block->FillRight();
    return RunOne(Io(TierIo::Op::kWrite, slot, block));
  }
  Status Read(SlotId slot, TestBlock* block) {
    block->FillWrong();
    return RunOne(Io(TierIo::Op::kRead, slot, block));
  }
  // Reading is refused for the data's sake: it is not an I/O error that may pass.
  void ExpectLost(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_TRUE(status.reason() == Reason::kChecksum || status.reason() == Reason::kTorn)
        << status.ToString();
  }

  std::unique_ptr<TierHarness> harness_;

 private:
  SystemClock clock_;
  uint64_t next_uid_ = 1;
  uint64_t next_cookie_ = 0x1000;
};

inline std::string TierCaseName(const testing::TestParamInfo<TierCase>& info) {
  return info.param.name;
}

}  // namespace fermata
