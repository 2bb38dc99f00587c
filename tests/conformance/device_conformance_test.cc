// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "tests/conformance/tier_suite.h"
#include "tiers/device_tier.h"

namespace fermata {
namespace {

// Plain memory that copies only when polled, several polls late, as a stream of a GPU would; and
// fails when told.
class LateOps final : public DeviceOps {
 public:
  Status CopySubmit(std::span<const CopyRun> runs, CopyDirection direction,
                    uint64_t ticket) override {
    if (fail_ == direction && fail_at_submit_) {
      fail_.reset();
      return ErrorF(StatusCode::kUnavailable, "submit fails on request");
    }
    const bool fails = fail_ == direction;
    if (fails) fail_.reset();
    batches_[ticket] = Batch{{runs.begin(), runs.end()}, 2, fails};
    return Status();
  }
  Result<bool> CopyPoll(uint64_t ticket) override {
    const auto it = batches_.find(ticket);
    FERMATA_CHECK(it != batches_.end());  // asked again after the end, or never submitted
    Batch& batch = it->second;
    if (--batch.polls_left > 0) return false;
    const bool fails = batch.fails;
    if (!fails) {
      for (const CopyRun& run : batch.runs) std::memcpy(run.target, run.source, run.bytes);
    }
    batches_.erase(it);
    if (fails) return ErrorF(StatusCode::kUnavailable, "copy fails on request");
    return true;
  }
  Result<bool> EventQuery(void*) override { return true; }
  void FailNext(CopyDirection direction, bool at_submit) {
    fail_ = direction;
    fail_at_submit_ = at_submit;
  }

 private:
  struct Batch {
    std::vector<CopyRun> runs;
    int polls_left = 0;
    bool fails = false;
  };
  std::map<uint64_t, Batch> batches_;
  std::optional<CopyDirection> fail_;
  bool fail_at_submit_ = false;
};

enum class Mode { kPlain, kLate, kLateFailsAtSubmit, kMetadataOnly };

class DeviceHarness final : public TierHarness {
 public:
  explicit DeviceHarness(Mode mode) : mode_(mode) {
    std::unique_ptr<DeviceOps> ops;
    if (mode == Mode::kPlain) ops = std::make_unique<PlainMemoryOps>();
    if (mode == Mode::kLate || mode == Mode::kLateFailsAtSubmit) {
      auto late = std::make_unique<LateOps>();
      late_ = late.get();
      ops = std::move(late);
    }
    const std::vector<TierGroup> groups = ConformanceGroups();
    tier_ = std::make_unique<DeviceTier>(
        0, std::vector<uint64_t>{groups[0].block_bytes, groups[1].block_bytes}, std::move(ops),
        mode == Mode::kMetadataOnly);
    // Group 0: K and V in regions of their own, V with a gap between slots. Group 1: one plane.
    const uint32_t slots0 = static_cast<uint32_t>(groups[0].slots);
    const uint32_t slots1 = static_cast<uint32_t>(groups[1].slots);
    keys_.resize(slots0 * 5000);
    values_.resize(slots0 * 4000);
    plane_.resize(slots1 * 5120);
    const bool none = mode == Mode::kMetadataOnly;
    const std::vector<DeviceRegion> split = {{none ? nullptr : keys_.data(), 5000, 5000},
                                             {none ? nullptr : values_.data(), 3192, 4000}};
    const std::vector<DeviceRegion> single = {{none ? nullptr : plane_.data(), 5000, 5120}};
    FERMATA_CHECK(tier_->RegisterArena(0, split, slots0).ok());
    FERMATA_CHECK(tier_->RegisterArena(1, single, slots1).ok());
  }
  Tier& tier() override { return *tier_; }
  bool FailNextWrite() override { return Fail(CopyDirection::kHostToDevice); }
  bool FailNextRead() override { return Fail(CopyDirection::kDeviceToHost); }

 private:
  bool Fail(CopyDirection direction) {
    if (late_ == nullptr) return false;
    late_->FailNext(direction, mode_ == Mode::kLateFailsAtSubmit);
    return true;
  }
  const Mode mode_;
  std::vector<std::byte> keys_;
  std::vector<std::byte> values_;
  std::vector<std::byte> plane_;
  LateOps* late_ = nullptr;
  std::unique_ptr<DeviceTier> tier_;
};

TierCase Case(const char* name, Mode mode) {
  return TierCase{name, [mode] { return std::make_unique<DeviceHarness>(mode); }};
}

INSTANTIATE_TEST_SUITE_P(Device, TierContract,
                         testing::Values(Case("Plain", Mode::kPlain), Case("Late", Mode::kLate),
                                         Case("LateFailsAtSubmit", Mode::kLateFailsAtSubmit),
                                         Case("MetadataOnly", Mode::kMetadataOnly)),
                         TierCaseName);

}  // namespace
}  // namespace fermata
