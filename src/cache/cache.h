// SPDX-License-Identifier: Apache-2.0
//
// Cache: the facade that the C binding calls. It owns the clock, the executor, the tiers and
// everything in them, and holds the one lock that guards the books (rank 1, docs/locking.md). Its
// methods are grouped in files by what they are about: cache_open.cc, cache_lookup.cc,
// cache_sequence.cc, cache_publish.cc, cache_job.cc, cache_park.cc, cache_session.cc,
// cache_lifecycle.cc, cache_inspect.cc.
//
// Threads: any method from any thread. Lookups without a lease and what asks about a sequence, the
// room or the statistics share the lock; everything else has it alone. No method waits for I/O but
// Open, Close, UnregisterArena, Reset and Erase. Tiers, device_ops and the log sink are called with
// the lock released.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocators/host_pool.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "cache/block_store.h"
#include "cache/config.h"
#include "cache/mover.h"
#include "cache/objects.h"
#include "cache/space_table.h"
#include "tiers/device_tier.h"

namespace fermata {

struct LookupRequest {
  ObjectId session = 0;
  bool lease = true;
  std::span<const uint32_t> tokens;
  std::span<const std::byte> keys;
  uint32_t key_bytes = 0;
  uint64_t token_count = 0;  // of the whole prompt, also what has no name yet
  std::vector<ExtraPart> extras;
  uint64_t leave_tokens = 0;
  uint64_t lease_deadline_ns = 0;
};

struct LookupAnswer {
  uint64_t hit_tokens = 0;
  uint64_t pending_tokens = 0;
  std::vector<uint64_t> tier_tokens;
  ObjectId lease = 0;
};

struct SequenceOptions {
  bool no_store = false;
  ObjectId session = 0;
  std::vector<ExtraPart> extras;
};

struct LoadOptions {
  std::shared_ptr<JobQueue> queue;
  uint64_t user_data = 0;
  uint64_t reserve_tokens = 0;
  uint64_t deadline_ns = 0;
};

struct AppendRequest {
  ObjectId sequence = 0;
  std::span<const uint32_t> tokens;
  uint64_t token_count = 0;
  std::span<const std::byte> keys;
  uint32_t key_bytes = 0;
};

struct BlockCopy {
  GroupIndex group = 0;
  SlotId source = SlotId::kNone;
  SlotId target = SlotId::kNone;
  uint32_t valid_tokens = 0;
};

struct SequenceInfo {
  SequenceState state = SequenceState::kRunning;
  uint64_t tokens = 0;
  uint64_t marked_tokens = 0;
  uint64_t published_tokens = 0;
  uint64_t device_tokens = 0;
  uint64_t reserved_tokens = 0;
};

struct TierStats {
  TierKind kind = TierKind::kDevice;
  uint32_t ordinal = 0;
  uint64_t slots = 0, free_slots = 0, live_slots = 0, cached_slots = 0, in_flight_slots = 0;
  TierCounters counters;
  bool healthy = true;
};

struct CacheStats {
  uint64_t query_tokens = 0, hit_tokens = 0, blocks = 0;
  uint64_t sequences = 0, sessions = 0, leases = 0, jobs = 0;
  uint64_t dropped_blocks = 0, lost_blocks = 0, superseded_blocks = 0;
  std::vector<TierStats> tiers;
};

enum class ResetScope : uint32_t { kAll = 1, kSpace = 2, kSession = 3 };

class Cache {
 public:
  // `make_job_handle` turns a job's id into the handle that its completion carries; `nonce` sets
  // the ids of two caches apart.
  static Result<std::unique_ptr<Cache>> Open(CacheConfig config, std::unique_ptr<DeviceOps> ops,
                                             std::function<uint64_t(ObjectId)> make_job_handle,
                                             uint32_t nonce);
  ~Cache();
  // OK: closed, may be destroyed. DEADLINE_EXCEEDED: still closing.
  Status Close(uint64_t deadline_ns);
  // The process ends without Close: no more work is begun, see Executor::Freeze.
  void Freeze(uint64_t timeout_ns) { executor_->Freeze(timeout_ns); }
  uint64_t NowNs() const { return clock_->NowNs(); }
  const CacheConfig& config() const { return config_; }

  Result<ObjectId> OpenSpace(const SpaceIdentity& identity);
  Status CloseSpace(ObjectId space);

  Result<ObjectId> RegisterArena(GroupIndex group, std::span<const DeviceRegion> regions,
                                 uint32_t slots);
  Status UnregisterArena(ObjectId arena, uint64_t deadline_ns);
  Status DeviceLost();

  Result<LookupAnswer> Lookup(ObjectId space, const LookupRequest& request);
  Status TakeLease(ObjectId lease, ObjectId sequence);
  Status DropLease(ObjectId lease);
  Result<uint64_t> TrimLease(ObjectId lease, uint64_t tokens);

  Result<ObjectId> CreateSequence(ObjectId space, SequenceOptions options);
  Status Append(const AppendRequest& request, std::vector<BlockCopy>* copies, size_t copy_capacity);
  Status Mark(ObjectId sequence, uint64_t tokens, void* event);
  Result<std::vector<ObjectId>> Fork(ObjectId sequence, size_t count);
  Status Truncate(ObjectId sequence, uint64_t tokens);
  Status Release(ObjectId sequence);
  Result<SequenceInfo> Info(ObjectId sequence);
  // Fills out[] with slots from block `first`; returns how many blocks there are from there on.
  Result<size_t> Slots(ObjectId sequence, GroupIndex group, uint64_t first,
                       std::span<uint32_t> out);

  Result<ObjectId> Load(ObjectId sequence, const LoadOptions& options);
  Result<ObjectId> Resume(ObjectId sequence, const LoadOptions& options);
  Result<ObjectId> Park(ObjectId sequence, ParkMode mode, std::shared_ptr<JobQueue> queue,
                        uint64_t user_data);
  Status CancelJob(ObjectId job);

  Result<ObjectId> OpenSession(ObjectId parent, uint32_t priority);
  Status BeginTurn(ObjectId session);
  Result<bool> EndTurn(ObjectId session, const TurnEnd& turn);  // whether the hints are of use
  Result<bool> EndSession(ObjectId session);

  // `per_tier`: blocks dropped, also when the rest fails.
  Status Reset(ResetScope scope, ObjectId target, std::vector<uint64_t>* per_tier);
  Result<uint64_t> Erase(ObjectId space, const LookupRequest& request, uint64_t from_token);

  CacheStats Stats();
  void VisitStats(const StatVisitor& visitor);
  Status Room(GroupIndex group, uint64_t* free, uint64_t* evictable);
  Status PollEvents(std::vector<StoreEvent>* out, size_t capacity, uint64_t* lost);
  Status Audit(uint64_t* blocks, uint64_t* orphans);
  std::string Dump();

  // Experimental.
  Status AdvanceClock(uint64_t ns);
  Result<uint64_t> Step(uint64_t max_steps);

 private:
  class TierPoller;
  class MarkPoller;
  Cache(CacheConfig config, std::function<uint64_t(ObjectId)> make_job_handle, uint32_t nonce);

  // cache_open.cc
  Status OpenTiers(std::unique_ptr<DeviceOps> ops);
  Result<std::unique_ptr<Tier>> MakeLowerTier(const TierConfig& config);
  Status OpenStaging();
  struct RecoveredBlock;
  struct RecoveredTier;
  Status Recover() FERMATA_EXCLUDES(mu_);
  void RestoreBlocks(TierIndex t, const absl::flat_hash_map<uint32_t, const SpaceState*>& known,
                     std::vector<RecoveredBlock>* recovered) FERMATA_REQUIRES(mu_);
  Status OpenCheck() const FERMATA_REQUIRES_SHARED(mu_);  // CLOSED once closing
  uint64_t units_of(GroupIndex group) const {
    return config_.groups[group].block_tokens / config_.chain_tokens;
  }

  // Executor's side.
  bool IoRound() FERMATA_EXCLUDES(mu_);
  void Kick() FERMATA_REQUIRES(mu_);

  // cache_lookup.cc
  struct FoundGroup {
    BlockId deepest = BlockId::kNone;
    uint64_t blocks = 0;
  };
  struct FoundPrefix {
    std::vector<FoundGroup> groups;  // as far as each goes
    uint64_t tokens = 0;             // joint, after `leave`
  };
  struct FoundForLookup {
    SpaceState* space = nullptr;
    uint64_t total = 0;  // tokens asked about
    FoundPrefix prefix;
    std::vector<BlockId> anchors;  // per group, of the joint prefix
    LookupAnswer answer;
  };
  // Tokens from where the one before ends up to `end` that lie on one tier.
  struct Stretch {
    uint64_t end = 0;
    TierIndex tier = 0;
    bool pending = false;  // on their way to the device
  };
  Status CheckName(const SpaceState& space, const LookupRequest& request, NamedPrefix* prefix) const
      FERMATA_REQUIRES_SHARED(mu_);
  void FindPrefix(const SpaceState& space, const NamedPrefix& prefix, uint64_t token_limit,
                  bool on_sick_tiers_too, FoundPrefix* found) const FERMATA_REQUIRES_SHARED(mu_);
  Status Find(ObjectId space, const LookupRequest& request, FoundForLookup* out) const
      FERMATA_REQUIRES_SHARED(mu_);
  BlockId AnchorOf(const FoundPrefix& found, GroupIndex group) const FERMATA_REQUIRES_SHARED(mu_);
  void Stretches(BlockId deepest, GroupIndex group, std::vector<Stretch>* out) const
      FERMATA_REQUIRES_SHARED(mu_);
  // `anchors`: per group, the last block of a prefix of `tokens`. Returns the leading tokens that
  // are on the device.
  uint64_t CountTiers(const std::vector<BlockId>& anchors, uint64_t tokens,
                      LookupAnswer* answer) const FERMATA_REQUIRES_SHARED(mu_);
  void NoteSupersession(const Session& session, const FoundPrefix& found) FERMATA_REQUIRES(mu_);
  bool AllHealthy() const;
  // Leading blocks of a path that a healthy tier has.
  uint64_t HealthyBlocks(const std::vector<PathPiece>& path) const FERMATA_REQUIRES_SHARED(mu_);
  void EndLease(ObjectId id) FERMATA_REQUIRES(mu_);
  uint64_t JointStep() const { return joint_step_; }

  // cache_sequence.cc, cache_publish.cc
  Status FindSequence(ObjectId id, Sequence** out) const FERMATA_REQUIRES_SHARED(mu_);
  Status FindRunning(ObjectId id, Sequence** out) FERMATA_REQUIRES(mu_);
  NamedPrefix PrefixOf(const Sequence& sequence) const FERMATA_REQUIRES(mu_);
  void ExtendChain(Sequence* sequence) FERMATA_REQUIRES(mu_);
  void PublishMarked(Sequence* sequence) FERMATA_REQUIRES(mu_);
  void PublishGroup(Sequence* sequence, GroupIndex group, SessionId serial) FERMATA_REQUIRES(mu_);
  void MoveAnchor(Sequence* sequence, GroupIndex group, BlockId anchor) FERMATA_REQUIRES(mu_);
  Hash128 KeyAt(const Sequence& sequence, uint64_t unit) const FERMATA_REQUIRES(mu_);
  void ForgetNames(Sequence* sequence) FERMATA_REQUIRES(mu_);  // that the tree has
  SessionId SerialOf(ObjectId session) const FERMATA_REQUIRES(mu_);
  // Leaves the table what `tokens` tokens need.
  void CutTable(Sequence* sequence, GroupIndex group, uint64_t tokens) FERMATA_REQUIRES(mu_);
  void CutSequence(Sequence* sequence, uint64_t tokens) FERMATA_REQUIRES(mu_);
  // Lets go of a block; at once, or when the marks under way are settled.
  void DropBlock(Sequence* sequence, BlockId block) FERMATA_REQUIRES(mu_);
  void DropCopiedSources(Sequence* sequence) FERMATA_REQUIRES(mu_);
  struct AskedMark {
    ObjectId sequence = 0;
    uint64_t serial = 0;
    void* event = nullptr;
    bool fired = false;
    Status status;  // of asking
  };
  void SettleMarks(const std::vector<AskedMark>& asked, std::vector<std::string>* refusals)
      FERMATA_REQUIRES(mu_);
  // A mark has been settled: ends what waited for it. May end the sequence.
  void MarkSettled(Sequence* sequence) FERMATA_REQUIRES(mu_);
  void EndIfReleased(Sequence* sequence) FERMATA_REQUIRES(mu_);
  void DropReserved(Sequence* sequence) FERMATA_REQUIRES(mu_);
  void EndSequence(ObjectId id) FERMATA_REQUIRES(mu_);
  void RememberPath(Sequence* sequence) FERMATA_REQUIRES(mu_);
  uint64_t PublishedTokens(const Sequence& sequence) const FERMATA_REQUIRES_SHARED(mu_);
  uint64_t TableTokens(const Sequence& sequence) const FERMATA_REQUIRES_SHARED(mu_);
  uint64_t DeviceTokens(const Sequence& sequence) const FERMATA_REQUIRES_SHARED(mu_);
  // REQUIRES: the tables are not cut yet.
  void CutNames(Sequence* sequence, uint64_t tokens) FERMATA_REQUIRES(mu_);
  // Gives the blocks of a table, from index `first` on, to `f`.
  using BlockVisitor = absl::FunctionRef<bool(uint64_t index, BlockId block)>;  // false: stop
  void VisitTable(const GroupTable& table, uint64_t first, BlockVisitor f) const
      FERMATA_REQUIRES_SHARED(mu_);
  // The same for those whose bytes are not on the device; skips whole runs that are.
  void VisitMissing(const GroupTable& table, BlockVisitor f) const FERMATA_REQUIRES_SHARED(mu_);
  bool PollMarks() FERMATA_EXCLUDES(mu_);                // true when an event has fired
  void LetGo(Sequence* sequence) FERMATA_REQUIRES(mu_);  // all references, deepest first
  void RoomMayHaveGrown() FERMATA_REQUIRES(mu_);

  // cache_job.cc
  Result<ObjectId> NewJob(JobKind kind, ObjectId sequence, std::shared_ptr<JobQueue> queue,
                          uint64_t user_data) FERMATA_REQUIRES(mu_);
  Status PlanLoad(Sequence* sequence, const LoadOptions& options, Job* plan) FERMATA_REQUIRES(mu_);
  Result<ObjectId> StartLoad(Sequence* sequence, const LoadOptions& options) FERMATA_REQUIRES(mu_);
  void RequestSlots(ObjectId id) FERMATA_REQUIRES(mu_);
  void SlotsAnswered(ObjectId id) FERMATA_REQUIRES(mu_);
  void CancelRequests(Job* job) FERMATA_REQUIRES(mu_);
  void LaunchLoads(ObjectId id) FERMATA_REQUIRES(mu_);
  void LoadItemDone(ObjectId id, const Status& status) FERMATA_REQUIRES(mu_);
  void FinishLoad(ObjectId id) FERMATA_REQUIRES(mu_);
  void EndJob(ObjectId id, uint64_t valid_tokens) FERMATA_REQUIRES(mu_);
  void StopJob(Job* job, Status why) FERMATA_REQUIRES(mu_);

  // cache_park.cc
  void RunPark(Sequence* sequence, ParkMode mode, ObjectId job_id,
               const std::vector<BlockId>& demote, const std::vector<BlockId>& drop)
      FERMATA_REQUIRES(mu_);
  void RunPendingPark(Sequence* sequence) FERMATA_REQUIRES(mu_);
  Status PlanDemotions(const Sequence& sequence, ParkMode mode, std::vector<BlockId>* demote,
                       std::vector<BlockId>* drop) FERMATA_REQUIRES(mu_);

  // cache_lifecycle.cc
  // Writes the spaces and makes them, and every release before them, durable against power loss.
  Status MakeDurable(std::vector<SpaceRecord> records) FERMATA_EXCLUDES(mu_);
  void PutSpaceRecord(Tier* tier, const SpaceRecord& record);  // executor's thread
  // Runs `work` where tiers may be called and waits for it.
  Status RunOnExecutor(std::function<Status()> work) FERMATA_EXCLUDES(mu_);
  bool ArenaInUse(GroupIndex group) FERMATA_REQUIRES(mu_);
  bool DropDeviceCopies(GroupIndex group) FERMATA_REQUIRES(mu_);
  bool Idle() FERMATA_REQUIRES(mu_);
  // Waits until `done` or the deadline, driving the work itself when there is no thread. False at
  // the deadline.
  bool DriveUntil(uint64_t deadline_ns, const std::function<bool()>& done) FERMATA_EXCLUDES(mu_);

  std::vector<uint64_t> HeldSlots() const FERMATA_REQUIRES_SHARED(mu_);
  void CountRefs(std::vector<uint32_t>* refs) FERMATA_REQUIRES(mu_);

  CacheConfig config_;
  const std::function<uint64_t(ObjectId)> make_job_handle_;
  uint64_t joint_step_ = 0;  // tokens: a multiple of every group's block

  // Constant after Open, in the order of construction.
  std::unique_ptr<Clock> clock_;
  ManualClock* manual_clock_ = nullptr;
  std::unique_ptr<HostPool> host_pool_;
  std::unique_ptr<StagingPool> staging_;
  std::vector<std::unique_ptr<Tier>> tiers_;
  DeviceTier* device_ = nullptr;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::unique_ptr<Executor> executor_;
  StepExecutor* step_executor_ = nullptr;

  mutable SharedMutex mu_;
  CondVar changed_;  // a job, a transfer or the executor's round has ended
  bool closing_ FERMATA_GUARDED_BY(mu_) = false;
  bool finishing_ FERMATA_GUARDED_BY(mu_) = false;  // the executor stops: nothing runs any more
  bool closed_ FERMATA_GUARDED_BY(mu_) = false;
  uint32_t calls_ FERMATA_GUARDED_BY(mu_) = 0;  // tasks of RunOnExecutor that have not run
  bool kicked_ FERMATA_GUARDED_BY(mu_) = false;
  std::atomic<uint64_t> pending_marks_{0};  // written under mu_; read by the poller without it
  SessionId next_session_serial_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t query_tokens_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t hit_tokens_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t resumed_tokens_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t expired_leases_ FERMATA_GUARDED_BY(mu_) = 0;
  std::deque<ObjectId> expired_
      FERMATA_GUARDED_BY(mu_);  // leases kept so that their end can be told apart from a bad handle
  uint64_t recovered_blocks_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t recovered_orphans_ FERMATA_GUARDED_BY(mu_) = 0;
  std::unique_ptr<BlockStore> store_ FERMATA_PT_GUARDED_BY(mu_);
  std::unique_ptr<PlacementPolicy> placement_ FERMATA_PT_GUARDED_BY(mu_);
  std::unique_ptr<Mover> mover_ FERMATA_PT_GUARDED_BY(mu_);
  SpaceTable space_table_ FERMATA_GUARDED_BY(mu_);
  ObjectTable<SpaceHandle> spaces_ FERMATA_GUARDED_BY(mu_);
  ObjectTable<GroupIndex> arenas_ FERMATA_GUARDED_BY(mu_);
  ObjectTable<Sequence> sequences_ FERMATA_GUARDED_BY(mu_);
  ObjectTable<Lease> leases_ FERMATA_GUARDED_BY(mu_);
  ObjectTable<Session> sessions_ FERMATA_GUARDED_BY(mu_);
  ObjectTable<Job> jobs_ FERMATA_GUARDED_BY(mu_);
};

}  // namespace fermata
