// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: on which tiers blocks lie, what that adds up to per run and pool, and what the
// policies are told of it.
#include "cache/block_store.h"

namespace fermata {

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
