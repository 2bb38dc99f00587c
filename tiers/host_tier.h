// SPDX-License-Identifier: Apache-2.0
//
// HostTier: slots in one piece of host memory, each block_bytes rounded up to 4096, so that a disk
// can read and write them in place. It is memory and is trusted: no checksum, no identity,
// `TierIo::record` is ignored.
//
// Threads: as tiers/tier.h says. Map: any thread.
// Cost: Submit copies the block, nothing when the buffer is the slot itself;
// Poll O(completions). Invariants: the slots of all groups lie one after the other in memory(), and
// never overlap.
#pragma once

#include <memory>
#include <vector>

#include "allocators/host_pool.h"
#include "tiers/completion_queue.h"
#include "tiers/slot_books.h"
#include "tiers/tier.h"

namespace fermata {

class HostTier final : public Tier {
 public:
  static constexpr size_t kQueueDepth = 1024;

  // `pool` outlives the tier. INVALID_ARGUMENT for groups that have no bytes or too many, else what
  // the pool answers.
  static Result<std::unique_ptr<HostTier>> Create(uint32_t ordinal, std::vector<TierGroup> groups,
                                                  HostPool* pool);
  ~HostTier() override;
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // All slots together, to be registered with a device in one piece.
  std::span<std::byte> memory() const { return memory_; }

  const TierInfo& info() const override { return info_; }
  uint64_t slots(GroupIndex group) const override { return books_.slots(group); }
  uint64_t free_slots(GroupIndex group) const override { return books_.free_slots(group); }
  Status Acquire(GroupIndex group, std::span<SlotId> out) override {
    return books_.Acquire(group, out);
  }
  void Release(GroupIndex group, std::span<const SlotId> slots) override {
    books_.Release(group, slots);
  }
  std::byte* Map(GroupIndex group, SlotId slot) override;
  size_t Submit(std::span<const TierIo> batch) override;
  size_t Poll(std::span<TierCompletion> out) override { return done_.Take(out); }
  uint64_t in_flight() const override { return done_.size(); }
  void VisitStats(const StatVisitor& visit) const override;

 private:
  HostTier(uint32_t ordinal, std::vector<TierGroup> groups, std::vector<uint64_t> starts,
           HostPool* pool, std::span<std::byte> memory);

  const TierInfo info_;
  const std::vector<TierGroup> groups_;
  const std::vector<uint64_t> starts_;  // of each group, in memory_
  HostPool* const pool_;
  const std::span<std::byte> memory_;
  SlotBooks books_;
  CompletionQueue done_{kQueueDepth};
  // Relaxed: counts only.
  std::atomic<uint64_t> reads_{0};
  std::atomic<uint64_t> writes_{0};
};

}  // namespace fermata
