// SPDX-License-Identifier: Apache-2.0
//
// Names: what must differ differs, what must not does not, and the values are what they were. The
// golden values were computed outside the library, from the written framing.
#include "cache/identity.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace fermata {
namespace {

ExtraPart Part(uint32_t type, const std::string& data, uint64_t begin = 0, uint64_t end = 0) {
  return ExtraPart{type, begin, end, data};
}
constexpr uint32_t kAdapter = 1;
constexpr uint32_t kSalt = 2;
constexpr uint32_t kImage = 3;

std::vector<uint32_t> Tokens(size_t count) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1000u);
  return tokens;
}

std::string Text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// The name of units [first, first + count) of 64 tokens (four units) with `extras`.
std::string NameOf(std::vector<ExtraPart> extras, uint64_t first = 0, uint64_t count = 1) {
  const Status status = CheckAndSortExtras(&extras);
  EXPECT_TRUE(status.ok()) << status.ToString();
  const std::vector<uint32_t> tokens = Tokens(64);
  NamedPrefix prefix;
  prefix.tokens = tokens;
  prefix.extras = extras;
  std::vector<std::byte> scratch;
  return Text(prefix.Name(first, count, &scratch));
}

std::string KeyName(std::string_view keys, uint32_t key_bytes, uint64_t first, uint64_t count) {
  NamedPrefix prefix;
  prefix.mode = KeyMode::kBlocks;
  prefix.keys = std::as_bytes(std::span(keys.data(), keys.size()));
  prefix.key_bytes = key_bytes;
  std::vector<std::byte> scratch;
  return Text(prefix.Name(first, count, &scratch));
}

TEST(Name, OfTokensIsTheTokensAndTellsThemBack) {
  const std::vector<uint32_t> tokens = Tokens(64);
  const std::string name = NameOf({}, 1, 2);
  ASSERT_EQ(name.size(), 32 * sizeof(uint32_t));
  EXPECT_EQ(std::memcmp(name.data(), tokens.data() + 16, name.size()), 0);
  const std::string with_part = NameOf({Part(kAdapter, "x", 16, 48)}, 1, 2);
  const std::vector<uint32_t> back =
      TokensOfName(std::as_bytes(std::span(with_part)), /*units=*/2, /*chain_tokens=*/16);
  EXPECT_EQ(back, std::vector<uint32_t>(tokens.begin() + 16, tokens.begin() + 48));
}

TEST(Name, UnitsAreTheWholeOnesOnly) {
  const std::vector<uint32_t> tokens = Tokens(47);
  NamedPrefix prefix;
  prefix.tokens = tokens;
  EXPECT_EQ(prefix.units(), 2u);
  NamedPrefix by_keys;
  by_keys.mode = KeyMode::kBlocks;
  EXPECT_EQ(by_keys.units(), 0u);  // key_bytes 0: no keys yet
}

TEST(Name, TypesOfExtraPartsTellEqualBytesApart) {
  const std::set<std::string> names = {NameOf({}), NameOf({Part(kAdapter, "X")}),
                                       NameOf({Part(kSalt, "X")}), NameOf({Part(kImage, "X")}),
                                       NameOf({Part(1024, "X")})};
  EXPECT_EQ(names.size(), 5u);
}

TEST(Name, AbsentAndEmptyDiffer) {
  EXPECT_NE(NameOf({}), NameOf({Part(kSalt, "")}));
  EXPECT_NE(NameOf({Part(kAdapter, "")}), NameOf({Part(kSalt, "")}));
}

TEST(Name, BytesDoNotWanderBetweenParts) {
  const std::set<std::string> names = {
      NameOf({Part(kAdapter, "ab"), Part(kSalt, "c")}),
      NameOf({Part(kAdapter, "a"), Part(kSalt, "bc")}), NameOf({Part(kAdapter, "abc")}),
      NameOf({Part(kSalt, "abc")}), NameOf({Part(kAdapter, "ab"), Part(kAdapter, "c")})};
  EXPECT_EQ(names.size(), 5u);
}

TEST(Name, TheOrderInWhichPartsAreListedDoesNotMatter) {
  const ExtraPart a = Part(kAdapter, "a");
  const ExtraPart b = Part(kImage, "b", 4, 8);
  const ExtraPart c = Part(kImage, "c", 4, 8);
  const std::string name = NameOf({a, b, c});
  EXPECT_EQ(NameOf({c, b, a}), name);
  EXPECT_EQ(NameOf({b, a, c}), name);
  EXPECT_NE(NameOf({a, b}), name);
}

TEST(Name, APartOfTheWholeSequenceIsNamedByTheFirstUnit) {
  const std::vector<ExtraPart> whole = {Part(kAdapter, "a")};
  EXPECT_NE(NameOf(whole, 0), NameOf({}, 0));
  EXPECT_EQ(NameOf(whole, 1), NameOf({}, 1));  // Later ones inherit it through their parents.
}

TEST(Name, APartOfARangeIsNamedByTheUnitsItTouches) {
  const std::vector<ExtraPart> image = {Part(kImage, "i", 31, 33)};  // units 1 and 2
  EXPECT_EQ(NameOf(image, 0), NameOf({}, 0));
  EXPECT_NE(NameOf(image, 1), NameOf({}, 1));
  EXPECT_NE(NameOf(image, 2), NameOf({}, 2));
  EXPECT_EQ(NameOf(image, 3), NameOf({}, 3));
  const std::vector<ExtraPart> aligned = {Part(kImage, "i", 16, 32)};  // unit 1 alone
  EXPECT_EQ(NameOf(aligned, 0), NameOf({}, 0));
  EXPECT_NE(NameOf(aligned, 1), NameOf({}, 1));
  EXPECT_EQ(NameOf(aligned, 2), NameOf({}, 2));
  EXPECT_NE(NameOf({Part(kImage, "i", 17, 32)}, 1), NameOf(aligned, 1));  // the range counts
}

TEST(Name, KeysSayTheirLength) {
  EXPECT_EQ(KeyName("abcd", 4, 0, 1), std::string("\x04") + "abcd");
  EXPECT_NE(KeyName("abcd", 4, 0, 1), KeyName("abcd", 2, 0, 2));
  EXPECT_EQ(KeyName("abcdefgh", 4, 1, 1), std::string("\x04") + "efgh");
}

TEST(Extras, ErrorsNameThePartAndTheValue) {
  const auto message = [](std::vector<ExtraPart> extras) {
    const Status status = CheckAndSortExtras(&extras);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message({Part(kSalt, "s"), Part(0, "x")}),
            "extras[1].type is 0, want 1..4 or at least 1024");
  EXPECT_EQ(message({Part(5, "x")}), "extras[0].type is 5, want 1..4 or at least 1024");
  EXPECT_EQ(message({Part(1023, "x")}), "extras[0].type is 1023, want 1..4 or at least 1024");
  EXPECT_EQ(message({Part(kImage, "x", 5, 5)}), "extras[0] covers tokens 5..5, which is empty");
  EXPECT_EQ(message({Part(kImage, "x", 6, 5)}), "extras[0] covers tokens 6..5, which is empty");
  EXPECT_EQ(message(std::vector<ExtraPart>(65, Part(kImage, "x", 1, 2))),
            "extra_count is 65, want at most 64");
  std::vector<ExtraPart> most(64, Part(0xffffffff, "x", 0, 1));
  EXPECT_TRUE(CheckAndSortExtras(&most).ok());
}

SpaceIdentity Identity() {
  SpaceIdentity identity;
  identity.weights = "weights@1";
  identity.model_config = "config";
  identity.rope = "rope";
  identity.tenant_salt = "tenant";
  identity.kv_dtype = "bf16";
  identity.layout_version = 3;
  identity.rank = 1;
  identity.ranks = 2;
  return identity;
}

CacheConfig Geometry() {
  CacheConfig config;
  config.groups = {GroupConfig{16, 65536}, GroupConfig{32, 4096}};
  return config;
}

TEST(CanonicalBytes, EverySingleFieldCounts) {
  using Change = std::function<void(SpaceIdentity*, CacheConfig*)>;
  const std::vector<Change> changes = {
      [](SpaceIdentity*, CacheConfig*) {},
      [](SpaceIdentity* s, CacheConfig*) { s->key_mode = KeyMode::kBlocks; },
      [](SpaceIdentity* s, CacheConfig*) { s->weights += "x"; },
      [](SpaceIdentity* s, CacheConfig*) { s->model_config += "x"; },
      [](SpaceIdentity* s, CacheConfig*) { s->rope += "x"; },
      [](SpaceIdentity* s, CacheConfig*) { s->tenant_salt += "x"; },
      [](SpaceIdentity* s, CacheConfig*) { s->kv_dtype += "x"; },
      [](SpaceIdentity* s, CacheConfig*) { s->codec += "x"; },
      [](SpaceIdentity* s, CacheConfig*) { s->layout_version += 1; },
      [](SpaceIdentity* s, CacheConfig*) { s->rank = 0; },
      [](SpaceIdentity* s, CacheConfig*) { s->ranks = 4; },
      [](SpaceIdentity* s, CacheConfig*) { s->replicated = 1; },
      [](SpaceIdentity*, CacheConfig* c) { c->chain_tokens = 8; },
      [](SpaceIdentity*, CacheConfig* c) { c->groups.pop_back(); },
      [](SpaceIdentity*, CacheConfig* c) { std::swap(c->groups[0], c->groups[1]); },
      [](SpaceIdentity*, CacheConfig* c) { c->groups[1].block_tokens = 48; },
      [](SpaceIdentity*, CacheConfig* c) { c->groups[1].block_bytes = 4097; },
  };
  std::set<std::string> bytes;
  for (const Change& change : changes) {
    SpaceIdentity identity = Identity();
    CacheConfig config = Geometry();
    change(&identity, &config);
    bytes.insert(CanonicalBytes(identity, config));
  }
  EXPECT_EQ(bytes.size(), changes.size());
}

TEST(CanonicalBytes, TextDoesNotWanderBetweenFields) {
  SpaceIdentity a = Identity();
  SpaceIdentity b = Identity();
  a.rope = "";
  a.tenant_salt = "rope";
  b.rope = "rope";
  b.tenant_salt = "";
  EXPECT_NE(CanonicalBytes(a, Geometry()), CanonicalBytes(b, Geometry()));
  a = b = Identity();
  a.weights = "ab";
  a.model_config = "c";
  b.weights = "a";
  b.model_config = "bc";
  EXPECT_NE(CanonicalBytes(a, Geometry()), CanonicalBytes(b, Geometry()));
}

TEST(CanonicalBytes, TiersAndLimitsDoNotCount) {
  CacheConfig config = Geometry();
  config.max_jobs = 7;
  config.policy = "lru";
  config.tiers.resize(3);
  EXPECT_EQ(CanonicalBytes(Identity(), config), CanonicalBytes(Identity(), Geometry()));
}

Hash128 Seed() {
  const std::string canonical = CanonicalBytes(Identity(), Geometry());
  EXPECT_EQ(canonical.size(), 157u);
  return ContentHash(std::as_bytes(std::span(canonical)));
}

std::vector<Hash128> Chain(const NamedPrefix& prefix) {
  std::vector<Hash128> chain;
  std::vector<std::byte> scratch;
  for (uint64_t i = 0; i < prefix.units(); ++i) {
    chain.push_back(ChainHash(chain.empty() ? Seed() : chain.back(), prefix.Name(i, 1, &scratch)));
  }
  return chain;
}

// If one of these changes, every cache on disk and every key that an engine has kept is void: that
// takes a new kIdentityVersion and a line in the changelog.
TEST(GoldenChain, SeedOfASpace) {
  EXPECT_EQ(Seed(), (Hash128{0xee117df03ff2f159, 0xbc3c60553c505efd}));
}

#if !defined(FERMATA_HASH_BITS) || FERMATA_HASH_BITS >= 128
constexpr bool kFullHash = true;
#else
constexpr bool kFullHash = false;
#endif

TEST(GoldenChain, OfTokens) {
  if (!kFullHash) GTEST_SKIP() << "the chain hash is cut in this build";
  const std::vector<uint32_t> tokens = Tokens(32);
  NamedPrefix prefix;
  prefix.tokens = tokens;
  const std::vector<Hash128> chain = Chain(prefix);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0], (Hash128{0x24ab20d291b3edcb, 0x4003277802dc891c}));
  EXPECT_EQ(chain[1], (Hash128{0xde5bb20077faf2ca, 0xeb613c72277f1540}));
}

TEST(GoldenChain, OfTokensWithExtraParts) {
  if (!kFullHash) GTEST_SKIP() << "the chain hash is cut in this build";
  std::vector<ExtraPart> extras = {Part(kImage, "image", 20, 30), Part(kAdapter, "lora-7")};
  ASSERT_TRUE(CheckAndSortExtras(&extras).ok());
  const std::vector<uint32_t> tokens = Tokens(32);
  NamedPrefix prefix;
  prefix.tokens = tokens;
  prefix.extras = extras;
  const std::vector<Hash128> chain = Chain(prefix);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0], (Hash128{0x20afb594f233083a, 0x67d2d4fd5050e750}));
  EXPECT_EQ(chain[1], (Hash128{0x5c72be13e4d1cdd3, 0xf63b9626b9bd2eaa}));
}

TEST(GoldenChain, OfKeys) {
  if (!kFullHash) GTEST_SKIP() << "the chain hash is cut in this build";
  const std::string_view keys = "key0key1";
  NamedPrefix prefix;
  prefix.mode = KeyMode::kBlocks;
  prefix.keys = std::as_bytes(std::span(keys.data(), keys.size()));
  prefix.key_bytes = 4;
  const std::vector<Hash128> chain = Chain(prefix);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0], (Hash128{0xf9fa6dfde34fefa8, 0x04f58a3356743e6d}));
  EXPECT_EQ(chain[1], (Hash128{0xf62f71546cedee35, 0xe11d8fbe45f3906e}));
}

}  // namespace
}  // namespace fermata
