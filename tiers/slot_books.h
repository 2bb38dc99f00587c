// SPDX-License-Identifier: Apache-2.0
//
// SlotBooks: one SlotPool per group, for tiers whose slots are all there from the start. It does
// not know bytes or records.
//
// Threads: any. Cost: that of SlotPool. A group out of range is a bug of ours and stops the
// process.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "allocators/slot_pool.h"
#include "tiers/tier.h"

namespace fermata {

class SlotBooks {
 public:
  // REQUIRES: CheckGroups(groups).ok().
  explicit SlotBooks(std::span<const TierGroup> groups);

  // INVALID_ARGUMENT when a group has no bytes a block or more slots than can be numbered.
  static Status CheckGroups(std::span<const TierGroup> groups);

  size_t groups() const { return pools_.size(); }
  uint64_t slots(GroupIndex group) const { return pool(group).capacity(); }
  uint64_t free_slots(GroupIndex group) const { return pool(group).free(); }
  Status Acquire(GroupIndex group, std::span<SlotId> out) { return pool(group).Acquire(out); }
  void Release(GroupIndex group, std::span<const SlotId> slots) { pool(group).Release(slots); }
  bool IsHeld(GroupIndex group, SlotId slot) const { return pool(group).IsHeld(slot); }

 private:
  SlotPool& pool(GroupIndex group) const {
    FERMATA_CHECK(group < pools_.size());
    return *pools_[group];
  }

  std::vector<std::unique_ptr<SlotPool>> pools_;
};

// "host:0"
std::string TierName(TierKind kind, uint32_t ordinal);

}  // namespace fermata
