// SPDX-License-Identifier: Apache-2.0
//
// Cache: the end of a turn and the next one. Park lets go of a sequence's device slots and can
// demote its blocks at once; resume takes hold of what is still there.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "cache/cache.h"

namespace fermata {

// Which blocks of the sequence can be demoted now, and which have to be dropped to make them fit.
Status Cache::PlanDemotions(const Sequence& sequence, ParkMode mode, std::vector<BlockId>* demote,
                            std::vector<BlockId>* drop) {
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    std::vector<BlockId> path;  // as far as it is published
    for (const TableEntry& entry : sequence.groups[g].blocks) {
      const BlockId id = entry.canonical;
      if (id == BlockId::kNone || store_->block(id).state != BlockState::kPublished) break;
      path.push_back(id);
    }
    // Ours to move: nobody else's, and on the device. What lies below already needs no room;
    // demoting it is dropping the device's copy.
    enum class Fate : uint8_t { kStays, kLiesBelow, kNeedsRoom };
    std::vector<Fate> fates(path.size(), Fate::kStays);
    uint64_t need = 0;
    for (size_t i = 0; i < path.size(); ++i) {
      const BlockId id = path[i];
      if (id != sequence.groups[g].blocks[i].block || store_->block(id).refs != 1) continue;
      if (!store_->Resident(id, 0)) continue;
      fates[i] = Fate::kNeedsRoom;
      for (TierIndex t = 1; t < tiers_.size(); ++t) {
        if (store_->Resident(id, t) && tiers_[t]->healthy()) fates[i] = Fate::kLiesBelow;
      }
      need += fates[i] == Fate::kNeedsRoom ? 1 : 0;
    }
    uint64_t room = 0;
    for (TierIndex t = 1; t < tiers_.size() && need != 0; ++t) {
      if (!tiers_[t]->healthy()) continue;
      uint64_t taken = 0;
      for (size_t i = 0; i < path.size(); ++i) {
        const Residency& there = store_->at(path[i], t);
        // What of the path lies there stays; a durable tier gets what is missing of it, too.
        if (there.presence != Presence::kAbsent) {
          taken += there.evictable ? 1 : 0;
        } else if (tiers_[t]->has(kTierDurable)) {
          taken += fates[i] != Fate::kNeedsRoom ? 1 : 0;
        }
      }
      const uint64_t can_be_had = mover_->Room(t, g);
      room += can_be_had - std::min(can_be_had, taken);
    }
    if (mode == ParkMode::kKeep && need > room) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                     "group %u: want room for %" PRIu64 " blocks below the device, %" PRIu64
                     " can be had",
                     g, need, room);
    }
    // The deepest first, as leaves have to; it is also the deepest that are given up.
    uint64_t too_many = need > room ? need - room : 0;
    for (size_t i = path.size(); i-- > 0;) {
      if (fates[i] == Fate::kStays) continue;
      const bool dropped = fates[i] == Fate::kNeedsRoom && too_many > 0;
      too_many -= dropped ? 1 : 0;
      (dropped ? drop : demote)->push_back(path[i]);
    }
  }
  return Status();
}

Result<ObjectId> Cache::Park(ObjectId id, ParkMode mode, std::shared_ptr<JobQueue> queue,
                             uint64_t user_data) {
  MutexLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindRunning(id, &sequence));
  std::vector<BlockId> demote;
  std::vector<BlockId> drop;
  ObjectId job_id = 0;
  if (mode != ParkMode::kLazy) {
    FERMATA_RETURN_IF_ERROR(PlanDemotions(*sequence, mode, &demote, &drop));
    Result<ObjectId> made = NewJob(JobKind::kPark, id, std::move(queue), user_data);
    if (!made.ok()) return made;
    job_id = *made;
  }
  if (sequence->pending_marks.empty()) {
    RunPark(sequence, mode, job_id, demote, drop);
  } else {
    // The engine still writes: nothing is read, and no slot given up, before it has.
    sequence->state = SequenceState::kParking;
    sequence->park = PendingPark{mode, job_id};
  }
  return job_id;
}

// The last event of a parking sequence's marks has fired.
void Cache::RunPendingPark(Sequence* sequence) {
  const PendingPark park = std::exchange(sequence->park, PendingPark{});
  std::vector<BlockId> demote;
  std::vector<BlockId> drop;
  if (park.job != 0) {
    Status status = PlanDemotions(*sequence, park.mode, &demote, &drop);
    if (!status.ok()) {  // The room that was there when it was asked for is gone.
      sequence->state = SequenceState::kRunning;
      jobs_.Find(park.job)->status = std::move(status);
      EndJob(park.job, DeviceTokens(*sequence));
      return;
    }
  }
  RunPark(sequence, park.mode, park.job, demote, drop);
}

void Cache::RunPark(Sequence* sequence, ParkMode mode, ObjectId job_id,
                    const std::vector<BlockId>& demote, const std::vector<BlockId>& drop) {
  const uint64_t kept = PublishedTokens(*sequence) / joint_step_ * joint_step_;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    table.parked.clear();
    for (size_t i = 0; i < kept / config_.groups[g].block_tokens; ++i) {
      const BlockId block = table.blocks[i].canonical;
      table.parked.push_back(RememberedBlock{block, store_->block(block).uid});
    }
  }
  CutNames(sequence, kept);
  LetGo(sequence);
  for (GroupTable& table : sequence->groups) table.published = 0;
  sequence->state = SequenceState::kParked;
  if (mode == ParkMode::kLazy) {
    RoomMayHaveGrown();
    return;
  }
  for (const BlockId block : drop) {
    if (store_->block(block).state == BlockState::kPublished && store_->SubtreeIdle(block)) {
      store_->dropped += store_->Kill(block, nullptr);
      ++store_->counters(0).evictions;
    }
  }
  Job* const job = jobs_.Find(job_id);
  job->items_total = static_cast<uint32_t>(demote.size() + drop.size());
  job->outstanding = 1;
  const auto item_done = [this, job_id, kept](const Status& status, uint32_t item) {
    mu_.AssertHeld();
    Job* const parking = jobs_.Find(job_id);
    if (status.ok()) {
      parking->items_ok += item;
    } else if (parking->status.ok()) {
      parking->status = status;
    }
    if (--parking->outstanding == 0) EndJob(job_id, kept);
  };
  for (const BlockId block : demote) {
    ++job->outstanding;
    mover_->Demote(block, [item_done](const Status& status) { item_done(status, 1); });
  }
  item_done(Status(), 0);
  RoomMayHaveGrown();
}

Result<ObjectId> Cache::Resume(ObjectId id, const LoadOptions& options) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  if (sequence->state == SequenceState::kParking) {
    return ReasonF(StatusCode::kUnavailable, Reason::kWouldBlock,
                   "the sequence is parking: %zu events of its marks have not fired",
                   sequence->pending_marks.size());
  }
  if (sequence->state != SequenceState::kParked) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState, "the sequence is not parked");
  }
  uint64_t tokens = sequence->tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    uint64_t blocks = 0;
    for (const RememberedBlock& r : sequence->groups[g].parked) {
      if (!store_->IsAlive(r.block, r.uid) || store_->BestTier(r.block) < 0) break;
      ++blocks;
    }
    tokens = std::min(tokens, blocks * config_.groups[g].block_tokens);
  }
  tokens = tokens / joint_step_ * joint_step_;
  const Session* const session = sessions_.Find(sequence->session);
  const SessionId serial = session == nullptr ? kNoSession : session->serial;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    for (size_t i = 0; i < tokens / config_.groups[g].block_tokens; ++i) {
      const BlockId block = table.parked[i].block;
      store_->Ref(block);
      table.blocks.push_back(TableEntry{block, block});
    }
    table.published = table.blocks.size();
  }
  sequence->state = SequenceState::kRunning;
  Result<ObjectId> job = StartLoad(sequence, options);
  if (!job.ok()) {
    LetGo(sequence);
    for (GroupTable& table : sequence->groups) table.published = 0;
    sequence->state = SequenceState::kParked;
    return job;
  }
  for (GroupTable& table : sequence->groups) {
    for (const TableEntry& entry : table.blocks) store_->Touch(entry.block, serial);
    table.parked.clear();
  }
  CutNames(sequence, tokens);
  resumed_tokens_ += tokens;
  return job;
}

}  // namespace fermata
