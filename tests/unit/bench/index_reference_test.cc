// SPDX-License-Identifier: Apache-2.0
//
// What `fermata-bench index` holds our figures against does what it stands for.
#include "bench/index_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/index_measure.h"

namespace fermata::bench {
namespace {

using ::testing::ElementsAre;

std::string ShaHex(const RefShaChain::Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(byte));
    text += two;
  }
  return text;
}

std::vector<uint32_t> CountingTokens(size_t count) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0u);
  return tokens;
}

TEST(RefRadixTree, EvictsTheLeastRecentlyUsedLeavesFirst) {
  RefRadixTree tree;
  RefRadixTree::Node* const shared = tree.Add(tree.root(), 100, 4, 1);  // oldest, but no leaf
  tree.Add(shared, 1, 2, 30);
  tree.Add(shared, 2, 2, 10);
  tree.Add(shared, 3, 2, 20);
  std::vector<uint64_t> keys;
  EXPECT_EQ(tree.Evict(3, &keys), 4u);  // whole leaves
  EXPECT_THAT(keys, ElementsAre(2, 3));
}

TEST(RefRadixTree, AParentGoesOnceItsLastChildHas) {
  RefRadixTree tree;
  RefRadixTree::Node* const parent = tree.Add(tree.root(), 100, 1, 5);
  tree.Add(parent, 1, 1, 10);
  tree.Add(tree.root(), 2, 1, 20);
  std::vector<uint64_t> keys;
  EXPECT_EQ(tree.Evict(3, &keys), 3u);
  EXPECT_THAT(keys, ElementsAre(1, 100, 2));
  EXPECT_EQ(tree.Evict(1, &keys), 0u);
}

TEST(RefRadixTree, CountsEachNodeItLooksAt) {
  RefRadixTree tree;
  for (uint64_t i = 0; i < 9; ++i) tree.Add(tree.root(), i, 1, i);
  (void)tree.Evict(1, nullptr);
  EXPECT_EQ(tree.visits(), 10u);  // and the root
  EXPECT_EQ(tree.victims(), 1u);
}

TEST(RefBlockPool, FindsWhatWasPutIn) {
  RefBlockPool pool(4);
  RefBlockPool::Block* const block = pool.Take();
  pool.Publish(block, Hash128{1, 2});
  pool.Release(block);
  EXPECT_EQ(pool.Find(Hash128{1, 2}), block);
  EXPECT_EQ(pool.Find(Hash128{1, 3}), nullptr);
  EXPECT_EQ(pool.Find(Hash128{2, 2}), nullptr);
}

TEST(RefBlockPool, TakesWhatWasLetGoLongestAgoAndForgetsItsName) {
  RefBlockPool pool(3);
  std::vector<RefBlockPool::Block*> blocks;
  for (uint64_t i = 0; i < 3; ++i) {
    blocks.push_back(pool.Take());
    pool.Publish(blocks.back(), Hash128{i, 7});
  }
  EXPECT_EQ(pool.Take(), nullptr);  // all are held
  for (const size_t i : {1u, 2u, 0u}) pool.Release(blocks[i]);
  pool.Hold(blocks[2]);
  EXPECT_EQ(pool.Take(), blocks[1]);
  EXPECT_EQ(pool.Find(Hash128{1, 7}), nullptr);
  EXPECT_EQ(pool.Find(Hash128{2, 7}), blocks[2]);
  EXPECT_EQ(pool.Take(), blocks[0]);
  EXPECT_EQ(pool.Take(), nullptr);
}

TEST(RefFindPrefix, StopsAtTheFirstThatIsMissing) {
  RefBlockPool pool(4);
  const std::vector<Hash128> names = {{1, 0}, {2, 0}, {3, 0}, {4, 0}};
  for (const size_t i : {0u, 1u, 3u}) pool.Publish(pool.Take(), names[i]);
  EXPECT_EQ(RefFindPrefix(pool, names), 2u);
}

// Digests by Python's hashlib: of 32 zero bytes and tokens 0 to 15; of that and tokens 16 to 31.
TEST(RefShaChain, HashesTheDigestBeforeAndTheBlock) {
  RefShaChain chain;
  std::vector<Hash128> names;
  const std::vector<uint32_t> tokens = CountingTokens(40);  // the rest is no block
  EXPECT_EQ(ShaHex(chain.Chain({tokens.data(), 16}, nullptr)),
            "aa330374288acbdcb5008f2959fd6df7d265c735fbb9b4b4c42ec2036accd6d3");
  EXPECT_EQ(ShaHex(chain.Chain(tokens, &names)),
            "8f3d3a653ef4f75ccd8845b6a76dd246da5b5e735809babef53877d21125357c");
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].lo, 0xdccb8a28740333aau);  // the first eight bytes, little-endian
}

TEST(RefXxhChain, DependsOnEveryBlockBefore) {
  std::vector<uint32_t> tokens = CountingTokens(32);
  const Hash128 before = RefXxhChain(tokens);
  EXPECT_EQ(RefXxhChain(tokens), before);
  tokens[0] ^= 1;
  EXPECT_NE(RefXxhChain(tokens), before);
}

TEST(Samples, PercentilesAreNearestRanks) {
  Samples samples;
  EXPECT_EQ(samples.Median(), 0);
  for (int i = 100; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Median(), 50);
  EXPECT_EQ(samples.P99(), 99);
  EXPECT_EQ(samples.Percentile(1), 100);
  EXPECT_EQ(samples.Least(), 1);
}

TEST(FillTokens, EqualStreamsAreEqualAndOthersDiffer) {
  std::vector<uint32_t> a(16), b(16), c(16);
  FillTokens(5, a);
  FillTokens(5, b);
  FillTokens(6, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

}  // namespace
}  // namespace fermata::bench
