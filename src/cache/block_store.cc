// SPDX-License-Identifier: Apache-2.0
#include "cache/block_store.h"

#include <cstring>

namespace fermata {

BlockStore::BlockStore(const CacheConfig& config, std::vector<Tier*> tiers, uint64_t first_uid)
    : config_(config),
      tiers_(std::move(tiers)),
      tier_count_(tiers_.size()),
      group_count_(config.groups.size()),
      next_uid_(first_uid),
      counters_(tiers_.size()) {
  const PolicyFactory factory = FindPolicy(config.policy);
  FERMATA_CHECK(factory != nullptr);
  pools_.resize(tier_count_ * group_count_);
  for (Pool& pool : pools_) pool.policy = factory(this);
}

BlockId BlockStore::Allocate() {
  if (!free_.empty()) {
    const BlockId id = free_.back();
    free_.pop_back();
    return id;
  }
  const BlockId id{static_cast<uint32_t>(blocks_.size())};
  FERMATA_CHECK(id != BlockId::kNone);
  blocks_.emplace_back();
  residency_.resize(blocks_.size() * tier_count_);
  return id;
}

void BlockStore::Free(BlockId id) {
  mut(id) = Block{};
  for (size_t t = 0; t < tier_count_; ++t) mut_at(id, static_cast<TierIndex>(t)) = Residency{};
  free_.push_back(id);
}

BlockId BlockStore::NewPrivate(GroupIndex group, SlotId device_slot) {
  const BlockId id = Allocate();
  Block& block = mut(id);
  block.uid = next_uid_++;
  block.group = group;
  block.state = BlockState::kPrivate;
  SetPresence(id, 0, Presence::kResident, device_slot);
  return id;
}

bool BlockStore::IsAlive(BlockId id, uint64_t uid) const {
  return Raw(id) < blocks_.size() && block(id).uid == uid &&
         block(id).state == BlockState::kPublished;
}

int BlockStore::BestTier(BlockId id) const {
  for (size_t t = 0; t < tier_count_; ++t) {
    if (Resident(id, static_cast<TierIndex>(t)) && tiers_[t]->healthy()) return static_cast<int>(t);
  }
  return -1;
}

// --- index ---

uint64_t BlockStore::BucketOf(uint32_t space, GroupIndex group, const Hash128& key) const {
  return MixU64(key.lo + MixU64(key.hi + (static_cast<uint64_t>(space) << 16 | group)));
}

BlockId BlockStore::Find(uint32_t space, GroupIndex group, BlockId parent, const Hash128& key,
                         std::span<const std::byte> name) const {
  const auto it = index_.find(BucketOf(space, group, key));
  if (it == index_.end()) return BlockId::kNone;
  for (BlockId id = it->second; id != BlockId::kNone; id = block(id).next_of_hash) {
    const Block& found = block(id);
    // The hash brought us here; only this comparison makes a hit.
    if (found.parent == parent && found.space == space && found.group == group &&
        found.name_bytes == name.size() &&
        std::memcmp(found.name.get(), name.data(), name.size()) == 0) {
      return id;
    }
  }
  return BlockId::kNone;
}

void BlockStore::Link(BlockId id) {
  Block& linked = mut(id);
  BlockId& head =
      index_.try_emplace(BucketOf(linked.space, linked.group, linked.key), BlockId::kNone)
          .first->second;
  ++blocks_of_space_[linked.space];
  linked.next_of_hash = head;
  head = id;
  if (linked.parent != BlockId::kNone) {
    Block& parent = mut(linked.parent);
    linked.next_sibling = parent.first_child;
    if (parent.first_child != BlockId::kNone) mut(parent.first_child).previous_sibling = id;
    parent.first_child = id;
  }
}

void BlockStore::Unlink(BlockId id) {
  Block& gone = mut(id);
  if (const auto count = blocks_of_space_.find(gone.space); --count->second == 0)
    blocks_of_space_.erase(count);
  const auto it = index_.find(BucketOf(gone.space, gone.group, gone.key));
  FERMATA_CHECK(it != index_.end());
  if (it->second == id) {
    if (gone.next_of_hash == BlockId::kNone) {
      index_.erase(it);
    } else {
      it->second = gone.next_of_hash;
    }
  } else {
    BlockId at = it->second;
    while (block(at).next_of_hash != id) at = block(at).next_of_hash;
    mut(at).next_of_hash = gone.next_of_hash;
  }
  gone.next_of_hash = BlockId::kNone;
  if (gone.parent != BlockId::kNone) {
    if (gone.previous_sibling != BlockId::kNone) {
      mut(gone.previous_sibling).next_sibling = gone.next_sibling;
    } else {
      mut(gone.parent).first_child = gone.next_sibling;
    }
    if (gone.next_sibling != BlockId::kNone)
      mut(gone.next_sibling).previous_sibling = gone.previous_sibling;
  }
  gone.next_sibling = gone.previous_sibling = gone.parent = BlockId::kNone;
}

void BlockStore::Publish(BlockId id, uint32_t space, BlockId parent, uint32_t depth,
                         const Hash128& key, std::span<const std::byte> name, SessionId owner) {
  Block& block = mut(id);
  FERMATA_CHECK(block.state == BlockState::kPrivate);
  block.space = space;
  block.parent = parent;
  block.depth = depth;
  block.key = key;
  block.owner = owner;
  block.shared = owner == kNoSession;
  block.name_bytes = static_cast<uint32_t>(name.size());
  block.name = std::make_unique<std::byte[]>(name.size());
  std::memcpy(block.name.get(), name.data(), name.size());
  block.state = BlockState::kPublished;
  Link(id);
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (!Resident(id, t)) continue;
    CountAtParent(id, t, false);
    Emit(true, id, t);
  }
  TellAll(id);
}

BlockId BlockStore::Restore(const BlockRecord& record, BlockId parent, TierIndex tier,
                            SlotId slot) {
  const BlockId id = Allocate();
  Block& block = mut(id);
  block.uid = record.uid;
  block.group = record.group;
  block.state = BlockState::kPrivate;
  SetPresence(id, tier, Presence::kResident, slot);
  Publish(id, record.space, parent, record.depth, record.key, record.identity, kNoSession);
  return id;
}

BlockRecord BlockStore::RecordOf(BlockId id) const {
  const Block& b = block(id);
  BlockRecord record;
  record.uid = b.uid;
  record.parent_uid = b.parent == BlockId::kNone ? 0 : block(b.parent).uid;
  record.space = b.space;
  record.group = b.group;
  record.depth = b.depth;
  record.key = b.key;
  record.identity = name(id);
  return record;
}

// --- references and use ---

SlotUse BlockStore::UseOf(BlockId id, TierIndex tier) const {
  const Residency& residency = at(id, tier);
  if (residency.presence == Presence::kAbsent) return SlotUse::kNone;
  if (residency.io_pins != 0) return SlotUse::kInFlight;
  return block(id).refs != 0 ? SlotUse::kLive : SlotUse::kCached;
}

void BlockStore::CountUse(BlockId id, TierIndex tier) {
  const SlotUse use = UseOf(id, tier);
  SlotUse& counted = mut_at(id, tier).counted_as;
  if (use == counted) return;
  uint64_t* const slots = counters_[tier].slots_of_use;
  if (counted != SlotUse::kNone) --slots[static_cast<size_t>(counted)];
  if (use != SlotUse::kNone) ++slots[static_cast<size_t>(use)];
  counted = use;
}

void BlockStore::Ref(BlockId id) {
  if (mut(id).refs++ == 0) TellAll(id);
}

void BlockStore::Unref(BlockId id) {
  Block& block = mut(id);
  FERMATA_CHECK(block.refs > 0);
  if (--block.refs != 0) return;
  TellAll(id);
  if (block.state != BlockState::kPublished) {
    FreeIfUnused(id);
  }
}

void BlockStore::EndCopy(BlockId id) {
  FERMATA_CHECK(block(id).copies > 0);
  --mut(id).copies;
}

void BlockStore::Touch(BlockId id, SessionId session) {
  Block& block = mut(id);
  if (block.state != BlockState::kPublished) return;
  if (!block.shared && block.owner != session) block.shared = true;
  const bool revived = block.superseded;
  block.superseded = false;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (revived && at(id, t).told_inserted) pool(t, block.group).policy->OnRevived(id);
  }
  const int best = BestTier(id);
  if (best >= 0 && at(id, static_cast<TierIndex>(best)).told_inserted) {
    pool(static_cast<TierIndex>(best), block.group).policy->OnTouched(id, session);
  }
}

void BlockStore::Supersede(BlockId id) {
  Block& block = mut(id);
  if (block.superseded || block.state != BlockState::kPublished) return;
  block.superseded = true;
  ++supersedings;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (at(id, t).told_inserted) pool(t, block.group).policy->OnSuperseded(id);
  }
}

// --- residency ---

bool BlockStore::Counted(BlockId id, TierIndex tier) const {
  return block(id).state == BlockState::kPublished && Resident(id, tier) && !at(id, tier).leaving;
}

void BlockStore::CountAtParent(BlockId id, TierIndex tier, bool was) {
  const bool is = Counted(id, tier);
  const BlockId parent = block(id).parent;
  if (was == is || parent == BlockId::kNone) return;
  Residency& above = mut_at(parent, tier);
  if (is) {
    ++above.children;
  } else {
    FERMATA_CHECK(above.children > 0);
    --above.children;
  }
  Tell(parent, tier);
}

void BlockStore::SetPresence(BlockId id, TierIndex tier, Presence presence, SlotId slot) {
  const bool was = Counted(id, tier);
  Residency& residency = mut_at(id, tier);
  residency.presence = presence;
  residency.slot = slot;
  residency.voided = false;
  if (presence == Presence::kAbsent) residency.leaving = false;
  CountUse(id, tier);
  CountAtParent(id, tier, was);
}

void BlockStore::BeginIncoming(BlockId id, TierIndex tier, SlotId slot) {
  FERMATA_CHECK(at(id, tier).presence == Presence::kAbsent);
  SetPresence(id, tier, Presence::kIncoming, slot);
}

void BlockStore::FinishIncoming(BlockId id, TierIndex tier) {
  FERMATA_CHECK(at(id, tier).presence == Presence::kIncoming);
  SetPresence(id, tier, Presence::kResident, at(id, tier).slot);
  TellAll(id);
  if (block(id).state == BlockState::kPublished) Emit(true, id, tier);
}

void BlockStore::Remove(BlockId id, TierIndex tier) {
  const Residency& residency = at(id, tier);
  FERMATA_CHECK(residency.presence != Presence::kAbsent && residency.io_pins == 0);
  const SlotId slot = residency.slot;
  const bool was_resident = residency.presence == Presence::kResident;
  SetPresence(id, tier, Presence::kAbsent, SlotId::kNone);
  tiers_[tier]->Release(block(id).group, std::span(&slot, 1));
  TellAll(id);
  if (block(id).state != BlockState::kPublished) return;
  if (was_resident) Emit(false, id, tier);
  for (TierIndex t = static_cast<TierIndex>(tier + 1); t < tier_count_; ++t) {
    if (!at(id, t).told_inserted) continue;
    pool(t, block(id).group).policy->OnTouched(id, kNoSession);
    break;
  }
}

void BlockStore::IoPin(BlockId id, TierIndex tier) {
  if (mut_at(id, tier).io_pins++ == 0) Tell(id, tier);
}

void BlockStore::IoUnpin(BlockId id, TierIndex tier) {
  Residency& residency = mut_at(id, tier);
  FERMATA_CHECK(residency.io_pins > 0);
  if (--residency.io_pins != 0) return;
  CountUse(id, tier);
  if (block(id).state == BlockState::kPublished) {
    Tell(id, tier);
    return;
  }
  // A dead block gives up the copies that nobody holds; a sequence may still hold its device slot.
  if (residency.presence != Presence::kAbsent && (tier != 0 || block(id).refs == 0))
    Remove(id, tier);
  FreeIfUnused(id);
}

void BlockStore::AbortIncoming(BlockId id, TierIndex tier) {
  Residency& residency = mut_at(id, tier);
  FERMATA_CHECK(residency.presence == Presence::kIncoming && residency.io_pins > 0);
  --residency.io_pins;
  const SlotId slot = residency.slot;
  SetPresence(id, tier, Presence::kAbsent, SlotId::kNone);
  tiers_[tier]->Release(block(id).group, std::span(&slot, 1));
  FreeIfUnused(id);
}

void BlockStore::SetLeaving(BlockId id, TierIndex tier, bool leaving) {
  const bool was = Counted(id, tier);
  Residency& residency = mut_at(id, tier);
  residency.leaving = leaving;
  CountAtParent(id, tier, was);
  TellAll(id);  // A copy that leaves makes those below it needed.
}

void BlockStore::AdoptDeviceSlot(BlockId published, BlockId from_private) {
  const Presence presence = at(published, 0).presence;
  FERMATA_CHECK(presence != Presence::kIncoming && at(published, 0).io_pins == 0);
  FERMATA_CHECK(block(from_private).state == BlockState::kPrivate);
  const SlotId ours = at(from_private, 0).slot;
  const SlotId theirs = at(published, 0).slot;
  if (presence == Presence::kResident) {
    mut_at(published, 0).slot = ours;
    mut_at(from_private, 0).slot = theirs;
    return;
  }
  SetPresence(from_private, 0, Presence::kAbsent, SlotId::kNone);
  SetPresence(published, 0, Presence::kResident, ours);
  TellAll(published);
  Emit(true, published, 0);
}

BlockId BlockStore::DetachDeviceSlot(BlockId published) {
  FERMATA_CHECK(Resident(published, 0) && at(published, 0).io_pins == 0);
  const SlotId slot = at(published, 0).slot;
  SetPresence(published, 0, Presence::kAbsent, SlotId::kNone);
  TellAll(published);
  Emit(false, published, 0);
  return NewPrivate(block(published).group, slot);
}

bool BlockStore::AnyIoPins(BlockId id) const {
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (at(id, t).io_pins != 0) return true;
  }
  return false;
}

void BlockStore::FreeIfUnused(BlockId id) {
  const Block& unused = block(id);
  if (unused.refs != 0 || unused.state == BlockState::kPublished ||
      unused.state == BlockState::kFree || AnyIoPins(id))
    return;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (at(id, t).presence != Presence::kAbsent) Remove(id, t);
  }
  Free(id);
}

uint64_t BlockStore::Kill(BlockId root, std::vector<uint64_t>* per_tier) {
  std::vector<BlockId> doomed{root};
  for (size_t i = 0; i < doomed.size(); ++i) {
    for (BlockId c = block(doomed[i]).first_child; c != BlockId::kNone; c = block(c).next_sibling)
      doomed.push_back(c);
  }
  // Deepest first, so that no parent goes before a child.
  for (size_t i = doomed.size(); i-- > 0;) {
    const BlockId id = doomed[i];
    if (block(id).state != BlockState::kPublished) continue;
    for (TierIndex t = 0; t < tier_count_; ++t) {
      const bool was = Counted(id, t);
      if (!was) continue;
      const BlockId parent = block(id).parent;
      if (parent != BlockId::kNone) {
        --mut_at(parent, t).children;
        Tell(parent, t);
      }
    }
    Unlink(id);
    mut(id).state = BlockState::kDead;
    TellAll(id);
    for (TierIndex t = 0; t < tier_count_; ++t) {
      if (at(id, t).presence == Presence::kAbsent) continue;
      SetLeaving(id, t, false);
      // A transfer may hold the slot for long; what it brings there must not come back after a
      // restart.
      if (at(id, t).io_pins != 0) tiers_[t]->Forget(block(id).group, at(id, t).slot);
      if (per_tier != nullptr && t < per_tier->size()) ++(*per_tier)[t];
      if (Resident(id, t)) Emit(false, id, t);
      if (at(id, t).io_pins == 0 && (t != 0 || block(id).refs == 0)) Remove(id, t);
    }
    FreeIfUnused(id);
  }
  return doomed.size();
}

bool BlockStore::SubtreeIdle(BlockId root) const {
  std::vector<BlockId> stack{root};
  while (!stack.empty()) {
    const BlockId id = stack.back();
    stack.pop_back();
    if (block(id).refs != 0 || AnyIoPins(id)) return false;
    for (BlockId c = block(id).first_child; c != BlockId::kNone; c = block(c).next_sibling)
      stack.push_back(c);
  }
  return true;
}

// --- policy ---

bool BlockStore::Needed(BlockId id, TierIndex tier) const {
  if (block(id).refs == 0) return false;
  for (TierIndex t = 0; t < tier; ++t) {
    if (Resident(id, t) && !at(id, t).leaving) return false;
  }
  return true;
}

bool BlockStore::Pinned(BlockId id, TierIndex tier) const {
  const Residency& residency = at(id, tier);
  return residency.io_pins != 0 || residency.leaving || Needed(id, tier);
}

void BlockStore::Tell(BlockId id, TierIndex tier) {
  CountUse(id, tier);
  Residency& residency = mut_at(id, tier);
  const bool inserted =
      block(id).state == BlockState::kPublished && residency.presence == Presence::kResident;
  const bool leaf = inserted && residency.children == 0;
  const bool unpinned = inserted && !Pinned(id, tier);
  if (!inserted && !residency.told_inserted) return;
  Pool& p = pool(tier, block(id).group);
  const bool evictable = inserted && !Needed(id, tier);
  const bool leaving = evictable && residency.leaving;
  if (evictable != residency.evictable) p.evictable += evictable ? 1 : static_cast<uint64_t>(-1);
  residency.evictable = evictable;
  if (leaving != residency.leaving_counted) p.leaving += leaving ? 1 : static_cast<uint64_t>(-1);
  residency.leaving_counted = leaving;
  if (!inserted) {
    p.policy->OnRemoved(id);
  } else {
    if (!residency.told_inserted) p.policy->OnInserted(id);
    if (residency.told_unpinned && !unpinned) p.policy->OnPinned(id);
    if (residency.told_leaf && !leaf) p.policy->OnNoLongerLeaf(id);
    if (!residency.told_leaf && leaf) p.policy->OnBecameLeaf(id);
    if (!residency.told_unpinned && unpinned) p.policy->OnUnpinned(id);
    if (!residency.told_inserted && block(id).superseded) p.policy->OnSuperseded(id);
  }
  residency.told_inserted = inserted;
  residency.told_leaf = leaf;
  residency.told_unpinned = unpinned;
}

void BlockStore::TellAll(BlockId id) {
  for (TierIndex t = 0; t < tier_count_; ++t) Tell(id, t);
}

void BlockStore::Emit(bool stored, BlockId id, TierIndex tier) {
  if (config_.event_capacity == 0) return;
  if (events.size() == config_.event_capacity) {
    events.pop_front();
    ++events_lost;
  }
  const Block& b = block(id);
  events.push_back(
      StoreEvent{stored, tier, b.group,
                 static_cast<uint64_t>(b.depth + 1) * config_.groups[b.group].block_tokens, b.key});
}

}  // namespace fermata
