// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: the SSD tier's decoders take any bytes. What they accept must encode to what
// was given. The checksum stops nearly all random input, so every input is also tried with its
// frame made whole first.
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "tiers/ssd_format.h"

namespace fermata {
namespace {

// As the encoder closes a frame (ssd_format.cc); kept apart on purpose: a change there must show
// here.
std::string MadeWhole(std::string value, const Hash128& binding, uint64_t seed) {
  if (value.size() < 16) value.resize(16);
  const uint32_t version = kSsdFormatVersion;
  const uint32_t length = static_cast<uint32_t>(value.size());
  std::memcpy(value.data(), &version, sizeof version);
  std::memcpy(value.data() + 4, &length, sizeof length);
  const auto covered = std::as_bytes(std::span(value.data(), value.size() - 8));
  const uint64_t checksum = PayloadChecksum(covered, binding, seed);
  std::memcpy(value.data() + covered.size(), &checksum, sizeof checksum);
  return value;
}

void TryBlock(const std::string& key, const std::string& value) {
  const Result<SsdSlotRecord> block = DecodeBlock(key, value);
  if (!block.ok()) return;
  FERMATA_CHECK(block.value().record.uid != 0);
  FERMATA_CHECK(EncodeBlockKey(block.value().record.group, block.value().slot) == key);
  const Result<SsdSlotRecord> again = DecodeBlock(key, EncodeBlockValue(block.value()));
  FERMATA_CHECK(again.ok() && again.value().generation == block.value().generation);
}

void TrySpace(const std::string& key, const std::string& value) {
  const Result<SpaceRecord> space = DecodeSpace(key, value);
  if (space.ok()) FERMATA_CHECK(EncodeSpaceValue(space.value()) == value);
}

}  // namespace
}  // namespace fermata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fermata;  // NOLINT(google-build-using-namespace): a fuzz target's only function
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t split =
      input.empty() ? 0 : static_cast<unsigned char>(input[0]) % (input.size() + 1);
  TryBlock(input.substr(0, split), input.substr(split));
  TrySpace(input.substr(0, split), input.substr(split));
  TryBlock(EncodeBlockKey(3, SlotId{7}), MadeWhole(input, Hash128{3, 7}, 0x7265636f726401));
  TrySpace(EncodeSpaceKey(9), MadeWhole(input, Hash128{9, 0}, 0x737061636501));

  (void)DecodeSuperblock(std::as_bytes(std::span(data, size)));
  std::string whole = input;
  whole.resize(kSsdSuperblockBytes);
  const size_t at = kSsdSuperblockBytes - sizeof(Hash128);
  const Hash128 checksum = ContentHash(std::as_bytes(std::span(whole.data(), at)));
  std::memcpy(whole.data() + at, &checksum, sizeof checksum);
  const Result<SsdSuperblock> superblock = DecodeSuperblock(std::as_bytes(std::span(whole)));
  if (superblock.ok()) {
    const Result<SsdSuperblock> again = DecodeSuperblock(EncodeSuperblock(superblock.value()));
    FERMATA_CHECK(again.ok() && again.value().groups == superblock.value().groups);
  }
  return 0;
}
