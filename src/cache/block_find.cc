// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: the index of runs, what it finds, and what blocks are called.
#include <algorithm>
#include <cstring>

#include "cache/block_store.h"

namespace fermata {

// --- finding ---

uint32_t BlockStore::HashOf(uint32_t space, GroupIndex group, RunId parent,
                            std::span<const std::byte> name) const {
  const uint64_t seed = MixU64(uint64_t{Raw(parent)} << 32 | space) + group;
  return static_cast<uint32_t>(IndexHash(name, seed)) & hash_mask_;
}

uint64_t BlockStore::BucketOf(uint32_t hash) const {
  const uint64_t bucket = hash & (bucket_base_ - 1);
  return bucket < bucket_split_ ? hash & (2 * bucket_base_ - 1) : bucket;
}

void BlockStore::IndexInsert(RunId id) {
  if (++indexed_ > bucket_base_ + bucket_split_) {
    // The next bucket in turn gives about half of its runs to a new one.
    const uint64_t from = bucket_split_;
    const uint64_t to = bucket_base_ + bucket_split_;
    buckets_.Grow(to + 1);
    if (++bucket_split_ == bucket_base_) {
      bucket_base_ *= 2;
      bucket_split_ = 0;
    }
    uint32_t* link = &buckets_[from];
    while (*link != 0) {
      Run& moving = mut(static_cast<RunId>(*link - 1));
      if (BucketOf(moving.hash) == from) {
        link = &moving.next_in_bucket;
        continue;
      }
      const uint32_t raw = *link;
      *link = moving.next_in_bucket;
      moving.next_in_bucket = buckets_[to];
      buckets_[to] = raw;
    }
  }
  uint32_t& head = buckets_[BucketOf(run(id).hash)];
  mut(id).next_in_bucket = head;
  head = Raw(id) + 1;
}

void BlockStore::IndexErase(RunId id) {
  uint32_t* link = &buckets_[BucketOf(run(id).hash)];
  while (*link != Raw(id) + 1) {
    FERMATA_CHECK(*link != 0);
    link = &mut(static_cast<RunId>(*link - 1)).next_in_bucket;
  }
  *link = run(id).next_in_bucket;
  --indexed_;
}

RunId BlockStore::FindRun(uint32_t space, GroupIndex group, RunId parent,
                          std::span<const std::byte> name) const {
  const uint32_t hash = HashOf(space, group, parent, name);
  for (uint32_t raw = buckets_[BucketOf(hash)]; raw != 0;) {
    const RunId id = static_cast<RunId>(raw - 1);
    const Run& found = run(id);
    // The hash brought us here; only this comparison makes a hit.
    if (found.hash == hash && found.parent == parent && found.space == space &&
        found.group == group && found.name_bytes == name.size() &&
        std::memcmp(names(found), name.data(), name.size()) == 0) {
      return id;
    }
    raw = found.next_in_bucket;
  }
  return RunId::kNone;
}

BlockId BlockStore::FindChild(uint32_t space, GroupIndex group, BlockId parent,
                              std::span<const std::byte> name) const {
  RunId above = RunId::kNone;
  if (parent != BlockId::kNone) {
    above = run_of(parent);
    const Run& in = run(above);
    const uint32_t next = index_of(parent) + 1;
    if (next < in.count) {
      const bool same =
          in.name_bytes == name.size() &&
          std::memcmp(names(in) + size_t{next} * in.name_bytes, name.data(), name.size()) == 0;
      return same ? block_at(in, next) : BlockId::kNone;
    }
    if (in.first_child == RunId::kNone) return BlockId::kNone;
  }
  const RunId found = FindRun(space, group, above, name);
  return found == RunId::kNone ? BlockId::kNone : block_at(run(found), 0);
}

uint64_t BlockStore::Match(uint32_t space, GroupIndex group, const NamedPrefix& prefix,
                           uint64_t units, BlockId* deepest) const {
  const uint64_t total = prefix.units() / units;
  const bool plain = prefix.plain();
  std::vector<std::byte> scratch;
  uint64_t matched = 0;
  RunId parent = RunId::kNone;
  while (matched < total) {
    if (parent != RunId::kNone && run(parent).first_child == RunId::kNone) break;
    const RunId id = FindRun(space, group, parent, prefix.Name(matched * units, units, &scratch));
    if (id == RunId::kNone) break;
    const Run& in = run(id);
    const uint64_t want = std::min<uint64_t>(in.count, total - matched);
    const auto same_block = [&](uint64_t i) {
      const std::span<const std::byte> name = prefix.Name((matched + i) * units, units, &scratch);
      return name.size() == in.name_bytes &&
             std::memcmp(names(in) + i * in.name_bytes, name.data(), name.size()) == 0;
    };
    uint64_t same = 1;
    if (plain && !in.keyed && want > 1) {
      // All of it in one go; where it differs is looked for only if it does.
      const std::span<const std::byte> rest =
          prefix.Name((matched + 1) * units, (want - 1) * units, &scratch);
      if (std::memcmp(names(in) + in.name_bytes, rest.data(), rest.size()) == 0) same = want;
    }
    while (same < want && same_block(same)) ++same;
    matched += same;
    *deepest = block_at(in, static_cast<uint32_t>(same - 1));
    if (same < in.count) break;
    parent = id;
  }
  return matched;
}

// --- names and keys ---

uint32_t BlockStore::index_of(BlockId id) const {
  const Block& block = blocks_[Raw(id)];
  return static_cast<uint16_t>(block.place - run(run_of(id)).shift);
}

BlockId BlockStore::parent_block(BlockId id) const {
  const Run& in = run(run_of(id));
  const uint32_t index = index_of(id);
  if (index > 0) return block_at(in, index - 1);
  if (in.parent == RunId::kNone) return BlockId::kNone;
  return block_at(run(in.parent), run(in.parent).count - 1u);
}

uint32_t BlockStore::block_depth(BlockId id) const { return run(run_of(id)).depth + index_of(id); }

std::span<const std::byte> BlockStore::name(BlockId id) const {
  const Run& in = run(run_of(id));
  return {names(in) + size_t{index_of(id)} * in.name_bytes, in.name_bytes};
}

Hash128 BlockStore::key(BlockId id) { return KeyAt(run_of(id), index_of(id)); }

// The chain value before a run's first block.
Hash128 BlockStore::KeyBefore(RunId id) {
  // Climbs to the first run whose end is known, then comes down; no recursion, paths are long.
  std::vector<RunId> unknown;
  RunId above = run(id).parent;
  while (above != RunId::kNone && !run(above).end_known) {
    unknown.push_back(above);
    above = run(above).parent;
  }
  Hash128 value = above == RunId::kNone ? spaces_.at(run(id).space).seed : run(above).end;
  const size_t unit = config_.chain_tokens * sizeof(uint32_t);
  for (; !unknown.empty(); unknown.pop_back()) {
    Run& next = mut(unknown.back());
    const size_t bytes = size_t{next.count} * next.name_bytes;
    for (size_t at = 0; at < bytes; at += unit) value = ChainHash(value, {names(next) + at, unit});
    next.end = value;
    next.end_known = true;
  }
  return value;
}

Hash128 BlockStore::KeyAt(RunId id, uint32_t index) {
  const Run& in = run(id);
  if (in.keyed) return keys(in)[index];
  if (in.end_known && index + 1 == in.count) return in.end;
  if (keys_of_ != id || keys_of_uid_ != in.first_uid || known_keys_.size() <= index) {
    Hash128 value = KeyBefore(id);
    const size_t unit = config_.chain_tokens * sizeof(uint32_t);
    known_keys_.clear();
    for (uint32_t i = 0; i < in.count; ++i) {
      const std::byte* const block = names(in) + size_t{i} * in.name_bytes;
      for (size_t at = 0; at < in.name_bytes; at += unit)
        value = ChainHash(value, {block + at, unit});
      known_keys_.push_back(value);
    }
    keys_of_ = id;
    keys_of_uid_ = in.first_uid;
  }
  return known_keys_[index];
}

}  // namespace fermata
