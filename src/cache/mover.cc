// SPDX-License-Identifier: Apache-2.0
//
// Slot requests, victims, demotions and promotions. The transfers themselves are in
// mover_transfer.cc.
#include "cache/mover.h"

#include <algorithm>
#include <cinttypes>

namespace fermata {

Mover::Mover(BlockStore* store, PlacementPolicy* placement, StagingPool* staging,
             std::function<void()> kick)
    : store_(store),
      placement_(placement),
      staging_(staging),
      kick_(std::move(kick)),
      states_(static_cast<size_t>(store->tier_count()) * store->group_count()),
      outbox_(store->tier_count()) {}

Mover::~Mover() = default;

// --- slot requests ---

uint64_t Mover::Evictable(TierIndex tier, GroupIndex group) const {
  return store_->pool(tier, group).evictable;
}

uint64_t Mover::Room(TierIndex tier, GroupIndex group) const {
  const uint64_t can_be_had = store_->tier(tier)->free_slots(group) + Evictable(tier, group);
  return can_be_had - std::min(can_be_had, state(tier, group).waiting);
}

bool Mover::CanMakeRoom(TierIndex tier, GroupIndex group, uint64_t need) const {
  return Room(tier, group) >= need;
}

uint64_t Mover::Collected(TierIndex tier, GroupIndex group) const {
  uint64_t slots = 0;
  for (const SlotRequest& request : state(tier, group).requests) slots += request.slots.size();
  return slots;
}

uint64_t Mover::Request(TierIndex tier, GroupIndex group, uint64_t need, Granted done) {
  SlotRequest request;
  request.id = next_request_++;
  request.need = need;
  request.slots.reserve(need);
  request.done = std::move(done);
  const uint64_t id = request.id;
  PoolState& pool = state(tier, group);
  pool.waiting += need;
  pool.requests.push_back(std::move(request));
  Pump();
  return id;
}

// Takes a request out of its queue; an error gives its slots back.
void Mover::EndRequest(TierIndex tier, GroupIndex group, std::list<SlotRequest>::iterator it,
                       const Status& status) {
  PoolState& pool = state(tier, group);
  SlotRequest ended = std::move(*it);
  pool.requests.erase(it);
  pool.waiting -= ended.need - ended.slots.size();
  if (!status.ok()) {
    store_->tier(tier)->Release(group, ended.slots);
    ended.slots.clear();
  }
  if (ended.done) ended.done(status, std::move(ended.slots));
}

void Mover::CancelRequest(uint64_t id) {
  for (TierIndex t = 0; t < store_->tier_count(); ++t) {
    for (GroupIndex g = 0; g < store_->group_count(); ++g) {
      std::list<SlotRequest>& requests = state(t, g).requests;
      const auto it = std::find_if(requests.begin(), requests.end(),
                                   [id](const SlotRequest& r) { return r.id == id; });
      if (it == requests.end()) continue;
      it->done = nullptr;
      EndRequest(t, g, it, Status(StatusCode::kCancelled, "cancelled"));
      Pump();
      return;
    }
  }
}

void Mover::FailRequests(const Status& status) {
  for (TierIndex t = 0; t < store_->tier_count(); ++t) {
    for (GroupIndex g = 0; g < store_->group_count(); ++g) {
      while (!state(t, g).requests.empty()) EndRequest(t, g, state(t, g).requests.begin(), status);
    }
  }
}

std::vector<uint64_t> Mover::HeldSlots() const {
  std::vector<uint64_t> held(states_.size());
  for (size_t i = 0; i < states_.size(); ++i) {
    for (const SlotRequest& request : states_[i].requests) held[i] += request.slots.size();
  }
  return held;
}

void Mover::Pump() {
  // Callbacks of requests may free or want slots: they only note that, and the outermost call goes
  // round again.
  if (pumping_) {
    pump_again_ = true;
    return;
  }
  pumping_ = true;
  do {
    pump_again_ = false;
    for (TierIndex t = store_->tier_count(); t-- > 0;) {
      for (GroupIndex g = 0; g < store_->group_count(); ++g) {
        if (!state(t, g).requests.empty()) ServePool(t, g);
      }
    }
  } while (pump_again_);
  pumping_ = false;
}

void Mover::ServePool(TierIndex t, GroupIndex g) {
  PoolState& pool = state(t, g);
  Tier* const tier = store_->tier(t);
  while (!pool.requests.empty()) {
    SlotRequest& front = pool.requests.front();
    const uint64_t take = std::min<uint64_t>(front.need - front.slots.size(), tier->free_slots(g));
    if (take > 0) {
      const size_t before = front.slots.size();
      front.slots.resize(before + take);
      const Status acquired = tier->Acquire(g, std::span(front.slots).subspan(before));
      FERMATA_CHECK(acquired.ok());  // Only the lock's holder acquires.
      pool.waiting -= take;
    }
    if (front.slots.size() == front.need) {
      EndRequest(t, g, pool.requests.begin(), Status());
      pump_again_ = true;
      continue;
    }
    // Victims for everybody who waits, so that their transfers overlap; the slots still go to the
    // first.
    if (Leaving(t, g) < pool.waiting && EvictNext(t, g, pool.waiting - Leaving(t, g))) continue;
    if (Leaving(t, g) > 0 || transfers_in_flight_ > 0)
      return;  // What is under way ends in another Pump.
    // A victim's leaf may be held by a demotion that itself waits for a slot further down.
    for (size_t i = (t + size_t{1}) * store_->group_count(); i < states_.size(); ++i) {
      if (!states_[i].requests.empty()) return;
    }
    EndRequest(
        t, g, pool.requests.begin(),
        ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                "tier %s group %u: want %" PRIu64 " slots, %zu of %" PRIu64 " can be had",
                tier->info().name.c_str(), g, front.need, front.slots.size(), tier->slots(g)));
    pump_again_ = true;
  }
}

Status Mover::AcquireNow(GroupIndex group, uint64_t need, std::vector<SlotId>* out) {
  if (need == 0) return Status();
  Tier* const device = store_->tier(0);
  PoolState& pool = state(0, group);
  while (pool.requests.empty() && device->free_slots(group) < need) {
    const BlockId victim = store_->NextVictim(0, group);
    if (victim == BlockId::kNone || !VictimGoesAtOnce(victim, 0) ||
        !Evict(victim, 0, need - device->free_slots(group)))
      break;
  }
  if (pool.requests.empty() && device->free_slots(group) >= need) {
    const size_t before = out->size();
    out->resize(before + need);
    Status acquired = device->Acquire(group, std::span(*out).subspan(before));
    if (!acquired.ok()) out->resize(before);
    return acquired;
  }
  const uint64_t can_be_had = device->free_slots(group) + Evictable(0, group) + Collected(0, group);
  if (can_be_had < need) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                   "group %u: want %" PRIu64 " device slots, %" PRIu64 " of %" PRIu64 " can be had",
                   group, need, can_be_had, device->slots(group));
  }
  if (!pool.room_wanted && CanMakeRoom(0, group, need)) {
    pool.room_wanted = true;
    Request(0, group, need, [this, group](Status status, std::vector<SlotId> slots) {
      // Nobody's slots: whoever retries first takes them.
      if (status.ok()) store_->tier(0)->Release(group, slots);
      state(0, group).room_wanted = false;
    });
  }
  return ReasonF(StatusCode::kUnavailable, Reason::kWouldBlock,
                 "group %u: room for %" PRIu64 " blocks is being made", group, need);
}

void Mover::KeepFree(GroupIndex group, uint64_t want_free) {
  for (;;) {
    const uint64_t want = want_free + state(0, group).waiting;
    const uint64_t have = store_->tier(0)->free_slots(group) + Leaving(0, group);
    if (have >= want || !EvictNext(0, group, want - have)) return;
  }
}

// --- victims ---

int Mover::DemotionTarget(BlockId block, TierIndex from) const {
  for (TierIndex t = static_cast<TierIndex>(from + 1); t < store_->tier_count(); ++t) {
    if (!store_->tier(t)->healthy()) continue;
    if (store_->at(block, t).presence != Presence::kAbsent) return t;
    if (!placement_->Admit(block, from, t)) continue;
    if (CanMakeRoom(t, store_->group(block), 1)) return t;
  }
  return -1;
}

bool Mover::VictimGoesAtOnce(BlockId block, TierIndex tier) const {
  const int target = DemotionTarget(block, tier);
  return target < 0 || store_->Resident(block, static_cast<TierIndex>(target));
}

bool Mover::Drop(BlockId block, TierIndex tier, uint64_t want) {
  for (TierIndex t = 0; t < store_->tier_count(); ++t) {
    if (t != tier && store_->Resident(block, t)) {
      store_->Remove(block, tier);
      ++store_->counters(tier).evictions;
      return true;
    }
  }
  // Without a lower tier those before it in its run lie here alone, too.
  const uint64_t alone = store_->tier_count() == 1 ? std::min<uint64_t>(want, kMaxRun) : 1;
  const uint32_t killed = store_->KillTail(block, static_cast<uint32_t>(alone));
  if (killed != 0) {
    store_->dropped += killed;
    store_->counters(tier).evictions += killed;
    store_->victims += killed - 1;
    return true;
  }
  if (!store_->SubtreeIdle(block)) return false;
  store_->dropped += store_->Kill(block, nullptr);
  ++store_->counters(tier).evictions;
  return true;
}

bool Mover::EvictNext(TierIndex tier, GroupIndex group, uint64_t want) {
  const BlockId victim = store_->NextVictim(tier, group);
  return victim != BlockId::kNone && Evict(victim, tier, want);
}

bool Mover::Evict(BlockId block, TierIndex tier, uint64_t want) {
  const int target = DemotionTarget(block, tier);
  if (target < 0) return Drop(block, tier, want);
  const TierIndex to = static_cast<TierIndex>(target);
  switch (store_->at(block, to).presence) {
    case Presence::kResident:
      return Drop(block, tier, 1);
    case Presence::kIncoming:  // On its way there for another reason; settled when it arrives.
      store_->SetLeaving(block, tier, true);
      return true;
    case Presence::kAbsent:
      break;
  }
  return StartDemotion(block, tier, to, /*room_wanted=*/true, nullptr) || Drop(block, tier, 1);
}

void Mover::Demote(BlockId block, std::function<void(Status)> done) {
  const auto gone = [] { return ErrorF(StatusCode::kUnavailable, "a block was erased"); };
  if (!store_->published(block)) return done(gone());
  if (!store_->Resident(block, 0)) {
    return done(store_->BestTier(block) > 0
                    ? Status()
                    : ErrorF(StatusCode::kUnavailable, "a block lies on no healthy tier"));
  }
  // It leaves the device only as a leaf that no transfer touches; otherwise its copy below is
  // enough.
  const Residency& here = store_->at(block, 0);
  const bool may_go = here.io_pins == 0 && store_->Leaf(block, 0) && !here.leaving;
  const int target = DemotionTarget(block, 0);
  const auto no_room = [] {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                   "no healthy tier below the device has room for a block");
  };
  if (target < 0) return done(no_room());
  const TierIndex to = static_cast<TierIndex>(target);
  const uint64_t uid = store_->uid(block);
  if (store_->Resident(block, to)) {
    if (may_go) Drop(block, 0, 1);
    return done(Status());
  }
  auto finish = [this, block, uid, to, done, gone](Status status) {
    if (store_->IsAlive(block, uid) && store_->Resident(block, to)) return done(Status());
    done(status.ok() ? gone() : std::move(status));
  };
  if (store_->at(block, to).presence == Presence::kIncoming) {
    // A relative's demotion takes it along; it leaves when it has arrived.
    store_->SetLeaving(block, 0, true);
    settled_[Raw(block)].push_back(std::move(finish));
  } else if (here.leaving || !StartDemotion(block, 0, to, /*room_wanted=*/false, finish)) {
    finish(no_room());
  }
}

// --- demotions ---

bool Mover::StartDemotion(BlockId block, TierIndex from, TierIndex to, bool room_wanted,
                          std::function<void(Status)> done) {
  const GroupIndex group = store_->group(block);
  std::vector<BlockId> path{block};
  BlockId anchor = store_->parent_block(block);
  if (store_->tier(to)->has(kTierDurable)) {
    while (anchor != BlockId::kNone && store_->at(anchor, to).presence == Presence::kAbsent) {
      path.push_back(anchor);
      anchor = store_->parent_block(anchor);
    }
  } else {
    anchor = BlockId::kNone;
  }
  if (!CanMakeRoom(to, group, path.size())) return false;
  std::reverse(path.begin(), path.end());
  auto batch = std::make_shared<Batch>();
  batch->to = to;
  batch->room_wanted = room_wanted;
  batch->done = std::move(done);
  std::vector<Outgoing> items;
  for (const BlockId id : path) {
    const int source = id == block ? from : store_->BestTier(id);
    if (source < 0) return false;  // Nothing was pinned yet.
    items.push_back(Outgoing{id, static_cast<TierIndex>(source), false, Status(), batch, {}});
  }
  batch->outstanding = items.size();
  for (const Outgoing& item : items) store_->IoPin(item.block, item.source);
  if (anchor != BlockId::kNone) {
    store_->IoPin(anchor, to);
    batch->pinned_below.push_back(anchor);
  }
  store_->SetLeaving(block, from, true);
  const uint64_t need = items.size();
  Request(to, group, need,
          [this, to, items = std::move(items)](Status status, std::vector<SlotId> slots) {
            if (status.ok()) {
              LaunchDemotion(items, std::move(slots), to);
            } else {
              AbandonDemotion(items, status);
            }
          });
  return true;
}

void Mover::LaunchDemotion(std::vector<Outgoing> items, std::vector<SlotId> slots, TierIndex to) {
  for (size_t i = 0; i < items.size(); ++i) {
    outgoing_.push_back(std::move(items[i]));
    Outgoing* const item = &outgoing_.back();
    item->self = std::prev(outgoing_.end());
    const BlockId block = item->block;
    const bool alive = store_->published(block);
    if (alive) {
      store_->IoPin(block, to);
      item->batch->pinned_below.push_back(block);
    }
    if (!alive || store_->at(block, to).presence != Presence::kAbsent) {
      // Killed meanwhile, or brought there by the demotion of a relative.
      store_->tier(to)->Release(store_->group(block), std::span(&slots[i], 1));
      unsettled_.push_back(item);
      continue;
    }
    store_->BeginIncoming(block, to, slots[i]);
    item->carries = true;
    Transfer transfer;
    transfer.block = block;
    transfer.from = item->source;
    transfer.to = to;
    transfer.io_class = IoClass::kWriteBack;
    transfer.done = [this, item](Status status) {
      item->status = std::move(status);
      unsettled_.push_back(item);
      SettleOutgoing();
    };
    StartTransfer(std::move(transfer));
  }
  SettleOutgoing();
}

// No slot was to be had after all: the victim is dropped if it may, its ancestors stay where they
// are.
void Mover::AbandonDemotion(const std::vector<Outgoing>& items, const Status& status) {
  for (const Outgoing& item : items) {
    const BlockId block = item.block;
    const uint64_t uid = store_->uid(block);
    store_->IoUnpin(block, item.source);
    if (item.batch->status.ok()) item.batch->status = status;
    if (store_->IsAlive(block, uid)) ResolveLeaving(block, item.batch->room_wanted);
    EndBatchItem(item.batch);
  }
}

void Mover::EndBatchItem(const std::shared_ptr<Batch>& batch) {
  if (--batch->outstanding != 0) return;
  for (const BlockId block : batch->pinned_below) store_->IoUnpin(block, batch->to);
  batch->pinned_below.clear();
  if (batch->done) batch->done(batch->status);
}

void Mover::SettleOutgoing() {
  bool progress = true;
  while (progress) {
    progress = false;
    for (auto it = unsettled_.begin(); it != unsettled_.end();) {
      if (TrySettle(**it)) {
        Outgoing* const settled = *it;
        it = unsettled_.erase(it);
        const std::shared_ptr<Batch> batch = settled->batch;
        outgoing_.erase(settled->self);
        EndBatchItem(batch);
        progress = true;
        break;  // done callbacks may have changed the list
      }
      ++it;
    }
  }
}

// A block is on a durable tier only if its parent is: so it settles after its parent has.
bool Mover::TrySettle(const Outgoing& item) {
  const TierIndex to = item.batch->to;
  const BlockId block = item.block;
  const bool alive = store_->published(block);
  if (alive && !item.carries && store_->at(block, to).presence == Presence::kIncoming) return false;
  if (alive && item.carries) {
    const BlockId parent = store_->parent_block(block);
    bool good = item.status.ok();
    if (good && store_->tier(to)->has(kTierDurable) && parent != BlockId::kNone) {
      if (store_->at(parent, to).presence == Presence::kIncoming) return false;
      good = store_->Resident(parent, to);
    }
    if (good) {
      store_->FinishIncoming(block, to);
    } else {
      if (item.batch->status.ok()) {
        item.batch->status = item.status.ok() ? ErrorF(StatusCode::kUnavailable,
                                                       "a block before it could not be demoted")
                                              : item.status;
      }
      std::erase(item.batch->pinned_below, block);
      store_->AbortIncoming(block, to);
    }
  }
  const uint64_t uid = store_->uid(block);
  std::vector<std::function<void(Status)>> waiting;
  if (const auto it = settled_.find(Raw(block)); item.carries && it != settled_.end()) {
    waiting = std::move(it->second);
    settled_.erase(it);
  }
  store_->IoUnpin(block, item.source);
  if (store_->IsAlive(block, uid)) ResolveLeaving(block, item.batch->room_wanted);
  for (const auto& done : waiting) done(item.batch->status);
  return true;
}

// The demotion that made the block leave has ended: it goes if it still may and a copy is below; if
// none is, it is dropped where room was wanted, and stays where it was only to be kept.
void Mover::ResolveLeaving(BlockId block, bool room_wanted) {
  for (TierIndex t = 0; t < store_->tier_count(); ++t) {
    if (!store_->at(block, t).leaving) continue;
    bool below = false;
    bool coming = false;
    for (TierIndex l = static_cast<TierIndex>(t + 1); l < store_->tier_count(); ++l) {
      below |= store_->Resident(block, l);
      coming |= store_->at(block, l).presence == Presence::kIncoming;
    }
    if (coming && !below) continue;
    store_->SetLeaving(block, t, false);
    if (!store_->Evictable(block, t)) continue;  // Somebody uses it again.
    if (!below && !room_wanted) continue;
    const bool dropped = Drop(block, t, 1);
    if (dropped && !below) return;  // The block is gone.
  }
}

// --- promotions ---

void Mover::Promote(BlockId block, SlotId device_slot, IoClass io_class,
                    std::function<void(Status)> done) {
  const int source = store_->BestTier(block);
  arrivals_[Raw(block)].push_back(std::move(done));
  store_->BeginIncoming(block, 0, device_slot);
  store_->IoPin(block, 0);
  if (source < 0) {
    FinishPromotion(
        block, 0xff,
        ReasonF(StatusCode::kUnavailable, Reason::kTierSick, "no healthy tier has the block"));
    return;
  }
  store_->IoPin(block, static_cast<TierIndex>(source));
  Transfer transfer;
  transfer.block = block;
  transfer.from = static_cast<TierIndex>(source);
  transfer.to = 0;
  transfer.io_class = io_class;
  transfer.done = [this, block, source](Status status) {
    FinishPromotion(block, static_cast<TierIndex>(source), std::move(status));
  };
  StartTransfer(std::move(transfer));
}

void Mover::AwaitArrival(BlockId block, std::function<void(Status)> done) {
  FERMATA_CHECK(store_->at(block, 0).presence == Presence::kIncoming);
  arrivals_[Raw(block)].push_back(std::move(done));
}

void Mover::FinishPromotion(BlockId block, TierIndex source, Status status) {
  std::vector<std::function<void(Status)>> waiting;
  const auto it = arrivals_.find(Raw(block));
  if (it != arrivals_.end()) {
    waiting = std::move(it->second);
    arrivals_.erase(it);
  }
  // Pinned across the bookkeeping, so that the id stays this block's until everyone has been told.
  store_->IoPin(block, 0);
  const bool was_voided = store_->at(block, 0).voided;
  if (was_voided && status.ok())
    status = ErrorF(StatusCode::kUnavailable, "the device was lost while the block was copied");
  if (status.ok()) {
    store_->FinishIncoming(block, 0);
    store_->IoUnpin(block, 0);
  } else {
    store_->AbortIncoming(block, 0);
    // What could not be read back is given up; what a lost device swallowed is still where it came
    // from.
    if (!was_voided && store_->published(block)) store_->lost += store_->Kill(block, nullptr);
  }
  if (source != 0xff) {
    store_->IoUnpin(block, source);
    // Host memory holds a block only while the device does not; a disk keeps its clean copy until
    // the room is needed.
    const bool published = store_->published(block);
    if (published && status.ok() && store_->tier(source)->info().kind == TierKind::kHost &&
        store_->Resident(block, source) && store_->at(block, source).io_pins == 0 &&
        !store_->at(block, source).leaving) {
      store_->Remove(block, source);
    }
  }
  for (const auto& done : waiting) done(status);
  store_->IoUnpin(block, 0);
}

}  // namespace fermata
