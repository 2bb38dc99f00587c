// SPDX-License-Identifier: Apache-2.0
//
// SsdTier's life: open, recovery, slots, spaces, shutdown, stats. The I/O path is in
// ssd_tier_io.cc.
#include "tiers/ssd_tier.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tiers/ssd_catalog.h"
#include "tiers/ssd_signal.h"
#include "tiers/ssd_store.h"

namespace fermata {
namespace {

constexpr uint32_t kIoDepthMax = 1024;

Result<std::vector<SsdGroupGeometry>> CheckOptions(const SsdTierOptions& options) {
  if (options.groups.empty() || options.groups.size() > kSsdGroupsMax) {
    return ErrorF(StatusCode::kInvalidArgument, "groups: %zu, want 1..%u", options.groups.size(),
                  kSsdGroupsMax);
  }
  if (options.io_depth == 0 || options.io_depth > kIoDepthMax) {
    return ErrorF(StatusCode::kInvalidArgument, "io_depth: %u, want 1..%u", options.io_depth,
                  kIoDepthMax);
  }
  std::vector<SsdGroupGeometry> groups;
  for (const TierGroup& group : options.groups) {
    if (group.block_bytes == 0 || group.block_bytes > kSsdBlockBytesMax) {
      return ErrorF(StatusCode::kInvalidArgument, "block_bytes of group %zu: %llu, want 1..%llu",
                    groups.size(), static_cast<unsigned long long>(group.block_bytes),
                    static_cast<unsigned long long>(kSsdBlockBytesMax));
    }
    if (group.slots == 0 || group.slots > kSsdSlotsMax) {
      return ErrorF(StatusCode::kInvalidArgument, "slots of group %zu: %llu, want 1..%llu",
                    groups.size(), static_cast<unsigned long long>(group.slots),
                    static_cast<unsigned long long>(kSsdSlotsMax));
    }
    const uint64_t slot_bytes =
        (group.block_bytes + kSsdIoAlignment - 1) / kSsdIoAlignment * kSsdIoAlignment;
    groups.push_back({group.block_bytes, slot_bytes, group.slots});
  }
  return groups;
}

}  // namespace

Result<std::unique_ptr<SsdTier>> SsdTier::Create(SsdTierOptions options) {
  const FileSizeSignalBlock no_signal;  // lock file, superblock, data, catalog: all on this thread
  Result<std::vector<SsdGroupGeometry>> groups = CheckOptions(options);
  if (!groups.ok()) return groups.status();
  if (!options.make_meta) options.make_meta = OpenRocksMetaStore;
  if (!options.make_device) {
    options.make_device =
        [](BlockDeviceKind kind,
           const BlockDeviceOptions& device) -> Result<std::unique_ptr<BlockDevice>> {
      if (kind == BlockDeviceKind::kUring) return OpenUringDevice(device);
      return OpenPreadDevice(device);
    };
  }
  Result<std::unique_ptr<SsdStore>> store =
      SsdStore::Open({options.directory, std::move(*groups), options.direct_io, options.log});
  if (!store.ok()) return store.status();

  // Without a catalog the tier works and is cold after a restart; that is no reason not to open.
  std::string reset;
  Result<std::unique_ptr<MetaStore>> meta = options.make_meta((*store)->meta_path());
  if (!meta.ok() && meta.status().code() == StatusCode::kDataLoss) {
    reset = meta.status().ToString();
    if (options.log)
      options.log(LogLevel::kError,
                  "operation=ssd_catalog status=moved_aside why=\"" + reset + "\"");
    (*store)->MoveMetaAside();
    meta = options.make_meta((*store)->meta_path());
  }
  auto catalog = std::make_unique<SsdCatalog>(meta.ok() ? std::move(*meta) : nullptr, meta.status(),
                                              options.log);
  std::unique_ptr<SsdTier> tier(
      new SsdTier(std::move(options), std::move(*store), std::move(catalog), std::move(reset)));
  tier->OpenDevice();
  return tier;
}

SsdTier::SsdTier(SsdTierOptions options, std::unique_ptr<SsdStore> store,
                 std::unique_ptr<SsdCatalog> catalog, std::string catalog_reset)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? options_.clock : &system_clock_),
      info_{TierKind::kSsd, options_.ordinal, kTierDurable,
            "ssd:" + std::to_string(options_.ordinal)},
      store_(std::move(store)),
      catalog_(std::move(catalog)),
      catalog_reset_(std::move(catalog_reset)),
      // 2^40 writes before a restart could meet the next incarnation's first.
      next_generation_(store_->incarnation() << 40) {
  MutexLock lock(&mu_);
  for (const TierGroup& group : options_.groups) {
    const uint64_t slot_bytes =
        (group.block_bytes + kSsdIoAlignment - 1) / kSsdIoAlignment * kSsdIoAlignment;
    groups_.push_back({{group.block_bytes, slot_bytes, group.slots},
                       std::make_unique<SlotPool>(static_cast<uint32_t>(group.slots)),
                       {}});
    slots_.emplace_back(group.slots);
  }
  requests_.resize(options_.io_depth);
  for (uint32_t i = options_.io_depth; i-- > 0;) free_requests_.push_back(i);
}

SsdTier::~SsdTier() {
  // Before the buffers that they may still be writing to.
  device_.reset();
  retired_.reset();
}

void SsdTier::OpenDevice() {
  const BlockDeviceOptions device_options{store_->data_fds(), options_.io_depth,
                                          options_.fixed_buffers};
  std::string why = store_->direct_refusal();
  const auto add = [&why](const std::string& text) {
    why += (why.empty() || text.empty() ? "" : "; ") + text;
  };
  if (options_.io_uring) {
    Result<std::unique_ptr<BlockDevice>> device =
        options_.make_device(BlockDeviceKind::kUring, device_options);
    if (device.ok()) {
      device_ = std::move(*device);
      add(device_->fixed_refusal());
    } else {
      add(device.status().message());
    }
  } else {
    add("io_uring: off by configuration");
  }
  if (device_ == nullptr) {
    device_kind_ = BlockDeviceKind::kPread;
    Result<std::unique_ptr<BlockDevice>> device =
        options_.make_device(BlockDeviceKind::kPread, device_options);
    device_ = device.ok() ? std::move(*device) : OpenPreadDevice(device_options);
  }
  NoteMode(why);
}

void SsdTier::NoteMode(const std::string& fallback) {
  std::string mode = std::string(device_->mode()) + (store_->direct() ? "+direct" : "+buffered");
  if (device_->fixed()) mode += "+fixed";
  {
    MutexLock lock(&mu_);
    io_mode_ = mode;
    if (!fallback.empty()) io_fallback_ += (io_fallback_.empty() ? "" : "; ") + fallback;
  }
  if (options_.log && !fallback.empty()) {
    options_.log(LogLevel::kWarning,
                 "operation=ssd_io mode=" + mode + " fallback=\"" + fallback + "\"");
  }
}

uint64_t SsdTier::slots(GroupIndex group) const { return groups_[group].geometry.slots; }
uint64_t SsdTier::free_slots(GroupIndex group) const { return groups_[group].pool->free(); }
Status SsdTier::Acquire(GroupIndex group, std::span<SlotId> out) {
  return groups_[group].pool->Acquire(out);
}

void SsdTier::Release(GroupIndex group, std::span<const SlotId> released) {
  {
    MutexLock lock(&mu_);
    for (const SlotId slot : released) {
      SlotState& state = slots_[group][Raw(slot)];
      if (state.catalogued) released_.push_back({group, slot});
      state = SlotState();
      state.catalogued = false;
    }
  }
  // Last: from here on somebody else may have the slot, and its deletion is already queued.
  groups_[group].pool->Release(released);
}

void SsdTier::Forget(GroupIndex group, SlotId slot) {
  MutexLock lock(&mu_);
  SlotState& state = slots_[group][Raw(slot)];
  if (state.catalogued) released_.push_back({group, slot});
  state.catalogued = false;
  state.forgotten = true;
}

uint64_t SsdTier::incarnation() const { return store_->incarnation(); }

Status SsdTier::Recover(const std::function<void(const SpaceRecord&)>& space,
                        const std::function<void(const BlockRecord&, SlotId)>& block) {
  if (std::exchange(recovered_, true)) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState, "%s was recovered already",
                   info_.name.c_str());
  }
  const FileSizeSignalBlock no_signal;
  if (catalog_->attached()) {
    MutexLock lock(&mu_);
    for (std::vector<SlotState>& group : slots_) {
      for (SlotState& state : group) state.catalogued = false;
    }
  }
  const SsdCatalog::Recovered result = catalog_->Recover(space, [&](const SsdSlotRecord& found) {
    const GroupIndex group = found.record.group;
    if (group >= groups_.size() || Raw(found.slot) >= store_->old_slots(group)) return false;
    if (!groups_[group].pool->Hold(found.slot).ok()) return false;
    {
      MutexLock lock(&mu_);
      slots_[group][Raw(found.slot)] = {
          found.record.uid, found.record.key, found.generation, found.checksum, true, false, false};
    }
    block(found.record, found.slot);
    return true;
  });
  Count(kRecoveredRecords, result.records);
  Count(kDroppedRecords, result.dropped);
  return Status();
}

Status SsdTier::PutSpace(const SpaceRecord& space, bool sync) {
  if (space.identity.size() > kSsdIdentityBytesMax) {
    return ErrorF(StatusCode::kInvalidArgument, "space identity: %zu bytes, at most %llu",
                  space.identity.size(), static_cast<unsigned long long>(kSsdIdentityBytesMax));
  }
  // What was released before is gone for good once this is durable: an erase relies on it.
  if (sync) ApplyDeletes({});
  const MetaOp op{MetaOp::Kind::kPut, EncodeSpaceKey(space.number), EncodeSpaceValue(space)};
  Count(kSpacePuts);
  return catalog_->Apply(std::span(&op, 1), sync);
}

Status SsdTier::DropSpace(uint32_t number, bool sync) {
  const MetaOp op{MetaOp::Kind::kDelete, EncodeSpaceKey(number), {}};
  return catalog_->Apply(std::span(&op, 1), sync);
}

void SsdTier::ApplyDeletes(std::span<const SlotRef> overwritten) {
  std::vector<SlotRef> released;
  {
    MutexLock lock(&mu_);
    released.swap(released_);
  }
  if (released.empty() && overwritten.empty()) return;
  std::vector<MetaOp> ops;
  for (const std::span<const SlotRef> refs : {std::span<const SlotRef>(released), overwritten}) {
    for (const SlotRef& ref : refs)
      ops.push_back({MetaOp::Kind::kDelete, EncodeBlockKey(ref.group, ref.slot), {}});
  }
  if (catalog_->Apply(ops, /*sync=*/false).ok()) {
    Count(kCatalogDeletes, ops.size());
    return;
  }
  // What is about to be overwritten will fail its stale record's checksum. What was only released
  // must be made to.
  scrub_.insert(scrub_.end(), released.begin(), released.end());
}

void SsdTier::Scrub(size_t limit) {
  alignas(kSsdIoAlignment) static constexpr std::byte kZeros[kSsdIoAlignment] = {};
  std::vector<SlotRef> later;
  while (!scrub_.empty() && limit-- > 0) {
    const SlotRef ref = scrub_.back();
    scrub_.pop_back();
    bool writing = false;
    {
      MutexLock lock(&mu_);
      const SlotState& state = slots_[ref.group][Raw(ref.slot)];
      if (state.uid != 0 && !state.forgotten) continue;
      // What was forgotten is still being read.
      writing = state.writing || state.uid != 0;
    }
    if (writing) {
      later.push_back(ref);  // if that fails, the old bytes may still be there
      continue;
    }
    const uint64_t at = groups_[ref.group].geometry.slot_bytes * Raw(ref.slot);
    const int file = store_->data_fds()[ref.group];
    if (pwrite(file, kZeros, sizeof kZeros, static_cast<off_t>(at)) ==
        static_cast<ssize_t>(sizeof kZeros)) {
      Count(kScrubbedSlots);
    } else {
      Count(kIoErrors);
    }
  }
  scrub_.insert(scrub_.end(), later.begin(), later.end());
}

Status SsdTier::Shutdown() {
  if (shut_down_) return Status();
  if (in_flight() != 0) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                   "%s has %llu requests in flight", info_.name.c_str(),
                   static_cast<unsigned long long>(in_flight()));
  }
  shut_down_ = true;
  const FileSizeSignalBlock no_signal;
  ApplyDeletes({});
  Scrub(scrub_.size());
  const Status synced = store_->SyncData();
  const Status closed = catalog_->Close();
  return synced.ok() ? closed : synced;
}

void SsdTier::VisitStats(const StatVisitor& visit) const {
  static constexpr const char* kNames[kCounters] = {"ssd.reads",
                                                    "ssd.writes",
                                                    "ssd.bytes_read",
                                                    "ssd.bytes_written",
                                                    "ssd.checksum_failures",
                                                    "ssd.stale_reads",
                                                    "ssd.torn_reads",
                                                    "ssd.io_errors",
                                                    "ssd.io_retries",
                                                    "ssd.short_transfers",
                                                    "ssd.refused",
                                                    "ssd.stray_completions",
                                                    "ssd.recovered_records",
                                                    "ssd.dropped_records",
                                                    "ssd.catalog_puts",
                                                    "ssd.catalog_deletes",
                                                    "ssd.space_puts",
                                                    "ssd.scrubbed_slots"};
  std::string mode;
  std::string fallback;
  {
    MutexLock lock(&mu_);
    mode = io_mode_;
    fallback = io_fallback_;
  }
  visit("ssd.io_mode", 0, mode.c_str());
  visit("ssd.io_fallback", 0, fallback.c_str());
  visit("ssd.meta", catalog_->attached() ? 1 : 0, catalog_->state().c_str());
  visit("ssd.meta_reset", catalog_reset_.empty() ? 0 : 1, catalog_reset_.c_str());
  visit("ssd.incarnation", incarnation(), nullptr);
  visit("ssd.breaker_trips", breaker_.trips(), nullptr);
  visit("ssd.healthy", breaker_.healthy() ? 1 : 0, nullptr);
  for (size_t i = 0; i < kCounters; ++i)
    visit(kNames[i], counters_[i].load(std::memory_order_relaxed), nullptr);
}

}  // namespace fermata
