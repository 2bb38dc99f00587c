// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

// XXH3_state_t on the stack needs its definition; the layout is fixed by the libxxhash that is
// linked (Debian 0.8.1).
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <cstring>

#ifndef FERMATA_HASH_BITS
#define FERMATA_HASH_BITS 128
#endif

namespace fermata {
namespace {

Hash128 Cut(XXH128_hash_t value) {
  Hash128 hash{value.low64, value.high64};
  if constexpr (FERMATA_HASH_BITS < 64) {
    hash.lo &= (uint64_t{1} << (FERMATA_HASH_BITS % 64)) - 1;
    hash.hi = 0;
  }
  return hash;
}

}  // namespace

Hash128 ChainHash(const Hash128& parent, std::span<const std::byte> message) {
  // One contiguous buffer for the usual unit (16 tokens = 64 bytes) is about 2x faster than the
  // streaming API.
  constexpr size_t kInline = 496;
  if (message.size() <= kInline) {
    std::byte buffer[sizeof(Hash128) + kInline];
    std::memcpy(buffer, &parent, sizeof parent);
    if (!message.empty()) std::memcpy(buffer + sizeof parent, message.data(), message.size());
    return Cut(XXH3_128bits(buffer, sizeof parent + message.size()));
  }
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, &parent, sizeof parent);
  XXH3_128bits_update(&state, message.data(), message.size());
  return Cut(XXH3_128bits_digest(&state));
}

Hash128 ContentHash(std::span<const std::byte> bytes) {
  const XXH128_hash_t value = XXH3_128bits(bytes.data(), bytes.size());
  return Hash128{value.low64, value.high64};
}

uint64_t IndexHash(std::span<const std::byte> name, uint64_t seed) {
  const uint64_t value = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  if constexpr (FERMATA_HASH_BITS < 64) {
    return value & ((uint64_t{1} << (FERMATA_HASH_BITS % 64)) - 1);
  }
  return value;
}

uint64_t PayloadChecksum(std::span<const std::byte> payload, const Hash128& key,
                         uint64_t generation) {
  const uint64_t seed = MixU64(key.lo ^ MixU64(key.hi ^ MixU64(generation)));
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

uint64_t MixU64(uint64_t value) {
  // SplitMix64's finaliser (Steele, Lea, Flood 2014).
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace fermata
