// SPDX-License-Identifier: Apache-2.0
//
// CacheConfig::Finish: every refusal names field and value; what is derived is right.
#include "cache/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace fermata {
namespace {

TierConfig Tier(TierKind kind, uint64_t capacity_bytes, const std::string& directory = "") {
  TierConfig tier;
  tier.kind = kind;
  tier.capacity_bytes = capacity_bytes;
  tier.directory = directory;
  return tier;
}

// Device, host of 10 slots, ssd of 20.
CacheConfig Good() {
  CacheConfig config;
  config.groups = {GroupConfig{16, 4096}};
  config.tiers = {Tier(TierKind::kDevice, 0), Tier(TierKind::kHost, 40960),
                  Tier(TierKind::kSsd, 81920, "dir")};
  return config;
}

TEST(CacheConfig, AcceptsAGoodOneTwice) {
  CacheConfig config = Good();
  ASSERT_TRUE(config.Finish().ok());
  EXPECT_EQ(config.tiers[1].groups.size(), 1u);
  ASSERT_TRUE(config.Finish().ok());
  EXPECT_EQ(config.tiers[1].groups.size(), 1u);
}

struct BadCase {
  const char* name;
  std::function<void(CacheConfig*)> spoil;
  std::string message;
  StatusCode code = StatusCode::kInvalidArgument;
};

class BadConfig : public testing::TestWithParam<BadCase> {};

TEST_P(BadConfig, IsRefusedNamingFieldAndValue) {
  CacheConfig config = Good();
  GetParam().spoil(&config);
  const Status status = config.Finish();
  EXPECT_EQ(status.code(), GetParam().code);
  EXPECT_EQ(status.message(), GetParam().message);
}

const BadCase kBadCases[] = {
    {"ChainTokensZero", [](CacheConfig* c) { c->chain_tokens = 0; },
     "config.chain_tokens is 0, want 1..65536"},
    {"ChainTokensLarge", [](CacheConfig* c) { c->chain_tokens = 65537; },
     "config.chain_tokens is 65537, want 1..65536"},
    {"NoGroup", [](CacheConfig* c) { c->groups.clear(); }, "config.group_count is 0, want 1..16"},
    {"ManyGroups",
     [](CacheConfig* c) {
       c->groups.resize(17, GroupConfig{16, 4096});
     },
     "config.group_count is 17, want 1..16"},
    {"BlockTokensZero", [](CacheConfig* c) { c->groups[0].block_tokens = 0; },
     "groups[0].block_tokens is 0, want a multiple of chain_tokens (16) up to 65536"},
    {"BlockTokensNoMultiple", [](CacheConfig* c) { c->groups[0].block_tokens = 24; },
     "groups[0].block_tokens is 24, want a multiple of chain_tokens (16) up to 65536"},
    {"BlockTokensLarge", [](CacheConfig* c) { c->groups[0].block_tokens = 65552; },
     "groups[0].block_tokens is 65552, want a multiple of chain_tokens (16) up to 65536"},
    {"BlockBytesZero",
     [](CacheConfig* c) {
       c->groups.push_back(GroupConfig{16, 0});
     },
     "groups[1].block_bytes is 0, want 1..1073741824"},
    {"BlockBytesLarge", [](CacheConfig* c) { c->groups[0].block_bytes = 1073741825; },
     "groups[0].block_bytes is 1073741825, want 1..1073741824"},
    {"NoTier", [](CacheConfig* c) { c->tiers.clear(); }, "config.tier_count is 0, want 1..32"},
    {"ManyTiers", [](CacheConfig* c) { c->tiers.resize(33); },
     "config.tier_count is 33, want 1..32"},
    {"DeviceNotFirst", [](CacheConfig* c) { c->tiers.erase(c->tiers.begin()); },
     "tiers[0].kind is 2, want DEVICE first"},
    {"TwoDevices",
     [](CacheConfig* c) {
       c->tiers.push_back(Tier(TierKind::kDevice, 0));
       c->tiers[3].ordinal = 1;
     },
     "tiers[3].kind is DEVICE: want one device tier, the first"},
    {"HostBehindSsd", [](CacheConfig* c) { std::swap(c->tiers[1], c->tiers[2]); },
     "tiers[2].kind is HOST: want at most one, right after the device"},
    {"TwoOfOneOrdinal", [](CacheConfig* c) { c->tiers.push_back(c->tiers[2]); },
     "tiers[3].ordinal is 0, which tiers[2] of the same kind has"},
    {"Remote", [](CacheConfig* c) { c->tiers[2].kind = TierKind::kRemote; },
     "tiers[2].kind is REMOTE, which this version lacks", StatusCode::kUnimplemented},
    {"CapacityZero", [](CacheConfig* c) { c->tiers[1].capacity_bytes = 0; },
     "tiers[1].capacity_bytes is 0: too small for one block of group 0 (4096 bytes)"},
    {"CapacityBelowASlot", [](CacheConfig* c) { c->tiers[2].capacity_bytes = 4095; },
     "tiers[2].capacity_bytes is 4095: too small for one block of group 0 (4096 bytes)"},
    {"CapacityAbsurd", [](CacheConfig* c) { c->tiers[1].capacity_bytes = (uint64_t{1} << 50) + 1; },
     "tiers[1].capacity_bytes is 1125899906842625, want at most 1125899906842624"},
    {"TooManySlots", [](CacheConfig* c) { c->tiers[2].capacity_bytes = uint64_t{1} << 43; },
     "tiers[2].capacity_bytes is 8796093022208: 2147483648 slots of group 0, want fewer than 2^31"},
    {"NoDirectory", [](CacheConfig* c) { c->tiers[2].directory.clear(); },
     "tiers[2].directory is missing; an ssd tier needs one"},
    {"LongDirectory", [](CacheConfig* c) { c->tiers[2].directory.assign(3001, 'd'); },
     "tiers[2].directory has 3001 characters, want at most 3000"},
    {"DepthZero", [](CacheConfig* c) { c->tiers[2].io_depth = 0; },
     "tiers[2].io_depth is 0, want 1..1024"},
    {"DepthLarge", [](CacheConfig* c) { c->tiers[2].io_depth = 1025; },
     "tiers[2].io_depth is 1025, want 1..1024"},
    {"StagingBelowASlot", [](CacheConfig* c) { c->tiers[1].staging_bytes = 4095; },
     "tiers[1].staging_bytes is 4095, want at least one slot (4096)"},
    {"Sequences", [](CacheConfig* c) { c->max_sequences = 1048577; },
     "config.max_sequences is 1048577, want at most 1048576"},
    {"Jobs", [](CacheConfig* c) { c->max_jobs = 65537; },
     "config.max_jobs is 65537, want at most 65536"},
    {"Events", [](CacheConfig* c) { c->event_capacity = 16777217; },
     "config.event_capacity is 16777217, want at most 16777216"},
    {"Watermark", [](CacheConfig* c) { c->free_watermark_ppm = 1000001; },
     "config.free_watermark_ppm is 1000001, want at most 1000000"},
};

INSTANTIATE_TEST_SUITE_P(Finish, BadConfig, testing::ValuesIn(kBadCases),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(CacheConfig, AnUnknownPolicyIsRefusedWithTheKnownOnes) {
  CacheConfig config = Good();
  config.policy = "fifo";
  const Status status = config.Finish();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  // Others of this program may have registered more, which come after ours by name.
  const std::string start = "config.policy is \"fifo\", want one of: lru, lru-superseded";
  EXPECT_EQ(status.message().substr(0, start.size()), start);
}

TEST(CacheConfig, AcceptsTheEdgesOfEachRange) {
  CacheConfig config = Good();
  config.chain_tokens = 65536;
  config.groups = {GroupConfig{65536, 1}};
  config.tiers[2].io_depth = 1024;
  config.tiers[2].directory.assign(3000, 'd');
  config.tiers[1].capacity_bytes = 4096;
  config.max_sequences = 1048576;
  config.max_jobs = 65536;
  config.event_capacity = 16777216;
  config.free_watermark_ppm = 1000000;
  EXPECT_TRUE(config.Finish().ok()) << config.Finish().ToString();
}

TEST(CacheConfig, AMetadataOnlySsdNeedsNoDirectory) {
  CacheConfig config = Good();
  config.tiers[2].directory.clear();
  config.metadata_only = true;
  EXPECT_TRUE(config.Finish().ok());
}

TEST(CacheConfig, OneGroupGetsEverySlotThatFits) {
  CacheConfig config = Good();
  config.groups[0].block_bytes = 4097;  // two pages each
  config.tiers[1].capacity_bytes = 10 * 8192 + 8191;
  ASSERT_TRUE(config.Finish().ok());
  EXPECT_EQ(config.tiers[1].groups[0].slots, 10u);
  EXPECT_EQ(config.tiers[1].groups[0].block_bytes, 4097u);  // the payload, not the slot
  // Just below a whole number of slots: nothing is rounded up.
  config = Good();
  config.tiers[2].capacity_bytes = 4096 * ((uint64_t{1} << 30) + 3) - 1;
  ASSERT_TRUE(config.Finish().ok());
  EXPECT_EQ(config.tiers[2].groups[0].slots, (uint64_t{1} << 30) + 2);
}

TEST(CacheConfig, SeveralGroupsCoverEqualTokensWithinTheCapacity) {
  CacheConfig config = Good();
  config.groups = {GroupConfig{16, 4096}, GroupConfig{64, 8192}};  // 256 and 128 bytes a token
  config.tiers[1].capacity_bytes = 640 * 384;
  config.tiers[2].capacity_bytes = 1'000'003;
  ASSERT_TRUE(config.Finish().ok());
  EXPECT_EQ(config.tiers[1].groups[0].slots, 40u);
  EXPECT_EQ(config.tiers[1].groups[1].slots, 10u);
  const std::vector<TierGroup>& ssd = config.tiers[2].groups;
  EXPECT_EQ(ssd[0].slots, 162u);  // 1,000,003 / 384 = 2604.17 tokens, / 16
  EXPECT_EQ(ssd[1].slots, 40u);   // / 64
  EXPECT_LE(ssd[0].slots * 4096 + ssd[1].slots * 8192, 1'000'003u);
  EXPECT_EQ(config.tiers[0].groups.size(), 2u);  // The device's slots come from its arenas.
  EXPECT_EQ(config.tiers[0].groups[0].slots, 0u);
}

TEST(CacheConfig, ACapacityThatLeavesAGroupWithoutABlockIsRefused) {
  CacheConfig config = Good();
  config.groups = {GroupConfig{16, 4096}, GroupConfig{64, 8192}};
  config.tiers[1].capacity_bytes = 20000;  // 52 tokens: three blocks of group 0, none of group 1
  const Status status = config.Finish();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "tiers[1].capacity_bytes is 20000: too small for one block of group 1 (8192 bytes)");
}

TEST(CacheConfig, StagingDefaultsToAnEighthBetweenEightSlotsAnd64MiB) {
  const auto staging = [](uint64_t capacity_bytes) {
    CacheConfig config = Good();
    config.tiers[1].capacity_bytes = capacity_bytes;
    EXPECT_TRUE(config.Finish().ok());
    return config.tiers[1].staging_bytes;
  };
  EXPECT_EQ(staging(40960), 8u * 4096);
  EXPECT_EQ(staging(uint64_t{1} << 20), uint64_t{1} << 17);
  EXPECT_EQ(staging(uint64_t{1} << 32), uint64_t{64} << 20);
  CacheConfig config = Good();
  config.tiers[1].staging_bytes = 12288;
  ASSERT_TRUE(config.Finish().ok());
  EXPECT_EQ(config.tiers[1].staging_bytes, 12288u);
}

}  // namespace
}  // namespace fermata
