// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: every block that anybody knows, its identity, who refers to it, and on which tiers it
// lies. It keeps the prefix tree, finds in it, and tells each pool's policy what changed. It moves
// no bytes: Mover does, and reports here. It knows nothing of sequences, leases and jobs but their
// references.
//
// A block is private (a sequence's own, unfindable), published (in the tree, frozen), or dead
// (taken out of the tree while somebody still refers to it or a transfer still touches it); then it
// goes.
//
// The tree's nodes are runs: consecutive blocks of one prefix that were all used alike. A run is
// found by its parent and its first block, and compared in one go. All that is true of one block of
// a run but its place on the tiers is true of all: who owns it, whether it is superseded, whether
// it is held. That is kept by splitting: a reference is always to the last block of a run, and
// holds that run and all its ancestors. So taking hold of a path costs O(runs that nobody held
// yet), whatever its length, and a policy orders runs, not blocks. Within a pool a run gives up its
// deepest block first.
//
// Invariants (see Audit): a published block is resident somewhere; its parent is published; a run
// is held if something refers to its last block or a run below it is; counts per run and tier equal
// a recount; a block that is on a durable tier has its parent there; refs are never clamped.
//
// Threads: const methods under the cache's lock shared or exclusive, all others exclusive (key()
// of a run's middle may fill a cache: exclusive). Cost: O(tiers) each but where said; a split costs
// O(blocks of the run), at most kMaxRun.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/segmented_array.h"
#include "cache/config.h"
#include "cache/identity.h"
#include "cache/policy.h"
#include "cache/run_memory.h"
#include "tiers/tier.h"

namespace fermata {

constexpr uint32_t kMaxRun = 1024;  // blocks of a run; bounds what a split moves

enum class Presence : uint8_t { kAbsent = 0, kIncoming = 1, kResident = 2 };
// What a slot that has a block is for, in the stats.
enum class SlotUse : uint8_t { kLive = 1, kCached = 2, kInFlight = 3 };

// Where a block is on one tier.
struct Residency {
  SlotId slot = SlotId::kNone;
  uint32_t io_pins : 24 = 0;  // transfers that read or write the slot, or rely on its staying
  Presence presence : 4 = Presence::kAbsent;
  bool leaving : 1 = false;  // on its way out: counted as gone
  bool voided : 1 = false;   // incoming, but the memory it comes into was lost meanwhile
};
static_assert(sizeof(Residency) == 8);

enum class BlockState : uint8_t { kFree = 0, kPrivate, kPublished, kDead };

struct Block {
  uint32_t home;   // the run; of a private block its place among the private ones
  uint16_t place;  // index in the run, plus the run's shift
  uint8_t group;
  BlockState state;
};

// What a private block has instead of a run.
struct PrivateBlock {
  uint32_t refs = 0;    // table entries of sequences, copies out of it, quarantines
  uint32_t copies = 0;  // of them, copies-on-write that the engine may not have run yet
};

struct Run {
  uint64_t first_uid;  // of its first block; the others' follow. Never reused
  Hash128 end;         // chain value at its end, when end_known
  std::byte* data;     // capacity block ids, then their names, then their keys where keyed
  RunId parent;
  RunId first_child;
  RunId next_sibling;
  RunId previous_sibling;
  uint32_t next_in_bucket;  // raw id + 1
  uint32_t hash;
  uint32_t space;  // durable number of the space
  uint32_t depth;  // of its first block, in blocks
  uint32_t refs;   // to its last block, and held runs below
  SessionId owner;
  uint32_t name_bytes;  // of each block
  uint16_t count;
  uint16_t capacity;
  uint16_t shift;
  uint8_t group;
  BlockState state;  // kFree, kPublished or kDead
  bool shared : 1;   // used by more than one session
  bool superseded : 1;
  bool keyed : 1;   // names are not plain tokens: chain values are kept
  bool sealed : 1;  // grows no more: a uid behind its end may have been somebody's
  bool end_known : 1;
};

// What of a run lies on one tier.
struct RunTier {
  uint32_t children;       // runs below it that have something here
  uint16_t present;        // blocks that have a slot here
  uint16_t resident;       // of them, whose bytes are here
  uint16_t sole;           // of those, without a resident copy above that stays
  uint16_t leaving;        // resident and on their way out
  uint16_t leaving_sole;   // of those, without a copy above
  uint16_t in_flight;      // blocks that have a slot here which a transfer touches
  uint16_t pinned;         // blocks whose place here a transfer relies on
  uint16_t top;            // index + 1 of the deepest block that is here to stay
  bool counted : 1;        // by its parent's children
  bool told_inserted : 1;  // what the pool's policy was last told
  bool told_leaf : 1;
  bool told_unpinned : 1;
};

// Part of a run on a path.
struct PathPiece {
  RunId run = RunId::kNone;
  uint32_t begin = 0;  // indices in the run
  uint32_t end = 0;
};

// Consecutive blocks of a path, remembered without a reference: uids say whether they are still
// there.
struct RememberedPiece {
  RunId run = RunId::kNone;  // what is left of the piece's end is here, if anything is
  BlockId first = BlockId::kNone;
  uint64_t uid = 0;
  uint32_t depth = 0;
  uint32_t count = 0;
};

// Counters of one tier, all groups.
struct TierCounters {
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t hit_tokens = 0;
  uint64_t evictions = 0;
  uint64_t slots_of_use[4] = {};  // by SlotUse
};

struct StoreEvent {
  bool stored = false;
  TierIndex tier = 0;
  GroupIndex group = 0;
  uint64_t end_token = 0;
  Hash128 key;
};

// The next victims of a pool in order, as far as they are known without a search: their memory is
// fetched step by step before their turn comes. Only hints.
struct VictimsAhead {
  static constexpr uint32_t kDepth = 8;
  RunId runs[kDepth];
  uint32_t first = 0;
  uint32_t count = 0;
  RunId last = RunId::kNone;  // what was yielded last

  RunId& at(uint32_t i) { return runs[(first + i) % kDepth]; }
};

// One group of one tier.
struct Pool {
  std::unique_ptr<EvictionPolicy> policy;
  VictimsAhead ahead;
  uint64_t evictable = 0;  // blocks here that nobody needs; some only once a transfer has ended
  uint64_t leaving = 0;    // slots that will be free when their demotion ends
};

class BlockStore final : public RunView {
 public:
  BlockStore(const CacheConfig& config, std::vector<Tier*> tiers, uint64_t first_uid);
  ~BlockStore() override;

  // --- blocks ---
  BlockState state(BlockId id) const { return blocks_[Raw(id)].state; }
  bool published(BlockId id) const { return state(id) == BlockState::kPublished; }
  GroupIndex group(BlockId id) const { return blocks_[Raw(id)].group; }
  uint64_t uid(BlockId id) const;                     // 0: private
  BlockId parent_block(BlockId id) const;             // kNone at a root
  uint32_t block_depth(BlockId id) const;             // index in its prefix
  std::span<const std::byte> name(BlockId id) const;  // of a block with a run
  Hash128 key(BlockId id);                            // O(1) mostly, else O(run) hashes
  bool IsAlive(BlockId id, uint64_t uid) const;       // published still, and the same block
  bool Held(BlockId id) const;                        // somebody refers to it or below it
  uint32_t private_refs(BlockId id) const { return private_of(id).refs; }
  uint32_t private_copies(BlockId id) const { return private_of(id).copies; }
  const Residency& at(BlockId id, TierIndex tier) const {
    return residency_[Raw(id) * tier_count_ + tier];
  }
  bool Resident(BlockId id, TierIndex tier) const {
    return at(id, tier).presence == Presence::kResident;
  }
  // First tier, in order, where the block is resident on a healthy tier; -1 when there is none.
  int BestTier(BlockId id) const;
  // No block below it on its path is resident (and stays) on the tier, nor does it lead to one.
  bool Leaf(BlockId id, TierIndex tier) const;
  BlockRecord RecordOf(BlockId id);  // borrows the block's name

  BlockId NewPrivate(GroupIndex group, SlotId device_slot);  // no references yet
  // One for each slot, with one reference each.
  void NewPrivates(GroupIndex group, std::span<const SlotId> device_slots,
                   std::vector<BlockId>* out);
  void Ref(BlockId id);        // of a block with a run: holds its whole path; may split
  void Unref(BlockId id);      // may free the block
  void BeginCopy(BlockId id);  // the caller's reference becomes a copy's
  void EndCopy(BlockId id);    // it is a plain reference again

  // --- the tree ---
  // What continues `parent` (kNone: begins a prefix) under that name, or kNone.
  BlockId FindChild(uint32_t space, GroupIndex group, BlockId parent,
                    std::span<const std::byte> name) const;
  // How many leading blocks of the prefix are in the tree; *deepest is the last of them. Every
  // byte of every name is compared. `units` is what a block of the group holds.
  uint64_t Match(uint32_t space, GroupIndex group, const NamedPrefix& prefix, uint64_t units,
                 BlockId* deepest) const;
  struct Name {
    uint32_t space = 0;
    Hash128 seed;  // of the space's chains
    BlockId parent = BlockId::kNone;
    std::span<const std::byte> bytes;
    Hash128 key;         // chain value at the block's end
    bool plain = false;  // the bytes are the tokens and nothing else
  };
  // Makes a private block findable. Its references refer to it still. `ours`: the caller holds the
  // parent and lets go of it here. REQUIRES: no equal block is published; the parent is published
  // or kNone.
  void Publish(BlockId id, const Name& name, SessionId owner, bool ours);
  // A block that a durable tier recovered; `plain` as above is checked against its key.
  BlockId Restore(const BlockRecord& record, const Hash128& seed, const Hash128& parent_key,
                  BlockId parent, bool plain, TierIndex tier, SlotId slot);
  // The blocks before `deepest` and itself, from depth `first` on, shallow to deep. O(runs).
  void Path(BlockId deepest, uint32_t first, std::vector<PathPiece>* out) const;
  // All runs on the path are resident in whole. O(runs).
  bool PathResident(BlockId deepest, TierIndex tier) const;
  BlockId Ancestor(BlockId id, uint32_t depth) const;  // on its path; O(runs)
  const Run& run(RunId id) const { return runs_[Raw(id)]; }
  RunId run_of(BlockId id) const { return static_cast<RunId>(blocks_[Raw(id)].home); }
  uint32_t index_of(BlockId id) const;  // in its run
  BlockId block_at(const Run& run, uint32_t index) const { return ids(run)[index]; }
  const RunTier& run_tier(RunId id, TierIndex tier) const {
    return run_tiers_[Raw(id) * tier_count_ + tier];
  }
  // A session uses the path from depth `first` to `deepest`: ownership, revival, policies.
  // REQUIRES: `deepest` ends its run. O(runs).
  void TouchPath(BlockId deepest, uint32_t first, SessionId session);
  // Nobody but the session will ever ask for what is behind depth `first` of this path again.
  void SupersedePath(BlockId deepest, uint32_t first, SessionId owner);
  // Depth up to which two paths are the same, in blocks.
  uint32_t CommonDepth(BlockId a, BlockId b) const;
  // What of a path to remember it by; and the deepest block of it that is there still, or kNone.
  void Remember(BlockId deepest, std::vector<RememberedPiece>* out) const;
  BlockId DeepestAlive(const std::vector<RememberedPiece>& pieces) const;
  // Takes the block and all that continues it out of the tree, frees every copy that nobody
  // touches. Returns blocks killed; adds to `per_tier` the copies freed or doomed. O(subtree).
  uint64_t Kill(BlockId id, std::vector<uint64_t>* per_tier);
  // Kills up to `want` blocks from the end of a run backwards, where the block is that end and that
  // is all there is to do: nobody holds or continues them and no transfer touches them. Returns how
  // many.
  uint32_t KillTail(BlockId id, uint32_t want) {
    return index_of(id) + 1 == run(run_of(id)).count ? PopTail(run_of(id), want, nullptr) : 0;
  }
  // True when nothing from the block on is referred to or touched by a transfer. O(subtree).
  bool SubtreeIdle(BlockId id) const;

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

  // --- pools ---
  Pool& pool(TierIndex tier, GroupIndex group) { return pools_[tier * group_count_ + group]; }
  const Pool& pool(TierIndex tier, GroupIndex group) const {
    return pools_[tier * group_count_ + group];
  }
  // The block that the pool gives up next, or kNone.
  BlockId NextVictim(TierIndex tier, GroupIndex group);
  // Resident here, and not what somebody holds it for: that is a copy further up.
  bool Spare(BlockId id, TierIndex tier) const;
  // May be evicted from the tier now: a leaf of it that nobody needs and no transfer touches.
  bool Evictable(BlockId id, TierIndex tier) const;
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

  // --- RunView ---
  uint32_t depth(RunId id) const override { return run(id).depth; }
  uint32_t blocks(RunId id) const override { return run(id).count; }
  RunId parent(RunId id) const override { return run(id).parent; }
  SessionId owner(RunId id) const override { return run(id).shared ? kNoSession : run(id).owner; }
  bool superseded(RunId id) const override { return run(id).superseded; }

  // --- looking inside ---
  uint64_t blocks_of_space(uint32_t number) const {  // published
    const auto it = spaces_.find(number);
    return it == spaces_.end() ? 0 : it->second.blocks;
  }
  uint64_t blocks_in_use() const { return blocks_in_use_; }
  uint64_t block_capacity() const { return blocks_.size(); }
  uint64_t runs_in_use() const { return runs_in_use_; }
  uint64_t run_capacity() const { return runs_.size(); }
  uint64_t dropped = 0;  // evicted from the last tier that had them
  uint64_t lost = 0;     // bytes could not be had back
  uint64_t supersedings = 0;
  uint64_t victims = 0;        // blocks yielded by policies
  uint64_t victim_visits = 0;  // runs looked at to yield them
  // Recounts everything. `refs` is what sequences and leases hold, by block; `held` the slots of
  // each pool (tier-major) that belong to no block (reserved by sequences, granted to waiters).
  Status Audit(const std::vector<uint32_t>& refs, const std::vector<uint64_t>& held,
               uint64_t* orphans);

  std::deque<StoreEvent> events;
  uint64_t events_lost = 0;

 private:
  struct SpaceCount {
    Hash128 seed;
    uint64_t blocks = 0;
  };

  Residency& mut_at(BlockId id, TierIndex tier) { return residency_[Raw(id) * tier_count_ + tier]; }
  RunTier& mut_tier(RunId id, TierIndex tier) { return run_tiers_[Raw(id) * tier_count_ + tier]; }
  Run& mut(RunId id) { return runs_[Raw(id)]; }
  const PrivateBlock& private_of(BlockId id) const { return privates_[blocks_[Raw(id)].home]; }
  PrivateBlock& private_of(BlockId id) { return privates_[blocks_[Raw(id)].home]; }

  // block_store.cc: blocks, references, victims. block_residency.cc: where they lie.
  BlockId AllocateBlock(GroupIndex group);
  BlockId AddPrivate(GroupIndex group, SlotId device_slot, uint32_t refs);
  void FreeBlock(BlockId id);
  void FreePrivateIfUnused(BlockId id);
  void FlipHeld(RunId id, bool held);
  void HoldRun(RunId id);
  void LetGoOfRun(RunId id);
  // The bracket around every change of a block's residency; `f` changes it.
  template <typename F>
  void Change(BlockId id, F&& f);
  void AddBlock(RunId id, BlockId block, int sign);
  void CountPrivate(BlockId id, int sign);
  void CountRun(RunId id, int sign);
  void FixTop(RunId id, TierIndex tier, uint32_t index);
  bool Sole(BlockId id, TierIndex tier) const;
  void Settle(RunId id);
  void Tell(RunId id, TierIndex tier);
  void Used(RunId id, TierIndex tier);
  void LookAhead(TierIndex tier, Pool* pool, RunId victim);
  void Emit(bool stored, BlockId id, TierIndex tier);

  // block_tree.cc: runs. Finding is in block_find.cc, walks along paths are in block_path.cc.
  BlockId* ids(const Run& run) const { return reinterpret_cast<BlockId*>(run.data); }
  std::byte* names(const Run& run) const { return run.data + run.capacity * sizeof(BlockId); }
  Hash128* keys(const Run& run) const;
  size_t DataBytes(const Run& run, uint32_t capacity) const;
  void Resize(Run* run, uint32_t capacity);
  RunId AllocateRun();
  void FreeRun(RunId id);
  void FreeRunIfUnused(RunId id);
  uint32_t HashOf(uint32_t space, GroupIndex group, RunId parent,
                  std::span<const std::byte> name) const;
  void IndexInsert(RunId id);
  void IndexErase(RunId id);
  uint64_t BucketOf(uint32_t hash) const;
  RunId FindRun(uint32_t space, GroupIndex group, RunId parent,
                std::span<const std::byte> name) const;
  void LinkChild(RunId parent, RunId child);
  void UnlinkChild(RunId child);
  void SplitAfter(BlockId id);  // its run ends with it from now on
  void AppendTo(RunId id, BlockId block, const Name& name);
  RunId NewRun(const Name& name, GroupIndex group, uint64_t uid, SessionId owner);
  void KillRun(RunId id, std::vector<uint64_t>* per_tier);
  uint32_t PopTail(RunId id, uint32_t want, std::vector<uint64_t>* per_tier);
  Hash128 KeyBefore(RunId id);
  Hash128 KeyAt(RunId id, uint32_t index);

  // block_audit.cc
  Status AuditRun(RunId id, const std::vector<uint32_t>& refs, uint32_t below);
  Status AuditRunTier(RunId id, TierIndex tier) const;
  Status AuditPools(const std::vector<uint64_t>& held) const;

  const CacheConfig& config_;
  const std::vector<Tier*> tiers_;
  const size_t tier_count_;
  const size_t group_count_;
  const uint32_t hash_mask_;
  uint64_t next_uid_;
  SegmentedArray<Block> blocks_;
  SegmentedArray<Residency> residency_;
  RunMemory memory_;
  SegmentedArray<Run> runs_;
  SegmentedArray<RunTier> run_tiers_;
  std::vector<PrivateBlock> privates_;
  std::vector<uint32_t> free_privates_;
  BlockId free_block_ = BlockId::kNone;  // chained through home
  RunId free_run_ = RunId::kNone;        // chained through parent
  uint64_t blocks_in_use_ = 0;
  uint64_t runs_in_use_ = 0;
  // Linear hashing (Litwin 1980): one bucket is split at a time, so growth never stalls.
  SegmentedArray<uint32_t> buckets_;  // raw id + 1 of the first run
  uint64_t bucket_base_ = 256;        // a power of two
  uint64_t bucket_split_ = 0;
  uint64_t indexed_ = 0;
  absl::flat_hash_map<uint32_t, SpaceCount> spaces_;
  std::vector<Pool> pools_;
  std::vector<TierCounters> counters_;
  std::vector<SlotId> freed_;  // scratch
  // Chain values of the run that was last asked about.
  RunId keys_of_ = RunId::kNone;
  uint64_t keys_of_uid_ = 0;
  std::vector<Hash128> known_keys_;
};

}  // namespace fermata
