// SPDX-License-Identifier: Apache-2.0
//
// free_watermark_ppm: blocks that nobody holds go down before anybody asks for their slots, oldest
// first, and no more of them than it takes. Books only, one thread.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "cache/cache.h"

namespace fermata {
namespace {

class Watermark : public testing::Test {
 protected:
  // A device of eight slots over host memory of eight.
  void Open(uint32_t free_watermark_ppm) {
    CacheConfig config;
    config.groups = {GroupConfig{16, 4096}};
    config.tiers.resize(2);
    config.tiers[1].kind = TierKind::kHost;
    config.tiers[1].capacity_bytes = 8 * 4096;
    config.free_watermark_ppm = free_watermark_ppm;
    config.manual_clock = config.step_driven = config.metadata_only = true;
    Result<std::unique_ptr<Cache>> cache = Cache::Open(
        std::move(config), nullptr, [](ObjectId id) { return id; }, 1);
    ASSERT_TRUE(cache.ok()) << cache.status().ToString();
    cache_ = std::move(*cache);
    const DeviceRegion region{nullptr, 4096, 4096};
    ASSERT_TRUE(cache_->RegisterArena(0, std::span(&region, 1), 8).ok());
    SpaceIdentity identity;
    identity.weights = "weights@1";
    const Result<ObjectId> space = cache_->OpenSpace(identity);
    ASSERT_TRUE(space.ok());
    space_ = space.value();
  }
  void TearDown() override {
    ASSERT_NE(cache_, nullptr);
    uint64_t blocks = 0;
    uint64_t orphans = 0;
    const Status audit = cache_->Audit(&blocks, &orphans);
    EXPECT_TRUE(audit.ok()) << audit.ToString();
    EXPECT_EQ(orphans, 0u);
    EXPECT_TRUE(cache_->Close(0).ok());
  }

  static std::vector<uint32_t> Prompt(uint32_t number) {
    std::vector<uint32_t> tokens(16);
    std::iota(tokens.begin(), tokens.end(), number * 100);
    return tokens;
  }
  // A sequence of one published block.
  ObjectId Write(uint32_t number) {
    const std::vector<uint32_t> tokens = Prompt(number);
    const Result<ObjectId> sequence = cache_->CreateSequence(space_, SequenceOptions{});
    EXPECT_TRUE(sequence.ok());
    AppendRequest append;
    append.sequence = sequence.value();
    append.tokens = tokens;
    append.token_count = tokens.size();
    std::vector<BlockCopy> copies;
    const Status appended = cache_->Append(append, &copies, 0);
    EXPECT_TRUE(appended.ok()) << appended.ToString();
    EXPECT_TRUE(cache_->Mark(sequence.value(), 16, nullptr).ok());
    return sequence.value();
  }
  void LetGo(ObjectId sequence) {
    EXPECT_TRUE(cache_->Release(sequence).ok());
    const Result<uint64_t> steps = cache_->Step(1000);
    EXPECT_TRUE(steps.ok() && steps.value() < 1000) << "the work has no end";
  }
  // Where a lookup finds the block: 0 device, 1 host; -1 nowhere.
  int TierOf(uint32_t number) {
    const std::vector<uint32_t> tokens = Prompt(number);
    LookupRequest request;
    request.lease = false;
    request.tokens = tokens;
    request.token_count = tokens.size();
    Result<LookupAnswer> answer = cache_->Lookup(space_, request);
    EXPECT_TRUE(answer.ok());
    if (answer->hit_tokens == 0) return -1;
    return answer->tier_tokens[0] == 16 ? 0 : 1;
  }

  std::unique_ptr<Cache> cache_;
  ObjectId space_ = 0;
};

TEST_F(Watermark, KeepsItsShareFreeByDemotingTheOldest) {
  Open(500'000);  // four of eight
  std::vector<ObjectId> sequences;
  for (uint32_t i = 0; i < 6; ++i) sequences.push_back(Write(i));
  for (const ObjectId sequence : sequences) LetGo(sequence);
  const CacheStats stats = cache_->Stats();
  EXPECT_EQ(stats.tiers[0].free_slots, 4u);
  EXPECT_EQ(stats.tiers[1].free_slots, 6u);
  EXPECT_EQ(stats.dropped_blocks, 0u);
  const int expected[] = {1, 1, 0, 0, 0, 0};
  for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(TierOf(i), expected[i]) << "block " << i;
}

TEST_F(Watermark, LeavesBlocksThatAreHeldWhereTheyAre) {
  Open(1'000'000);
  const ObjectId held = Write(0);
  const ObjectId idle = Write(1);
  LetGo(idle);
  EXPECT_EQ(TierOf(0), 0);
  EXPECT_EQ(TierOf(1), 1);
  EXPECT_EQ(cache_->Stats().tiers[0].free_slots, 7u);
  LetGo(held);
  EXPECT_EQ(TierOf(0), 1);
  EXPECT_EQ(cache_->Stats().tiers[0].free_slots, 8u);
}

TEST_F(Watermark, ZeroMovesNothingUnasked) {
  Open(0);
  std::vector<ObjectId> sequences;
  for (uint32_t i = 0; i < 8; ++i) sequences.push_back(Write(i));
  for (const ObjectId sequence : sequences) LetGo(sequence);
  EXPECT_EQ(cache_->Stats().tiers[0].free_slots, 0u);
  EXPECT_EQ(cache_->Stats().tiers[1].free_slots, 8u);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(TierOf(i), 0);
}

}  // namespace
}  // namespace fermata
