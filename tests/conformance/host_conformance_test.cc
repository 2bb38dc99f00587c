// SPDX-License-Identifier: Apache-2.0
#include "allocators/fake_host_pool.h"
#include "allocators/host_pool.h"
#include "tests/conformance/tier_suite.h"
#include "tiers/host_tier.h"

namespace fermata {
namespace {

class HostHarness final : public TierHarness {
 public:
  explicit HostHarness(std::unique_ptr<HostPool> pool) : pool_(std::move(pool)) {
    Result<std::unique_ptr<HostTier>> tier = HostTier::Create(0, ConformanceGroups(), pool_.get());
    FERMATA_CHECK(tier.ok());
    tier_ = std::move(*tier);
  }
  Tier& tier() override { return *tier_; }

 private:
  std::unique_ptr<HostPool> pool_;
  std::unique_ptr<HostTier> tier_;
};

constexpr uint64_t kCap = uint64_t{1} << 20;

INSTANTIATE_TEST_SUITE_P(Host, TierContract,
                         testing::Values(TierCase{"HugePages",
                                                  [] {
                                                    return std::make_unique<HostHarness>(
                                                        std::make_unique<HugePagePool>(kCap, true));
                                                  }},
                                         TierCase{"Heap",
                                                  [] {
                                                    return std::make_unique<HostHarness>(
                                                        std::make_unique<FakeHostPool>(kCap));
                                                  }}),
                         TierCaseName);

}  // namespace
}  // namespace fermata
