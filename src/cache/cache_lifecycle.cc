// SPDX-License-Identifier: Apache-2.0
//
// Cache: arenas, a lost device, reset and erase.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace fermata {

// --- arenas ---

Result<ObjectId> Cache::RegisterArena(GroupIndex group, std::span<const DeviceRegion> regions,
                                      uint32_t slots) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  FERMATA_RETURN_IF_ERROR(device_->RegisterArena(group, regions, slots));
  return arenas_.Add(std::make_unique<GroupIndex>(group));
}

// Held by a sequence's table, its reserve, or a job that has slots for it.
bool Cache::ArenaInUse(GroupIndex group) {
  bool in_use = false;
  sequences_.ForEach([&](ObjectId, const Sequence& sequence) {
    mu_.AssertHeld();
    if (sequence.released) return;  // Waited for, as copies are: nobody could let go of it.
    const GroupTable& table = sequence.groups[group];
    in_use |= !table.reserved.empty() || sequence.job != 0;
    if (table.published != 0) {
      std::vector<PathPiece> path;
      store_->Path(table.anchor, 0, &path);
      for (const PathPiece& piece : path) in_use |= store_->run_tier(piece.run, 0).present != 0;
    }
    in_use |= !table.own.empty();
    for (const BlockId block : table.tail)
      in_use |= store_->at(block, 0).presence != Presence::kAbsent;
  });
  return in_use;
}

// Forgets the device copies of a group that no transfer touches; a block without another copy goes
// with what continues it. True when none is left, and nobody waits for an event before its slots
// are given up.
bool Cache::DropDeviceCopies(GroupIndex group) {
  bool all = true;
  sequences_.ForEach([&](ObjectId, const Sequence& sequence) {
    all &= sequence.quarantine.empty() && !sequence.released;
  });
  if (!all) return false;
  for (uint32_t i = 0; i < store_->block_capacity(); ++i) {
    const BlockId id{i};
    if (store_->state(id) == BlockState::kFree || store_->group(id) != group) continue;
    if (store_->at(id, 0).presence == Presence::kAbsent) continue;
    if (store_->at(id, 0).io_pins != 0) {
      all = false;
      continue;
    }
    bool elsewhere = false;
    for (TierIndex t = 1; t < tiers_.size(); ++t) elsewhere |= store_->Resident(id, t);
    if (!elsewhere && store_->published(id)) store_->dropped += store_->Kill(id, nullptr);
    // Kill leaves the slot to whoever refers to the block: a lease, which will find it dead.
    const bool left =
        store_->state(id) != BlockState::kFree && store_->at(id, 0).presence != Presence::kAbsent;
    if (left && store_->at(id, 0).io_pins == 0) store_->Remove(id, 0);
  }
  return all;
}

Status Cache::UnregisterArena(ObjectId id, uint64_t deadline_ns) {
  GroupIndex group = 0;
  {
    WriterLock lock(&mu_);
    FERMATA_RETURN_IF_ERROR(OpenCheck());
    const GroupIndex* const arena = arenas_.Find(id);
    if (arena == nullptr)
      return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                     "arena is no live handle of this cache");
    group = *arena;
    if (ArenaInUse(group)) {
      return ReasonF(StatusCode::kFailedPrecondition, Reason::kInUse,
                     "sequences hold slots of the arena of group %u", group);
    }
  }
  if (deadline_ns == 0) deadline_ns = clock_->NowNs() + 5'000'000'000;
  Status status;
  const bool drained = DriveUntil(deadline_ns, [&] {
    mu_.AssertHeld();
    if (ArenaInUse(group)) {
      status = ReasonF(StatusCode::kFailedPrecondition, Reason::kInUse,
                       "sequences hold slots of the arena of group %u", group);
      return true;
    }
    if (!DropDeviceCopies(group)) return false;
    status = device_->UnregisterArena(group);
    if (status.reason() == Reason::kInUse) return false;  // A copy has not been reported yet.
    if (status.ok()) arenas_.Remove(id);
    return true;
  });
  if (!drained)
    return ErrorF(StatusCode::kDeadlineExceeded,
                  "copies of the arena of group %u are still in flight", group);
  return status;
}

Status Cache::DeviceLost() {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  // Whoever holds a slot keeps it, as a private block of void contents; the published block stays
  // if it lies elsewhere too.
  absl::flat_hash_map<uint32_t, BlockId> twins;
  const auto twin_of = [&](BlockId id) {
    mu_.AssertHeld();
    const auto [it, fresh] = twins.try_emplace(Raw(id), BlockId::kNone);
    if (fresh) it->second = store_->DetachDeviceSlot(id);
    return it->second;
  };
  sequences_.ForEach([&](ObjectId, Sequence& sequence) {
    mu_.AssertHeld();
    for (GroupTable& table : sequence.groups) {
      if (table.blocks() == 0) continue;
      sequence.frozen = true;
      std::vector<BlockId> blocks;
      VisitTable(table, 0, [&blocks](uint64_t, BlockId id) {
        blocks.push_back(id);
        return true;
      });
      // Every entry stands for itself from now on. References first: they keep what is dropped
      // below.
      size_t own = 0;
      for (uint64_t i = 0; i < blocks.size(); ++i) {
        const BlockId id = blocks[i];
        const bool listed =
            i >= table.published || (own < table.own.size() && table.own[own].index == i);
        if (i < table.published && listed) ++own;
        const bool detach =
            twins.contains(Raw(id)) ||
            (store_->published(id) && store_->Resident(id, 0) && store_->at(id, 0).io_pins == 0);
        if (detach) {
          blocks[i] = twin_of(id);
          store_->Ref(blocks[i]);
          if (listed) store_->Unref(id);
        } else if (!listed) {
          store_->Ref(id);
        }
      }
      if (table.anchor != BlockId::kNone) store_->Unref(table.anchor);
      table.anchor = BlockId::kNone;
      table.own.clear();
      table.published = 0;
      table.tail = std::move(blocks);
    }
    if (sequence.state != SequenceState::kParked) sequence.marked = 0;
  });
  // What is published and has no copy left, or lies only on the device, goes; a copy in flight
  // makes its block go too, since nobody can say which half of it is from before.
  for (uint32_t i = 0; i < store_->block_capacity(); ++i) {
    const BlockId id{i};
    if (!store_->published(id)) continue;
    bool elsewhere = false;
    for (TierIndex t = 1; t < tiers_.size(); ++t) elsewhere |= store_->Resident(id, t);
    if (store_->at(id, 0).presence == Presence::kIncoming && elsewhere) {
      store_->VoidIncoming(id, 0);  // The copy it comes from is good.
      continue;
    }
    const bool touched = store_->at(id, 0).io_pins != 0;
    if (elsewhere && !touched) {
      if (store_->at(id, 0).presence != Presence::kAbsent) store_->Remove(id, 0);
    } else if (!elsewhere || touched) {
      store_->lost += store_->Kill(id, nullptr);
    }
  }
  // Nothing runs on it any more: what waits for events waits no longer.
  std::vector<ObjectId> waiting;
  sequences_.ForEach([&](ObjectId id, Sequence& sequence) {
    if (!sequence.pending_marks.empty()) waiting.push_back(id);
  });
  for (const ObjectId id : waiting) {
    Sequence* const sequence = sequences_.Find(id);
    pending_marks_.fetch_sub(sequence->pending_marks.size(), std::memory_order_acq_rel);
    sequence->pending_marks.clear();
    MarkSettled(sequence);
  }
  RoomMayHaveGrown();
  return Status();
}

// --- reset, erase ---

Status Cache::MakeDurable(std::vector<SpaceRecord> records) {
  return RunOnExecutor([this, records = std::move(records)] {
    Status first;
    for (const std::unique_ptr<Tier>& tier : tiers_) {
      if (!tier->has(kTierDurable)) continue;
      for (const SpaceRecord& record : records) {
        // The last one takes the others with it: a store's writes become durable in their order.
        Status status = tier->PutSpace(record, /*sync=*/&record == &records.back());
        if (first.ok()) first = std::move(status);
      }
    }
    return first;
  });
}

Status Cache::Reset(ResetScope scope, ObjectId target, std::vector<uint64_t>* per_tier) {
  per_tier->assign(tiers_.size(), 0);
  std::vector<uint32_t> old_numbers;
  std::vector<SpaceRecord> records;
  {
    WriterLock lock(&mu_);
    FERMATA_RETURN_IF_ERROR(OpenCheck());
    SpaceState* space = nullptr;
    SessionId serial = kNoSession;
    if (scope == ResetScope::kSpace) {
      const SpaceHandle* const handle = spaces_.Find(target);
      if (handle == nullptr)
        return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle, "target is no live space");
      space = handle->space;
    } else if (scope == ResetScope::kSession) {
      const Session* const session = sessions_.Find(target);
      if (session == nullptr)
        return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                       "target is no live session");
      serial = session->serial;
    }
    for (uint32_t i = 0; i < store_->run_capacity(); ++i) {
      const RunId id{i};
      const Run& run = store_->run(id);
      if (run.state != BlockState::kPublished) continue;
      if (space != nullptr && run.space != space->number) continue;
      if (scope == ResetScope::kSession ? store_->owner(id) != serial : run.parent != RunId::kNone)
        continue;
      store_->Kill(store_->block_at(run, 0), per_tier);
    }
    sequences_.ForEach([&](ObjectId, Sequence& sequence) {
      const bool empty = sequence.tokens == 0;
      const bool mine = scope == ResetScope::kAll ||
                        (scope == ResetScope::kSpace && sequence.space == space) ||
                        (scope == ResetScope::kSession && sequence.session == target);
      if (mine && !empty) sequence.frozen = true;
    });
    space_table_.ForEach([&](SpaceState* state) {
      mu_.AssertHeld();
      if (scope == ResetScope::kSession) {
        // No epoch ends: any one record carries the deletions with it.
        if (records.empty()) records.push_back(SpaceRecord{state->number, state->identity});
        return;
      }
      if (space != nullptr && state != space) return;
      // A new number is the space's new epoch: records of the old one are never accepted again.
      old_numbers.push_back(state->number);
      space_table_.Renumber(state);
      records.push_back(SpaceRecord{state->number, state->identity});
    });
    RoomMayHaveGrown();
  }
  // New epochs first, then the old ones go: a crash between the two leaves both, and the higher
  // number counts.
  FERMATA_RETURN_IF_ERROR(MakeDurable(std::move(records)));
  return RunOnExecutor([this, old_numbers] {
    for (const std::unique_ptr<Tier>& tier : tiers_) {
      for (const uint32_t number : old_numbers) (void)tier->DropSpace(number, /*sync=*/false);
    }
    return Status();
  });
}

Result<uint64_t> Cache::Erase(ObjectId space_id, const LookupRequest& request,
                              uint64_t from_token) {
  uint64_t killed = 0;
  SpaceRecord record;
  {
    WriterLock lock(&mu_);
    FERMATA_RETURN_IF_ERROR(OpenCheck());
    const SpaceHandle* const handle = spaces_.Find(space_id);
    if (handle == nullptr)
      return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                     "space is no live handle of this cache");
    record = SpaceRecord{handle->space->number, handle->space->identity};
    NamedPrefix prefix;
    FERMATA_RETURN_IF_ERROR(CheckName(*handle->space, request, &prefix));
    FoundPrefix found;
    FindPrefix(*handle->space, prefix, kMaxTokens, /*on_sick_tiers_too=*/true, &found);
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      const uint64_t block_tokens = config_.groups[g].block_tokens;
      const uint64_t first = (from_token + block_tokens - 1) / block_tokens;
      const FoundGroup& group = found.groups[g];
      if (first >= group.blocks) continue;
      killed +=
          store_->Kill(store_->Ancestor(group.deepest, static_cast<uint32_t>(first)), nullptr);
    }
    // Who holds an erased block may go on using it, and publishes nothing that was computed on top
    // of it.
    sequences_.ForEach([&](ObjectId, Sequence& sequence) {
      mu_.AssertHeld();
      for (const GroupTable& table : sequence.groups) {
        // Where one block of a path is erased, so is the last.
        if (table.anchor != BlockId::kNone && !store_->published(table.anchor))
          sequence.frozen = true;
        if (!table.tail.empty() && store_->state(table.tail[0]) == BlockState::kDead)
          sequence.frozen = true;
      }
    });
    RoomMayHaveGrown();
  }
  if (killed > 0) FERMATA_RETURN_IF_ERROR(MakeDurable({std::move(record)}));
  return killed;
}

}  // namespace fermata
