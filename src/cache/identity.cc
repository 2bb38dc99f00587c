// SPDX-License-Identifier: Apache-2.0
#include "cache/identity.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <tuple>

namespace fermata {
namespace {

constexpr uint32_t kIdentityVersion = 1;
constexpr uint32_t kLastOwnExtra = 4;       // FERMATA_EXTRA_EMBEDDING
constexpr uint32_t kFirstUserExtra = 1024;  // FERMATA_EXTRA_USER

void PutU32(std::string* out, uint32_t value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void PutU64(std::string* out, uint64_t value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void PutField(std::string* out, uint32_t type, const std::string& value) {
  PutU32(out, type);
  PutU64(out, value.size());
  out->append(value);
}

template <typename T>
void Append(std::vector<std::byte>* out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out->insert(out->end(), bytes, bytes + sizeof value);
}

}  // namespace

std::string CanonicalBytes(const SpaceIdentity& identity, const CacheConfig& config) {
  std::string out;
  PutU32(&out, kIdentityVersion);
  PutU32(&out, static_cast<uint32_t>(identity.key_mode));
  PutField(&out, 1, identity.weights);
  PutField(&out, 2, identity.model_config);
  PutField(&out, 3, identity.rope);
  PutField(&out, 4, identity.tenant_salt);
  PutField(&out, 5, identity.kv_dtype);
  PutField(&out, 6, identity.codec);
  PutU32(&out, identity.layout_version);
  PutU32(&out, identity.rank);
  PutU32(&out, identity.ranks);
  PutU32(&out, identity.replicated);
  PutU32(&out, config.chain_tokens);
  PutU32(&out, static_cast<uint32_t>(config.groups.size()));
  for (const GroupConfig& group : config.groups) {
    PutU32(&out, group.block_tokens);
    PutU64(&out, group.block_bytes);
  }
  return out;
}

KeyMode KeyModeOf(const std::string& canonical) {
  uint32_t mode = 0;  // behind the version
  if (canonical.size() >= 2 * sizeof mode)
    std::memcpy(&mode, canonical.data() + sizeof mode, sizeof mode);
  return mode == static_cast<uint32_t>(KeyMode::kBlocks) ? KeyMode::kBlocks : KeyMode::kTokens;
}

Status CheckAndSortExtras(std::vector<ExtraPart>* extras) {
  if (extras->size() > 64) {
    return ErrorF(StatusCode::kInvalidArgument, "extra_count is %zu, want at most 64",
                  extras->size());
  }
  for (size_t i = 0; i < extras->size(); ++i) {
    const ExtraPart& part = (*extras)[i];
    if (part.type == 0 || (part.type > kLastOwnExtra && part.type < kFirstUserExtra)) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "extras[%zu].type is %u, want 1..%u or at least %u", i, part.type,
                    kLastOwnExtra, kFirstUserExtra);
    }
    if (part.begin > part.end || (part.begin == part.end && part.begin != 0)) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "extras[%zu] covers tokens %" PRIu64 "..%" PRIu64 ", which is empty", i,
                    part.begin, part.end);
    }
  }
  std::sort(extras->begin(), extras->end(), [](const ExtraPart& a, const ExtraPart& b) {
    return std::tie(a.begin, a.end, a.type, a.data) < std::tie(b.begin, b.end, b.type, b.data);
  });
  return Status();
}

std::span<const std::byte> NamedPrefix::Name(uint64_t first, uint64_t count,
                                             std::vector<std::byte>* scratch) const {
  std::span<const std::byte> raw;
  if (mode == KeyMode::kTokens) {
    raw = std::as_bytes(tokens.subspan((first - begin) * chain_tokens, count * chain_tokens));
  } else {
    raw = keys.subspan((first - begin) * key_bytes, count * key_bytes);
  }
  // Token names have a fixed length per unit, so that what follows them cannot be taken for tokens;
  // keys say their length.
  if (mode == KeyMode::kTokens && extras.empty()) return raw;
  scratch->clear();
  if (mode == KeyMode::kBlocks) scratch->push_back(static_cast<std::byte>(key_bytes));
  scratch->insert(scratch->end(), raw.begin(), raw.end());
  const uint64_t from = first * chain_tokens;
  const uint64_t to = (first + count) * chain_tokens;
  for (const ExtraPart& part : extras) {
    const bool whole = part.begin == 0 && part.end == 0;
    // A part of the whole sequence is named by the first unit; all later ones inherit it through
    // their parents.
    if (whole ? first != 0 : (part.end <= from || part.begin >= to)) continue;
    Append(scratch, part.type);
    Append(scratch, part.begin);
    Append(scratch, part.end);
    Append(scratch, static_cast<uint64_t>(part.data.size()));
    const auto* data = reinterpret_cast<const std::byte*>(part.data.data());
    scratch->insert(scratch->end(), data, data + part.data.size());
  }
  return *scratch;
}

std::vector<uint32_t> TokensOfName(std::span<const std::byte> name, uint64_t units,
                                   uint32_t chain_tokens) {
  std::vector<uint32_t> tokens(units * chain_tokens);
  FERMATA_CHECK(name.size() >= tokens.size() * sizeof(uint32_t));
  std::memcpy(tokens.data(), name.data(), tokens.size() * sizeof(uint32_t));
  return tokens;
}

}  // namespace fermata
