// SPDX-License-Identifier: Apache-2.0
//
// Mover: makes room and moves blocks between tiers. Three things live here: slot requests (who
// waits for free slots of a pool, in order, all or nothing), demotions (a victim goes to the next
// tier that can take it; a durable tier gets the missing ancestors in the same flush, so that it
// stays closed under parents), and promotions (to the device). It knows BlockStore and Tier;
// nothing of sequences, leases, or jobs but the callbacks it is given.
//
// How room is made: a request that cannot be met asks the pool's policy for victims; a victim
// either goes at once (a lower copy exists, or no lower tier can take it) or waits for a slot one
// tier down by the same mechanism. Every chain of waiting goes downwards and ends in the last tier,
// where eviction is dropping; so it ends. Only the first request of a pool collects slots, so no
// two hold parts of what both need.
//
// Threads: everything under the cache's lock. Tiers are called by the executor's thread between
// TakeOutbox and Complete, with no lock held. Callbacks run under the lock and may call back into
// Mover's public methods.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "allocators/staging_pool.h"
#include "cache/block_store.h"

namespace fermata {

class Mover {
 public:
  // `staging` may be null when every pair of tiers has a mapped side or no bytes. `kick` is called
  // when the outbox has work.
  Mover(BlockStore* store, PlacementPolicy* placement, StagingPool* staging,
        std::function<void()> kick);
  ~Mover();

  // OK: the slots are the caller's now; otherwise there are none.
  using Granted = std::function<void(Status, std::vector<SlotId>)>;

  // Whether `need` more slots could be had, beside what others already wait for.
  bool CanMakeRoom(TierIndex tier, GroupIndex group, uint64_t need) const;
  uint64_t Evictable(TierIndex tier, GroupIndex group) const;
  // Queues a request; returns its id (> 0). `done` may run before this returns.
  uint64_t Request(TierIndex tier, GroupIndex group, uint64_t need, Granted done);
  void CancelRequest(
      uint64_t id);  // no-op when it has ended; otherwise done does not run, partial slots go back
  // Slots at once or not at all: RESOURCE_EXHAUSTED/NO_SPACE, or UNAVAILABLE/WOULD_BLOCK while room
  // is being made.
  Status AcquireNow(GroupIndex group, uint64_t need, std::vector<SlotId>* out);

  // Brings a block into `device_slot`. `done` runs once it is there or known not to come; the block
  // was killed then.
  void Promote(BlockId block, SlotId device_slot, IoClass io_class,
               std::function<void(Status)> done);
  // Runs `done` when the block that is on its way to the device has arrived or failed.
  void AwaitArrival(BlockId block, std::function<void(Status)> done);
  // Copies an unheld block to a lower tier now, and frees its device slot when it is there. `done`:
  // OK when it lies below; otherwise it stays where it is for as long as nobody needs the room.
  void Demote(BlockId block, std::function<void(Status)> done);
  // Slots that blocks could have on the tier, beside what others already wait for.
  uint64_t Room(TierIndex tier, GroupIndex group) const;

  // Evicts until `want_free` slots of the device pool are free or on their way to be.
  void KeepFree(GroupIndex group, uint64_t want_free);
  // Serves waiting requests; called after anything that may have freed slots.
  void Pump();

  // --- executor side ---
  bool TakeOutbox(TierIndex tier, size_t capacity, std::vector<TierIo>* out);  // false when empty
  void PutBack(TierIndex tier, std::span<const TierIo> rest);
  void Complete(TierIndex tier, const TierCompletion& completion);
  bool outbox_empty() const;

  uint64_t transfers_in_flight() const { return transfers_in_flight_; }
  // Fails what waits for slots with `status`; transfers already begun go on to their end.
  void FailRequests(const Status& status);
  // Slots granted to requests that are not done, tier-major: for the audit.
  std::vector<uint64_t> HeldSlots() const;

 private:
  struct SlotRequest {
    uint64_t id = 0;
    uint64_t need = 0;
    std::vector<SlotId> slots;
    Granted done;
  };
  struct PoolState {
    std::list<SlotRequest> requests;
    uint64_t waiting = 0;      // slots wanted and not yet granted, all requests
    bool room_wanted = false;  // AcquireNow has a request of its own in the queue
  };
  // Callers that wait for a set of blocks to reach a lower tier; keeps their places there pinned
  // until all are settled.
  struct Batch {
    TierIndex to = 0;
    bool room_wanted = true;  // a victim that cannot be demoted is dropped
    Status status;            // the first that went wrong
    size_t outstanding = 0;
    std::vector<BlockId> pinned_below;
    std::function<void(Status)> done;
  };
  struct Outgoing {  // one block on its way down
    BlockId block = BlockId::kNone;
    TierIndex source = 0;
    bool carries =
        false;  // its own transfer brings the bytes; otherwise somebody else's does, or did
    Status status;
    std::shared_ptr<Batch> batch;
    std::list<Outgoing>::iterator self;  // its place in outgoing_
  };
  struct Transfer {
    BlockId block = BlockId::kNone;
    TierIndex from = 0;
    TierIndex to = 0;
    GroupIndex group = 0;
    SlotId source = SlotId::kNone;
    SlotId target = SlotId::kNone;
    IoClass io_class = IoClass::kDemand;
    std::byte* buffer = nullptr;
    bool staged = false;
    bool reading = false;
    bool active = false;
    BlockRecord record;
    std::vector<std::byte> name;  // what the record borrows: runs move theirs
    std::function<void(Status)> done;
  };

  PoolState& state(TierIndex tier, GroupIndex group) {
    return states_[tier * store_->group_count() + group];
  }
  const PoolState& state(TierIndex tier, GroupIndex group) const {
    return states_[tier * store_->group_count() + group];
  }

  uint64_t Collected(TierIndex tier,
                     GroupIndex group) const;  // slots that requests in the queue have so far
  uint64_t Leaving(TierIndex tier, GroupIndex group) const {
    return store_->pool(tier, group).leaving;
  }
  void EndRequest(TierIndex tier, GroupIndex group, std::list<SlotRequest>::iterator it,
                  const Status& status);
  void ServePool(TierIndex tier, GroupIndex group);
  // Takes the next victim of a pool; up to `want` of them where they can simply be dropped.
  bool EvictNext(TierIndex tier, GroupIndex group, uint64_t want);
  bool Evict(BlockId block, TierIndex tier, uint64_t want);
  bool VictimGoesAtOnce(BlockId block, TierIndex tier) const;
  int DemotionTarget(BlockId block, TierIndex from) const;
  bool Drop(BlockId block, TierIndex tier, uint64_t want);
  bool StartDemotion(BlockId block, TierIndex from, TierIndex to, bool room_wanted,
                     std::function<void(Status)> done);
  void LaunchDemotion(std::vector<Outgoing> items, std::vector<SlotId> slots, TierIndex to);
  void AbandonDemotion(const std::vector<Outgoing>& items, const Status& status);
  void SettleOutgoing();
  bool TrySettle(const Outgoing& item);
  void EndBatchItem(const std::shared_ptr<Batch>& batch);
  void ResolveLeaving(BlockId block, bool room_wanted);
  void FinishPromotion(BlockId block, TierIndex source, Status status);

  void StartTransfer(Transfer transfer);
  void BeginStaged(uint64_t index);
  void Enqueue(uint64_t index, TierIo::Op op, TierIndex tier);
  void EndTransfer(uint64_t index, Status status);

  BlockStore* const store_;
  PlacementPolicy* const placement_;
  StagingPool* const staging_;
  const std::function<void()> kick_;
  std::vector<PoolState> states_;
  std::vector<std::deque<TierIo>> outbox_;  // per tier
  std::deque<Transfer> transfers_;          // stable addresses: tiers borrow the records
  std::vector<uint64_t> free_transfers_;
  std::deque<uint64_t> want_staging_;
  std::list<Outgoing> outgoing_;
  std::list<Outgoing*> unsettled_;
  absl::flat_hash_map<uint32_t, std::vector<std::function<void(Status)>>> arrivals_;  // by block
  absl::flat_hash_map<uint32_t, std::vector<std::function<void(Status)>>>
      settled_;  // by block: who waits for its way down to end
  uint64_t transfers_in_flight_ = 0;
  uint64_t next_request_ = 1;
  bool pumping_ = false;
  bool pump_again_ = false;
};

}  // namespace fermata
