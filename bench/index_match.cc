// SPDX-License-Identifier: Apache-2.0
//
// resume and match: a context of 131,072 tokens that is found again, by its handle and by its
// tokens, among millions of blocks that others have left. Contexts were appended in pieces, and
// another branches off at the end of each piece.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "bench/index.h"
#include "bench/index_cache.h"
#include "bench/index_reference.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kLongRun = 128;     // blocks between two branches
constexpr uint64_t kSpareSlots = 256;  // for the piece that is appended while all else stays
constexpr uint64_t kResumeBeside = 4;  // other contexts in the cache of the resumed one
constexpr uint64_t kLookupsToWarmUp = 3;
constexpr uint32_t kChangedBit = 0x10000;

ContextFamily FamilyOf(const IndexSizes& sizes, uint64_t run) {
  ContextFamily family;
  family.run = std::min(run, sizes.context_blocks);
  family.pieces = sizes.context_blocks / family.run;
  return family;
}

struct MatchCost {
  Samples warm_us, cold_us, leased_us;
  Samples sha_us, sha_cold_us, xxh_us, memcmp_us, memcmp_cold_us;
  Samples pool_us, pool_cold_us;  // SHA-256 chain, then the map
};

// What a lookup of the usual design costs on the same tokens: names by SHA-256, one map look-up a
// block, in a pool that holds as many blocks.
class MatchReference {
 public:
  MatchReference(std::span<const uint32_t> tokens, uint64_t resident)
      : tokens_(tokens), stored_(tokens.size()), pool_(static_cast<uint32_t>(resident)) {
    std::memcpy(stored_.data(), tokens.data(), tokens.size_bytes());
    (void)sha_.Chain(tokens, &names_);
    for (const Hash128& name : names_) Add(name);
    // The rest only has to be in the map; a digest's bits are as good as random ones.
    for (uint64_t i = names_.size(); i < resident; ++i) Add(Hash128{MixU64(i), MixU64(~i)});
    names_.clear();
  }

  double Sha() {
    return TimedNs([&] { KeepResult(sha_.Chain(tokens_, nullptr)); }) / 1e3;
  }
  double Xxh() {
    return TimedNs([&] { KeepResult(RefXxhChain(tokens_)); }) / 1e3;
  }
  double Memcmp() {
    return TimedNs([&] {
             KeepResult(tokens_.data());
             KeepResult(std::memcmp(tokens_.data(), stored_.data(), tokens_.size_bytes()));
           }) /
           1e3;
  }
  // 0 blocks found where all should be stops the run: the reference would be no reference.
  double Pool() {
    size_t found = 0;
    const double ns = TimedNs([&] {
      names_.clear();
      (void)sha_.Chain(tokens_, &names_);
      found = RefFindPrefix(pool_, names_);
    });
    FERMATA_CHECK(found == tokens_.size() / kIndexBlockTokens);
    return ns / 1e3;
  }

 private:
  void Add(const Hash128& name) {
    RefBlockPool::Block* const block = pool_.Take();
    pool_.Publish(block, name);
    pool_.Release(block);
  }

  const std::span<const uint32_t> tokens_;
  HugeArray<uint32_t> stored_;
  RefShaChain sha_;
  RefBlockPool pool_;
  std::vector<Hash128> names_;
};

Status TimedLookup(const IndexCache& cache, std::span<const uint32_t> tokens, bool lease,
                   Samples* us) {
  fermata_lookup_item item = LookupItem(tokens, lease);
  fermata_status status = FERMATA_OK;
  const double ns = TimedNs([&] { status = fermata_lookup(cache.space(), &item, 1, nullptr); });
  if (item.lease.id != 0) (void)fermata_lease_drop(item.lease, nullptr);
  if (status != FERMATA_OK || item.status != FERMATA_OK || item.hit_tokens != tokens.size()) {
    return ErrorF(StatusCode::kInternal, "fermata_lookup: %s, found %" PRIu64 " of %zu tokens",
                  fermata_status_name(status), item.hit_tokens, tokens.size());
  }
  us->Add(ns / 1e3);
  return Status();
}

// Every token is compared: whichever is changed, the hit ends before its block.
Status CheckTokensCount(IndexCache* cache, std::span<uint32_t> tokens) {
  const size_t last = tokens.size() - 1;
  for (const size_t at : {size_t{0}, size_t{17}, last / 3, last / 2 + 5, last}) {
    tokens[at] ^= kChangedBit;
    uint64_t hit = 0;
    FERMATA_RETURN_IF_ERROR(cache->Lookup(tokens, false, &hit));
    tokens[at] ^= kChangedBit;
    const uint64_t want = at / kIndexBlockTokens * kIndexBlockTokens;
    if (hit == want) continue;
    return ErrorF(StatusCode::kInternal,
                  "with token %zu changed %" PRIu64 " tokens are found, want %" PRIu64, at, hit,
                  want);
  }
  return Status();
}

Status CostOfMatch(const IndexSizes& sizes, uint64_t run, bool with_reference, MatchCost* cost) {
  const ContextFamily family = FamilyOf(sizes, run);
  IndexCacheOptions options;
  options.slots = FamilyBlocks(family, sizes.resident_blocks) + kSpareSlots;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  IndexCache* const cache = opened->get();
  uint64_t families = 0;
  FERMATA_RETURN_IF_ERROR(BuildFamilies(cache, family, sizes.resident_blocks, &families));
  HugeArray<uint32_t> tokens(family.trunk_tokens());
  family.TrunkTokens(families / 2, tokens.all());
  FERMATA_RETURN_IF_ERROR(CheckTokensCount(cache, tokens.all()));

  std::optional<MatchReference> reference;
  std::optional<CacheFlusher> flusher;
  if (with_reference) {
    reference.emplace(tokens.all(), sizes.resident_blocks);
    flusher.emplace(sizes.flush_bytes);
  }
  // Warm and cold by turns, ours and the references': a busy machine slows all of them.
  Samples warm_up;
  for (uint64_t i = 0; i < sizes.warm_calls; ++i) {
    for (uint64_t j = 0; j < kLookupsToWarmUp; ++j) {
      FERMATA_RETURN_IF_ERROR(TimedLookup(*cache, tokens.all(), false, &warm_up));
    }
    FERMATA_RETURN_IF_ERROR(TimedLookup(*cache, tokens.all(), false, &cost->warm_us));
    FERMATA_RETURN_IF_ERROR(TimedLookup(*cache, tokens.all(), true, &cost->leased_us));
    FERMATA_RETURN_IF_ERROR(cache->Step());
    if (!reference) continue;
    cost->sha_us.Add(reference->Sha());
    cost->xxh_us.Add(reference->Xxh());
    (void)reference->Memcmp();
    cost->memcmp_us.Add(reference->Memcmp());
    (void)reference->Pool();
    cost->pool_us.Add(reference->Pool());
    if (cost->cold_us.size() == sizes.cold_calls) continue;
    flusher->Flush();
    FERMATA_RETURN_IF_ERROR(TimedLookup(*cache, tokens.all(), false, &cost->cold_us));
    flusher->Flush();
    cost->sha_cold_us.Add(reference->Sha());
    flusher->Flush();
    cost->memcmp_cold_us.Add(reference->Memcmp());
    flusher->Flush();
    cost->pool_cold_us.Add(reference->Pool());
  }
  return Status();
}

// Parks the sequence, which holds the whole context, and resumes it.
Status ResumeOnce(IndexCache* cache, fermata_sequence sequence, uint64_t tokens, Samples* call_us,
                  Samples* all_us) {
  fermata_park_options park{};
  park.struct_size = sizeof(park);
  park.mode = FERMATA_PARK_LAZY;
  fermata_job job{0};
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(IndexCallStatus(
      "fermata_sequence_park", fermata_sequence_park(sequence, &park, &job, &error), error));
  FERMATA_RETURN_IF_ERROR(cache->Step());
  fermata_load_options load{};
  load.struct_size = sizeof(load);
  load.queue = cache->queue();
  fermata_completion completion{};
  completion.struct_size = sizeof(completion);
  size_t count = 0;
  fermata_status resumed = FERMATA_OK;
  fermata_status polled = FERMATA_OK;
  const uint64_t start = IndexNowNs();
  resumed = fermata_sequence_resume(sequence, &load, &job, nullptr);
  const uint64_t returned = IndexNowNs();
  polled = fermata_queue_poll(cache->queue(), &completion, 1, 0, &count, nullptr);
  if (resumed == FERMATA_OK && polled == FERMATA_OK && count == 0) {  // it ends in a task
    FERMATA_RETURN_IF_ERROR(cache->Step());
    polled = fermata_queue_poll(cache->queue(), &completion, 1, 0, &count, nullptr);
  }
  const uint64_t end = IndexNowNs();
  if (resumed != FERMATA_OK || polled != FERMATA_OK || count != 1 ||
      completion.status != FERMATA_OK || completion.valid_tokens != tokens) {
    return ErrorF(StatusCode::kInternal,
                  "fermata_sequence_resume: %s, %zu completions, %" PRIu64 " of %" PRIu64 " tokens",
                  fermata_status_name(resumed), count, completion.valid_tokens, tokens);
  }
  call_us->Add(static_cast<double>(returned - start) / 1e3);
  all_us->Add(static_cast<double>(end - start) / 1e3);
  return Status();
}

}  // namespace

Status MeasureIndexResume(const IndexSizes& sizes, IndexFigures* out) {
  const ContextFamily family = FamilyOf(sizes, kLongRun);
  IndexCacheOptions options;
  options.slots = family.blocks() * (kResumeBeside + 1) + kSpareSlots;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  IndexCache* const cache = opened->get();
  uint64_t families = 0;
  FERMATA_RETURN_IF_ERROR(BuildFamilies(cache, family, family.blocks() * kResumeBeside, &families));
  fermata_sequence sequence{0};
  FERMATA_RETURN_IF_ERROR(family.Build(cache, families, &sequence));
  HugeArray<uint32_t> tokens(family.trunk_tokens());
  family.TrunkTokens(families, tokens.all());
  MatchReference reference(tokens.all(), options.slots);
  Samples call_us;
  Samples all_us;
  Samples reference_us;
  for (uint64_t i = 0; i < sizes.resume_calls; ++i) {
    FERMATA_RETURN_IF_ERROR(ResumeOnce(cache, sequence, tokens.size(), &call_us, &all_us));
    if (i % 8 == 0) reference_us.Add(reference.Pool());
  }
  out->Set("resume_131k_us", all_us.Median());
  out->Set("resume_131k_p99_us", all_us.P99());
  out->Set("resume_131k_call_us", call_us.Median());
  out->Set("ref_resume_131k_us", reference_us.Median());
  return Status();
}

Status MeasureIndexMatch(const IndexSizes& sizes, IndexFigures* out) {
  MatchCost cost;
  FERMATA_RETURN_IF_ERROR(CostOfMatch(sizes, kLongRun, true, &cost));
  out->Set("match_131k_us", cost.warm_us.Median());
  out->Set("match_131k_cold_us", cost.cold_us.Median());
  out->Set("sha256_131k_us", cost.sha_us.Median());
  out->Set("ref_match_131k_us", cost.pool_us.Median());
  out->Set("ref_match_131k_cold_us", cost.pool_cold_us.Median());
  out->Set("ref_sha256_131k_cold_us", cost.sha_cold_us.Median());
  out->Set("ref_xxh3_131k_us", cost.xxh_us.Median());
  out->Set("ref_memcmp_131k_us", cost.memcmp_us.Median());
  out->Set("ref_memcmp_131k_cold_us", cost.memcmp_cold_us.Median());
  out->Set("match_131k_p99_us", cost.warm_us.P99());
  out->Set("match_131k_leased_us", cost.leased_us.Median());
  for (const uint64_t run : {uint64_t{8}, uint64_t{32}}) {
    MatchCost short_runs;
    FERMATA_RETURN_IF_ERROR(CostOfMatch(sizes, run, false, &short_runs));
    const std::string stem = "match_131k_run" + std::to_string(run);
    out->Set(stem + "_us", short_runs.warm_us.Median());
    out->Set(stem + "_leased_us", short_runs.leased_us.Median());
  }
  return Status();
}

}  // namespace fermata::bench
