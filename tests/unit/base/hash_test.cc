// SPDX-License-Identifier: Apache-2.0
//
// Golden vectors: what is on a disk or in another process's events was hashed by another build. A
// change here is a format change. Two of them come from outside (XXH3-128 of nothing as xxHash
// publishes it, SplitMix64 of 0), the rest pin ours.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#ifndef FERMATA_HASH_BITS
#define FERMATA_HASH_BITS 128
#endif

namespace fermata {
namespace {

std::vector<std::byte> Message(size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>(i * 7 + 3);
  return message;
}

// What is left of a full value in this build (the weakhash preset keeps 8 bits).
Hash128 Kept(Hash128 full) {
  if constexpr (FERMATA_HASH_BITS < 64) {
    full.lo &= (uint64_t{1} << (FERMATA_HASH_BITS % 64)) - 1;
    full.hi = 0;
  }
  return full;
}

TEST(ChainHash, GoldenVectors) {
  struct Vector {
    size_t bytes;
    Hash128 value;
  };
  // 496 is the last length of the one-buffer path, 497 the first of the streaming one.
  const Vector vectors[] = {
      {0, {0x05ea23ef06e28b2du, 0xe5189a9599e3f862u}},
      {64, {0x6e9f1c7043aeddd8u, 0xfe6c0f67d029fc9eu}},
      {496, {0xdfceafbfbb3ac2ceu, 0xb952fac4701ec8edu}},
      {497, {0x6e30ee7d18f1d78fu, 0x3a59bb476cd308fbu}},
      {2000, {0x906dab46713d4b38u, 0x44d89cf537421693u}},
  };
  for (const Vector& vector : vectors) {
    EXPECT_EQ(ChainHash(Hash128{}, Message(vector.bytes)), Kept(vector.value)) << vector.bytes;
  }
  EXPECT_EQ(ChainHash(Hash128{1, 2}, Message(64)),
            Kept({0x1d2a4cb903dc88dau, 0x7d88d295653f5292u}));
}

TEST(ChainHash, ParentIsPartOfWhatIsHashed) {
  const auto message = Message(64);
  // XXH3(parent bytes ++ message) is the definition, whatever path computes it.
  std::vector<std::byte> joined(sizeof(Hash128));
  const Hash128 parent{1, 2};
  const auto* bytes = reinterpret_cast<const std::byte*>(&parent);
  std::copy(bytes, bytes + sizeof parent, joined.begin());
  joined.insert(joined.end(), message.begin(), message.end());
  EXPECT_EQ(ChainHash(parent, message), Kept(ContentHash(joined)));
  const auto longer = Message(1000);
  joined.resize(sizeof parent);
  joined.insert(joined.end(), longer.begin(), longer.end());
  EXPECT_EQ(ChainHash(parent, longer), Kept(ContentHash(joined)));
}

TEST(ChainHash, CutBuildKeepsOnlyItsBits) {
  if (FERMATA_HASH_BITS >= 64) GTEST_SKIP() << "full hash; the weakhash preset runs this";
  for (size_t bytes = 0; bytes < 600; bytes += 7) {
    const Hash128 value = ChainHash(Hash128{}, Message(bytes));
    EXPECT_LT(value.lo, uint64_t{1} << (FERMATA_HASH_BITS % 64));
    EXPECT_EQ(value.hi, 0u);
  }
}

TEST(ContentHash, GoldenVectors) {
  // Published: XXH3_128bits("") = 99aa06d3014798d8 6001c324468d497f.
  EXPECT_EQ(ContentHash({}), (Hash128{0x6001c324468d497fu, 0x99aa06d3014798d8u}));
  EXPECT_EQ(ContentHash(Message(64)), (Hash128{0xaa549d72c69cd267u, 0xfed953fe6a8b2b63u}));
}

TEST(PayloadChecksum, GoldenVector) {
  EXPECT_EQ(PayloadChecksum(Message(2000), Hash128{1, 2}, 3), 0x07f38aa143922535u);
}

TEST(PayloadChecksum, DiffersByKeyGenerationAndEveryByte) {
  auto payload = Message(4096);
  const Hash128 key{0x1234, 0x5678};
  const uint64_t sum = PayloadChecksum(payload, key, 9);
  EXPECT_NE(sum, PayloadChecksum(payload, Hash128{0x1235, 0x5678}, 9));
  EXPECT_NE(sum, PayloadChecksum(payload, Hash128{0x1234, 0x5679}, 9));
  EXPECT_NE(sum, PayloadChecksum(payload, key, 10));
  for (size_t i = 0; i < payload.size(); i += 127) {
    payload[i] ^= std::byte{1};
    EXPECT_NE(sum, PayloadChecksum(payload, key, 9)) << "byte " << i;
    payload[i] ^= std::byte{1};
  }
  EXPECT_EQ(sum, PayloadChecksum(payload, key, 9));
}

TEST(MixU64, IsSplitMix64) {
  // Published first outputs of SplitMix64 seeded with 0 and 1.
  EXPECT_EQ(MixU64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(MixU64(1), 0x910a2dec89025cc1u);
}

}  // namespace
}  // namespace fermata
