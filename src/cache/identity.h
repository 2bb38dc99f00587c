// SPDX-License-Identifier: Apache-2.0
//
// Identity: the bytes that must be equal for two blocks to be the same block, and the chain value
// that finds them. A prefix is named unit by unit (chain_tokens tokens, or one key of the
// engine's), and a block of a group is a whole number of units. All framing is here; there is no
// second path by which a name is made.
//
// Thread safety: values; a NamedPrefix borrows its tokens, keys and extras and must not outlive
// them. Cost: no allocation for tokens without extras; otherwise one scratch buffer of the
// caller's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "cache/config.h"

namespace fermata {

enum class KeyMode : uint32_t { kTokens = 0, kBlocks = 1 };

// What fermata_space_config says, owned.
struct SpaceIdentity {
  KeyMode key_mode = KeyMode::kTokens;
  std::string weights, model_config, rope, tenant_salt, kv_dtype, codec;
  uint32_t layout_version = 0;
  uint32_t rank = 0;
  uint32_t ranks = 1;
  uint32_t replicated = 0;
};

// Canonical bytes: every field typed and length-framed, the groups' geometry and the chain unit
// included.
std::string CanonicalBytes(const SpaceIdentity& identity, const CacheConfig& config);

// What canonical bytes say; kTokens for what is none.
KeyMode KeyModeOf(const std::string& canonical);

struct ExtraPart {
  uint32_t type = 0;
  uint64_t begin = 0;  // tokens; [0, 0) stands for the whole sequence
  uint64_t end = 0;
  std::string data;
};

// Sorted by (begin, end, type, data), so that the order in which a caller lists parts does not
// matter.
Status CheckAndSortExtras(std::vector<ExtraPart>* extras);

class NamedPrefix {
 public:
  KeyMode mode = KeyMode::kTokens;
  uint32_t chain_tokens = 16;
  std::span<const uint32_t> tokens;  // kTokens
  std::span<const std::byte> keys;   // kBlocks: key_bytes each
  uint32_t key_bytes = 0;
  std::span<const ExtraPart> extras;
  uint64_t begin = 0;  // unit that tokens and keys begin with; those before it cannot be named

  // Units up to which there are full names.
  uint64_t units() const {
    return begin + (mode == KeyMode::kTokens ? tokens.size() / chain_tokens
                                             : (key_bytes == 0 ? 0 : keys.size() / key_bytes));
  }
  // Every name is its tokens and nothing else.
  bool plain() const { return mode == KeyMode::kTokens && extras.empty(); }
  // The framed name of units [first, first + count): what a block compares. The result points into
  // the prefix or `scratch`.
  std::span<const std::byte> Name(uint64_t first, uint64_t count,
                                  std::vector<std::byte>* scratch) const;
};

// Takes the tokens (kTokens) back out of a name made by NamedPrefix::Name.
std::vector<uint32_t> TokensOfName(std::span<const std::byte> name, uint64_t units,
                                   uint32_t chain_tokens);

}  // namespace fermata
