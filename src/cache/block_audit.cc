// SPDX-License-Identifier: Apache-2.0
//
// BlockStore::Audit: recounts from the blocks alone what BlockStore keeps by increments. Shares no
// arithmetic with it.
#include <cinttypes>

#include "cache/block_store.h"

namespace fermata {
namespace {

#define AUDIT(condition, ...) \
  if (!(condition)) return ErrorF(StatusCode::kInternal, "audit: " __VA_ARGS__)

}  // namespace

// What one tier's counts say of a run, against its blocks.
Status BlockStore::AuditRunTier(RunId id, TierIndex t) const {
  const Run& in = run(id);
  const RunTier& tier = run_tier(id, t);
  uint32_t present = 0, resident = 0, sole = 0, leaving = 0, leaving_sole = 0, flying = 0,
           pinned = 0;
  uint32_t top = 0;
  for (uint32_t i = 0; i < in.count; ++i) {
    const BlockId block = block_at(in, i);
    const Residency& here = at(block, t);
    const bool is_resident = here.presence == Presence::kResident;
    bool above = false;
    for (TierIndex u = 0; u < t; ++u) above |= Resident(block, u) && !at(block, u).leaving;
    present += here.presence != Presence::kAbsent ? 1 : 0;
    resident += is_resident ? 1 : 0;
    sole += is_resident && !above ? 1 : 0;
    leaving += is_resident && here.leaving ? 1 : 0;
    leaving_sole += is_resident && here.leaving && !above ? 1 : 0;
    pinned += here.io_pins != 0 ? 1 : 0;
    flying += here.io_pins != 0 && here.presence != Presence::kAbsent ? 1 : 0;
    if (is_resident && !here.leaving) top = i + 1;
    AUDIT((here.slot != SlotId::kNone) == (here.presence != Presence::kAbsent),
          "block %u on tier %u: slot without copy", Raw(block), t);
    AUDIT(here.presence != Presence::kIncoming || here.io_pins > 0,
          "block %u arrives on tier %u by no transfer", Raw(block), t);
    if (in.state != BlockState::kPublished || !is_resident) continue;
    const BlockId parent = parent_block(block);
    if (tiers_[t]->has(kTierDurable) && parent != BlockId::kNone) {
      AUDIT(at(parent, t).presence != Presence::kAbsent,
            "block %u is on durable tier %u without its parent", Raw(block), t);
    }
  }
  AUDIT(present == tier.present && resident == tier.resident && sole == tier.sole &&
            leaving == tier.leaving && leaving_sole == tier.leaving_sole &&
            flying == tier.in_flight && pinned == tier.pinned && top == tier.top,
        "run %u on tier %u: present %u resident %u sole %u leaving %u/%u flying %u pinned %u top "
        "%u, recounted %u %u %u %u/%u %u %u %u",
        Raw(id), t, tier.present, tier.resident, tier.sole, tier.leaving, tier.leaving_sole,
        tier.in_flight, tier.pinned, tier.top, present, resident, sole, leaving, leaving_sole,
        flying, pinned, top);
  uint32_t children = 0;
  for (RunId c = in.first_child; c != RunId::kNone; c = run(c).next_sibling) {
    bool stays = false;
    for (uint32_t i = 0; i < run(c).count; ++i) {
      const BlockId block = block_at(run(c), i);
      stays |= Resident(block, t) && !at(block, t).leaving;
    }
    children += stays ? 1 : 0;
  }
  AUDIT(children == tier.children, "run %u on tier %u has %u children, recounted %u", Raw(id), t,
        tier.children, children);
  const bool alive = in.state == BlockState::kPublished;
  AUDIT(tier.told_inserted == (alive && resident != 0), "run %u on tier %u: policy believes %d",
        Raw(id), t, tier.told_inserted);
  if (!tier.told_inserted) return Status();
  AUDIT(tier.told_leaf == (children == 0 && top != 0), "run %u on tier %u: policy believes leaf %d",
        Raw(id), t, tier.told_leaf);
  bool free = false;
  if (top != 0 && children == 0) {
    const BlockId deepest = block_at(in, top - 1);
    bool above = false;
    for (TierIndex u = 0; u < t; ++u) above |= Resident(deepest, u) && !at(deepest, u).leaving;
    free = at(deepest, t).io_pins == 0 && (in.refs == 0 || above);
  }
  AUDIT(tier.told_unpinned == free, "run %u on tier %u: policy believes unpinned %d", Raw(id), t,
        tier.told_unpinned);
  return Status();
}

Status BlockStore::AuditRun(RunId id, const std::vector<uint32_t>& refs, uint32_t below) {
  const Run& in = run(id);
  const bool alive = in.state == BlockState::kPublished;
  AUDIT(in.count > 0 && in.count <= in.capacity && in.capacity <= kMaxRun,
        "run %u has %u blocks of %u", Raw(id), in.count, in.capacity);
  uint32_t outer = 0;
  for (uint32_t i = 0; i < in.count; ++i) {
    const BlockId block = block_at(in, i);
    AUDIT(state(block) == in.state && run_of(block) == id && index_of(block) == i &&
              group(block) == in.group,
          "block %u is not where run %u has it", Raw(block), Raw(id));
    AUDIT(refs[Raw(block)] == 0 || i + 1 == in.count, "block %u is referred to within run %u",
          Raw(block), Raw(id));
    outer += refs[Raw(block)];
    if (!alive) continue;
    bool somewhere = false;
    for (TierIndex t = 0; t < tier_count_; ++t) somewhere |= Resident(block, t);
    AUDIT(somewhere, "published block %u is resident nowhere", Raw(block));
    AUDIT(FindChild(in.space, in.group, parent_block(block), name(block)) == block,
          "published block %u is not what the index finds", Raw(block));
    const SpaceCount& space = spaces_.at(in.space);
    const BlockId parent = parent_block(block);
    const Hash128 before = parent == BlockId::kNone ? space.seed : key(parent);
    const size_t unit = config_.chain_tokens * sizeof(uint32_t);
    Hash128 value = before;
    for (size_t at = 0; at < in.name_bytes && !in.keyed; at += unit)
      value = ChainHash(value, name(block).subspan(at, unit));
    AUDIT(in.keyed || value == key(block), "block %u has another key than its tokens", Raw(block));
  }
  AUDIT(in.refs == outer + below, "run %u has %u refs, recounted %u and %u runs below", Raw(id),
        in.refs, outer, below);
  if (alive && in.parent != RunId::kNone) {
    AUDIT(run(in.parent).state == BlockState::kPublished &&
              run(in.parent).depth + run(in.parent).count == in.depth,
          "run %u does not continue its parent", Raw(id));
  }
  for (TierIndex t = 0; t < tier_count_; ++t) FERMATA_RETURN_IF_ERROR(AuditRunTier(id, t));
  return Status();
}

Status BlockStore::AuditPools(const std::vector<uint64_t>& held) const {
  for (TierIndex t = 0; t < tier_count_; ++t) {
    uint64_t uses[4] = {};
    for (GroupIndex g = 0; g < group_count_; ++g) {
      const uint64_t capacity = tiers_[t]->slots(g);
      std::vector<bool> seen(capacity);
      uint64_t used = held[t * group_count_ + g];
      uint64_t evictable = 0;
      uint64_t leaving = 0;
      for (uint32_t i = 0; i < blocks_.size(); ++i) {
        const BlockId id{i};
        if (state(id) == BlockState::kFree || group(id) != g) continue;
        const Residency& r = at(id, t);
        if (r.presence == Presence::kAbsent) continue;
        AUDIT(Raw(r.slot) < capacity && !seen[Raw(r.slot)],
              "slot %u of tier %u group %u has two blocks", Raw(r.slot), t, g);
        seen[Raw(r.slot)] = true;
        ++uses[static_cast<size_t>(r.io_pins != 0 ? SlotUse::kInFlight
                                   : Held(id)     ? SlotUse::kLive
                                                  : SlotUse::kCached)];
        ++used;
        if (!published(id) || r.presence != Presence::kResident) continue;
        const bool needed = Held(id) && Sole(id, t);
        evictable += needed ? 0 : 1;
        leaving += !needed && r.leaving ? 1 : 0;
      }
      AUDIT(used + tiers_[t]->free_slots(g) == capacity,
            "tier %u group %u: %" PRIu64 " used + %" PRIu64 " free != %" PRIu64, t, g, used,
            tiers_[t]->free_slots(g), capacity);
      AUDIT(evictable == pool(t, g).evictable,
            "tier %u group %u: %" PRIu64 " evictable, recounted %" PRIu64, t, g,
            pool(t, g).evictable, evictable);
      AUDIT(leaving == pool(t, g).leaving,
            "tier %u group %u: %" PRIu64 " leaving, recounted %" PRIu64, t, g, pool(t, g).leaving,
            leaving);
    }
    for (size_t use = 1; use < 4; ++use) {
      AUDIT(uses[use] == counters_[t].slots_of_use[use],
            "tier %u: %" PRIu64 " slots of use %zu, recounted %" PRIu64, t,
            counters_[t].slots_of_use[use], use, uses[use]);
    }
  }
  return Status();
}

Status BlockStore::Audit(const std::vector<uint32_t>& refs, const std::vector<uint64_t>& held,
                         uint64_t* orphans) {
  *orphans = 0;
  uint64_t in_use = 0;
  uint64_t in_trees = 0;
  uint64_t published_blocks = 0;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    const BlockId id{i};
    if (state(id) == BlockState::kFree) continue;
    ++in_use;
    if (state(id) == BlockState::kPrivate) {
      const PrivateBlock& block = private_of(id);
      AUDIT(block.refs == refs[i], "block %u has %u refs, recounted %u", i, block.refs, refs[i]);
      AUDIT(block.copies <= block.refs, "block %u has %u refs, %u of them copies", i, block.refs,
            block.copies);
      AUDIT(block.refs != 0, "block %u is nobody's and not findable", i);
      continue;
    }
    ++in_trees;
    if (!published(id)) continue;
    ++published_blocks;
    const BlockId parent = parent_block(id);
    bool parent_somewhere = parent == BlockId::kNone;
    for (TierIndex t = 0; t < tier_count_ && !parent_somewhere; ++t)
      parent_somewhere = Resident(parent, t);
    if (!parent_somewhere || (parent != BlockId::kNone && !published(parent))) ++*orphans;
  }
  uint64_t runs = 0;
  uint64_t of_runs = 0;
  uint64_t alive = 0;
  // Held runs below each, dead ones too: they still lead to it.
  std::vector<uint32_t> below(runs_.size());
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    const Run& other = runs_[i];
    if (other.state != BlockState::kFree && other.refs != 0 && other.parent != RunId::kNone)
      ++below[Raw(other.parent)];
  }
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    const RunId id{i};
    if (run(id).state == BlockState::kFree) continue;
    ++runs;
    of_runs += run(id).count;
    alive += run(id).state == BlockState::kPublished ? 1 : 0;
    FERMATA_RETURN_IF_ERROR(AuditRun(id, refs, below[i]));
  }
  uint64_t indexed = 0;
  for (uint64_t b = 0; b < buckets_.size(); ++b) {
    for (uint32_t raw = buckets_[b]; raw != 0; raw = runs_[raw - 1].next_in_bucket) {
      ++indexed;
      AUDIT(BucketOf(runs_[raw - 1].hash) == b, "run %u is in bucket %" PRIu64, raw - 1, b);
    }
  }
  uint64_t in_spaces = 0;
  for (const auto& [number, space] : spaces_) in_spaces += space.blocks;
  AUDIT(in_use == blocks_in_use_, "%" PRIu64 " blocks in use, recounted %" PRIu64, blocks_in_use_,
        in_use);
  AUDIT(runs == runs_in_use_, "%" PRIu64 " runs in use, recounted %" PRIu64, runs_in_use_, runs);
  AUDIT(of_runs == in_trees, "%" PRIu64 " blocks in runs, %" PRIu64 " that say so", of_runs,
        in_trees);
  AUDIT(in_spaces == published_blocks, "%" PRIu64 " blocks in spaces, %" PRIu64 " published blocks",
        in_spaces, published_blocks);
  AUDIT(indexed == alive && indexed == indexed_, "%" PRIu64 " index entries, %" PRIu64 " runs",
        indexed, alive);
  return AuditPools(held);
}

}  // namespace fermata
