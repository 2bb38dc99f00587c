// SPDX-License-Identifier: Apache-2.0
#include "bench/oracle.h"

#include <cstring>

#include "base/check.h"

namespace fermata::bench {
namespace {

// Four words; the compiler makes it one AVX2 or two SSE2 registers, by the function it is inlined
// into. Written with vector types, not left to the auto-vectoriser, which g++ 12 runs at -O2 only
// where it is free.
using Words = uint64_t __attribute__((vector_size(32)));
constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // odd, so that i * kStep never repeats
constexpr size_t kCompareBytes = 4096;  // how far a compare runs before it looks at what it found

#define FERMATA_INLINE inline __attribute__((always_inline))

struct Generator {
  Words counter;
  Words mask;
};

// By pointer: a 32-byte vector passed by value has another calling convention with AVX than
// without.
FERMATA_INLINE void Start(const ContentSeed& seed, Generator* generator) {
  generator->counter = Words{seed.a, seed.a + kStep, seed.a + 2 * kStep, seed.a + 3 * kStep};
  generator->mask = Words{seed.b, seed.b, seed.b, seed.b};
}

FERMATA_INLINE void Next(Generator* generator, Words* out) {
  const Words x = generator->counter;
  const Words rotated = (x << 29) | (x >> 35);
  *out = (x ^ generator->mask) + rotated;
  generator->counter = x + Words{4 * kStep, 4 * kStep, 4 * kStep, 4 * kStep};
}

FERMATA_INLINE void FillBody(const ContentSeed& seed, std::byte* out, size_t bytes) {
  Generator generator;
  Start(seed, &generator);
  for (size_t at = 0; at < bytes; at += sizeof(Words)) {
    Words words;
    Next(&generator, &words);
    std::memcpy(out + at, &words, sizeof(words));
  }
}

// Offset of the 4 KiB in which something is wrong, or kAllRight.
FERMATA_INLINE size_t CompareBody(const ContentSeed& seed, const std::byte* data, size_t bytes) {
  Generator generator;
  Start(seed, &generator);
  for (size_t begin = 0; begin < bytes; begin += kCompareBytes) {
    const size_t end = bytes - begin < kCompareBytes ? bytes : begin + kCompareBytes;
    Words different = {0, 0, 0, 0};
    for (size_t at = begin; at < end; at += sizeof(Words)) {
      Words want;
      Words got;
      Next(&generator, &want);
      std::memcpy(&got, data + at, sizeof(got));
      different |= want ^ got;
    }
    if ((different[0] | different[1] | different[2] | different[3]) != 0) return begin;
  }
  return kAllRight;
}

void FillPortable(const ContentSeed& seed, std::byte* out, size_t bytes) {
  FillBody(seed, out, bytes);
}
size_t ComparePortable(const ContentSeed& seed, const std::byte* data, size_t bytes) {
  return CompareBody(seed, data, bytes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void FillAvx2(const ContentSeed& seed, std::byte* out,
                                              size_t bytes) {
  FillBody(seed, out, bytes);
}
__attribute__((target("avx2"))) size_t CompareAvx2(const ContentSeed& seed, const std::byte* data,
                                                   size_t bytes) {
  return CompareBody(seed, data, bytes);
}
// Not target_clones: its resolvers run before the sanitizers' start-up and crash there.
bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#else
bool HasAvx2() { return false; }
void FillAvx2(const ContentSeed& seed, std::byte* out, size_t bytes) {
  FillPortable(seed, out, bytes);
}
size_t CompareAvx2(const ContentSeed& seed, const std::byte* data, size_t bytes) {
  return ComparePortable(seed, data, bytes);
}
#endif

// splitmix64's finaliser (Steele, Lea, Flood 2014): the bench's own, so that a fault of base/hash.h
// cannot hide itself.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

ContentSeed SeedOfSpace(std::string_view fingerprint) {
  ContentSeed seed{0x6665726d617461u, fingerprint.size()};
  for (const char c : fingerprint) seed = Extend(seed, static_cast<unsigned char>(c));
  return seed;
}

ContentSeed Extend(const ContentSeed& parent, uint64_t id) {
  const uint64_t a = Mix(parent.a + kStep + id);
  const uint64_t b = Mix(parent.b ^ (a + 0x2545f4914f6cdd1du));
  return {a ^ (b << 1), b + parent.a};
}

ContentSeed SeedOfPlane(const ContentSeed& block, uint32_t plane, uint32_t rank) {
  return Extend(Extend(block, ~uint64_t{plane}), ~uint64_t{rank} << 1);
}

void FillPlane(const ContentSeed& plane, std::byte* out, size_t bytes) {
  FERMATA_CHECK(bytes % kOracleGranule == 0);
  HasAvx2() ? FillAvx2(plane, out, bytes) : FillPortable(plane, out, bytes);
}

size_t FindWrongByte(const ContentSeed& plane, const std::byte* data, size_t bytes) {
  FERMATA_CHECK(bytes % kOracleGranule == 0);
  const size_t begin =
      HasAvx2() ? CompareAvx2(plane, data, bytes) : ComparePortable(plane, data, bytes);
  if (begin == kAllRight) return kAllRight;
  const auto byte_at = [&](size_t at) {
    const uint64_t x = plane.a + (at / 8) * kStep;
    const uint64_t word = (x ^ plane.b) + ((x << 29) | (x >> 35));
    return static_cast<std::byte>(word >> (8 * (at % 8)) & 0xff);
  };
  size_t at = begin;
  while (at < bytes && data[at] == byte_at(at)) ++at;
  FERMATA_CHECK(at < bytes);
  return at;
}

}  // namespace fermata::bench
