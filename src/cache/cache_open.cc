// SPDX-License-Identifier: Apache-2.0
//
// Cache: opening, recovery, the executor's round, and closing.
#include <algorithm>
#include <cinttypes>
#include <numeric>
#include <unordered_map>

#include "cache/cache.h"
#include "tiers/host_tier.h"
#include "tiers/metadata_tier.h"
#include "tiers/sim_tier.h"
#include "tiers/ssd_tier.h"

namespace fermata {
namespace {

// Uids of one opening of a durable tier: kMaxRun of them go to each run, 2^34 runs. Versions before
// 0.2 shifted by 40, which a later incarnation never meets.
constexpr uint32_t kIncarnationShift = 44;

}  // namespace

// Tells the executor when a tier has completions.
class Cache::TierPoller final : public Poller {
 public:
  TierPoller(Cache* cache, Tier* tier) : cache_(cache), tier_(tier) {}
  bool Poll() override { return cache_->IoRound(); }
  int fd() const override { return tier_->completion_fd(); }
  bool busy() const override { return tier_->in_flight() > 0; }

 private:
  Cache* const cache_;
  Tier* const tier_;
};

// Asks device_ops about the events that marks wait for.
class Cache::MarkPoller final : public Poller {
 public:
  explicit MarkPoller(Cache* cache) : cache_(cache) {}
  bool Poll() override { return cache_->PollMarks(); }
  bool busy() const override { return cache_->pending_marks_.load(std::memory_order_acquire) > 0; }

 private:
  Cache* const cache_;
};

Cache::Cache(CacheConfig config, std::function<uint64_t(ObjectId)> make_job_handle, uint32_t nonce)
    : config_(std::move(config)),
      make_job_handle_(std::move(make_job_handle)),
      spaces_(1u << 20, nonce),
      arenas_(64, nonce),
      sequences_(config_.max_sequences, nonce),
      leases_(config_.max_sequences, nonce),
      sessions_(config_.max_sequences, nonce),
      jobs_(config_.max_jobs, nonce) {}

Result<std::unique_ptr<Cache>> Cache::Open(CacheConfig config, std::unique_ptr<DeviceOps> ops,
                                           std::function<uint64_t(ObjectId)> make_job_handle,
                                           uint32_t nonce) {
  FERMATA_RETURN_IF_ERROR(config.Finish());
  std::unique_ptr<Cache> cache(new Cache(std::move(config), std::move(make_job_handle), nonce));
  FERMATA_RETURN_IF_ERROR(cache->OpenTiers(std::move(ops)));
  FERMATA_RETURN_IF_ERROR(cache->Recover());
  return cache;
}

Result<std::unique_ptr<Tier>> Cache::MakeLowerTier(const TierConfig& tier) {
  if (config_.metadata_only) {
    return std::unique_ptr<Tier>(
        std::make_unique<MetadataTier>(tier.kind, tier.ordinal, tier.groups));
  }
  if (tier.kind == TierKind::kSim) {
    SimTierOptions options;
    options.ordinal = tier.ordinal;
    options.groups = tier.groups;
    options.seed = config_.seed + tier.ordinal;
    options.clock = clock_.get();
    options.read_error_ppm = config_.sim.read_error_ppm;
    options.write_error_ppm = config_.sim.write_error_ppm;
    options.short_read_ppm = config_.sim.short_read_ppm;
    options.torn_write_ppm = config_.sim.torn_write_ppm;
    options.misdirected_write_ppm = config_.sim.misdirected_write_ppm;
    options.bit_flip_ppm = config_.sim.bit_flip_ppm;
    options.lost_write_ppm = config_.sim.lost_write_ppm;
    options.latency_min_ns = config_.sim.latency_min_ns;
    options.latency_max_ns = config_.sim.latency_max_ns;
    options.queue_depth = tier.io_depth;
    return std::unique_ptr<Tier>(std::make_unique<SimTier>(std::move(options)));
  }
  if (tier.kind == TierKind::kHost) {
    Result<std::unique_ptr<HostTier>> host =
        HostTier::Create(tier.ordinal, tier.groups, host_pool_.get());
    if (!host.ok()) return host.status();
    return std::unique_ptr<Tier>(std::move(*host));
  }
  SsdTierOptions options;
  options.directory = tier.directory;
  options.ordinal = tier.ordinal;
  options.groups = tier.groups;
  options.io_depth = tier.io_depth;
  options.direct_io = tier.direct_io;
  options.io_uring = tier.io_uring;
  options.clock = clock_.get();
  options.log = config_.log;
  for (const std::unique_ptr<Tier>& above : tiers_) {
    if (above->info().kind == TierKind::kHost) {
      options.fixed_buffers.push_back(static_cast<HostTier*>(above.get())->memory());
    }
  }
  if (staging_ != nullptr) options.fixed_buffers.push_back(staging_->memory());
  Result<std::unique_ptr<SsdTier>> ssd = SsdTier::Create(std::move(options));
  if (!ssd.ok()) return ssd.status();
  return std::unique_ptr<Tier>(std::move(*ssd));
}

// Buffers for blocks that pass between two tiers without memory of their own (device and disk). The
// host pool's cap is what the config allows: block slots and staging together, at the peak too.
Status Cache::OpenStaging() {
  uint64_t buffer_bytes = 0;
  for (const GroupConfig& group : config_.groups)
    buffer_bytes = std::max(buffer_bytes, RoundUpToPage(group.block_bytes));
  uint64_t staging_bytes = std::max<uint64_t>(
      8 * buffer_bytes, std::min<uint64_t>(uint64_t{16} << 20, 64 * buffer_bytes));
  uint64_t host_bytes = 0;
  bool huge_pages = true;
  bool needed = false;
  for (const TierConfig& tier : config_.tiers) {
    if (tier.kind == TierKind::kHost) {
      staging_bytes = tier.staging_bytes;
      host_bytes = kHostPoolAlignment;
      for (const TierGroup& group : tier.groups)
        host_bytes += RoundUpToPage(group.block_bytes) * group.slots;
      huge_pages = tier.huge_pages;
    } else if (tier.kind != TierKind::kDevice) {
      needed = true;
    }
  }
  host_pool_ =
      std::make_unique<HugePagePool>(host_bytes + staging_bytes + kHostPoolAlignment, huge_pages);
  if (!needed || config_.metadata_only) return Status();
  const uint64_t buffers = std::min<uint64_t>(staging_bytes / buffer_bytes, 65536);
  Result<std::unique_ptr<StagingPool>> staging =
      StagingPool::Create(host_pool_.get(), buffer_bytes, static_cast<uint32_t>(buffers));
  if (!staging.ok()) return staging.status();
  staging_ = std::move(*staging);
  return Status();
}

Status Cache::OpenTiers(std::unique_ptr<DeviceOps> ops) {
  joint_step_ = 1;
  for (const GroupConfig& group : config_.groups)
    joint_step_ = std::lcm(joint_step_, uint64_t{group.block_tokens});
  if (joint_step_ > kMaxTokens) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "groups[].block_tokens have a common multiple of %" PRIu64
                  ", want at most %" PRIu64,
                  joint_step_, kMaxTokens);
  }
  if (config_.manual_clock) {
    auto clock = std::make_unique<ManualClock>();
    manual_clock_ = clock.get();
    clock_ = std::move(clock);
  } else {
    clock_ = std::make_unique<SystemClock>();
  }
  FERMATA_RETURN_IF_ERROR(OpenStaging());
  std::vector<uint64_t> block_bytes;
  for (const GroupConfig& group : config_.groups) block_bytes.push_back(group.block_bytes);
  auto device = std::make_unique<DeviceTier>(config_.tiers[0].ordinal, block_bytes, std::move(ops),
                                             config_.metadata_only);
  device_ = device.get();
  tiers_.push_back(std::move(device));
  for (size_t i = 1; i < config_.tiers.size(); ++i) {
    Result<std::unique_ptr<Tier>> tier = MakeLowerTier(config_.tiers[i]);
    if (!tier.ok()) return tier.status();
    tiers_.push_back(std::move(*tier));
  }
  if (config_.step_driven) {
    auto executor = std::make_unique<StepExecutor>(clock_.get());
    step_executor_ = executor.get();
    executor_ = std::move(executor);
  } else {
    Result<std::unique_ptr<ThreadExecutor>> executor = ThreadExecutor::Create(clock_.get());
    if (!executor.ok()) return executor.status();
    executor_ = std::move(*executor);
  }
  std::vector<Tier*> raw;
  uint64_t incarnation = 1;
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    raw.push_back(tier.get());
    incarnation = std::max(incarnation, tier->incarnation());
  }
  {
    WriterLock lock(&mu_);
    store_ = std::make_unique<BlockStore>(config_, raw, incarnation << kIncarnationShift | 1);
    placement_ = FindPlacement(config_.policy)();
    mover_ = std::make_unique<Mover>(store_.get(), placement_.get(), staging_.get(), [this] {
      mu_.AssertHeld();
      Kick();
    });
  }
  for (const std::unique_ptr<Tier>& tier : tiers_)
    pollers_.push_back(std::make_unique<TierPoller>(this, tier.get()));
  pollers_.push_back(std::make_unique<MarkPoller>(this));
  for (const std::unique_ptr<Poller>& poller : pollers_) executor_->AddPoller(poller.get());
  return Status();
}

// --- recovery ---

struct Cache::RecoveredBlock {
  BlockRecord record;
  std::vector<std::byte> name;
  SlotId slot;
  BlockId restored = BlockId::kNone;
  bool visited = false;
};

// What one durable tier had to say.
struct Cache::RecoveredTier {
  std::vector<SpaceRecord> spaces;
  std::vector<RecoveredBlock> blocks;
};

Status Cache::Recover() {
  std::vector<RecoveredTier> recovered(tiers_.size());
  for (TierIndex t = 1; t < tiers_.size(); ++t) {
    if (!tiers_[t]->has(kTierDurable)) continue;
    RecoveredTier& found = recovered[t];
    FERMATA_RETURN_IF_ERROR(
        tiers_[t]->Recover([&found](const SpaceRecord& record) { found.spaces.push_back(record); },
                           [&found](const BlockRecord& record, SlotId slot) {
                             RecoveredBlock block;
                             block.record = record;
                             block.name.assign(record.identity.begin(), record.identity.end());
                             block.slot = slot;
                             found.blocks.push_back(std::move(block));
                           }));
  }
  {
    WriterLock lock(&mu_);
    for (const RecoveredTier& found : recovered) {
      for (const SpaceRecord& record : found.spaces) space_table_.Restore(record);
    }
    space_table_.Settle();
    for (TierIndex t = 1; t < tiers_.size(); ++t) {
      RecoveredTier& found = recovered[t];
      absl::flat_hash_map<uint32_t, const SpaceState*> known;
      for (const SpaceRecord& record : found.spaces) {
        const SpaceState* const space = space_table_.Find(record.identity);
        if (space->number == record.number) known.emplace(record.number, space);
      }
      RestoreBlocks(t, known, &found.blocks);
      found.spaces.clear();
      // Blocks that come to this tier from now on bear the present numbers.
      space_table_.ForEach([&](SpaceState* space) {
        if (!known.contains(space->number))
          found.spaces.push_back(SpaceRecord{space->number, space->identity});
      });
    }
  }
  for (TierIndex t = 1; t < tiers_.size(); ++t) {
    for (const SpaceRecord& record : recovered[t].spaces) PutSpaceRecord(tiers_[t].get(), record);
  }
  return Status();
}

// Takes what a durable tier kept into the index: blocks of the spaces in `known`, that fit, and
// whose parents do. The others' slots are free.
void Cache::RestoreBlocks(TierIndex t,
                          const absl::flat_hash_map<uint32_t, const SpaceState*>& known,
                          std::vector<RecoveredBlock>* recovered) {
  std::vector<RecoveredBlock>& blocks = *recovered;
  std::unordered_map<uint64_t, size_t> by_uid;
  for (size_t i = 0; i < blocks.size(); ++i) by_uid.emplace(blocks[i].record.uid, i);
  // Parents before children, without recursion: climb to the first restored ancestor, then come
  // down.
  std::vector<size_t> climb;
  for (size_t i = 0; i < blocks.size(); ++i) {
    climb.assign(1, i);
    while (!blocks[climb.back()].visited) {
      RecoveredBlock& top = blocks[climb.back()];
      top.visited = true;
      const auto parent = by_uid.find(top.record.parent_uid);
      if (top.record.parent_uid == 0 || parent == by_uid.end()) break;
      climb.push_back(parent->second);
    }
    while (!climb.empty()) {
      RecoveredBlock& b = blocks[climb.back()];
      climb.pop_back();
      if (b.restored != BlockId::kNone || b.slot == SlotId::kNone) continue;
      b.record.identity = b.name;
      BlockId parent = BlockId::kNone;
      bool fits = known.contains(b.record.space) && b.record.group < config_.groups.size() &&
                  !b.name.empty();
      if (fits && b.record.parent_uid != 0) {
        const auto it = by_uid.find(b.record.parent_uid);
        const RecoveredBlock* above = it == by_uid.end() ? nullptr : &blocks[it->second];
        fits = above != nullptr && above->restored != BlockId::kNone &&
               above->record.group == b.record.group && above->record.space == b.record.space &&
               above->record.depth + 1 == b.record.depth;
        if (fits) parent = above->restored;
      } else {
        fits = fits && b.record.depth == 0;
      }
      const SpaceState* const space = fits ? known.at(b.record.space) : nullptr;
      fits = fits &&
             store_->FindChild(b.record.space, b.record.group, parent, b.name) == BlockId::kNone;
      if (fits) {
        const bool plain = space->key_mode == KeyMode::kTokens &&
                           b.name.size() == config_.groups[b.record.group].block_tokens * 4;
        const Hash128 before = parent == BlockId::kNone ? space->seed : store_->key(parent);
        b.restored = store_->Restore(b.record, space->seed, before, parent, plain, t, b.slot);
        ++recovered_blocks_;
      } else {
        tiers_[t]->Release(b.record.group, std::span(&b.slot, 1));
        ++recovered_orphans_;
      }
      b.slot = SlotId::kNone;
    }
  }
}

// --- the executor's side ---

void Cache::Kick() {
  if (kicked_) return;
  kicked_ = true;
  executor_->Post([this] {
    {
      WriterLock lock(&mu_);
      kicked_ = false;
      changed_.NotifyAll();
    }
    IoRound();
  });
}

bool Cache::IoRound() {
  bool progress = false;
  std::vector<TierIo> batch;
  TierCompletion done[64];
  for (TierIndex t = 0; t < tiers_.size(); ++t) {
    bool any = false;
    {
      WriterLock lock(&mu_);
      any = mover_->TakeOutbox(t, 256, &batch);
    }
    if (any) {
      const size_t taken = tiers_[t]->Submit(batch);
      progress |= taken > 0;
      if (taken < batch.size()) {
        WriterLock lock(&mu_);
        mover_->PutBack(t, std::span(batch).subspan(taken));
      }
    }
    if (tiers_[t]->in_flight() == 0) continue;
    const size_t n = tiers_[t]->Poll(done);
    if (n == 0) continue;
    progress = true;
    WriterLock lock(&mu_);
    for (size_t i = 0; i < n; ++i) mover_->Complete(t, done[i]);
    mover_->Pump();
    changed_.NotifyAll();
  }
  if (progress) {
    // What a full queue has refused goes next; without progress its own completions bring that
    // round.
    WriterLock lock(&mu_);
    if (!mover_->outbox_empty()) Kick();
  }
  return progress;
}

Status Cache::RunOnExecutor(std::function<Status()> work) {
  if (step_executor_ != nullptr) return work();
  struct Call {
    Status status;
    bool done = false;
  };
  const auto call = std::make_shared<Call>();
  {
    WriterLock lock(&mu_);
    if (finishing_)
      return ReasonF(StatusCode::kFailedPrecondition, Reason::kClosed, "the cache has been closed");
    ++calls_;  // Close waits for it.
  }
  executor_->Post([this, call, work = std::move(work)] {
    Status status = work();
    WriterLock lock(&mu_);
    --calls_;
    call->status = std::move(status);
    call->done = true;
    changed_.NotifyAll();
  });
  const uint64_t deadline = clock_->NowNs() + 30'000'000'000;
  WriterLock lock(&mu_);
  while (!call->done) {
    const uint64_t now = clock_->NowNs();
    if (now >= deadline)
      return ErrorF(StatusCode::kDeadlineExceeded, "the disk did not answer for 30 s");
    changed_.WaitFor(&mu_, manual_clock_ != nullptr ? 1'000'000'000 : deadline - now);
  }
  return call->status;
}

bool Cache::DriveUntil(uint64_t deadline_ns, const std::function<bool()>& done) {
  if (step_executor_ != nullptr) {
    // Nobody else runs the work, and time may stand still: when nothing is left to run, waiting
    // would be for ever.
    for (;;) {
      {
        WriterLock lock(&mu_);
        if (done()) return true;
      }
      if (step_executor_->Step(1000) == 0) {
        WriterLock lock(&mu_);
        return done();
      }
    }
  }
  WriterLock lock(&mu_);
  while (!done()) {
    const uint64_t now = clock_->NowNs();
    if (now >= deadline_ns) return false;
    // A manual clock does not wake sleepers: look again now and then.
    changed_.WaitFor(&mu_, manual_clock_ != nullptr ? 1'000'000 : deadline_ns - now);
  }
  return true;
}

// --- closing ---

Status Cache::OpenCheck() const {
  if (closing_)
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kClosed, "the cache is closing");
  return Status();
}

bool Cache::Idle() {
  if (jobs_.size() != 0 || mover_->transfers_in_flight() != 0 || kicked_ || calls_ != 0)
    return false;
  return std::all_of(tiers_.begin(), tiers_.end(),
                     [](const auto& tier) { return tier->in_flight() == 0; });
}

Status Cache::Close(uint64_t deadline_ns) {
  if (deadline_ns == 0) deadline_ns = clock_->NowNs() + 5'000'000'000;
  {
    WriterLock lock(&mu_);
    if (closed_) return Status();
    closing_ = true;
    mover_->FailRequests(ReasonF(StatusCode::kCancelled, Reason::kClosed, "the cache is closing"));
    std::vector<Job*> jobs;
    jobs_.ForEach([&jobs](ObjectId, Job& job) { jobs.push_back(&job); });
    for (Job* job : jobs) {
      if (jobs_.Find(job->id) == job)
        StopJob(job, ReasonF(StatusCode::kCancelled, Reason::kClosed, "the cache is closing"));
    }
  }
  bool mine = false;
  const bool drained = DriveUntil(deadline_ns, [this, &mine] {
    mu_.AssertHeld();
    if (finishing_) return closed_;  // Another caller's: its end is ours.
    mine = finishing_ = Idle();
    return mine;
  });
  if (!drained) return ErrorF(StatusCode::kDeadlineExceeded, "I/O is still in flight");
  if (!mine) return Status();
  executor_->Stop();
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    const Status status = tier->Shutdown();
    if (!status.ok() && config_.log)
      config_.log(LogLevel::kWarning,
                  "operation=shutdown tier=" + tier->info().name + " status=" + status.ToString());
  }
  WriterLock lock(&mu_);
  closed_ = true;
  changed_.NotifyAll();
  return Status();
}

Cache::~Cache() {
  if (executor_ != nullptr) executor_->Stop();
}

// --- experimental ---

Status Cache::AdvanceClock(uint64_t ns) {
  if (manual_clock_ == nullptr) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                   "the cache was opened without FERMATA_X_MANUAL_CLOCK");
  }
  if (ns > (uint64_t{1} << 62) || manual_clock_->NowNs() > (uint64_t{1} << 62)) {
    return ErrorF(StatusCode::kInvalidArgument, "ns is %" PRIu64 ": the clock would overflow", ns);
  }
  manual_clock_->AdvanceNs(ns);
  return Status();
}

Result<uint64_t> Cache::Step(uint64_t max_steps) {
  if (step_executor_ == nullptr) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                   "the cache was opened without FERMATA_X_STEP_DRIVEN");
  }
  if (step_executor_->InTask()) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                   "fermata_x_step was called from a callback or a second thread");
  }
  return step_executor_->Step(max_steps);
}

}  // namespace fermata
