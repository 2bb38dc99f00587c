// SPDX-License-Identifier: Apache-2.0
//
// The content oracle: what bytes a block must hold. They are a function of (fingerprint, the ids of
// all blocks from the first of the prefix to this one, plane, rank) and of nothing else, so they
// can be computed again from the trace and compared with what a cache handed out, without trusting
// anything the cache said. It calls nothing of the library's.
//
// Word i of a plane is one add, two xors, a rotate of the seed and i: no multiply, so it vectorises
// with SSE2 and AVX2 (chosen at run time) and runs at memory speed. Two different seeds share a
// word only by chance (2^-64).
//
// Thread safety: pure functions. Cost: both run above 10 GB/s a core on planes that are in cache
// (32 KiB, AVX2, 2026-12); from memory they run at its speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fermata::bench {

constexpr size_t kOracleGranule = 32;  // planes are multiples of this many bytes
constexpr size_t kAllRight = ~size_t{0};

// 128 bits that stand for a prefix, or for one plane of its last block.
struct ContentSeed {
  uint64_t a = 0;
  uint64_t b = 0;
  friend bool operator==(const ContentSeed&, const ContentSeed&) = default;
};

// The empty prefix of a space.
ContentSeed SeedOfSpace(std::string_view fingerprint);
// The prefix that continues `parent` by block `id`.
ContentSeed Extend(const ContentSeed& parent, uint64_t id);
ContentSeed SeedOfPlane(const ContentSeed& block, uint32_t plane, uint32_t rank);

// REQUIRES: bytes % kOracleGranule == 0.
void FillPlane(const ContentSeed& plane, std::byte* out, size_t bytes);
// Compares every byte. kAllRight, or the offset of the first that is wrong.
size_t FindWrongByte(const ContentSeed& plane, const std::byte* data, size_t bytes);

}  // namespace fermata::bench
