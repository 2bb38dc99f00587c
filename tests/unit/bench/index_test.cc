// SPDX-License-Identifier: Apache-2.0
//
// A run of `fermata-bench index` has the rows that were asked for, and its near-misses are misses.
// Figures are not looked at: they are of the machine.
#include "bench/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/index_cache.h"

namespace fermata::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The trunk is found whole, and a branch leaves it at the end of each piece.
TEST(ContextFamily, BranchesWhereAPieceEnds) {
  ContextFamily family;
  family.run = 2;
  family.pieces = 3;
  IndexCacheOptions options;
  options.slots = FamilyBlocks(family, 24) + 2;
  Result<std::unique_ptr<IndexCache>> cache = IndexCache::Open(options);
  ASSERT_TRUE(cache.ok()) << cache.status().message();
  uint64_t families = 0;
  ASSERT_TRUE(BuildFamilies(cache->get(), family, 24, &families).ok());
  EXPECT_EQ(families, 2u);
  fermata_stats stats;
  ASSERT_TRUE((*cache)->Stats(&stats).ok());
  EXPECT_EQ(stats.blocks, 24u);
  std::vector<uint32_t> tokens(family.trunk_tokens());
  for (uint64_t i = 0; i < families; ++i) {
    family.TrunkTokens(i, tokens);
    uint64_t hit = 0;
    ASSERT_TRUE((*cache)->Lookup(tokens, i == 0, &hit).ok());
    EXPECT_EQ(hit, tokens.size());
  }
}

TEST(IndexOptions, HashBitsAreChecked) {
  IndexCacheOptions options;
  options.slots = 1;
  options.hash_bits = 129;
  const Status status = IndexCache::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("options.hash_bits is 129"));
  options.hash_bits = 128;
  EXPECT_TRUE(IndexCache::Open(options).ok());
}

TEST(RunIndex, AnUnknownRowIsNamed) {
  IndexOptions options;
  options.tiny = true;
  options.only = {"fork_us", "match"};
  IndexReport report;
  const Status status = RunIndex(options, &report);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--only match"));
}

TEST(RunIndex, RowsComeInTheirOrderAndReferencesBehind) {
  IndexOptions options;
  options.tiny = true;
  options.only = {"fork_copies", "wrong_hits_8bit", "wrong_hits_16bit"};
  IndexReport report;
  ASSERT_TRUE(RunIndex(options, &report).ok());
  EXPECT_THAT(report.failures, testing::IsEmpty());
  std::vector<std::string> keys;
  for (const auto& [key, value] : report.figures.all()) {
    EXPECT_TRUE(value.has_value()) << key;
    keys.push_back(key);
  }
  EXPECT_THAT(keys, ElementsAre("wrong_hits_8bit", "wrong_hits_16bit", "fork_copies", "ref_fork_us",
                                "ref_wrong_hits_8bit", "ref_wrong_hits_16bit", "fork_p99_us",
                                "missed_hits_8bit", "missed_hits_16bit"));
  EXPECT_EQ(report.figures.Get("fork_copies"), 0);
  // Near-misses are misses, and what is stored is found.
  EXPECT_EQ(report.figures.Get("wrong_hits_8bit"), 0);
  EXPECT_EQ(report.figures.Get("missed_hits_8bit"), 0);
  // A design that trusts eight bits is wrong often.
  EXPECT_GT(report.figures.Get("ref_wrong_hits_8bit").value_or(0), 100);
  EXPECT_THAT(IndexTextReport(report), HasSubstr("fork_copies"));
}

}  // namespace
}  // namespace fermata::bench
