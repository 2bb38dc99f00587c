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
    const GroupTable& table = sequence.groups[g];
    std::vector<BlockId> path;  // as far as it is published
    std::vector<bool> ours;     // nobody else refers to it or to what continues it
    BlockId deepest = table.anchor;
    if (!table.tail.empty() && store_->state(table.tail[0]) != BlockState::kPrivate)
      deepest = table.tail[0];  // A cut left part of a published block.
    if (deepest != BlockId::kNone && store_->published(deepest)) {
      std::vector<PathPiece> pieces;
      store_->Path(deepest, 0, &pieces);
      path.resize(pieces.empty() ? 0 : store_->block_depth(deepest) + 1);
      ours.resize(path.size());
      bool alone = true;
      for (size_t p = pieces.size(); p-- > 0;) {
        const Run& run = store_->run(pieces[p].run);
        // One by what is below it on the path, or by being its end; one more where the anchor is
        // not the end.
        const bool anchored = table.anchor != deepest && table.anchor != BlockId::kNone &&
                              store_->run_of(table.anchor) == pieces[p].run;
        alone = alone && run.refs == (anchored ? 2u : 1u);
        for (uint32_t i = pieces[p].begin; i < pieces[p].end; ++i) {
          path[run.depth + i] = store_->block_at(run, i);
          ours[run.depth + i] = alone;
        }
      }
      for (const OwnBlock& own : table.own) ours[own.index] = false;
    }
    // Ours to move: nobody else's, and on the device. What lies below already needs no room;
    // demoting it is dropping the device's copy.
    enum class Fate : uint8_t { kStays, kLiesBelow, kNeedsRoom };
    std::vector<Fate> fates(path.size(), Fate::kStays);
    uint64_t need = 0;
    for (size_t i = 0; i < path.size(); ++i) {
      const BlockId id = path[i];
      if (!ours[i]) continue;
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
          taken += store_->Spare(path[i], t) ? 1 : 0;
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
  WriterLock lock(&mu_);
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
    const uint64_t blocks = kept / config_.groups[g].block_tokens;
    if (blocks != 0 && store_->published(table.anchor)) {
      store_->Remember(store_->Ancestor(table.anchor, static_cast<uint32_t>(blocks - 1)),
                       &table.parked);
    }
  }
  CutNames(sequence, kept);
  LetGo(sequence);
  sequence->state = SequenceState::kParked;
  if (mode == ParkMode::kLazy) {
    RoomMayHaveGrown();
    return;
  }
  for (const BlockId block : drop) {
    if (store_->published(block) && store_->SubtreeIdle(block)) {
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
  WriterLock lock(&mu_);
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
  FoundPrefix found;
  found.groups.resize(config_.groups.size());
  found.tokens = sequence->tokens;
  const bool all_healthy = AllHealthy();
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    FoundGroup& group = found.groups[g];
    group.deepest = store_->DeepestAlive(sequence->groups[g].parked);
    if (group.deepest == BlockId::kNone) {
      found.tokens = 0;
      continue;
    }
    group.blocks = store_->block_depth(group.deepest) + 1;
    if (!all_healthy) {
      std::vector<PathPiece> path;
      store_->Path(group.deepest, 0, &path);
      group.blocks = HealthyBlocks(path);
    }
    found.tokens = std::min(found.tokens, group.blocks * config_.groups[g].block_tokens);
  }
  found.tokens = found.tokens / joint_step_ * joint_step_;
  const uint64_t tokens = found.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    if (found.groups[g].deepest != BlockId::kNone)
      found.groups[g].blocks = store_->block_depth(found.groups[g].deepest) + 1;
    table.anchor = AnchorOf(found, g);
    table.published = tokens / config_.groups[g].block_tokens;
    if (table.anchor != BlockId::kNone) store_->Ref(table.anchor);
  }
  sequence->state = SequenceState::kRunning;
  Result<ObjectId> job = StartLoad(sequence, options);
  if (!job.ok()) {
    LetGo(sequence);
    sequence->state = SequenceState::kParked;
    return job;
  }
  const SessionId serial = SerialOf(sequence->session);
  for (GroupTable& table : sequence->groups) {
    if (table.anchor != BlockId::kNone) store_->TouchPath(table.anchor, 0, serial);
    table.parked.clear();
  }
  if (tokens < sequence->tokens) CutNames(sequence, tokens);
  resumed_tokens_ += tokens;
  return job;
}

}  // namespace fermata
