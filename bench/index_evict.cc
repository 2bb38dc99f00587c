// SPDX-License-Identifier: Apache-2.0
//
// evict64: what it costs to make room for 64 blocks in a full cache of idle sessions, by how many
// sessions there are. All share one prefix; each has a tail of its own and was let go at a random
// place in the order, so that the victims lie in memory without order.
#include <algorithm>
#include <cinttypes>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "bench/index.h"
#include "bench/index_cache.h"
#include "bench/index_reference.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kEvictedBlocks = 64;   // by each call
constexpr uint64_t kSharedBlocks = 16;    // of the prefix
constexpr uint64_t kLongTailBlocks = 16;  // four sessions a call
constexpr uint64_t kShortTailBlocks = 1;  // 64 sessions a call
constexpr uint64_t kSessionsAtOnce = 64;
constexpr uint64_t kSharedStream = uint64_t{1} << 60;
constexpr uint64_t kFreshStream = uint64_t{2} << 60;
constexpr uint32_t kSequencesBeside = 8;  // the parent's, and those that grow

struct EvictionCost {
  Samples call_us;
  Samples cpu_us;  // of the calling thread: without what a busy machine gave to others
  Samples reference_us;
  std::optional<double> visits;  // per victim
  double reference_visits = 0;
};

// The order in which the sessions are let go.
std::vector<uint64_t> RandomOrder(uint64_t count) {
  Random random(20260101);
  std::vector<uint64_t> order(count);
  for (uint64_t i = 0; i < count; ++i) order[i] = i;
  for (uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

// Sessions are forked off the prefix and grown 64 at a time; all live until the last is made.
Status BuildSessions(IndexCache* cache, uint64_t sessions, uint64_t tail_blocks) {
  std::vector<uint32_t> tokens(kSharedBlocks * kIndexBlockTokens);
  FillTokens(kSharedStream, tokens);
  fermata_sequence parent{0};
  FERMATA_RETURN_IF_ERROR(cache->Create(&parent));
  FERMATA_RETURN_IF_ERROR(cache->AppendAndMark(parent, 0, tokens));
  const uint64_t tail_tokens = tail_blocks * kIndexBlockTokens;
  const uint64_t length = tokens.size() + tail_tokens;
  tokens.resize(kSessionsAtOnce * tail_tokens);
  std::vector<fermata_sequence> all(sessions);
  std::vector<fermata_append_item> appends(kSessionsAtOnce);
  std::vector<fermata_mark_item> marks(kSessionsAtOnce);
  for (uint64_t first = 0; first < sessions; first += kSessionsAtOnce) {
    const uint64_t count = std::min(kSessionsAtOnce, sessions - first);
    FERMATA_RETURN_IF_ERROR(cache->Fork(parent, {all.data() + first, count}));
    for (uint64_t i = 0; i < count; ++i) {
      const std::span<uint32_t> tail(tokens.data() + i * tail_tokens, tail_tokens);
      FillTokens(first + i, tail);
      appends[i] = AppendItem(all[first + i], tail);
      marks[i] = MarkItem(all[first + i], length);
    }
    fermata_error error = FERMATA_ERROR_INIT;
    FERMATA_RETURN_IF_ERROR(IndexCallStatus(
        "fermata_append", fermata_append(cache->cache(), appends.data(), count, &error), error));
    FERMATA_RETURN_IF_ERROR(IndexCallStatus(
        "fermata_mark", fermata_mark(cache->cache(), marks.data(), count, &error), error));
    for (uint64_t i = 0; i < count; ++i) {
      if (appends[i].status == FERMATA_OK && marks[i].status == FERMATA_OK) continue;
      return ErrorF(StatusCode::kInternal, "session %" PRIu64 " could not be built", first + i);
    }
  }
  FERMATA_RETURN_IF_ERROR(cache->Release({&parent, 1}));
  for (const uint64_t i : RandomOrder(sessions)) {
    FERMATA_RETURN_IF_ERROR(cache->Release({&all[i], 1}));
  }
  FERMATA_RETURN_IF_ERROR(cache->Step());
  uint64_t free = 0;
  uint64_t evictable = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(IndexCallStatus(
      "fermata_room", fermata_room(cache->cache(), 0, &free, &evictable, &error), error));
  const uint64_t blocks = kSharedBlocks + sessions * tail_blocks;
  if (free == 0 && evictable == blocks) return Status();
  return ErrorF(StatusCode::kInternal,
                "want a full cache of %" PRIu64 " idle blocks, %" PRIu64 " are free and %" PRIu64
                " can be evicted",
                blocks, free, evictable);
}

RefRadixTree::Node* BuildReference(RefRadixTree* tree, uint64_t sessions, uint64_t tail_blocks) {
  RefRadixTree::Node* const shared = tree->Add(tree->root(), 0, kSharedBlocks, sessions);
  const std::vector<uint64_t> order = RandomOrder(sessions);
  std::vector<uint64_t> last_use(sessions);
  for (uint64_t time = 0; time < sessions; ++time) last_use[order[time]] = time;
  for (uint64_t i = 0; i < sessions; ++i) tree->Add(shared, i, tail_blocks, last_use[i]);
  return shared;
}

// One turn that needs 64 blocks: only the append is timed, and none of the tokens' making.
Status EvictOnce(IndexCache* cache, uint64_t call, std::span<uint32_t> tokens, EvictionCost* cost) {
  fermata_sequence sequence{0};
  FERMATA_RETURN_IF_ERROR(cache->Create(&sequence));
  FillTokens(kFreshStream | call, tokens);
  fermata_append_item item = AppendItem(sequence, tokens);
  fermata_status status = FERMATA_OK;
  const uint64_t cpu_start = ThreadCpuNs();
  const double ns = TimedNs([&] { status = fermata_append(cache->cache(), &item, 1, nullptr); });
  const uint64_t cpu_ns = ThreadCpuNs() - cpu_start;
  if (status != FERMATA_OK || item.status != FERMATA_OK) {
    return ErrorF(StatusCode::kInternal, "fermata_append: %s, item %s", fermata_status_name(status),
                  fermata_status_name(item.status));
  }
  cost->call_us.Add(ns / 1e3);
  cost->cpu_us.Add(static_cast<double>(cpu_ns) / 1e3);
  FERMATA_RETURN_IF_ERROR(cache->Mark(sequence, tokens.size()));
  FERMATA_RETURN_IF_ERROR(cache->Release({&sequence, 1}));
  return cache->Step();
}

Status CostOfEviction(const IndexSizes& sizes, uint64_t sessions, uint64_t tail_blocks,
                      EvictionCost* cost) {
  IndexCacheOptions options;
  options.slots = kSharedBlocks + sessions * tail_blocks;  // exactly full
  options.max_sequences = static_cast<uint32_t>(sessions) + kSequencesBeside;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  IndexCache* const cache = opened->get();
  FERMATA_RETURN_IF_ERROR(BuildSessions(cache, sessions, tail_blocks));
  RefRadixTree tree;
  RefRadixTree::Node* const shared = BuildReference(&tree, sessions, tail_blocks);

  // The victims are the sessions of before, not what this loop appends: with few sessions there are
  // few calls.
  const uint64_t calls =
      std::max<uint64_t>(1, std::min(sizes.evict_calls, sessions * tail_blocks / kEvictedBlocks));
  const uint64_t reference_every =
      std::max<uint64_t>(1, calls / std::min(calls, sizes.evict_reference_calls));
  std::vector<uint32_t> tokens(kEvictedBlocks * kIndexBlockTokens);
  fermata_stats before;
  std::optional<uint64_t> victims_before;
  std::optional<uint64_t> visits_before;
  FERMATA_RETURN_IF_ERROR(cache->Stats(&before));
  FERMATA_RETURN_IF_ERROR(cache->Counter("cache.victims", &victims_before));
  FERMATA_RETURN_IF_ERROR(cache->Counter("cache.victim_visits", &visits_before));
  EvictionCost untimed;
  bool cold = false;
  for (uint64_t call = 0; call < calls; ++call) {
    // The reference has just walked over the CPU's caches: the call after it would be timed with
    // what that costs.
    FERMATA_RETURN_IF_ERROR(EvictOnce(cache, call, tokens, cold ? &untimed : cost));
    cold = call % reference_every == 0;
    if (!cold) continue;
    uint64_t freed = 0;
    cost->reference_us.Add(TimedNs([&] { freed = tree.Evict(kEvictedBlocks, nullptr); }) / 1e3);
    if (freed != 0) tree.Add(shared, sessions + call, freed, sessions + call);
  }
  fermata_stats after;
  std::optional<uint64_t> victims;
  std::optional<uint64_t> visits;
  FERMATA_RETURN_IF_ERROR(cache->Stats(&after));
  FERMATA_RETURN_IF_ERROR(cache->Counter("cache.victims", &victims));
  FERMATA_RETURN_IF_ERROR(cache->Counter("cache.victim_visits", &visits));
  if (after.dropped_blocks - before.dropped_blocks != calls * kEvictedBlocks) {
    return ErrorF(StatusCode::kInternal,
                  "%" PRIu64 " blocks were dropped by %" PRIu64 " appends of 64 blocks",
                  after.dropped_blocks - before.dropped_blocks, calls);
  }
  if (victims && visits && victims_before && visits_before && *victims > *victims_before) {
    cost->visits = static_cast<double>(*visits - *visits_before) /
                   static_cast<double>(*victims - *victims_before);
  }
  cost->reference_visits = static_cast<double>(tree.visits()) /
                           static_cast<double>(std::max<uint64_t>(1, tree.victims()));
  return Status();
}

}  // namespace

Status MeasureIndexEviction(const IndexSizes& sizes, IndexFigures* out) {
  const std::pair<const char*, uint64_t> scales[] = {
      {"1k", sizes.sessions_1k}, {"100k", sizes.sessions_100k}, {"1m", sizes.sessions_1m}};
  for (const uint64_t tail : {kLongTailBlocks, kShortTailBlocks}) {
    const std::string stem = tail == kLongTailBlocks ? "evict64_" : "evict64_single_";
    for (const auto& [scale, sessions] : scales) {
      EvictionCost cost;
      FERMATA_RETURN_IF_ERROR(CostOfEviction(sizes, sessions, tail, &cost));
      const auto set = [&, end = scale](const std::string& name, std::optional<double> value) {
        out->Set(name + end, value);
      };
      set(stem + "p99_us_", cost.call_us.P99());
      set(stem + "median_us_", cost.call_us.Median());
      set(stem + "p99_cpu_us_", cost.cpu_us.P99());
      set(stem + "visits_", cost.visits);
      set("ref_" + stem + "p99_us_", cost.reference_us.P99());
      set("ref_" + stem + "median_us_", cost.reference_us.Median());
      set("ref_" + stem + "visits_", cost.reference_visits);
    }
  }
  return Status();
}

}  // namespace fermata::bench
