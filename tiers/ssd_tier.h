// SPDX-License-Identifier: Apache-2.0
//
// SsdTier: slots in a preallocated file, one I/O per block, every read checked against a checksum
// seeded with the block's key and the write's generation, and a catalog that makes it warm after a
// restart. It does not know prefixes or policies, does not choose slots for locality, and does not
// bound how long an I/O takes (a hung disk hangs the job until it answers).
//
// Order of a write, which is what makes a kill at any point safe: the catalog forgets the slot ->
// data -> full completion -> record in the catalog -> completion to the caller. Nothing is synced
// but spaces on demand: after a power cut a record whose bytes did not make it fails its checksum.
//
// Threads: as tiers/tier.h says. mu_ guards what slots hold and is never held over I/O, the
// catalog, or the log. Cost: Acquire and Release O(slots), no I/O. Submit: one checksum per write,
// one catalog batch per call that overwrites. RAM: 64 bytes a slot, and for blocks that are no
// multiple of 4096 one buffer per request in flight. Invariant: a slot whose SlotState::uid is 0 is
// not readable; generation never repeats in the life of a store.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "allocators/slot_pool.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "tiers/ssd_block_device.h"
#include "tiers/ssd_breaker.h"
#include "tiers/ssd_format.h"
#include "tiers/ssd_meta_store.h"
#include "tiers/tier.h"

namespace fermata {

class SsdCatalog;
class SsdStore;

struct SsdTierOptions {
  std::string directory;  // created 0700 if its last component is missing
  uint32_t ordinal = 0;
  std::vector<TierGroup> groups;  // 1..16; block_bytes 1..1 GiB
  uint32_t io_depth = 32;         // 1..1024 requests in flight
  bool direct_io = true;
  bool io_uring = true;
  std::vector<std::span<std::byte>>
      fixed_buffers;  // memory that blocks come from; registered with the ring when possible
  const Clock* clock = nullptr;  // null: the system's
  LogSink log;
  // Seams; empty: the real ones.
  BlockDeviceFactory make_device;
  std::function<Result<std::unique_ptr<MetaStore>>(const std::string& directory)> make_meta;
};

class SsdTier final : public Tier {
 public:
  // INVALID_ARGUMENT (field named), INVALID_ARGUMENT/BAD_LAYOUT, FAILED_PRECONDITION/IN_USE,
  // FAILED_PRECONDITION (another format version, a link), RESOURCE_EXHAUSTED/NO_SPACE, DATA_LOSS
  // (superblock), PERMISSION_DENIED, UNAVAILABLE (I/O).
  static Result<std::unique_ptr<SsdTier>> Create(SsdTierOptions options);
  ~SsdTier() override;

  const TierInfo& info() const override { return info_; }
  uint64_t slots(GroupIndex group) const override;
  uint64_t free_slots(GroupIndex group) const override;
  Status Acquire(GroupIndex group, std::span<SlotId> out) override;
  void Release(GroupIndex group, std::span<const SlotId> slots) override FERMATA_EXCLUDES(mu_);
  void Forget(GroupIndex group, SlotId slot) override FERMATA_EXCLUDES(mu_);
  size_t Submit(std::span<const TierIo> batch) override FERMATA_EXCLUDES(mu_);
  size_t Poll(std::span<TierCompletion> out) override FERMATA_EXCLUDES(mu_);
  uint64_t in_flight() const override { return in_flight_.load(std::memory_order_acquire); }
  // Wakes for completions that come by themselves; those that Submit made itself are ready for Poll
  // right after it.
  int completion_fd() const override;
  bool healthy() const override { return breaker_.healthy(); }

  uint64_t incarnation() const override;
  Status Recover(const std::function<void(const SpaceRecord&)>& space,
                 const std::function<void(const BlockRecord&, SlotId)>& block) override
      FERMATA_EXCLUDES(mu_);
  Status PutSpace(const SpaceRecord& space, bool sync) override;
  Status DropSpace(uint32_t number, bool sync) override;
  Status Shutdown() override FERMATA_EXCLUDES(mu_);
  void VisitStats(const StatVisitor& visit) const override FERMATA_EXCLUDES(mu_);

 private:
  struct SlotState {
    uint64_t uid = 0;  // 0: nothing readable
    Hash128 key;
    uint64_t generation = 0;
    uint64_t checksum = 0;
    // The catalog holds a record of exactly what lies in the slot, or may hold one (before
    // Recover).
    bool catalogued = true;
    bool writing = false;
    bool forgotten = false;  // no record from now on until the slot is released
  };
  struct SlotRef {
    GroupIndex group;
    SlotId slot;
  };
  struct BufferFree {
    void operator()(std::byte* p) const {
      ::operator delete[](p, std::align_val_t{kSsdIoAlignment});
    }
  };
  using Buffer = std::unique_ptr<std::byte[], BufferFree>;
  struct Group {
    SsdGroupGeometry geometry;
    std::unique_ptr<SlotPool> pool;
    std::vector<Buffer> bounce;  // idle ones; executor's thread
  };
  // One accepted TierIo on its way. Executor's thread only.
  struct Request {
    TierIo io;
    Buffer bounce;  // used in place of io.buffer when that is unaligned or shorter than the slot
    uint64_t generation = 0;
    uint64_t checksum = 0;
    uint32_t done = 0;      // bytes moved so far
    uint32_t retries = 0;   // of any kind, at most kRetriesMax
    uint32_t sequence = 0;  // tells this use of the entry from earlier ones
    bool active = false;
    bool on_device = false;
  };
  enum Counter : size_t {
    kReads,
    kWrites,
    kBytesRead,
    kBytesWritten,
    kChecksumFailures,
    kStaleReads,
    kTornReads,
    kIoErrors,
    kRetries,
    kShortTransfers,
    kRefused,
    kStrayCompletions,
    kRecoveredRecords,
    kDroppedRecords,
    kCatalogPuts,
    kCatalogDeletes,
    kSpacePuts,
    kScrubbedSlots,
    kCounters
  };

  SsdTier(SsdTierOptions options, std::unique_ptr<SsdStore> store,
          std::unique_ptr<SsdCatalog> catalog, std::string catalog_reset);

  // ssd_tier.cc
  void OpenDevice();
  void NoteMode(const std::string& fallback) FERMATA_EXCLUDES(mu_);
  void Count(Counter counter, uint64_t by = 1) {
    counters_[counter].fetch_add(by, std::memory_order_relaxed);
  }
  void ApplyDeletes(std::span<const SlotRef> overwritten) FERMATA_EXCLUDES(mu_);
  void Scrub(size_t limit) FERMATA_EXCLUDES(mu_);

  // ssd_tier_io.cc; executor's thread
  void BeginWrites(std::span<const TierIo> batch) FERMATA_EXCLUDES(mu_);
  Status Start(Request* request) FERMATA_EXCLUDES(mu_);
  Status StartRead(Request* request) FERMATA_EXCLUDES(mu_);
  Status StartWrite(Request* request) FERMATA_EXCLUDES(mu_);
  Status TakeBounce(Request* request);
  void PumpDevice();
  void SwitchToPread(const std::string& why);
  void Reap(BlockDevice* device);
  void OnResult(const BlockCompletion& completion);
  void FailIo(uint32_t index, int error);
  void RetryOr(uint32_t index, Status failure);
  void FinishRead(uint32_t index);
  void FinishIo(uint32_t index, Status status) FERMATA_EXCLUDES(mu_);
  void PublishWrites() FERMATA_EXCLUDES(mu_);

  const SsdTierOptions options_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  const TierInfo info_;
  const std::unique_ptr<SsdStore> store_;
  const std::unique_ptr<SsdCatalog> catalog_;
  const std::string catalog_reset_;  // why an unreadable catalog was moved aside at open
  std::vector<Group> groups_;

  // Executor's thread.
  std::unique_ptr<BlockDevice> device_;
  BlockDeviceKind device_kind_ = BlockDeviceKind::kUring;
  std::unique_ptr<BlockDevice>
      retired_;                    // an io_uring that turned out not to work, until it has drained
  std::vector<Request> requests_;  // io_depth of them
  std::vector<uint32_t> free_requests_;
  std::vector<uint32_t> to_submit_;  // requests for the device, new and retried
  std::vector<uint32_t> written_;    // complete on the device, not yet in the catalog
  std::vector<BlockIo> batch_;       // scratch of PumpDevice
  std::vector<TierCompletion> ready_;
  std::vector<SlotRef> scrub_;  // released slots whose record the catalog would not drop
  uint64_t next_generation_;
  SsdBreaker breaker_;
  bool recovered_ = false;
  bool shut_down_ = false;
  std::atomic<uint64_t> in_flight_{0};

  std::array<std::atomic<uint64_t>, kCounters> counters_{};

  mutable Mutex mu_;
  std::vector<std::vector<SlotState>> slots_ FERMATA_GUARDED_BY(mu_);  // by group and slot
  std::vector<SlotRef> released_
      FERMATA_GUARDED_BY(mu_);  // records the catalog has to forget; a slot at most once
  std::string io_mode_ FERMATA_GUARDED_BY(mu_);
  std::string io_fallback_ FERMATA_GUARDED_BY(mu_);  // every reason so far
};

}  // namespace fermata
