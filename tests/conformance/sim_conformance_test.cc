// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/tier_suite.h"
#include "tiers/sim_tier.h"

namespace fermata {
namespace {

class SimHarness final : public TierHarness {
 public:
  explicit SimHarness(uint64_t latency_max_ns) {
    SimTierOptions options;
    options.groups = ConformanceGroups();
    options.seed = 42;
    options.clock = &clock_;
    options.latency_min_ns = latency_max_ns / 10;
    options.latency_max_ns = latency_max_ns;
    tier_ = std::make_unique<SimTier>(std::move(options));
  }
  Tier& tier() override { return *tier_; }
  void LetTimePass() override {
    const uint64_t due = tier_->NextDueNs();
    if (due > clock_.NowNs()) clock_.AdvanceNs(due - clock_.NowNs());
  }
  bool FailNextWrite() override { return Fail(TierIo::Op::kWrite); }
  bool FailNextRead() override { return Fail(TierIo::Op::kRead); }

 private:
  bool Fail(TierIo::Op op) {
    tier_->FailNext(op, ErrorF(StatusCode::kUnavailable, "on request"), 1);
    return true;
  }
  ManualClock clock_;
  std::unique_ptr<SimTier> tier_;
};

INSTANTIATE_TEST_SUITE_P(
    Sim, TierContract,
    testing::Values(TierCase{"NoLatency", [] { return std::make_unique<SimHarness>(0); }},
                    TierCase{"OutOfOrder", [] { return std::make_unique<SimHarness>(500'000); }}),
    TierCaseName);

}  // namespace
}  // namespace fermata
