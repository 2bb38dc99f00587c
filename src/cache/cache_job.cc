// SPDX-License-Identifier: Apache-2.0
//
// Cache: jobs. A load first has all the slots it needs, in every group, then moves its blocks at
// once; a park demotes. Each ends once.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "cache/cache.h"

namespace fermata {

Result<ObjectId> Cache::NewJob(JobKind kind, ObjectId sequence, std::shared_ptr<JobQueue> queue,
                               uint64_t user_data) {
  if (jobs_.full()) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                   "%u jobs in flight, as many as config.max_jobs", jobs_.size());
  }
  FERMATA_RETURN_IF_ERROR(queue->Reserve());
  auto job = std::make_unique<Job>();
  job->kind = kind;
  job->sequence = sequence;
  job->queue = std::move(queue);
  job->user_data = user_data;
  job->slots.resize(config_.groups.size());
  Job* const raw = job.get();
  raw->id = jobs_.Add(std::move(job));
  return raw->id;
}

void Cache::EndJob(ObjectId id, uint64_t valid_tokens) {
  const std::unique_ptr<Job> job = jobs_.Remove(id);
  if (job->timer != 0) executor_->CancelTimer(job->timer);
  Completion completion;
  completion.status = job->status.code();
  completion.reason = job->status.reason();
  completion.user_data = job->user_data;
  completion.job = make_job_handle_(id);
  completion.items_total = job->items_total;
  completion.items_ok = job->items_ok;
  completion.valid_tokens = valid_tokens;
  job->queue->Push(completion);
  changed_.NotifyAll();
}

// --- load ---

Status Cache::PlanLoad(Sequence* sequence, const LoadOptions& options, Job* plan) {
  if (options.reserve_tokens > kMaxTokens) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "reserve_tokens is %" PRIu64 ", want at most %" PRIu64, options.reserve_tokens,
                  kMaxTokens);
  }
  plan->want_loads.assign(config_.groups.size(), 0);
  plan->want_reserve.assign(config_.groups.size(), 0);
  plan->whole = true;
  Status wait;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const GroupTable& table = sequence->groups[g];
    VisitMissing(table, [&](uint64_t, BlockId block) {
      mu_.AssertHeld();
      plan->whole = false;
      if (store_->at(block, 0).presence == Presence::kAbsent) ++plan->want_loads[g];
      return true;
    });
    const uint64_t block_tokens = config_.groups[g].block_tokens;
    const uint64_t blocks = (options.reserve_tokens + block_tokens - 1) / block_tokens;
    const uint64_t have = table.blocks() + table.reserved.size();
    plan->want_reserve[g] = blocks > have ? blocks - have : 0;
    const uint64_t need = plan->want_loads[g] + plan->want_reserve[g];
    if (need == 0) continue;
    // What could not fit beside the sequence's own blocks on an empty device never will; anything
    // else is a matter of waiting until others let go.
    const uint64_t own = have - plan->want_loads[g];
    if (own + need > device_->slots(g)) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                     "group %u: want %" PRIu64 " device slots on top of %" PRIu64
                     ", the device has %" PRIu64,
                     g, need, own, device_->slots(g));
    }
    if (!mover_->CanMakeRoom(0, g, need)) {
      wait = ReasonF(StatusCode::kUnavailable, Reason::kWouldBlock,
                     "group %u: want %" PRIu64 " device slots, which others hold", g, need);
    }
  }
  return wait;
}

Result<ObjectId> Cache::StartLoad(Sequence* sequence, const LoadOptions& options) {
  Job plan;
  FERMATA_RETURN_IF_ERROR(PlanLoad(sequence, options, &plan));
  Result<ObjectId> id = NewJob(JobKind::kLoad, sequence->id, options.queue, options.user_data);
  if (!id.ok()) return id;
  Job* const job = jobs_.Find(*id);
  job->whole = plan.whole;
  job->want_loads = std::move(plan.want_loads);
  job->want_reserve = std::move(plan.want_reserve);
  sequence->state = SequenceState::kLoading;
  sequence->job = *id;
  if (options.deadline_ns != 0) {
    job->timer = executor_->PostAt(options.deadline_ns, [this, job_id = *id] {
      WriterLock lock(&mu_);
      Job* const late = jobs_.Find(job_id);
      if (late == nullptr) return;
      late->timer = 0;
      StopJob(late, Status(StatusCode::kDeadlineExceeded, "the job's deadline has passed"));
    });
  }
  RequestSlots(*id);
  return id;
}

// Every job queues for all its groups in one step, so that two jobs stand in the same order
// everywhere and never wait for each other.
void Cache::RequestSlots(ObjectId id) {
  Job* const job = jobs_.Find(id);
  job->requests.assign(config_.groups.size(), 0);
  job->unanswered = 1;  // Ours: answers may come within the calls.
  for (GroupIndex g = 0; g < config_.groups.size() && job->status.ok(); ++g) {
    const uint64_t need = job->want_loads[g] + job->want_reserve[g];
    if (need == 0) continue;
    ++job->unanswered;
    bool answered = false;
    bool* const answered_now = &answered;
    const auto starting = std::make_shared<bool>(true);
    const uint64_t request = mover_->Request(
        0, g, need,
        [this, id, g, answered_now, starting](Status status, std::vector<SlotId> slots) {
          mu_.AssertHeld();
          if (*starting) *answered_now = true;
          Job* const waiting = jobs_.Find(id);
          FERMATA_CHECK(waiting != nullptr);
          waiting->requests[g] = 0;
          if (status.ok()) {
            waiting->slots[g] = std::move(slots);
          } else if (waiting->status.ok()) {
            waiting->status = std::move(status);
          }
          SlotsAnswered(id);
        });
    *starting = false;
    if (!answered) job->requests[g] = request;
  }
  SlotsAnswered(id);
}

void Cache::SlotsAnswered(ObjectId id) {
  Job* const job = jobs_.Find(id);
  if (!job->status.ok()) CancelRequests(job);
  if (--job->unanswered != 0) return;
  if (job->status.ok()) {
    LaunchLoads(id);
  } else {
    FinishLoad(id);
  }
}

void Cache::CancelRequests(Job* job) {
  for (uint64_t& request : job->requests) {
    if (request == 0) continue;
    --job->unanswered;
    mover_->CancelRequest(std::exchange(request, 0));
  }
}

void Cache::LaunchLoads(ObjectId id) {
  Job* const job = jobs_.Find(id);
  Sequence* const sequence = sequences_.Find(job->sequence);
  job->outstanding = 1;  // Ours, so that no item can end the job before all are under way.
  for (GroupIndex g = 0; g < config_.groups.size() && !job->whole; ++g) {
    // Collected first: what arrives at once changes what is missing.
    std::vector<BlockId> missing;
    VisitMissing(sequence->groups[g], [&](uint64_t, BlockId block) {
      missing.push_back(block);
      return true;
    });
    for (const BlockId block : missing) {
      const Presence presence = store_->at(block, 0).presence;
      if (presence == Presence::kResident) continue;
      ++job->items_total;
      ++job->outstanding;
      auto done = [this, id](Status status) {
        mu_.AssertHeld();
        LoadItemDone(id, status);
      };
      if (presence == Presence::kIncoming) {
        mover_->AwaitArrival(block, std::move(done));
      } else if (!store_->published(block) || job->slots[g].empty()) {
        done(ErrorF(StatusCode::kUnavailable, "a block of the sequence was erased"));
      } else {
        const SlotId slot = job->slots[g].back();
        job->slots[g].pop_back();
        mover_->Promote(block, slot, IoClass::kDemand, std::move(done));
      }
    }
  }
  LoadItemDone(id, Status());
}

void Cache::LoadItemDone(ObjectId id, const Status& status) {
  Job* const job = jobs_.Find(id);
  FERMATA_CHECK(job != nullptr && job->outstanding > 0);
  job->lost |= status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kUnavailable;
  if (!status.ok() && job->status.ok()) job->status = status;
  // The launcher's own share is no item.
  if (status.ok()) ++job->items_ok;
  if (--job->outstanding == 0) {
    --job->items_ok;
    FinishLoad(id);
  }
}

void Cache::FinishLoad(ObjectId id) {
  Job* const job = jobs_.Find(id);
  Sequence* const sequence = sequences_.Find(job->sequence);
  const bool lost = job->lost;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    std::vector<SlotId>& slots = job->slots[g];
    if (job->status.ok()) {
      const size_t keep = std::min<size_t>(slots.size(), job->want_reserve[g]);
      std::vector<SlotId>& reserved = sequence->groups[g].reserved;
      reserved.insert(reserved.end(), slots.begin(),
                      slots.begin() + static_cast<std::ptrdiff_t>(keep));
      slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(keep));
    }
    if (!slots.empty()) store_->tier(0)->Release(g, slots);
    slots.clear();
  }
  sequence->state = SequenceState::kRunning;
  sequence->job = 0;
  uint64_t valid = job->whole ? TableTokens(*sequence) : DeviceTokens(*sequence);
  if (lost) {
    valid = valid / joint_step_ * joint_step_;
    CutSequence(sequence, valid);
  }
  const bool released = sequence->released;
  EndJob(id, valid);
  if (released) EndIfReleased(sequence);
  RoomMayHaveGrown();
}

Result<ObjectId> Cache::Load(ObjectId id, const LoadOptions& options) {
  WriterLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindRunning(id, &sequence));
  return StartLoad(sequence, options);
}

// --- ending ---

void Cache::StopJob(Job* job, Status why) {
  if (job->status.ok()) job->status = std::move(why);
  if (job->kind == JobKind::kPark) {
    Sequence* const parking = sequences_.Find(job->sequence);
    if (parking == nullptr || parking->park.job != job->id)
      return;  // Demotions run to their end: bytes are under way.
    parking->park = PendingPark{};
    parking->state = SequenceState::kRunning;
    EndJob(job->id, DeviceTokens(*parking));
    return;
  }
  if (job->unanswered == 0) return;  // Its transfers run to their end.
  CancelRequests(job);
  FERMATA_CHECK(job->unanswered == 0);
  FinishLoad(job->id);
}

Status Cache::CancelJob(ObjectId id) {
  WriterLock lock(&mu_);
  Job* const job = jobs_.Find(id);
  if (job == nullptr) return ErrorF(StatusCode::kNotFound, "the job has ended");
  StopJob(job, Status(StatusCode::kCancelled, "cancelled by the caller"));
  return Status();
}

}  // namespace fermata
