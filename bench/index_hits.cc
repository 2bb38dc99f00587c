// SPDX-License-Identifier: Apache-2.0
//
// wrong_hits: millions of lookups against an index whose hash is cut to a few bits, so that many
// blocks share one value. Half of the lookups are near-misses; a hit that is longer than what was
// stored under exactly that identity is wrong. The reference finds by the hash alone.
#include <algorithm>
#include <cinttypes>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/random.h"
#include "bench/index.h"
#include "bench/index_cache.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kChainBlocks = 4;                               // of each context
constexpr uint64_t kMeanBlocks = kChainBlocks + kChainBlocks / 2;  // half of them branch
constexpr uint64_t kBranchBit = 0x80;
constexpr uint64_t kChainTokens = kChainBlocks * kIndexBlockTokens;
constexpr uint64_t kSpareSlots = 64;
constexpr uint64_t kLookupsAtOnce = 64;
constexpr uint32_t kLastTokenChange = 1;

// The contexts, all with different first blocks, and queries whose answer is known beforehand. From
// every second context another one branches off behind each block, so that no two of its blocks can
// be kept as one run.
class Identities {
 public:
  explicit Identities(uint64_t blocks) : chains_(std::max<uint64_t>(2, blocks / kMeanBlocks)) {}

  uint64_t chains() const { return chains_; }
  uint64_t blocks() const { return chains_ * kMeanBlocks; }
  static bool Branches(uint64_t chain) { return chain % 2 != 0; }
  static void Block(uint64_t chain, uint64_t block, bool branch, std::span<uint32_t> out) {
    FillTokens(chain << 8 | (branch ? kBranchBit : 0) | block, out);
  }
  static void Chain(uint64_t chain, std::span<uint32_t> out) {
    for (uint64_t b = 0; b < kChainBlocks; ++b) Block(chain, b, false, BlockOf(out, b));
  }

  // Fills in kChainTokens tokens; the blocks that are stored under exactly that identity.
  uint64_t Query(Random* random, std::span<uint32_t> out) const {
    const uint64_t chain = random->Below(chains_);
    Chain(chain, out);
    const uint64_t at = random->Below(kChainBlocks);
    switch (random->Below(4)) {
      case 0: {  // tokens that are stored, but under another parent; a first block's has none
        const uint64_t other = (chain + 1 + random->Below(chains_ - 1)) % chains_;
        const bool branch = Branches(other) && random->Below(2) == 0;
        Block(other, branch ? at : std::max<uint64_t>(at, 1), branch, BlockOf(out, at));
        return at;
      }
      case 1:  // the last token of a block changed
        BlockOf(out, at).back() ^= kLastTokenChange;
        return at;
      default:
        return kChainBlocks;
    }
  }

  // Stores a context; `tokens` is room for it.
  static Status Store(IndexCache* cache, uint64_t chain, std::span<uint32_t> tokens) {
    fermata_sequence sequence{0};
    FERMATA_RETURN_IF_ERROR(cache->Create(&sequence));
    Chain(chain, tokens);
    if (!Branches(chain)) FERMATA_RETURN_IF_ERROR(cache->AppendAndMark(sequence, 0, tokens));
    std::vector<uint32_t> branch(kIndexBlockTokens);
    for (uint64_t b = 0; b < kChainBlocks && Branches(chain); ++b) {
      const uint64_t length = b * kIndexBlockTokens;
      FERMATA_RETURN_IF_ERROR(cache->AppendAndMark(sequence, length, BlockOf(tokens, b)));
      Block(chain, b, true, branch);
      FERMATA_RETURN_IF_ERROR(cache->AppendAndMark(sequence, length + kIndexBlockTokens, branch));
      FERMATA_RETURN_IF_ERROR(cache->Truncate(sequence, length + kIndexBlockTokens));
    }
    FERMATA_RETURN_IF_ERROR(cache->Release({&sequence, 1}));
    return cache->Step();
  }

 private:
  static std::span<uint32_t> BlockOf(std::span<uint32_t> tokens, uint64_t block) {
    return tokens.subspan(block * kIndexBlockTokens, kIndexBlockTokens);
  }
  const uint64_t chains_;
};

// Which chain values are taken: all that a design knows which trusts its hash.
class HashOnlyIndex {
 public:
  explicit HashOnlyIndex(uint32_t bits) : mask_((uint64_t{1} << bits) - 1) {}
  void Store(std::span<const uint32_t> tokens) {
    Walk(tokens, [&](uint64_t value) {
      taken_.insert(value);
      return true;
    });
  }
  uint64_t Find(std::span<const uint32_t> tokens) const {
    uint64_t found = 0;
    Walk(tokens, [&](uint64_t value) {
      if (taken_.count(value) == 0) return false;
      ++found;
      return true;
    });
    return found;
  }

 private:
  template <typename F>
  void Walk(std::span<const uint32_t> tokens, F&& visit) const {
    Hash128 value;
    for (size_t at = 0; at < tokens.size(); at += kIndexBlockTokens) {
      value = ChainHash(value, std::as_bytes(tokens.subspan(at, kIndexBlockTokens)));
      value = Hash128{value.lo & mask_, 0};
      if (!visit(value.lo)) return;
    }
  }
  const uint64_t mask_;
  std::unordered_set<uint64_t> taken_;
};

struct HitCounts {
  uint64_t wrong = 0;   // longer than what was stored
  uint64_t missed = 0;  // shorter: no wrong hit, and no right one
  uint64_t ref_wrong = 0;
};

Status CountHits(const IndexSizes& sizes, uint32_t bits, HitCounts* counts) {
  const Identities identities(sizes.identity_blocks);
  IndexCacheOptions options;
  options.slots = identities.blocks() + kChainBlocks + kSpareSlots;
  options.hash_bits = bits;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  IndexCache* const cache = opened->get();
  HashOnlyIndex reference(bits);
  std::vector<uint32_t> tokens(kChainTokens);
  for (uint64_t i = 0; i < identities.chains(); ++i) {
    Identities::Chain(i, tokens);
    reference.Store(tokens);
    FERMATA_RETURN_IF_ERROR(Identities::Store(cache, i, tokens));
  }
  Random random(7);
  HugeArray<uint32_t> queries(kLookupsAtOnce * kChainTokens);
  std::vector<fermata_lookup_item> items(kLookupsAtOnce);
  std::vector<uint64_t> stored(kLookupsAtOnce);
  for (uint64_t done = 0; done < sizes.identity_lookups; done += kLookupsAtOnce) {
    for (uint64_t i = 0; i < kLookupsAtOnce; ++i) {
      const std::span<uint32_t> query = queries.all().subspan(i * kChainTokens, kChainTokens);
      stored[i] = identities.Query(&random, query);
      items[i] = LookupItem(query, false);
      if (reference.Find(query) > stored[i]) ++counts->ref_wrong;
    }
    fermata_error error = FERMATA_ERROR_INIT;
    FERMATA_RETURN_IF_ERROR(
        IndexCallStatus("fermata_lookup",
                        fermata_lookup(cache->space(), items.data(), items.size(), &error), error));
    for (uint64_t i = 0; i < kLookupsAtOnce; ++i) {
      const uint64_t want = stored[i] * kIndexBlockTokens;
      if (items[i].status != FERMATA_OK || items[i].hit_tokens > want) ++counts->wrong;
      if (items[i].hit_tokens < want) ++counts->missed;
    }
  }
  return Status();
}

}  // namespace

Status MeasureIndexWrongHits(const IndexSizes& sizes, IndexFigures* out) {
  for (const uint32_t bits : {8u, 16u}) {
    HitCounts counts;
    FERMATA_RETURN_IF_ERROR(CountHits(sizes, bits, &counts));
    const std::string stem = "wrong_hits_" + std::to_string(bits) + "bit";
    out->Set(stem, static_cast<double>(counts.wrong));
    out->Set("ref_" + stem, static_cast<double>(counts.ref_wrong));
    out->Set("missed_hits_" + std::to_string(bits) + "bit", static_cast<double>(counts.missed));
  }
  return Status();
}

}  // namespace fermata::bench
