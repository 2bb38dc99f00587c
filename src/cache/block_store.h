// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: every block that anybody knows, its identity, who refers to it, and on which tiers it
// lies. It keeps the prefix index (chain value -> block, compared in full), the tree of parents and
// children, and tells each pool's policy what changed. It moves no bytes: Mover does, and reports
// here. It knows nothing of sequences, leases and jobs but their reference counts.
//
// A block is private (a sequence's own, unfindable), published (in the index, frozen), or dead
// (taken out of the index while somebody still refers to it or a transfer still touches it); then
// it goes.
//
// Invariants (see Audit): a published block is resident somewhere; its parent is published;
// children counts per tier equal a recount; a block that is on a durable tier has its parent there;
// refs are never clamped.
//
// Threads: all methods under the cache's lock. Cost: O(1) each but Kill (O(subtree)) and Audit
// (O(all)).
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "cache/config.h"
#include "cache/policy.h"
#include "tiers/tier.h"

namespace fermata {

enum class Presence : uint8_t { kAbsent = 0, kIncoming = 1, kResident = 2 };
// What a slot that has a block is for, in the stats.
enum class SlotUse : uint8_t { kNone = 0, kLive = 1, kCached = 2, kInFlight = 3 };

// Where a block is on one tier.
struct Residency {
  SlotId slot = SlotId::kNone;
  uint32_t children = 0;  // children resident (and not leaving) on this tier
  uint16_t io_pins = 0;   // transfers that read or write the slot, or rely on its staying
  Presence presence = Presence::kAbsent;
  SlotUse counted_as = SlotUse::kNone;  // in the tier's counters
  bool leaving : 1 = false;             // on its way out: counted as gone by its parent
  bool voided : 1 = false;              // incoming, but the memory it comes into was lost meanwhile
  bool told_inserted : 1 = false;       // what the pool's policy was last told
  bool told_leaf : 1 = false;
  bool told_unpinned : 1 = false;
  bool evictable : 1 = false;  // as counted by the pool
  bool leaving_counted : 1 = false;
};

enum class BlockState : uint8_t { kFree, kPrivate, kPublished, kDead };

struct Block {
  uint64_t uid =
      0;  // never reused; names this very block to whoever remembers it without a reference
  Hash128 key;
  BlockId parent = BlockId::kNone;
  BlockId first_child = BlockId::kNone;
  BlockId next_sibling = BlockId::kNone;
  BlockId previous_sibling = BlockId::kNone;
  BlockId next_of_hash = BlockId::kNone;
  uint32_t space = 0;  // durable number of the space
  uint32_t depth = 0;
  uint32_t refs = 0;    // table entries of sequences, leases, copies out of it, quarantines
  uint32_t copies = 0;  // of them, copies-on-write that the engine may not have run yet
  SessionId owner = kNoSession;
  GroupIndex group = 0;
  BlockState state = BlockState::kFree;
  bool shared : 1 = false;  // used by more than one session
  bool superseded : 1 = false;
  uint32_t name_bytes = 0;
  std::unique_ptr<std::byte[]> name;
};

// Counters of one tier, all groups.
struct TierCounters {
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t hit_tokens = 0;
  uint64_t evictions = 0;
  uint64_t slots_of_use[4] = {};  // by SlotUse; kNone is not counted
};

struct StoreEvent {
  bool stored = false;
  TierIndex tier = 0;
  GroupIndex group = 0;
  uint64_t end_token = 0;
  Hash128 key;
};

// One group of one tier.
struct Pool {
  std::unique_ptr<EvictionPolicy> policy;
  uint64_t evictable = 0;  // blocks here that nobody needs; some only once a transfer has ended
  uint64_t leaving = 0;    // slots that will be free when their demotion ends
};

class BlockStore final : public BlockView {
 public:
  BlockStore(const CacheConfig& config, std::vector<Tier*> tiers, uint64_t first_uid);

  // --- blocks ---
  BlockId NewPrivate(GroupIndex group, SlotId device_slot);
  const Block& block(BlockId id) const { return blocks_[Raw(id)]; }
  std::span<const std::byte> name(BlockId id) const {
    return {block(id).name.get(), block(id).name_bytes};
  }
  bool IsAlive(BlockId id, uint64_t uid) const;  // published still, and the same block
  const Residency& at(BlockId id, TierIndex tier) const {
    return residency_[Raw(id) * tier_count_ + tier];
  }
  bool Resident(BlockId id, TierIndex tier) const {
    return at(id, tier).presence == Presence::kResident;
  }
  // First tier, in order, where the block is resident on a healthy tier; -1 when there is none.
  int BestTier(BlockId id) const;

  BlockId Find(uint32_t space, GroupIndex group, BlockId parent, const Hash128& key,
               std::span<const std::byte> name) const;
  // Makes a private block findable. REQUIRES: no equal block is published; the parent is published
  // or kNone.
  void Publish(BlockId id, uint32_t space, BlockId parent, uint32_t depth, const Hash128& key,
               std::span<const std::byte> name, SessionId owner);
  // A block that a durable tier recovered. REQUIRES: as Publish.
  BlockId Restore(const BlockRecord& record, BlockId parent, TierIndex tier, SlotId slot);
  BlockRecord RecordOf(BlockId id) const;  // borrows the block's name

  void Ref(BlockId id);
  void Unref(BlockId id);                           // may free the block
  void BeginCopy(BlockId id) { ++mut(id).copies; }  // the caller's reference becomes a copy's
  void EndCopy(BlockId id);                         // it is a plain reference again
  void Touch(BlockId id, SessionId session);  // a session uses it: ownership, revival, policies
  void Supersede(BlockId id);

  // --- residency ---
  void BeginIncoming(BlockId id, TierIndex tier, SlotId slot);
  void FinishIncoming(BlockId id, TierIndex tier);
  // Forgets the copy and frees its slot; the copy below, if any, counts as used now. REQUIRES: no
  // io_pins. Does not kill the block: who removes the last copy of a published block kills it.
  void Remove(BlockId id, TierIndex tier);
  // The bytes never came: gives the slot back and ends one io_pin. Others may still pin the (now
  // empty) place.
  void AbortIncoming(BlockId id, TierIndex tier);
  void IoPin(BlockId id, TierIndex tier);
  void IoUnpin(BlockId id, TierIndex tier);  // may free a dead block
  void SetLeaving(BlockId id, TierIndex tier, bool leaving);
  void VoidIncoming(BlockId id, TierIndex tier) { mut_at(id, tier).voided = true; }
  // Makes the device slot of a private block that of a published one, whose own, if it has one,
  // goes with the private block. REQUIRES: no io_pins on either.
  void AdoptDeviceSlot(BlockId published, BlockId from_private);
  // A sequence keeps a slot whose contents are void: the published block gives it to a new private
  // block (refs 0).
  BlockId DetachDeviceSlot(BlockId published);
  // Takes the block and all that continues it out of the index, frees every copy that nobody
  // touches. Returns blocks killed; adds to `per_tier` the copies freed or doomed.
  uint64_t Kill(BlockId id, std::vector<uint64_t>* per_tier);
  // True when no descendant of the block (itself included) is referred to or touched by a transfer.
  bool SubtreeIdle(BlockId id) const;

  // --- pools ---
  Pool& pool(TierIndex tier, GroupIndex group) { return pools_[tier * group_count_ + group]; }
  const Pool& pool(TierIndex tier, GroupIndex group) const {
    return pools_[tier * group_count_ + group];
  }
  Tier* tier(TierIndex tier) const { return tiers_[tier]; }
  TierIndex tier_count() const { return static_cast<TierIndex>(tier_count_); }
  uint64_t block_bytes(GroupIndex group) const { return config_.groups[group].block_bytes; }
  GroupIndex group_count() const { return static_cast<GroupIndex>(group_count_); }
  TierCounters& counters(TierIndex tier) { return counters_[tier]; }
  const TierCounters& counters(TierIndex tier) const { return counters_[tier]; }
  template <typename F>
  void ForEachPolicy(F&& f) {
    for (Pool& pool : pools_) f(pool.policy.get());
  }

  // --- BlockView ---
  uint32_t depth(BlockId id) const override { return block(id).depth; }
  BlockId parent(BlockId id) const override { return block(id).parent; }
  SessionId owner(BlockId id) const override {
    return block(id).shared ? kNoSession : block(id).owner;
  }
  bool superseded(BlockId id) const override { return block(id).superseded; }
  Hash128 key(BlockId id) const override { return block(id).key; }

  // --- looking inside ---
  // Published blocks of a space.
  uint64_t blocks_of_space(uint32_t number) const {
    const auto it = blocks_of_space_.find(number);
    return it == blocks_of_space_.end() ? 0 : it->second;
  }
  uint64_t blocks_in_use() const { return blocks_.size() - free_.size(); }
  uint64_t block_capacity() const { return blocks_.size(); }
  uint64_t dropped = 0;  // evicted from the last tier that had them
  uint64_t lost = 0;     // bytes could not be had back
  uint64_t supersedings = 0;
  // Recounts everything. `refs` is what sequences and leases hold, by block; `held` the slots of
  // each pool (tier-major) that belong to no block (reserved by sequences, granted to waiters).
  Status Audit(const std::vector<uint32_t>& refs, const std::vector<uint64_t>& held,
               uint64_t* orphans) const;

  std::deque<StoreEvent> events;
  uint64_t events_lost = 0;

 private:
  Block& mut(BlockId id) { return blocks_[Raw(id)]; }
  Residency& mut_at(BlockId id, TierIndex tier) { return residency_[Raw(id) * tier_count_ + tier]; }
  BlockId Allocate();
  void Free(BlockId id);
  void FreeIfUnused(BlockId id);
  uint64_t BucketOf(uint32_t space, GroupIndex group, const Hash128& key) const;
  void Link(BlockId id);
  void Unlink(BlockId id);
  void SetPresence(BlockId id, TierIndex tier, Presence presence, SlotId slot);
  bool Counted(BlockId id, TierIndex tier) const;  // by its parent's children count
  void CountAtParent(BlockId id, TierIndex tier, bool was);
  bool Needed(BlockId id,
              TierIndex tier) const;  // by who refers to it: they need one good copy, the highest
  bool Pinned(BlockId id, TierIndex tier) const;
  SlotUse UseOf(BlockId id, TierIndex tier) const;
  void CountUse(BlockId id, TierIndex tier);
  void Tell(BlockId id, TierIndex tier);  // brings the pool's policy up to date
  void TellAll(BlockId id);
  void Emit(bool stored, BlockId id, TierIndex tier);
  Status AuditBlock(BlockId id, const std::vector<uint32_t>& refs) const;
  Status AuditPools(const std::vector<uint64_t>& held) const;
  bool AnyIoPins(BlockId id) const;

  const CacheConfig& config_;
  const std::vector<Tier*> tiers_;
  const size_t tier_count_;
  const size_t group_count_;
  uint64_t next_uid_;
  std::vector<Block> blocks_;
  std::vector<Residency> residency_;
  std::vector<BlockId> free_;
  absl::flat_hash_map<uint64_t, BlockId> index_;  // bucket -> first of a list through next_of_hash
  absl::flat_hash_map<uint32_t, uint64_t> blocks_of_space_;
  std::vector<Pool> pools_;
  std::vector<TierCounters> counters_;
};

}  // namespace fermata
