// SPDX-License-Identifier: Apache-2.0
//
// The identity chain's 128-bit hash and the payload checksum, both XXH3 (xxHash 0.8.1). The hash
// finds, it never proves: a hit compares identities in full. A build with -DFERMATA_HASH_BITS=8
// cuts every chain value and must pass all tests. Values depend on nothing but the input: not on
// process, build, thread or seed (tests/unit/base/hash_test.cc has vectors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fermata {

struct Hash128 {
  uint64_t lo = 0;
  uint64_t hi = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// Chain step: the value after `message` given the value before it. The parent's value is part of
// the hashed bytes.
Hash128 ChainHash(const Hash128& parent, std::span<const std::byte> message);

// 128 bits of any bytes, uncut by FERMATA_HASH_BITS.
Hash128 ContentHash(std::span<const std::byte> bytes);

// What the prefix index finds by; cut by FERMATA_HASH_BITS as chain values are.
uint64_t IndexHash(std::span<const std::byte> name, uint64_t seed);

// Checksum of a payload, seeded so that the bytes of another key, or of the same slot in an older
// generation, fail.
uint64_t PayloadChecksum(std::span<const std::byte> payload, const Hash128& key,
                         uint64_t generation);

uint64_t MixU64(uint64_t value);  // Avalanche of one word.

}  // namespace fermata
