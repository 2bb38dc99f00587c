// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the SSD tier's files: superblock copies, block records, space records
// (docs/disk-format.md). No other file knows them. It knows nothing of files, slots in use, or
// RocksDB: spans in, values out.
//
// Every decoder takes hostile input (tests/fuzz/ssd_format_fuzz.cc): it reads only inside the span
// it was given and answers DATA_LOSS/CHECKSUM for anything that an encoder here could not have
// written. Thread safety: pure functions. Cost: O(bytes), one XXH3 pass each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "tiers/tier.h"

namespace fermata {

constexpr uint32_t kSsdFormatVersion = 1;
constexpr size_t kSsdSuperblockBytes = 4096;
constexpr uint32_t kSsdGroupsMax = 16;
constexpr uint64_t kSsdIoAlignment = 4096;
constexpr uint64_t kSsdBlockBytesMax = uint64_t{1} << 30;
constexpr uint64_t kSsdSlotsMax = 0xfffffffe;  // SlotId::kNone is not a slot
constexpr uint64_t kSsdIdentityBytesMax =
    16u << 20;  // 64 extra parts of 64 KiB, and the tokens, with room

struct SsdGroupGeometry {
  uint64_t block_bytes = 0;
  uint64_t slot_bytes = 0;  // block_bytes rounded up to kSsdIoAlignment
  uint64_t slots = 0;
  friend bool operator==(const SsdGroupGeometry&, const SsdGroupGeometry&) = default;
};

struct SsdSuperblock {
  std::array<uint8_t, 16> uuid{};
  uint64_t incarnation = 0;  // of two valid copies the one with more is the newer
  std::vector<SsdGroupGeometry> groups;
};

using SsdSuperblockBytes = std::array<std::byte, kSsdSuperblockBytes>;

// REQUIRES: 1..kSsdGroupsMax groups.
SsdSuperblockBytes EncodeSuperblock(const SsdSuperblock& superblock);
// DATA_LOSS/CHECKSUM: not a superblock, or damaged. FAILED_PRECONDITION: whole, and of another
// format version.
Result<SsdSuperblock> DecodeSuperblock(std::span<const std::byte> bytes);

// What the catalog keeps of a slot. `record.identity` points into the decoded bytes.
struct SsdSlotRecord {
  BlockRecord record;
  SlotId slot = SlotId::kNone;
  uint64_t generation = 0;  // of this write; unique in the life of the store
  uint64_t checksum = 0;    // PayloadChecksum(payload, key, generation)
};

constexpr std::string_view kSsdBlockPrefix = "b";
constexpr std::string_view kSsdSpacePrefix = "s";

std::string EncodeBlockKey(GroupIndex group, SlotId slot);
std::string EncodeBlockValue(const SsdSlotRecord& slot_record);
// The value's checksum is seeded with group and slot, so a record that lies under another key is
// damaged too.
Result<SsdSlotRecord> DecodeBlock(std::string_view key, std::string_view value);

std::string EncodeSpaceKey(uint32_t number);
std::string EncodeSpaceValue(const SpaceRecord& space);
Result<SpaceRecord> DecodeSpace(std::string_view key, std::string_view value);

}  // namespace fermata
