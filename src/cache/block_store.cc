// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: blocks, references, residency and what the policies are told. The tree is in
// block_tree.cc.
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

// --- counting ---

bool BlockStore::Sole(BlockId id, TierIndex tier) const {
  for (TierIndex t = 0; t < tier; ++t) {
    if (Resident(id, t) && !at(id, t).leaving) return false;
  }
  return true;
}

void BlockStore::AddBlock(RunId id, BlockId block, int sign) {
  const uint16_t one = static_cast<uint16_t>(sign);
  bool above = false;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    const Residency& here = at(block, t);
    RunTier& tier = mut_tier(id, t);
    if (here.io_pins != 0) tier.pinned = static_cast<uint16_t>(tier.pinned + one);
    if (here.presence == Presence::kAbsent) continue;
    tier.present = static_cast<uint16_t>(tier.present + one);
    if (here.io_pins != 0) tier.in_flight = static_cast<uint16_t>(tier.in_flight + one);
    if (here.presence != Presence::kResident) continue;
    tier.resident = static_cast<uint16_t>(tier.resident + one);
    if (!above) tier.sole = static_cast<uint16_t>(tier.sole + one);
    if (here.leaving) {
      tier.leaving = static_cast<uint16_t>(tier.leaving + one);
      if (!above) tier.leaving_sole = static_cast<uint16_t>(tier.leaving_sole + one);
    } else {
      above = true;
    }
  }
}

// What a run adds to the counters of its tiers and pools.
void BlockStore::CountRun(RunId id, int sign) {
  const Run& of = run(id);
  const bool held = of.refs != 0;
  const uint64_t one = static_cast<uint64_t>(static_cast<int64_t>(sign));
  for (TierIndex t = 0; t < tier_count_; ++t) {
    const RunTier& tier = run_tier(id, t);
    if (tier.present == 0) continue;
    uint64_t* const uses = counters_[t].slots_of_use;
    uses[static_cast<size_t>(SlotUse::kInFlight)] += one * tier.in_flight;
    uses[static_cast<size_t>(held ? SlotUse::kLive : SlotUse::kCached)] +=
        one * static_cast<uint64_t>(tier.present - tier.in_flight);
    if (of.state != BlockState::kPublished) continue;
    Pool& p = pool(t, of.group);
    p.evictable += one * static_cast<uint64_t>(tier.resident - (held ? tier.sole : 0));
    p.leaving += one * static_cast<uint64_t>(tier.leaving - (held ? tier.leaving_sole : 0));
  }
}

void BlockStore::CountPrivate(BlockId id, int sign) {
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (at(id, t).presence == Presence::kAbsent) continue;
    const SlotUse use = at(id, t).io_pins != 0 ? SlotUse::kInFlight : SlotUse::kLive;
    counters_[t].slots_of_use[static_cast<size_t>(use)] +=
        static_cast<uint64_t>(static_cast<int64_t>(sign));
  }
}

void BlockStore::FixTop(RunId id, TierIndex tier, uint32_t index) {
  const Run& of = run(id);
  RunTier& here = mut_tier(id, tier);
  const auto stays = [&](uint32_t i) {
    const Residency& r = at(block_at(of, i), tier);
    return r.presence == Presence::kResident && !r.leaving;
  };
  if (stays(index)) {
    if (index >= here.top) here.top = static_cast<uint16_t>(index + 1);
  } else if (index + 1 == here.top) {
    while (here.top > 0 && !stays(here.top - 1u)) --here.top;
  }
}

template <typename F>
void BlockStore::Change(BlockId id, F&& f) {
  if (state(id) == BlockState::kPrivate) {
    CountPrivate(id, -1);
    f();
    CountPrivate(id, +1);
    return;
  }
  const RunId in = run_of(id);
  const uint32_t index = index_of(id);
  CountRun(in, -1);
  AddBlock(in, id, -1);
  f();
  AddBlock(in, id, +1);
  for (TierIndex t = 0; t < tier_count_; ++t) FixTop(in, t, index);
  CountRun(in, +1);
  Settle(in);
}

// Brings the parent's count of children and the policies up to date with a run.
void BlockStore::Settle(RunId id) {
  const Run& of = run(id);
  for (TierIndex t = 0; t < tier_count_; ++t) {
    RunTier& here = mut_tier(id, t);
    const bool counts = of.state == BlockState::kPublished && here.resident != here.leaving;
    if (counts != here.counted) {
      here.counted = counts;
      if (of.parent != RunId::kNone) {
        RunTier& above = mut_tier(of.parent, t);
        FERMATA_CHECK(counts || above.children > 0);
        above.children += counts ? 1u : static_cast<uint32_t>(-1);
        if (above.children <= 1) Tell(of.parent, t);
      }
    }
    Tell(id, t);
  }
}

void BlockStore::Tell(RunId id, TierIndex t) {
  const Run& of = run(id);
  RunTier& here = mut_tier(id, t);
  const bool inserted = of.state == BlockState::kPublished && here.resident != 0;
  if (!inserted && !here.told_inserted) return;
  EvictionPolicy* const policy = pool(t, of.group).policy.get();
  if (!inserted) {
    policy->OnRemoved(id);
    here.told_inserted = here.told_leaf = here.told_unpinned = false;
    return;
  }
  const bool leaf = here.children == 0 && here.top != 0;
  bool unpinned = false;  // of a leaf: the pins of others are no news
  if (leaf) {
    const BlockId deepest = block_at(of, here.top - 1u);
    unpinned = at(deepest, t).io_pins == 0 && (of.refs == 0 || !Sole(deepest, t));
  }
  if (!here.told_inserted) policy->OnInserted(id);
  if (here.told_unpinned && !unpinned) policy->OnPinned(id);
  if (here.told_leaf && !leaf) policy->OnNoLongerLeaf(id);
  if (!here.told_leaf && leaf) policy->OnBecameLeaf(id);
  if (!here.told_unpinned && unpinned) policy->OnUnpinned(id);
  if (!here.told_inserted && of.superseded) policy->OnSuperseded(id);
  here.told_inserted = true;
  here.told_leaf = leaf;
  here.told_unpinned = unpinned;
}

void BlockStore::Used(RunId id, TierIndex tier) {
  if (run_tier(id, tier).told_inserted) pool(tier, run(id).group).policy->OnTouched(id, owner(id));
}

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

bool BlockStore::Leaf(BlockId id, TierIndex tier) const {
  const RunTier& here = run_tier(run_of(id), tier);
  return here.children == 0 && index_of(id) + 1 >= here.top;
}

bool BlockStore::Spare(BlockId id, TierIndex tier) const {
  return published(id) && Resident(id, tier) && (!Held(id) || !Sole(id, tier));
}

bool BlockStore::Evictable(BlockId id, TierIndex tier) const {
  return Spare(id, tier) && !at(id, tier).leaving && at(id, tier).io_pins == 0 && Leaf(id, tier);
}

// --- residency ---

void BlockStore::BeginIncoming(BlockId id, TierIndex tier, SlotId slot) {
  FERMATA_CHECK(at(id, tier).presence == Presence::kAbsent);
  Change(id, [&] {
    mut_at(id, tier).presence = Presence::kIncoming;
    mut_at(id, tier).slot = slot;
    mut_at(id, tier).voided = false;
  });
}

void BlockStore::FinishIncoming(BlockId id, TierIndex tier) {
  FERMATA_CHECK(at(id, tier).presence == Presence::kIncoming);
  Change(id, [&] {
    mut_at(id, tier).presence = Presence::kResident;
    mut_at(id, tier).voided = false;
  });
  if (published(id)) Emit(true, id, tier);
}

void BlockStore::Remove(BlockId id, TierIndex tier) {
  const Residency& residency = at(id, tier);
  FERMATA_CHECK(residency.presence != Presence::kAbsent && residency.io_pins == 0);
  const SlotId slot = residency.slot;
  const bool was_resident = residency.presence == Presence::kResident;
  Change(id, [&] { mut_at(id, tier) = Residency{}; });
  tiers_[tier]->Release(group(id), std::span(&slot, 1));
  if (!published(id)) return;
  if (was_resident) Emit(false, id, tier);
  for (TierIndex t = static_cast<TierIndex>(tier + 1); t < tier_count_; ++t) {
    if (!run_tier(run_of(id), t).told_inserted) continue;
    Used(run_of(id), t);
    break;
  }
}

void BlockStore::IoPin(BlockId id, TierIndex tier) {
  FERMATA_CHECK(at(id, tier).io_pins < 0xffffffu);
  Change(id, [&] { mut_at(id, tier).io_pins = (mut_at(id, tier).io_pins + 1u) & 0xffffffu; });
}

void BlockStore::IoUnpin(BlockId id, TierIndex tier) {
  FERMATA_CHECK(at(id, tier).io_pins > 0);
  Change(id, [&] { mut_at(id, tier).io_pins = (mut_at(id, tier).io_pins - 1u) & 0xffffffu; });
  if (at(id, tier).io_pins != 0 || published(id)) return;
  // A dead block gives up the copies that nobody holds; a sequence may still hold its device slot.
  if (at(id, tier).presence != Presence::kAbsent && (tier != 0 || !Held(id))) Remove(id, tier);
  if (state(id) == BlockState::kPrivate) {
    FreePrivateIfUnused(id);
  } else {
    FreeRunIfUnused(run_of(id));
  }
}

void BlockStore::AbortIncoming(BlockId id, TierIndex tier) {
  FERMATA_CHECK(at(id, tier).presence == Presence::kIncoming && at(id, tier).io_pins > 0);
  const SlotId slot = at(id, tier).slot;
  Change(id, [&] {
    Residency& here = mut_at(id, tier);
    const uint32_t pins = here.io_pins - 1u;
    here = Residency{};
    here.io_pins = pins & 0xffffffu;
  });
  tiers_[tier]->Release(group(id), std::span(&slot, 1));
  if (state(id) == BlockState::kDead) FreeRunIfUnused(run_of(id));
}

void BlockStore::SetLeaving(BlockId id, TierIndex tier, bool leaving) {
  if (at(id, tier).leaving == leaving) return;
  Change(id, [&] { mut_at(id, tier).leaving = leaving; });
}

void BlockStore::AdoptDeviceSlot(BlockId published_block, BlockId from_private) {
  const Presence presence = at(published_block, 0).presence;
  FERMATA_CHECK(presence != Presence::kIncoming && at(published_block, 0).io_pins == 0);
  FERMATA_CHECK(state(from_private) == BlockState::kPrivate);
  const SlotId ours = at(from_private, 0).slot;
  const SlotId theirs = at(published_block, 0).slot;
  if (presence == Presence::kResident) {
    mut_at(published_block, 0).slot = ours;
    mut_at(from_private, 0).slot = theirs;
    return;
  }
  Change(from_private, [&] { mut_at(from_private, 0) = Residency{}; });
  Change(published_block, [&] {
    mut_at(published_block, 0).presence = Presence::kResident;
    mut_at(published_block, 0).slot = ours;
  });
  Emit(true, published_block, 0);
}

BlockId BlockStore::DetachDeviceSlot(BlockId published_block) {
  FERMATA_CHECK(Resident(published_block, 0) && at(published_block, 0).io_pins == 0);
  const SlotId slot = at(published_block, 0).slot;
  Change(published_block, [&] { mut_at(published_block, 0) = Residency{}; });
  if (published(published_block)) Emit(false, published_block, 0);
  return NewPrivate(group(published_block), slot);
}

void BlockStore::Emit(bool stored, BlockId id, TierIndex tier) {
  if (config_.event_capacity == 0) return;
  if (events.size() == config_.event_capacity) {
    events.pop_front();
    ++events_lost;
  }
  const uint64_t end =
      static_cast<uint64_t>(block_depth(id) + 1) * config_.groups[group(id)].block_tokens;
  events.push_back(StoreEvent{stored, tier, group(id), end, key(id)});
}

}  // namespace fermata
