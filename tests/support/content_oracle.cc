// SPDX-License-Identifier: Apache-2.0
#include "tests/support/content_oracle.h"

#include <algorithm>
#include <cstring>

namespace fermata_test {
namespace {

uint64_t HashText(uint64_t seed, const std::string& text) {
  uint64_t value = Mix(seed ^ (text.size() + 1));  // The length first: "ab","c" is not "a","bc".
  for (const char c : text) value = Mix(value ^ static_cast<unsigned char>(c));
  return value;
}

uint64_t HashFingerprint(const Fingerprint& f) {
  uint64_t value = 0x5eed;
  for (const std::string* text :
       {&f.weights, &f.model_config, &f.rope, &f.tenant_salt, &f.kv_dtype, &f.codec}) {
    value = HashText(value, *text);
  }
  for (const uint32_t number : {f.layout_version, f.rank, f.ranks}) value = Mix(value ^ number);
  return value;
}

bool Covers(const Extra& extra, uint64_t position) {
  if (extra.begin == 0 && extra.end == 0) return true;
  return position >= extra.begin && position < extra.end;
}

uint64_t Word(uint64_t seed, uint64_t index) { return Mix(seed + index * 0x9e3779b97f4a7c15ull); }

}  // namespace

uint64_t Mix(uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ull;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

ContentOracle::ContentOracle(const Fingerprint& fingerprint, const Extras& extras,
                             std::span<const uint32_t> tokens) {
  std::vector<uint64_t> extra_hashes;
  for (const Extra& extra : extras) extra_hashes.push_back(HashText(extra.type, extra.data));
  uint64_t digest = HashFingerprint(fingerprint);
  digests_.reserve(tokens.size());
  for (size_t p = 0; p < tokens.size(); ++p) {
    uint64_t parts = 0;  // A sum: the order in which extras are listed is not part of an identity.
    for (size_t e = 0; e < extras.size(); ++e) {
      if (Covers(extras[e], p)) parts += extra_hashes[e];
    }
    digest = Mix(Mix(digest + tokens[p] + 1) ^ parts);
    digests_.push_back(digest);
  }
}

uint64_t ContentOracle::SeedOf(const PlaneSpan& span, uint64_t token) const {
  return Mix(digests_[token] ^ Mix((uint64_t{span.group} << 32) + span.plane + 1));
}

void ContentOracle::Fill(const PlaneSpan& span) const {
  for (uint64_t token = span.first_token; token < span.end_token; ++token) {
    const uint64_t i = token - span.block * span.block_tokens;
    const uint64_t begin = i * span.slot_bytes / span.block_tokens;
    const uint64_t end = (i + 1) * span.slot_bytes / span.block_tokens;
    const uint64_t seed = SeedOf(span, token);
    uint64_t at = begin;
    for (uint64_t index = 0; at < end; ++index) {
      const uint64_t word = Word(seed, index);
      const uint64_t bytes = std::min<uint64_t>(sizeof(word), end - at);
      std::memcpy(span.bytes + at, &word, bytes);
      at += bytes;
    }
  }
}

std::string ContentOracle::Check(const PlaneSpan& span) const {
  for (uint64_t token = span.first_token; token < span.end_token; ++token) {
    const uint64_t i = token - span.block * span.block_tokens;
    const uint64_t begin = i * span.slot_bytes / span.block_tokens;
    const uint64_t end = (i + 1) * span.slot_bytes / span.block_tokens;
    const uint64_t seed = SeedOf(span, token);
    uint64_t at = begin;
    for (uint64_t index = 0; at < end; ++index) {
      const uint64_t word = Word(seed, index);
      const uint64_t bytes = std::min<uint64_t>(sizeof(word), end - at);
      if (std::memcmp(span.bytes + at, &word, bytes) != 0) {
        return "group " + std::to_string(span.group) + " plane " + std::to_string(span.plane) +
               " block " + std::to_string(span.block) + ": the KV of token " +
               std::to_string(token) + " is wrong near byte " + std::to_string(at) + " of the slot";
      }
      at += bytes;
    }
  }
  return "";
}

}  // namespace fermata_test
