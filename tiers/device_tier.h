// SPDX-License-Identifier: Apache-2.0
//
// DeviceTier: the slots of the arenas that the engine registered, and copies in and out of them
// through DeviceOps. The engine owns the memory; a group has no slots until its arena is there. A
// device slot carries no identity (its bytes are the engine's to write), so `TierIo::record` is
// ignored: whose block lies where is known by the cache's books only.
//
// Threads: as tiers/tier.h says; RegisterArena and UnregisterArena from any thread. No lock is held
// while DeviceOps is called. Cost: Submit is one CopySubmit a block, with one run per region: a
// block has tens of runs (K and V of each layer), which is batch enough, and the block that fails
// is known by itself. Poll asks about each ticket in flight. Invariants: a copy starts only if its
// slot is held; an arena leaves only when no slot of it is held and no copy is in flight.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "allocators/slot_pool.h"
#include "base/mutex.h"
#include "tiers/device_ops.h"
#include "tiers/tier.h"

namespace fermata {

// Slot i lies at base + i * slot_stride.
struct DeviceRegion {
  std::byte* base;
  uint64_t slot_bytes;
  uint64_t slot_stride;
};

class DeviceTier final : public Tier {
 public:
  static constexpr size_t kMaxInFlight = 1024;

  // `metadata_only`: no byte is moved, bases and buffers may be null, `ops` serves events only (it
  // may be null as well).
  DeviceTier(uint32_t ordinal, std::vector<uint64_t> block_bytes_per_group,
             std::unique_ptr<DeviceOps> ops, bool metadata_only);
  ~DeviceTier() override;

  // INVALID_ARGUMENT (BAD_LAYOUT where sizes disagree, or slots share bytes with each other or with
  // another arena of this device) naming the field, ALREADY_EXISTS. Touches no memory of the arena.
  Status RegisterArena(GroupIndex group, std::span<const DeviceRegion> regions, uint32_t slots)
      FERMATA_EXCLUDES(mu_);
  // FAILED_PRECONDITION/IN_USE while slots are held or copies are in flight, NOT_FOUND when there
  // is no arena.
  Status UnregisterArena(GroupIndex group) FERMATA_EXCLUDES(mu_);
  bool HasArena(GroupIndex group) const FERMATA_EXCLUDES(mu_);

  // Where a slot begins, from its region's base. REQUIRES: all three are in range.
  uint64_t OffsetOf(GroupIndex group, size_t region, SlotId slot) const FERMATA_EXCLUDES(mu_);
  DeviceOps* ops() { return ops_.get(); }

  const TierInfo& info() const override { return info_; }
  uint64_t slots(GroupIndex group) const override FERMATA_EXCLUDES(mu_);
  uint64_t free_slots(GroupIndex group) const override FERMATA_EXCLUDES(mu_);
  Status Acquire(GroupIndex group, std::span<SlotId> out) override FERMATA_EXCLUDES(mu_);
  void Release(GroupIndex group, std::span<const SlotId> slots) override FERMATA_EXCLUDES(mu_);
  size_t Submit(std::span<const TierIo> batch) override FERMATA_EXCLUDES(mu_);
  size_t Poll(std::span<TierCompletion> out) override FERMATA_EXCLUDES(mu_);
  uint64_t in_flight() const override { return in_flight_.load(std::memory_order_relaxed); }
  void VisitStats(const StatVisitor& visit) const override;

 private:
  struct Arena {
    Arena(std::vector<DeviceRegion> the_regions, uint32_t slots)
        : regions(std::move(the_regions)), pool(slots) {}
    const std::vector<DeviceRegion> regions;
    SlotPool pool;
    uint64_t copies = 0;  // in flight
  };
  struct Copy {
    uint64_t cookie;
    uint64_t ticket;
    GroupIndex group;
    bool is_read;
    bool started;  // false: `status` says why not
    Status status;
  };

  Status CheckApartFromOthers(std::span<const DeviceRegion> regions, uint32_t slots) const
      FERMATA_REQUIRES(mu_);
  // Runs of `io` into runs_; counts the copy against its arena.
  void Prepare(const TierIo& io) FERMATA_EXCLUDES(mu_);
  void Finish(const Copy& copy, const Status& status) FERMATA_EXCLUDES(mu_);

  const TierInfo info_;
  const std::vector<uint64_t> block_bytes_;
  const std::unique_ptr<DeviceOps> ops_;
  const bool metadata_only_;

  mutable Mutex mu_;  // before the mutex of a SlotPool
  std::vector<std::unique_ptr<Arena>> arenas_ FERMATA_GUARDED_BY(mu_);  // by group; null: none

  // The executor's thread only.
  std::vector<Copy> copies_;  // in the order of their tickets
  std::vector<CopyRun> runs_;
  uint64_t next_ticket_;

  // Relaxed: counts for whoever wants to know; nothing is published through them.
  std::atomic<uint64_t> in_flight_{0};
  std::atomic<uint64_t> reads_{0};
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> errors_{0};
};

}  // namespace fermata
