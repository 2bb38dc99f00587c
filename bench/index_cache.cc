// SPDX-License-Identifier: Apache-2.0
#include "bench/index_cache.h"

#include <cinttypes>
#include <cstring>

namespace fermata::bench {
namespace {

constexpr uint64_t kStepsAtOnce = 4096;
constexpr uint64_t kPayloadBytes = 4096;  // nobody holds them: the smallest that a slot may be
constexpr uint32_t kQueueEntries = 64;
constexpr uint64_t kCloseNs = uint64_t{60} * 1'000'000'000;
constexpr uint64_t kBranchBit = uint64_t{1} << 62;

uint64_t PieceStream(uint64_t family, uint64_t piece, bool branch) {
  return (family << 24 | piece) | (branch ? kBranchBit : 0);
}

Status ItemStatus(const char* call, fermata_status called, const fermata_error& error,
                  fermata_status item, uint32_t reason) {
  FERMATA_RETURN_IF_ERROR(IndexCallStatus(call, called, error));
  if (item == FERMATA_OK) return Status();
  return ReasonF(static_cast<StatusCode>(item), static_cast<Reason>(reason), "%s: %s/%s", call,
                 fermata_status_name(item), fermata_reason_name(reason));
}

}  // namespace

Status IndexCallStatus(const char* call, fermata_status status, const fermata_error& error) {
  if (status == FERMATA_OK) return Status();
  return ReasonF(static_cast<StatusCode>(status), static_cast<Reason>(error.reason), "%s: %s: %s",
                 call, fermata_status_name(status), error.message);
}

fermata_append_item AppendItem(fermata_sequence sequence, std::span<const uint32_t> tokens) {
  fermata_append_item item{};
  item.struct_size = sizeof(item);
  item.sequence = sequence;
  item.tokens = tokens.data();
  item.token_count = tokens.size();
  return item;
}

fermata_mark_item MarkItem(fermata_sequence sequence, uint64_t tokens) {
  fermata_mark_item item{};
  item.struct_size = sizeof(item);
  item.sequence = sequence;
  item.tokens = tokens;
  return item;
}

fermata_lookup_item LookupItem(std::span<const uint32_t> tokens, bool lease) {
  fermata_lookup_item item{};
  item.struct_size = sizeof(item);
  item.flags = lease ? 0 : FERMATA_LOOKUP_NO_LEASE;
  item.tokens = tokens.data();
  item.token_count = tokens.size();
  return item;
}

Result<std::unique_ptr<IndexCache>> IndexCache::Open(const IndexCacheOptions& options) {
  std::unique_ptr<IndexCache> made(new IndexCache());
  fermata_group_config group{};
  group.struct_size = sizeof(group);
  group.rule = FERMATA_RULE_FULL;
  group.block_tokens = kIndexBlockTokens;
  group.block_bytes = kPayloadBytes;
  fermata_tier_config tier{};
  tier.struct_size = sizeof(tier);
  tier.kind = FERMATA_TIER_DEVICE;
  fermata_config config;
  fermata_config_init(&config, sizeof(config));
  config.chain_tokens = kIndexBlockTokens;
  config.groups = &group;
  config.group_count = 1;
  config.tiers = &tier;
  config.tier_count = 1;
  config.max_sequences = options.max_sequences;
  fermata_x_options experimental{};
  experimental.struct_size = sizeof(experimental);
  experimental.flags = FERMATA_X_MANUAL_CLOCK | FERMATA_X_STEP_DRIVEN | FERMATA_X_METADATA_ONLY;
  experimental.seed = 1;
  experimental.hash_bits = options.hash_bits;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(
      IndexCallStatus("fermata_x_cache_open",
                      fermata_x_cache_open(&config, &experimental, &made->cache_, &error), error));

  fermata_region region{};
  region.slot_bytes = kPayloadBytes;
  fermata_arena_config arena{};
  arena.struct_size = sizeof(arena);
  arena.slots = static_cast<uint32_t>(options.slots);
  arena.regions = &region;
  arena.region_count = 1;
  FERMATA_RETURN_IF_ERROR(
      IndexCallStatus("fermata_arena_register",
                      fermata_arena_register(made->cache_, &arena, &made->arena_, &error), error));

  fermata_space_config space{};
  space.struct_size = sizeof(space);
  space.weights = fermata_bytes{"index", 5};
  FERMATA_RETURN_IF_ERROR(
      IndexCallStatus("fermata_space_open",
                      fermata_space_open(made->cache_, &space, &made->space_, &error), error));
  FERMATA_RETURN_IF_ERROR(IndexCallStatus(
      "fermata_queue_create", fermata_queue_create(kQueueEntries, &made->queue_, &error), error));
  FERMATA_RETURN_IF_ERROR(made->Step());
  return made;
}

IndexCache::~IndexCache() {
  uint64_t now = 0;
  if (cache_.id != 0 && fermata_now(cache_, &now, nullptr) == FERMATA_OK) {
    (void)fermata_cache_close(cache_, now + kCloseNs, nullptr);
  }
  (void)fermata_queue_destroy(queue_, nullptr);
}

Status IndexCache::Create(fermata_sequence* out) {
  fermata_error error = FERMATA_ERROR_INIT;
  return IndexCallStatus("fermata_sequence_create",
                         fermata_sequence_create(space_, nullptr, out, &error), error);
}

Status IndexCache::Append(fermata_sequence sequence, std::span<const uint32_t> tokens) {
  fermata_append_item item = AppendItem(sequence, tokens);
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_append(cache_, &item, 1, &error);
  return ItemStatus("fermata_append", status, error, item.status, item.reason);
}

Status IndexCache::Mark(fermata_sequence sequence, uint64_t tokens) {
  fermata_mark_item item = MarkItem(sequence, tokens);
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_mark(cache_, &item, 1, &error);
  return ItemStatus("fermata_mark", status, error, item.status, item.reason);
}

Status IndexCache::AppendAndMark(fermata_sequence sequence, uint64_t length_before,
                                 std::span<const uint32_t> tokens) {
  FERMATA_RETURN_IF_ERROR(Append(sequence, tokens));
  return Mark(sequence, length_before + tokens.size());
}

Status IndexCache::Truncate(fermata_sequence sequence, uint64_t tokens) {
  fermata_error error = FERMATA_ERROR_INIT;
  return IndexCallStatus("fermata_sequence_truncate",
                         fermata_sequence_truncate(sequence, tokens, &error), error);
}

Status IndexCache::Fork(fermata_sequence sequence, std::span<fermata_sequence> children) {
  fermata_error error = FERMATA_ERROR_INIT;
  return IndexCallStatus("fermata_sequence_fork",
                         fermata_sequence_fork(sequence, children.data(), children.size(), &error),
                         error);
}

Status IndexCache::Release(std::span<const fermata_sequence> sequences) {
  fermata_error error = FERMATA_ERROR_INIT;
  return IndexCallStatus("fermata_release",
                         fermata_release(cache_, sequences.data(), sequences.size(), &error),
                         error);
}

Status IndexCache::Lookup(std::span<const uint32_t> tokens, bool lease, uint64_t* hit) {
  fermata_lookup_item item = LookupItem(tokens, lease);
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_lookup(space_, &item, 1, &error);
  FERMATA_RETURN_IF_ERROR(ItemStatus("fermata_lookup", status, error, item.status, item.reason));
  *hit = item.hit_tokens;
  if (item.lease.id == 0) return Status();
  return IndexCallStatus("fermata_lease_drop", fermata_lease_drop(item.lease, &error), error);
}

Status IndexCache::Stats(fermata_stats* out) {
  *out = fermata_stats{};
  out->struct_size = sizeof(*out);
  fermata_error error = FERMATA_ERROR_INIT;
  return IndexCallStatus("fermata_stats_get", fermata_stats_get(cache_, out, &error), error);
}

Status IndexCache::Counter(const char* name, std::optional<uint64_t>* out) {
  struct Wanted {
    const char* name;
    std::optional<uint64_t>* value;
  } wanted{name, out};
  out->reset();
  const auto visit = [](void* user, const char* visited, uint64_t value, const char* text) {
    const Wanted& want = *static_cast<const Wanted*>(user);
    if (text == nullptr && std::strcmp(visited, want.name) == 0) *want.value = value;
  };
  fermata_error error = FERMATA_ERROR_INIT;
  return IndexCallStatus("fermata_stats_visit", fermata_stats_visit(cache_, visit, &wanted, &error),
                         error);
}

Status IndexCache::Step() {
  for (;;) {
    uint64_t ran = 0;
    fermata_error error = FERMATA_ERROR_INIT;
    FERMATA_RETURN_IF_ERROR(IndexCallStatus(
        "fermata_x_step", fermata_x_step(cache_, kStepsAtOnce, &ran, &error), error));
    if (ran < kStepsAtOnce) return Status();
  }
}

// --- families of contexts ---

void ContextFamily::TrunkTokens(uint64_t family, std::span<uint32_t> out) const {
  const uint64_t piece_tokens = run * kIndexBlockTokens;
  for (uint64_t piece = 0; piece < pieces; ++piece) {
    FillTokens(PieceStream(family, piece, false), out.subspan(piece * piece_tokens, piece_tokens));
  }
}

Status ContextFamily::Build(IndexCache* cache, uint64_t family, fermata_sequence* keep) const {
  std::vector<uint32_t> piece_of_tokens(run * kIndexBlockTokens);
  const std::span<uint32_t> tokens(piece_of_tokens);
  fermata_sequence sequence{0};
  FERMATA_RETURN_IF_ERROR(cache->Create(&sequence));
  uint64_t length = 0;
  for (uint64_t piece = 0; piece < pieces; ++piece) {
    FillTokens(PieceStream(family, piece, false), tokens);
    FERMATA_RETURN_IF_ERROR(cache->AppendAndMark(sequence, length, tokens));
    length += tokens.size();
    FillTokens(PieceStream(family, piece, true), tokens);
    FERMATA_RETURN_IF_ERROR(cache->AppendAndMark(sequence, length, tokens));
    FERMATA_RETURN_IF_ERROR(cache->Truncate(sequence, length));
  }
  if (keep != nullptr) {
    *keep = sequence;
    return Status();
  }
  return cache->Release({&sequence, 1});
}

uint64_t FamilyBlocks(const ContextFamily& family, uint64_t blocks) {
  return (blocks + family.blocks() - 1) / family.blocks() * family.blocks();
}

Status BuildFamilies(IndexCache* cache, const ContextFamily& family, uint64_t blocks,
                     uint64_t* families) {
  *families = FamilyBlocks(family, blocks) / family.blocks();
  for (uint64_t i = 0; i < *families; ++i) {
    FERMATA_RETURN_IF_ERROR(family.Build(cache, i, nullptr));
    FERMATA_RETURN_IF_ERROR(cache->Step());
  }
  fermata_stats stats;
  FERMATA_RETURN_IF_ERROR(cache->Stats(&stats));
  if (stats.blocks >= *families * family.blocks()) return Status();
  return ErrorF(StatusCode::kInternal,
                "%" PRIu64 " blocks are cached where %" PRIu64 " were stored", stats.blocks,
                *families * family.blocks());
}

}  // namespace fermata::bench
