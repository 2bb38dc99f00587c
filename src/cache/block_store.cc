// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: blocks, references, and the next victim. Where blocks lie is in block_residency.cc,
// the tree in block_tree.cc.
#include "cache/block_store.h"

#include <algorithm>

namespace fermata {

BlockStore::BlockStore(const CacheConfig& config, std::vector<Tier*> tiers, uint64_t first_uid)
    : config_(config),
      tiers_(std::move(tiers)),
      tier_count_(tiers_.size()),
      group_count_(config.groups.size()),
      hash_mask_(config.index_hash_bits == 0 || config.index_hash_bits >= 32
                     ? 0xffffffffu
                     : (1u << config.index_hash_bits) - 1),
      next_uid_(first_uid),
      counters_(tiers_.size()) {
  const PolicyFactory factory = FindPolicy(config.policy);
  FERMATA_CHECK(factory != nullptr);
  pools_.resize(tier_count_ * group_count_);
  for (Pool& pool : pools_) pool.policy = factory(this);
  buckets_.Grow(bucket_base_);
}

BlockStore::~BlockStore() {
  for (uint32_t i = 0; i < runs_.size(); ++i)
    memory_.Free(runs_[i].data, DataBytes(runs_[i], runs_[i].capacity));
}

// --- blocks ---

BlockId BlockStore::AllocateBlock(GroupIndex group) {
  BlockId id = free_block_;
  if (id != BlockId::kNone) {
    free_block_ = static_cast<BlockId>(blocks_[Raw(id)].home);
  } else {
    id = static_cast<BlockId>(blocks_.size());
    FERMATA_CHECK(id != BlockId::kNone);
    residency_.Grow((blocks_.size() + 1) * tier_count_);
    blocks_.Grow(blocks_.size() + 1);
  }
  Block& block = blocks_[Raw(id)];
  block = Block{};
  block.group = static_cast<uint8_t>(group);
  for (TierIndex t = 0; t < tier_count_; ++t) mut_at(id, t) = Residency{};
  ++blocks_in_use_;
  return id;
}

void BlockStore::FreeBlock(BlockId id) {
  Block& block = blocks_[Raw(id)];
  block.state = BlockState::kFree;
  block.home = Raw(free_block_);
  free_block_ = id;
  --blocks_in_use_;
}

BlockId BlockStore::AddPrivate(GroupIndex group, SlotId device_slot, uint32_t refs) {
  uint32_t place = 0;
  if (free_privates_.empty()) {
    place = static_cast<uint32_t>(privates_.size());
    privates_.emplace_back();
    free_privates_.reserve(privates_.capacity());  // so that giving one back cannot fail
  } else {
    place = free_privates_.back();
    free_privates_.pop_back();
  }
  privates_[place] = PrivateBlock{refs, 0};
  const BlockId id = AllocateBlock(group);
  blocks_[Raw(id)].home = place;
  blocks_[Raw(id)].state = BlockState::kPrivate;
  Residency& here = mut_at(id, 0);
  here.presence = Presence::kResident;
  here.slot = device_slot;
  return id;
}

BlockId BlockStore::NewPrivate(GroupIndex group, SlotId device_slot) {
  ++counters_[0].slots_of_use[static_cast<size_t>(SlotUse::kLive)];
  return AddPrivate(group, device_slot, 0);
}

void BlockStore::NewPrivates(GroupIndex group, std::span<const SlotId> device_slots,
                             std::vector<BlockId>* out) {
  counters_[0].slots_of_use[static_cast<size_t>(SlotUse::kLive)] += device_slots.size();
  for (const SlotId slot : device_slots) out->push_back(AddPrivate(group, slot, 1));
}

void BlockStore::FreePrivateIfUnused(BlockId id) {
  if (private_of(id).refs != 0) return;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (at(id, t).io_pins != 0) return;
  }
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (at(id, t).presence != Presence::kAbsent) Remove(id, t);
  }
  free_privates_.push_back(blocks_[Raw(id)].home);
  FreeBlock(id);
}

uint64_t BlockStore::uid(BlockId id) const {
  return state(id) == BlockState::kPrivate ? 0 : run(run_of(id)).first_uid + index_of(id);
}

bool BlockStore::IsAlive(BlockId id, uint64_t want) const {
  return Raw(id) < blocks_.size() && published(id) && uid(id) == want;
}

bool BlockStore::Held(BlockId id) const {
  return state(id) == BlockState::kPrivate ? private_of(id).refs != 0 : run(run_of(id)).refs != 0;
}

int BlockStore::BestTier(BlockId id) const {
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (Resident(id, t) && tiers_[t]->healthy()) return t;
  }
  return -1;
}

BlockRecord BlockStore::RecordOf(BlockId id) {
  const Run& in = run(run_of(id));
  const BlockId above = parent_block(id);
  BlockRecord record;
  record.uid = uid(id);
  record.parent_uid = above == BlockId::kNone ? 0 : uid(above);
  record.space = in.space;
  record.group = in.group;
  record.depth = block_depth(id);
  record.key = key(id);
  record.identity = name(id);
  return record;
}

// --- references ---

void BlockStore::Ref(BlockId id) {
  if (state(id) == BlockState::kPrivate) {
    ++private_of(id).refs;
    return;
  }
  SplitAfter(id);
  HoldRun(run_of(id));
}

void BlockStore::Unref(BlockId id) {
  if (state(id) == BlockState::kPrivate) {
    PrivateBlock& block = private_of(id);
    FERMATA_CHECK(block.refs > 0);
    if (--block.refs == 0) FreePrivateIfUnused(id);
    return;
  }
  FERMATA_CHECK(index_of(id) + 1 == run(run_of(id)).count);
  LetGoOfRun(run_of(id));
}

void BlockStore::BeginCopy(BlockId id) {
  if (state(id) == BlockState::kPrivate) ++private_of(id).copies;
}

void BlockStore::EndCopy(BlockId id) {
  if (state(id) != BlockState::kPrivate) return;
  FERMATA_CHECK(private_of(id).copies > 0);
  --private_of(id).copies;
}

// Moves what a run has between held and not held in the counters: what CountRun adds, less what is
// the same for both.
void BlockStore::FlipHeld(RunId id, bool held) {
  Run& of = mut(id);
  of.refs = held ? 1 : 0;
  const uint64_t sign = held ? static_cast<uint64_t>(-1) : 1;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    const RunTier& tier = run_tier(id, t);
    if (tier.present == 0) continue;
    uint64_t* const uses = counters_[t].slots_of_use;
    const uint64_t quiet = static_cast<uint64_t>(tier.present - tier.in_flight);
    uses[static_cast<size_t>(SlotUse::kCached)] += sign * quiet;
    uses[static_cast<size_t>(SlotUse::kLive)] -= sign * quiet;
    if (of.state != BlockState::kPublished) continue;
    Pool& p = pool(t, of.group);
    p.evictable += sign * tier.sole;
    p.leaving += sign * tier.leaving_sole;
    if (!held && tier.sole != 0) Used(id, t);
    if (tier.told_leaf) Tell(id, t);  // others are no candidates either way
  }
}

void BlockStore::HoldRun(RunId id) {
  for (RunId r = id; r != RunId::kNone; r = run(r).parent) {
    if (run(r).refs != 0) {
      ++mut(r).refs;
      return;
    }
    FlipHeld(r, true);
  }
}

// Deepest first: the order of letting go is the order of recency.
void BlockStore::LetGoOfRun(RunId id) {
  for (RunId r = id; r != RunId::kNone;) {
    FERMATA_CHECK(run(r).refs > 0);
    if (run(r).refs > 1) {
      --mut(r).refs;
      return;
    }
    FlipHeld(r, false);
    const RunId above = run(r).parent;
    if (run(r).state == BlockState::kDead) {
      // It gives up the copies that nobody touches; the others go when their transfers end.
      mut(r).parent = RunId::kNone;
      for (uint32_t i = run(r).count; i-- > 0;) {
        const BlockId block = block_at(run(r), i);
        for (TierIndex t = 0; t < tier_count_; ++t) {
          if (at(block, t).presence != Presence::kAbsent && at(block, t).io_pins == 0)
            Remove(block, t);
        }
      }
      FreeRunIfUnused(r);
    } else if (run(r).capacity > run(r).count + run(r).count / 16) {
      Resize(&mut(r), run(r).count);
    }
    r = above;
  }
}

// --- victims ---

// A victim's way to its slots leads through half a dozen places in memory, each named by the one
// before. Among a million idle sessions none of them is in a cache of the processor, so those of
// the next victims are fetched while this one goes.
void BlockStore::LookAhead(TierIndex tier, Pool* pool, RunId victim) {
  VictimsAhead& ahead = pool->ahead;
  while (ahead.count != 0 && ahead.at(0) != victim) {
    ++ahead.first;
    --ahead.count;
  }
  if (ahead.count == 0) {
    ahead.at(0) = victim;
    ahead.count = 1;
  }
  while (ahead.count < VictimsAhead::kDepth) {
    const RunId next = pool->policy->After(ahead.at(ahead.count - 1));
    if (next == RunId::kNone) break;
    ahead.at(ahead.count) = next;
    if (ahead.count++ + 1 == VictimsAhead::kDepth) break;
  }
  const auto fetch = [](const void* address) { __builtin_prefetch(address, 1); };
  if (ahead.count > 5) {
    const RunId r = ahead.at(5);
    fetch(&runs_[Raw(r)]);
    fetch(&runs_[Raw(r)].state);
    fetch(&run_tiers_[Raw(r) * tier_count_]);
  }
  if (ahead.count > 3) {
    const Run& r = run(ahead.at(3));
    fetch(r.data);
    fetch(&buckets_[BucketOf(r.hash)]);
    if (r.next_sibling != RunId::kNone) fetch(&runs_[Raw(r.next_sibling)].parent);
    if (r.previous_sibling != RunId::kNone) fetch(&runs_[Raw(r.previous_sibling)].parent);
  }
  if (ahead.count > 1) {
    const RunId next = ahead.at(1);
    const uint32_t top = run_tier(next, tier).top;
    // It may have gone meanwhile, and its id to another.
    if (run(next).state != BlockState::kPublished || top == 0 || top > run(next).count) return;
    // Ids of one run mostly follow one another: eight of a kind to a line.
    for (uint32_t i = top; i > 0 && top - i < 64; i -= std::min(i, 8u)) {
      const BlockId block = block_at(run(next), i - 1);
      fetch(&blocks_[Raw(block)]);
      fetch(&residency_[Raw(block) * tier_count_]);
    }
  }
}

BlockId BlockStore::NextVictim(TierIndex tier, GroupIndex group) {
  Pool& from = pool(tier, group);
  const RunId id = from.policy->NextVictim().run;
  if (id == RunId::kNone) return BlockId::kNone;
  ++victims;
  ++victim_visits;
  if (from.ahead.last != id) LookAhead(tier, &from, id);
  from.ahead.last = id;
  return block_at(run(id), run_tier(id, tier).top - 1u);
}

}  // namespace fermata
