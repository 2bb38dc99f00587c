// SPDX-License-Identifier: Apache-2.0
#include "tiers/ssd_format.h"

#include <gtest/gtest.h>

#include <cstring>

namespace fermata {
namespace {

SsdSlotRecord Record(const std::string& identity) {
  SsdSlotRecord record;
  record.record.uid = 11;
  record.record.parent_uid = 10;
  record.record.space = 3;
  record.record.group = 2;
  record.record.depth = 5;
  record.record.key = {0x0102030405060708, 0x1112131415161718};
  record.record.identity = std::as_bytes(std::span(identity));
  record.slot = SlotId{258};
  record.generation = 99;
  record.checksum = 0xabcdef;
  return record;
}

SsdSuperblock Superblock() {
  SsdSuperblock superblock;
  superblock.uuid[0] = 7;
  superblock.incarnation = 12;
  superblock.groups = {{65536, 65536, 100}, {5000, 8192, 7}};
  return superblock;
}

TEST(SsdFormat, BlockRecordComesBackWhole) {
  const std::string identity = "tokens";
  const SsdSlotRecord in = Record(identity);
  const std::string key = EncodeBlockKey(2, SlotId{258});
  const std::string value = EncodeBlockValue(in);
  const Result<SsdSlotRecord> out = DecodeBlock(key, value);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out.value().record.uid, 11u);
  EXPECT_EQ(out.value().record.parent_uid, 10u);
  EXPECT_EQ(out.value().record.space, 3u);
  EXPECT_EQ(out.value().record.group, 2u);
  EXPECT_EQ(out.value().record.depth, 5u);
  EXPECT_EQ(out.value().record.key, in.record.key);
  EXPECT_EQ(out.value().slot, SlotId{258});
  EXPECT_EQ(out.value().generation, 99u);
  EXPECT_EQ(out.value().checksum, 0xabcdefu);
  EXPECT_EQ(out.value().record.identity.size(), identity.size());
}

// Bytes on disk are a promise: this is what version 1 wrote.
TEST(SsdFormat, BytesOfVersionOne) {
  const std::string key = EncodeBlockKey(2, SlotId{258});
  EXPECT_EQ(key, std::string("b\0\2\0\0\1\2", 7));
  const std::string value = EncodeBlockValue(Record("tokens"));
  ASSERT_EQ(value.size(), 72u + 6 + 8);
  EXPECT_EQ(value.substr(0, 16), std::string("\1\0\0\0\x56\0\0\0\x0b\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(value.substr(40, 8), std::string("\x08\x07\x06\x05\x04\x03\x02\x01", 8));
  EXPECT_EQ(value.substr(72, 6), "tokens");
  const SsdSuperblockBytes superblock = EncodeSuperblock(Superblock());
  EXPECT_EQ(std::memcmp(superblock.data(), "FERMSSD\n\1\0\0\0\2\0\0\0\7", 17), 0);
  EXPECT_EQ(superblock[32], std::byte{12});
}

TEST(SsdFormat, EveryFlippedByteOfARecordIsSeen) {
  const std::string key = EncodeBlockKey(2, SlotId{258});
  const std::string value = EncodeBlockValue(Record("tokens"));
  for (size_t i = 0; i < value.size(); ++i) {
    std::string bad = value;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(DecodeBlock(key, bad).ok()) << i;
  }
  for (size_t cut = 0; cut < value.size(); ++cut)
    EXPECT_FALSE(DecodeBlock(key, value.substr(0, cut)).ok()) << cut;
}

TEST(SsdFormat, RecordUnderAnotherKeyIsDamaged) {
  const std::string value = EncodeBlockValue(Record("tokens"));
  EXPECT_FALSE(DecodeBlock(EncodeBlockKey(2, SlotId{259}), value).ok());
  EXPECT_FALSE(DecodeBlock(EncodeBlockKey(1, SlotId{258}), value).ok());
  EXPECT_FALSE(DecodeBlock("b", value).ok());
  EXPECT_FALSE(DecodeBlock("", value).ok());
}

TEST(SsdFormat, SpaceRecordComesBackWholeOrNotAtAll) {
  const SpaceRecord in{42, std::string("a\0b", 3)};
  const std::string key = EncodeSpaceKey(42);
  const std::string value = EncodeSpaceValue(in);
  const Result<SpaceRecord> out = DecodeSpace(key, value);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out.value().number, 42u);
  EXPECT_EQ(out.value().identity, in.identity);
  EXPECT_FALSE(DecodeSpace(EncodeSpaceKey(43), value).ok());
  for (size_t i = 0; i < value.size(); ++i) {
    std::string bad = value;
    bad[i] = static_cast<char>(bad[i] ^ 0x80);
    EXPECT_FALSE(DecodeSpace(key, bad).ok()) << i;
  }
}

TEST(SsdFormat, SuperblockComesBackWhole) {
  const SsdSuperblockBytes bytes = EncodeSuperblock(Superblock());
  const Result<SsdSuperblock> out = DecodeSuperblock(bytes);
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_EQ(out.value().incarnation, 12u);
  EXPECT_EQ(out.value().groups, Superblock().groups);
  EXPECT_EQ(out.value().uuid, Superblock().uuid);
}

TEST(SsdFormat, EveryFlippedByteOfASuperblockIsSeen) {
  const SsdSuperblockBytes bytes = EncodeSuperblock(Superblock());
  for (size_t i = 0; i < bytes.size(); ++i) {
    SsdSuperblockBytes bad = bytes;
    bad[i] ^= std::byte{1};
    const Result<SsdSuperblock> out = DecodeSuperblock(bad);
    ASSERT_FALSE(out.ok()) << i;
    EXPECT_EQ(out.status().code(), StatusCode::kDataLoss) << i;
  }
}

TEST(SsdFormat, IntactSuperblockOfAnotherVersionIsKnownAsSuch) {
  SsdSuperblockBytes bytes = EncodeSuperblock(Superblock());
  bytes[8] = std::byte{2};
  const Hash128 checksum = ContentHash(std::span(bytes).first(kSsdSuperblockBytes - 16));
  std::memcpy(bytes.data() + kSsdSuperblockBytes - 16, &checksum, 16);
  EXPECT_EQ(DecodeSuperblock(bytes).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fermata
