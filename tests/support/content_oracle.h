// SPDX-License-Identifier: Apache-2.0
//
// ContentOracle says what the KV of a token must be: bytes that depend on the space's fingerprint,
// on the typed extras, on every token from 0 to this one, and on group, plane and rank. A hit is
// honest when the bytes behind it equal the oracle's. It knows nothing of the library: what it
// expects is computed from the request alone, never from what a call returned.
//
// A block's slot of one plane is shared out evenly over its tokens, so that a partly filled block
// can be checked too: the part of the token at position p is a function of tokens 0..p, as in a
// model.
//
// Thread safety: const after construction. Cost: construction O(tokens * extras), Fill and Check
// about 1 ns per 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fermata_test {

// One typed part of an identity; begin == end == 0 covers the whole sequence.
struct Extra {
  uint32_t type = 0;
  std::string data;
  uint64_t begin = 0;
  uint64_t end = 0;
};
using Extras = std::vector<Extra>;
using Tokens = std::vector<uint32_t>;

// What tells spaces apart; the fields of fermata_space_config.
struct Fingerprint {
  std::string weights = "weights-1";
  std::string model_config = "config-1";
  std::string rope = "rope-1";
  std::string tenant_salt;
  std::string kv_dtype = "bf16";
  std::string codec;
  uint32_t layout_version = 1;
  uint32_t rank = 0;
  uint32_t ranks = 1;
};

uint64_t Mix(uint64_t value);  // Avalanche of one word; the generator of all test data.

// Seeded stream of the tests' own, so that they share no code with what they test.
class Stream {
 public:
  explicit Stream(uint64_t seed) : state_(Mix(seed + 1)) {}
  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15ull); }
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  bool Chance(uint32_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

// Where a plane of a block lies and which of its tokens are meant.
struct PlaneSpan {
  uint32_t group = 0;
  uint32_t plane = 0;
  uint32_t block_tokens = 16;
  uint64_t block = 0;        // index in the sequence
  uint64_t first_token = 0;  // of the sequence, inside the block
  uint64_t end_token = 0;
  std::byte* bytes = nullptr;
  uint64_t slot_bytes = 0;
};

class ContentOracle {
 public:
  ContentOracle(const Fingerprint& fingerprint, const Extras& extras,
                std::span<const uint32_t> tokens);

  void Fill(const PlaneSpan& span) const;
  // Empty when every byte is right; else a sentence that names the first wrong one.
  std::string Check(const PlaneSpan& span) const;
  uint64_t tokens() const { return digests_.size(); }

 private:
  uint64_t SeedOf(const PlaneSpan& span, uint64_t token) const;

  std::vector<uint64_t> digests_;  // of tokens 0..p
};

}  // namespace fermata_test
