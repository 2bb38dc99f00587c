// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: the prefix tree. Publishing, splitting, killing; finding in it is in block_find.cc.
#include <algorithm>
#include <cstring>

#include "cache/block_store.h"

namespace fermata {

// --- a run's memory ---

Hash128* BlockStore::keys(const Run& run) const {
  const size_t before = run.capacity * (sizeof(BlockId) + run.name_bytes);
  return reinterpret_cast<Hash128*>(run.data + (before + 15) / 16 * 16);
}

size_t BlockStore::DataBytes(const Run& run, uint32_t capacity) const {
  const size_t bytes = capacity * (sizeof(BlockId) + run.name_bytes);
  return run.keyed ? (bytes + 15) / 16 * 16 + capacity * sizeof(Hash128) : bytes;
}

void BlockStore::Resize(Run* run, uint32_t capacity) {
  std::byte* const data = memory_.Allocate(DataBytes(*run, capacity));
  Run resized = *run;
  resized.data = data;
  resized.capacity = static_cast<uint16_t>(capacity);
  if (run->count != 0) {
    std::memcpy(ids(resized), ids(*run), run->count * sizeof(BlockId));
    std::memcpy(names(resized), names(*run), size_t{run->count} * run->name_bytes);
    if (run->keyed) std::memcpy(keys(resized), keys(*run), run->count * sizeof(Hash128));
  }
  memory_.Free(run->data, DataBytes(*run, run->capacity));
  *run = resized;
}

RunId BlockStore::AllocateRun() {
  RunId id = free_run_;
  if (id != RunId::kNone) {
    free_run_ = run(id).parent;
  } else {
    id = static_cast<RunId>(runs_.size());
    run_tiers_.Grow((runs_.size() + 1) * tier_count_);
    runs_.Grow(runs_.size() + 1);
  }
  Run& made = mut(id);
  made = Run{};
  made.parent = made.first_child = made.next_sibling = made.previous_sibling = RunId::kNone;
  for (TierIndex t = 0; t < tier_count_; ++t) mut_tier(id, t) = RunTier{};
  ++runs_in_use_;
  return id;
}

void BlockStore::FreeRun(RunId id) {
  memory_.Free(run(id).data, DataBytes(run(id), run(id).capacity));
  mut(id) = Run{};
  mut(id).parent = free_run_;
  free_run_ = id;
  --runs_in_use_;
}

void BlockStore::FreeRunIfUnused(RunId id) {
  if (run(id).state != BlockState::kDead || run(id).refs != 0) return;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (run_tier(id, t).present != 0 || run_tier(id, t).pinned != 0) return;
  }
  for (uint32_t i = 0; i < run(id).count; ++i) FreeBlock(block_at(run(id), i));
  FreeRun(id);
}

// --- growing ---

void BlockStore::LinkChild(RunId parent, RunId child) {
  if (parent == RunId::kNone) return;
  Run& above = mut(parent);
  mut(child).previous_sibling = RunId::kNone;
  mut(child).next_sibling = above.first_child;
  if (above.first_child != RunId::kNone) mut(above.first_child).previous_sibling = child;
  above.first_child = child;
}

void BlockStore::UnlinkChild(RunId child) {
  Run& gone = mut(child);
  if (gone.parent == RunId::kNone) return;
  if (gone.previous_sibling != RunId::kNone) {
    mut(gone.previous_sibling).next_sibling = gone.next_sibling;
  } else {
    mut(gone.parent).first_child = gone.next_sibling;
  }
  if (gone.next_sibling != RunId::kNone)
    mut(gone.next_sibling).previous_sibling = gone.previous_sibling;
  gone.next_sibling = gone.previous_sibling = RunId::kNone;
}

RunId BlockStore::NewRun(const Name& name, GroupIndex group, uint64_t uid, SessionId owner) {
  const RunId id = AllocateRun();
  Run& made = mut(id);
  made.first_uid = uid;
  made.space = name.space;
  made.group = static_cast<uint8_t>(group);
  made.owner = owner;
  made.shared = owner == kNoSession;
  made.keyed = !name.plain;
  made.name_bytes = static_cast<uint32_t>(name.bytes.size());
  made.state = BlockState::kPublished;
  if (name.parent != BlockId::kNone) {
    made.parent = run_of(name.parent);
    made.depth = run(made.parent).depth + run(made.parent).count;
  }
  Resize(&made, 1);
  made.hash = HashOf(made.space, group, made.parent, name.bytes);
  LinkChild(made.parent, id);
  return id;
}

// The block's bytes and references are the caller's to count.
void BlockStore::AppendTo(RunId id, BlockId block, const Name& name) {
  Run& to = mut(id);
  if (to.count == to.capacity)
    Resize(&to, std::min<uint32_t>(kMaxRun, to.count + to.count / 2u + 3));
  ids(to)[to.count] = block;
  std::memcpy(names(to) + size_t{to.count} * to.name_bytes, name.bytes.data(), to.name_bytes);
  if (to.keyed) keys(to)[to.count] = name.key;
  Block& placed = blocks_[Raw(block)];
  placed.home = Raw(id);
  placed.place = static_cast<uint16_t>(to.shift + to.count);
  placed.state = BlockState::kPublished;
  ++to.count;
  to.end = name.key;
  to.end_known = true;
  SpaceCount& space = spaces_[name.space];
  space.seed = name.seed;
  ++space.blocks;
}

void BlockStore::Publish(BlockId id, const Name& name, SessionId owner, bool ours) {
  FERMATA_CHECK(state(id) == BlockState::kPrivate);
  const uint32_t refs = private_of(id).refs;
  CountPrivate(id, -1);
  free_privates_.push_back(blocks_[Raw(id)].home);
  const RunId above = name.parent == BlockId::kNone ? RunId::kNone : run_of(name.parent);
  bool grows = above != RunId::kNone;
  if (grows) {
    const Run& r = run(above);
    grows = index_of(name.parent) + 1 == r.count && r.count < kMaxRun &&
            r.first_child == RunId::kNone && r.refs == (ours ? 1u : 0u) && !r.sealed &&
            !r.superseded && r.name_bytes == name.bytes.size() && r.keyed == !name.plain &&
            r.owner == owner && r.shared == (owner == kNoSession);
  }
  RunId in = above;
  if (grows) {
    CountRun(in, -1);
    AppendTo(in, id, name);
    mut(in).refs = refs;
  } else {
    if (above != RunId::kNone) SplitAfter(name.parent);
    in = NewRun(name, group(id), next_uid_, owner);
    next_uid_ += kMaxRun;
    AppendTo(in, id, name);
    IndexInsert(in);
    mut(in).refs = refs;
    if (refs != 0 && run(in).parent != RunId::kNone) HoldRun(run(in).parent);
  }
  AddBlock(in, id, +1);
  for (TierIndex t = 0; t < tier_count_; ++t) FixTop(in, t, index_of(id));
  CountRun(in, +1);
  Settle(in);
  if (ours && !grows && above != RunId::kNone) LetGoOfRun(run(in).parent);
  for (TierIndex t = 0; t < tier_count_; ++t) {
    if (Resident(id, t)) Emit(true, id, t);
  }
}

BlockId BlockStore::Restore(const BlockRecord& record, const Hash128& seed,
                            const Hash128& parent_key, BlockId parent, bool plain, TierIndex tier,
                            SlotId slot) {
  if (plain) {
    // Only a name that gives the recorded key is what it seems to be.
    const size_t unit = config_.chain_tokens * sizeof(uint32_t);
    Hash128 key = parent_key;
    for (size_t at = 0; at + unit <= record.identity.size(); at += unit)
      key = ChainHash(key, record.identity.subspan(at, unit));
    plain = record.identity.size() % unit == 0 && key == record.key;
  }
  const Name name{record.space, seed, parent, record.identity, record.key, plain};
  const BlockId id = AllocateBlock(record.group);
  mut_at(id, tier).presence = Presence::kResident;
  mut_at(id, tier).slot = slot;
  RunId in = parent == BlockId::kNone ? RunId::kNone : run_of(parent);
  const bool grows = in != RunId::kNone && index_of(parent) + 1 == run(in).count &&
                     run(in).count < kMaxRun && run(in).first_child == RunId::kNone &&
                     run(in).refs == 0 && run(in).owner == kNoSession &&
                     run(in).name_bytes == record.identity.size() && run(in).keyed == !plain &&
                     run(in).first_uid + run(in).count == record.uid;
  if (grows) {
    CountRun(in, -1);
    AppendTo(in, id, name);
  } else {
    if (in != RunId::kNone) SplitAfter(parent);
    in = NewRun(name, record.group, record.uid, kNoSession);
    mut(in).sealed = true;
    AppendTo(in, id, name);
    IndexInsert(in);
  }
  AddBlock(in, id, +1);
  for (TierIndex t = 0; t < tier_count_; ++t) FixTop(in, t, index_of(id));
  CountRun(in, +1);
  Settle(in);
  Emit(true, id, tier);
  return id;
}

// --- splitting ---

// The leading part becomes a run of its own; the rest stays the run it was, so that what refers to
// its end or continues it need not be told.
void BlockStore::SplitAfter(BlockId block) {
  const RunId id = run_of(block);
  const uint32_t n = index_of(block) + 1;
  if (n == run(id).count) return;
  const RunId head_id = AllocateRun();
  Run& tail = mut(id);
  Run& head = mut(head_id);
  const RunId parent = tail.parent;
  const bool in_tree = tail.state == BlockState::kPublished;
  CountRun(id, -1);
  for (TierIndex t = 0; t < tier_count_; ++t) {
    RunTier& here = mut_tier(id, t);
    if (here.counted && parent != RunId::kNone) --mut_tier(parent, t).children;
    here.counted = false;
  }
  if (in_tree) {
    IndexErase(id);
    UnlinkChild(id);
  }
  const uint16_t rest = static_cast<uint16_t>(tail.count - n);
  head = tail;
  head.data = nullptr;
  head.first_child = RunId::kNone;
  head.refs = tail.refs != 0 ? 1 : 0;
  head.count = 0;
  head.sealed = true;
  Resize(&head, n);
  head.count = static_cast<uint16_t>(n);
  std::memcpy(ids(head), ids(tail), n * sizeof(BlockId));
  std::memcpy(names(head), names(tail), size_t{n} * tail.name_bytes);
  std::memmove(ids(tail), ids(tail) + n, rest * sizeof(BlockId));
  std::memmove(names(tail), names(tail) + size_t{n} * tail.name_bytes,
               size_t{rest} * tail.name_bytes);
  if (tail.keyed) {
    std::memcpy(keys(head), keys(tail), n * sizeof(Hash128));
    std::memmove(keys(tail), keys(tail) + n, rest * sizeof(Hash128));
  }
  head.end_known = head.keyed;
  if (head.keyed) head.end = keys(head)[n - 1];
  tail.count = rest;
  tail.first_uid += n;
  tail.depth += n;
  tail.shift = static_cast<uint16_t>(tail.shift + n);
  tail.parent = head_id;
  Resize(&tail, rest);
  for (uint32_t i = 0; i < n; ++i) {
    blocks_[Raw(block_at(head, i))].home = Raw(head_id);
    AddBlock(head_id, block_at(head, i), +1);
  }
  for (TierIndex t = 0; t < tier_count_; ++t) {
    RunTier& above = mut_tier(head_id, t);
    RunTier& here = mut_tier(id, t);
    const auto take = [](uint16_t* from, uint16_t what) {
      *from = static_cast<uint16_t>(*from - what);
    };
    take(&here.present, above.present);
    take(&here.resident, above.resident);
    take(&here.sole, above.sole);
    take(&here.leaving, above.leaving);
    take(&here.leaving_sole, above.leaving_sole);
    take(&here.in_flight, above.in_flight);
    take(&here.pinned, above.pinned);
    above.top = static_cast<uint16_t>(std::min<uint32_t>(here.top, n));
    here.top = static_cast<uint16_t>(here.top > n ? here.top - n : 0);
    if (above.top != 0) FixTop(head_id, t, above.top - 1u);
    if (here.told_inserted) {
      pool(t, head.group).policy->OnSplit(id, head_id);
      above.told_inserted = true;
    }
  }
  if (in_tree) {
    LinkChild(parent, head_id);
    IndexInsert(head_id);
    LinkChild(head_id, id);
    tail.hash = HashOf(tail.space, tail.group, head_id, {names(tail), tail.name_bytes});
    IndexInsert(id);
  }
  CountRun(head_id, +1);
  CountRun(id, +1);
  Settle(id);
  Settle(head_id);
  if (parent == RunId::kNone) return;
  for (TierIndex t = 0; t < tier_count_; ++t) Tell(parent, t);
}

// --- killing ---

// The usual end of blocks: the last ones of a run that nobody holds or continues. Returns how many
// of `want` went; 0 when it is not so.
uint32_t BlockStore::PopTail(RunId id, uint32_t want, std::vector<uint64_t>* per_tier) {
  Run& of = mut(id);
  if (of.state != BlockState::kPublished || of.refs != 0 || of.first_child != RunId::kNone)
    return 0;
  uint32_t n = 0;
  bool plain = true;  // they lie on one tier, and are whole there
  for (; n < std::min<uint32_t>(want, of.count); ++n) {
    const BlockId block = block_at(of, of.count - n - 1);
    bool pinned = false;
    for (TierIndex t = 0; t < tier_count_; ++t) {
      const Residency& here = at(block, t);
      pinned |= here.io_pins != 0;
      plain &= t == 0 ? here.presence == Presence::kResident && !here.leaving
                      : here.presence == Presence::kAbsent;
    }
    if (pinned) break;
  }
  if (n == 0) return 0;
  const uint32_t left = of.count - n;
  if (config_.event_capacity != 0) {
    for (uint32_t i = of.count; i-- > left;) {
      for (TierIndex t = 0; t < tier_count_; ++t) {
        if (Resident(block_at(of, i), t)) Emit(false, block_at(of, i), t);
      }
    }
  }
  CountRun(id, -1);
  if (plain) {  // What AddBlock would take away one by one.
    RunTier& here = mut_tier(id, 0);
    here.present = static_cast<uint16_t>(here.present - n);
    here.resident = static_cast<uint16_t>(here.resident - n);
    here.sole = static_cast<uint16_t>(here.sole - n);
  } else {
    for (uint32_t i = of.count; i-- > left;) AddBlock(id, block_at(of, i), -1);
  }
  for (TierIndex t = 0; t < (plain ? 1 : tier_count_); ++t) {
    freed_.clear();
    for (uint32_t i = of.count; i-- > left;) {
      Residency& here = mut_at(block_at(of, i), t);
      if (here.presence == Presence::kAbsent) continue;
      freed_.push_back(here.slot);
      here = Residency{};
    }
    if (freed_.empty()) continue;
    if (per_tier != nullptr && t < per_tier->size()) (*per_tier)[t] += freed_.size();
    tiers_[t]->Release(of.group, freed_);
    RunTier& here = mut_tier(id, t);
    if (here.top > left) {
      here.top = static_cast<uint16_t>(left + 1);
      FixTop(id, t, left);
    }
  }
  for (uint32_t i = of.count; i-- > left;) FreeBlock(block_at(of, i));
  of.count = static_cast<uint16_t>(left);
  of.sealed = true;
  of.end_known = of.keyed && left != 0;
  if (of.end_known) of.end = keys(of)[left - 1];
  CountRun(id, +1);
  Settle(id);
  const auto space = spaces_.find(of.space);
  space->second.blocks -= n;
  if (space->second.blocks == 0) spaces_.erase(space);
  if (left == 0) {
    IndexErase(id);
    UnlinkChild(id);
    ++victim_visits;  // its parent was looked at
    FreeRun(id);
  } else if (of.capacity >= 2 * left + 8) {
    Resize(&of, left);
  }
  return n;
}

void BlockStore::KillRun(RunId id, std::vector<uint64_t>* per_tier) {
  Run& of = mut(id);
  for (uint32_t i = of.count; i-- > 0;) {
    for (TierIndex t = 0; t < tier_count_; ++t) {
      const BlockId block = block_at(of, i);
      if (at(block, t).presence == Presence::kAbsent) continue;
      if (per_tier != nullptr && t < per_tier->size()) ++(*per_tier)[t];
      if (Resident(block, t)) Emit(false, block, t);
    }
  }
  CountRun(id, -1);
  IndexErase(id);
  UnlinkChild(id);
  of.state = BlockState::kDead;
  for (uint32_t i = 0; i < of.count; ++i) blocks_[Raw(block_at(of, i))].state = BlockState::kDead;
  CountRun(id, +1);
  Settle(id);  // no child of its parent's any more
  const auto space = spaces_.find(of.space);
  space->second.blocks -= of.count;
  if (space->second.blocks == 0) spaces_.erase(space);
  if (of.refs == 0) of.parent = RunId::kNone;
  for (uint32_t i = of.count; i-- > 0;) {
    const BlockId block = block_at(of, i);
    for (TierIndex t = 0; t < tier_count_; ++t) {
      if (at(block, t).presence == Presence::kAbsent) continue;
      SetLeaving(block, t, false);
      // A transfer may hold the slot for long; what it brings there must not come back after a
      // restart.
      if (at(block, t).io_pins != 0) tiers_[t]->Forget(group(block), at(block, t).slot);
      if (at(block, t).io_pins == 0 && (t != 0 || of.refs == 0)) Remove(block, t);
    }
  }
  FreeRunIfUnused(id);
}

uint64_t BlockStore::Kill(BlockId block, std::vector<uint64_t>* per_tier) {
  if (!published(block)) return 0;
  const RunId id = run_of(block);
  const uint32_t index = index_of(block);
  if (index + 1 == run(id).count && PopTail(id, 1, per_tier) == 1) return 1;
  if (index > 0) SplitAfter(block_at(run(id), index - 1));
  std::vector<RunId> doomed{id};
  for (size_t i = 0; i < doomed.size(); ++i) {
    for (RunId c = run(doomed[i]).first_child; c != RunId::kNone; c = run(c).next_sibling)
      doomed.push_back(c);
  }
  uint64_t killed = 0;
  for (size_t i = doomed.size(); i-- > 0;) {  // Deepest first: no parent goes before a child.
    killed += run(doomed[i]).count;
    KillRun(doomed[i], per_tier);
  }
  return killed;
}

bool BlockStore::SubtreeIdle(BlockId block) const {
  const RunId id = run_of(block);
  if (run(id).refs != 0) return false;
  for (uint32_t i = index_of(block); i < run(id).count; ++i) {
    for (TierIndex t = 0; t < tier_count_; ++t) {
      if (at(block_at(run(id), i), t).io_pins != 0) return false;
    }
  }
  std::vector<RunId> stack;
  for (RunId c = run(id).first_child; c != RunId::kNone; c = run(c).next_sibling)
    stack.push_back(c);
  while (!stack.empty()) {
    const RunId below = stack.back();
    stack.pop_back();
    for (TierIndex t = 0; t < tier_count_; ++t) {
      if (run_tier(below, t).pinned != 0) return false;
    }
    for (RunId c = run(below).first_child; c != RunId::kNone; c = run(c).next_sibling)
      stack.push_back(c);
  }
  return true;
}

}  // namespace fermata
