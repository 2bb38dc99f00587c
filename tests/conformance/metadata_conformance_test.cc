// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/tier_suite.h"
#include "tiers/metadata_tier.h"

namespace fermata {
namespace {

class MetadataHarness final : public TierHarness {
 public:
  explicit MetadataHarness(TierKind kind) : tier_(kind, 0, ConformanceGroups()) {}
  Tier& tier() override { return tier_; }

 private:
  MetadataTier tier_;
};

INSTANTIATE_TEST_SUITE_P(
    Metadata, TierContract,
    testing::Values(
        TierCase{"Host", [] { return std::make_unique<MetadataHarness>(TierKind::kHost); }},
        TierCase{"Ssd", [] { return std::make_unique<MetadataHarness>(TierKind::kSsd); }}),
    TierCaseName);

}  // namespace
}  // namespace fermata
