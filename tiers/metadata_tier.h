// SPDX-License-Identifier: Apache-2.0
//
// MetadataTier: a tier of any kind that keeps the books of its slots and no bytes: every request
// completes OK at the next Poll. For metadata-only caches, which decide everything as a real one
// would and move nothing.
//
// As an ssd it is kTierDurable (residency is kept closed under parents, as on a real one) with
// nothing to recover: its contents end with the process.
//
// Threads: as tiers/tier.h says. Cost: O(1) a request.
#pragma once

#include <vector>

#include "tiers/completion_queue.h"
#include "tiers/slot_books.h"
#include "tiers/tier.h"

namespace fermata {

class MetadataTier final : public Tier {
 public:
  static constexpr size_t kQueueDepth = 1024;

  // REQUIRES: SlotBooks::CheckGroups(groups).ok().
  MetadataTier(TierKind kind, uint32_t ordinal, std::vector<TierGroup> groups);

  const TierInfo& info() const override { return info_; }
  uint64_t slots(GroupIndex group) const override { return books_.slots(group); }
  uint64_t free_slots(GroupIndex group) const override { return books_.free_slots(group); }
  Status Acquire(GroupIndex group, std::span<SlotId> out) override {
    return books_.Acquire(group, out);
  }
  void Release(GroupIndex group, std::span<const SlotId> slots) override {
    books_.Release(group, slots);
  }
  size_t Submit(std::span<const TierIo> batch) override;
  size_t Poll(std::span<TierCompletion> out) override { return done_.Take(out); }
  uint64_t in_flight() const override { return done_.size(); }
  void VisitStats(const StatVisitor& visit) const override;

 private:
  const TierInfo info_;
  SlotBooks books_;
  CompletionQueue done_{kQueueDepth};
  // Relaxed: counts only.
  std::atomic<uint64_t> reads_{0};
  std::atomic<uint64_t> writes_{0};
};

}  // namespace fermata
