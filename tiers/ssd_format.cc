// SPDX-License-Identifier: Apache-2.0
#include "tiers/ssd_format.h"

#include <bit>
#include <concepts>
#include <cstring>

#include "base/check.h"

namespace fermata {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the files are little-endian and so are all our machines");

constexpr char kMagic[8] = {'F', 'E', 'R', 'M', 'S', 'S', 'D', '\n'};
constexpr size_t kSuperblockChecksumAt = kSsdSuperblockBytes - sizeof(Hash128);
constexpr uint64_t kRecordSeed = 0x7265636f7264'01;
constexpr uint64_t kSpaceSeed = 0x7370616365'01;
constexpr size_t kBlockFixedBytes = 72;
constexpr size_t kSpaceFixedBytes = 16;

Status Damaged(const char* what) {
  return ReasonF(StatusCode::kDataLoss, Reason::kChecksum, "%s is damaged", what);
}

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Appends fixed-width little-endian values.
class Writer {
 public:
  explicit Writer(std::string* out) : out_(out) {}
  template <std::unsigned_integral T>
  void Put(T value) {
    out_->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutBytes(std::span<const std::byte> bytes) {
    out_->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

 private:
  std::string* const out_;
};

// Takes values off the front; past the end it gives zeros and remembers.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <std::unsigned_integral T>
  T Take() {
    T value = 0;
    const std::span<const std::byte> bytes = TakeBytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::span<const std::byte> TakeBytes(size_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::span<const std::byte> taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  bool ok() const { return ok_; }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

template <std::unsigned_integral T>
void AppendBigEndian(std::string* out, T value) {
  for (size_t i = sizeof value; i-- > 0;)
    out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

template <std::unsigned_integral T>
T ReadBigEndian(std::string_view bytes) {
  T value = 0;
  for (const char c : bytes.substr(0, sizeof(T))) {
    value = static_cast<T>(static_cast<T>(value << 8) | static_cast<unsigned char>(c));
  }
  return value;
}

// Frames: [u32 version][u32 whole length] ... [u64 checksum]. Checks the frame; gives what lies
// between.
Result<std::span<const std::byte>> OpenFrame(std::string_view value, const Hash128& binding,
                                             uint64_t seed, const char* what) {
  const std::span<const std::byte> bytes = AsBytes(value);
  if (bytes.size() < 16) return Damaged(what);
  const std::span<const std::byte> covered = bytes.first(bytes.size() - 8);
  uint64_t stored = 0;
  std::memcpy(&stored, bytes.data() + covered.size(), sizeof stored);
  if (stored != PayloadChecksum(covered, binding, seed)) return Damaged(what);
  Reader reader(covered);
  const auto version = reader.Take<uint32_t>();
  const auto length = reader.Take<uint32_t>();
  if (version != kSsdFormatVersion || length != bytes.size()) return Damaged(what);
  return covered.subspan(8);
}

void CloseFrame(std::string* value, const Hash128& binding, uint64_t seed) {
  const uint32_t length = static_cast<uint32_t>(value->size() + 8);
  std::memcpy(value->data() + 4, &length, sizeof length);
  Writer(value).Put(PayloadChecksum(AsBytes(*value), binding, seed));
}

}  // namespace

SsdSuperblockBytes EncodeSuperblock(const SsdSuperblock& superblock) {
  FERMATA_CHECK(!superblock.groups.empty() && superblock.groups.size() <= kSsdGroupsMax);
  std::string text;
  Writer writer(&text);
  text.append(kMagic, sizeof kMagic);
  writer.Put(kSsdFormatVersion);
  writer.Put(static_cast<uint32_t>(superblock.groups.size()));
  writer.PutBytes(std::as_bytes(std::span(superblock.uuid)));
  writer.Put(superblock.incarnation);
  writer.Put(uint64_t{0});
  for (const SsdGroupGeometry& group : superblock.groups) {
    writer.Put(group.block_bytes);
    writer.Put(group.slot_bytes);
    writer.Put(group.slots);
  }
  SsdSuperblockBytes out{};
  std::memcpy(out.data(), text.data(), text.size());
  const Hash128 checksum = ContentHash(std::span(out).first(kSuperblockChecksumAt));
  std::memcpy(out.data() + kSuperblockChecksumAt, &checksum, sizeof checksum);
  return out;
}

Result<SsdSuperblock> DecodeSuperblock(std::span<const std::byte> bytes) {
  if (bytes.size() < kSsdSuperblockBytes) return Damaged("superblock copy (short)");
  bytes = bytes.first(kSsdSuperblockBytes);
  Hash128 stored;
  std::memcpy(&stored, bytes.data() + kSuperblockChecksumAt, sizeof stored);
  if (stored != ContentHash(bytes.first(kSuperblockChecksumAt))) return Damaged("superblock copy");
  Reader reader(bytes);
  const std::span<const std::byte> magic = reader.TakeBytes(sizeof kMagic);
  if (std::memcmp(magic.data(), kMagic, sizeof kMagic) != 0) return Damaged("superblock magic");
  // Magic, version and the place of the checksum are the same in every version: an intact copy of
  // another version is known as such.
  const auto version = reader.Take<uint32_t>();
  if (version != kSsdFormatVersion) {
    return ErrorF(StatusCode::kFailedPrecondition,
                  "format version %u, this library reads version %u", version, kSsdFormatVersion);
  }
  const auto count = reader.Take<uint32_t>();
  if (count == 0 || count > kSsdGroupsMax) return Damaged("superblock group count");
  SsdSuperblock superblock;
  const std::span<const std::byte> uuid = reader.TakeBytes(superblock.uuid.size());
  std::memcpy(superblock.uuid.data(), uuid.data(), uuid.size());
  superblock.incarnation = reader.Take<uint64_t>();
  reader.Take<uint64_t>();
  for (uint32_t i = 0; i < count; ++i) {
    SsdGroupGeometry group;
    group.block_bytes = reader.Take<uint64_t>();
    group.slot_bytes = reader.Take<uint64_t>();
    group.slots = reader.Take<uint64_t>();
    if (group.block_bytes == 0 || group.block_bytes > kSsdBlockBytesMax || group.slots == 0 ||
        group.slots > kSsdSlotsMax ||
        group.slot_bytes !=
            (group.block_bytes + kSsdIoAlignment - 1) / kSsdIoAlignment * kSsdIoAlignment) {
      return Damaged("superblock geometry");
    }
    superblock.groups.push_back(group);
  }
  return superblock;
}

std::string EncodeBlockKey(GroupIndex group, SlotId slot) {
  std::string key(kSsdBlockPrefix);
  AppendBigEndian(&key, group);
  AppendBigEndian(&key, Raw(slot));
  return key;
}

std::string EncodeBlockValue(const SsdSlotRecord& slot_record) {
  const BlockRecord& record = slot_record.record;
  FERMATA_CHECK(record.identity.size() <= kSsdIdentityBytesMax);
  std::string value;
  value.reserve(kBlockFixedBytes + record.identity.size() + 8);
  Writer writer(&value);
  writer.Put(kSsdFormatVersion);
  writer.Put(uint32_t{0});  // length, set by CloseFrame
  writer.Put(record.uid);
  writer.Put(record.parent_uid);
  writer.Put(slot_record.generation);
  writer.Put(slot_record.checksum);
  writer.Put(record.key.lo);
  writer.Put(record.key.hi);
  writer.Put(record.space);
  writer.Put(record.depth);
  writer.Put(static_cast<uint32_t>(record.identity.size()));
  writer.Put(uint32_t{0});
  FERMATA_CHECK(value.size() == kBlockFixedBytes);
  writer.PutBytes(record.identity);
  CloseFrame(&value, Hash128{record.group, Raw(slot_record.slot)}, kRecordSeed);
  return value;
}

Result<SsdSlotRecord> DecodeBlock(std::string_view key, std::string_view value) {
  if (key.size() != 7 || key.substr(0, 1) != kSsdBlockPrefix) return Damaged("block record key");
  SsdSlotRecord out;
  out.record.group = ReadBigEndian<uint16_t>(key.substr(1));
  out.slot = SlotId{ReadBigEndian<uint32_t>(key.substr(3))};
  if (value.size() > kBlockFixedBytes + kSsdIdentityBytesMax + 8)
    return Damaged("block record (long)");
  Result<std::span<const std::byte>> body =
      OpenFrame(value, Hash128{out.record.group, Raw(out.slot)}, kRecordSeed, "block record");
  if (!body.ok()) return body.status();
  Reader reader(*body);
  out.record.uid = reader.Take<uint64_t>();
  out.record.parent_uid = reader.Take<uint64_t>();
  out.generation = reader.Take<uint64_t>();
  out.checksum = reader.Take<uint64_t>();
  out.record.key.lo = reader.Take<uint64_t>();
  out.record.key.hi = reader.Take<uint64_t>();
  out.record.space = reader.Take<uint32_t>();
  out.record.depth = reader.Take<uint32_t>();
  const auto identity_bytes = reader.Take<uint32_t>();
  reader.Take<uint32_t>();
  out.record.identity = reader.TakeBytes(identity_bytes);
  if (!reader.ok() || reader.left() != 0 || out.record.uid == 0) return Damaged("block record");
  return out;
}

std::string EncodeSpaceKey(uint32_t number) {
  std::string key(kSsdSpacePrefix);
  AppendBigEndian(&key, number);
  return key;
}

std::string EncodeSpaceValue(const SpaceRecord& space) {
  FERMATA_CHECK(space.identity.size() <= kSsdIdentityBytesMax);
  std::string value;
  Writer writer(&value);
  writer.Put(kSsdFormatVersion);
  writer.Put(uint32_t{0});
  writer.Put(space.number);
  writer.Put(static_cast<uint32_t>(space.identity.size()));
  value.append(space.identity);
  CloseFrame(&value, Hash128{space.number, 0}, kSpaceSeed);
  return value;
}

Result<SpaceRecord> DecodeSpace(std::string_view key, std::string_view value) {
  if (key.size() != 5 || key.substr(0, 1) != kSsdSpacePrefix) return Damaged("space record key");
  const auto number = ReadBigEndian<uint32_t>(key.substr(1));
  if (value.size() > kSpaceFixedBytes + kSsdIdentityBytesMax + 8)
    return Damaged("space record (long)");
  Result<std::span<const std::byte>> body =
      OpenFrame(value, Hash128{number, 0}, kSpaceSeed, "space record");
  if (!body.ok()) return body.status();
  Reader reader(*body);
  SpaceRecord space;
  space.number = reader.Take<uint32_t>();
  const auto identity_bytes = reader.Take<uint32_t>();
  const std::span<const std::byte> identity = reader.TakeBytes(identity_bytes);
  if (!reader.ok() || reader.left() != 0 || space.number != number || number == 0) {
    return Damaged("space record");
  }
  space.identity.assign(reinterpret_cast<const char*>(identity.data()), identity.size());
  return space;
}

}  // namespace fermata
