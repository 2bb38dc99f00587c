// SPDX-License-Identifier: Apache-2.0
#include "bench/oracle.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "bench/device_arena.h"

namespace fermata::bench {
namespace {

std::vector<std::byte> Filled(const ContentSeed& seed, size_t bytes) {
  std::vector<std::byte> data(bytes);
  FillPlane(seed, data.data(), bytes);
  return data;
}

// What the header promises, word by word and without vectors.
TEST(Oracle, WordsAreTheDocumentedFunction) {
  const ContentSeed seed{0x0123456789abcdefu, 0xfedcba9876543210u};
  const std::vector<std::byte> data = Filled(seed, 32768 + 32);
  for (size_t i = 0; i < data.size() / 8; ++i) {
    const uint64_t x = seed.a + i * 0x9e3779b97f4a7c15u;
    const uint64_t want = (x ^ seed.b) + ((x << 29) | (x >> 35));
    uint64_t got = 0;
    std::memcpy(&got, data.data() + 8 * i, 8);
    ASSERT_EQ(got, want) << i;
  }
}

TEST(Oracle, EveryFlippedBitOfABlockIsFoundWhereItIs) {
  const ContentSeed seed{11, 22};
  std::vector<std::byte> data = Filled(seed, 9 * 1024);
  ASSERT_EQ(FindWrongByte(seed, data.data(), data.size()), kAllRight);
  for (size_t at = 0; at < data.size(); ++at) {
    for (const unsigned bit : {0u, 7u}) {
      data[at] ^= static_cast<std::byte>(1u << bit);
      ASSERT_EQ(FindWrongByte(seed, data.data(), data.size()), at);
      data[at] ^= static_cast<std::byte>(1u << bit);
    }
  }
}

TEST(Oracle, UnalignedMemoryIsFine) {
  const ContentSeed seed{5, 6};
  std::vector<std::byte> data(4096 + 1);
  FillPlane(seed, data.data() + 1, 4096);
  EXPECT_EQ(FindWrongByte(seed, data.data() + 1, 4096), kAllRight);
}

TEST(Oracle, BytesDependOnAllThatTheyShould) {
  const ContentSeed space = SeedOfSpace("one");
  const ContentSeed block = Extend(Extend(space, 1), 2);
  std::set<std::pair<uint64_t, uint64_t>> seeds;
  const auto add = [&](const ContentSeed& seed) { seeds.insert({seed.a, seed.b}); };
  add(SeedOfPlane(block, 0, 0));
  add(SeedOfPlane(block, 1, 0));
  add(SeedOfPlane(block, 0, 1));
  add(SeedOfPlane(block, 1, 1));
  add(SeedOfPlane(Extend(Extend(space, 2), 1), 0, 0));               // order
  add(SeedOfPlane(Extend(Extend(space, 9), 2), 0, 0));               // an ancestor
  add(SeedOfPlane(Extend(Extend(SeedOfSpace("two"), 1), 2), 0, 0));  // the space
  add(SeedOfPlane(Extend(block, 2), 0, 0));                          // depth
  EXPECT_EQ(seeds.size(), 8u);
  EXPECT_EQ(SeedOfPlane(Extend(Extend(SeedOfSpace("one"), 1), 2), 0, 0), SeedOfPlane(block, 0, 0));
}

TEST(Oracle, WordsOfManyBlocksDoNotRepeat) {
  std::set<uint64_t> words;
  ContentSeed seed = SeedOfSpace("many");
  constexpr size_t kBlocks = 500, kWords = 64;
  for (size_t i = 0; i < kBlocks; ++i) {
    seed = Extend(seed, i % 3);
    const std::vector<std::byte> data = Filled(SeedOfPlane(seed, 0, 0), kWords * 8);
    for (size_t k = 0; k < kWords; ++k) {
      uint64_t word = 0;
      std::memcpy(&word, data.data() + 8 * k, 8);
      words.insert(word);
    }
  }
  EXPECT_EQ(words.size(), kBlocks * kWords);
}

TEST(DeviceArena, ChecksBothPlanesAndReportsColdOffsets) {
  for (const uint64_t block_bytes : {64u, 1024u, 65536u}) {
    Result<std::unique_ptr<DeviceArena>> made = DeviceArena::Create(4, block_bytes);
    ASSERT_TRUE(made.ok());
    const DeviceArena& arena = **made;
    EXPECT_EQ(arena.planes(), block_bytes == 64 ? 1u : 2u);
    const ContentSeed block = Extend(SeedOfSpace("x"), 3);
    for (uint32_t slot = 0; slot < 4; ++slot) arena.Write(slot, Extend(block, slot));
    for (uint32_t slot = 0; slot < 4; ++slot) {
      EXPECT_EQ(arena.FindWrong(slot, Extend(block, slot)), kAllRight);
      EXPECT_NE(arena.FindWrong(slot, Extend(block, slot + 1)), kAllRight);
    }
    for (const uint64_t at : {uint64_t{0}, block_bytes / 2, block_bytes - 1}) {
      arena.FlipByte(2, at);
      EXPECT_EQ(arena.FindWrong(2, Extend(block, 2)), at);
      arena.FlipByte(2, at);
    }
  }
}

}  // namespace
}  // namespace fermata::bench
