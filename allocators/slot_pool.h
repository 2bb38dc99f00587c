// SPDX-License-Identifier: Apache-2.0
//
// SlotPool hands out the slots of one arena by number. It does not know the bytes behind a slot,
// tiers, or policy: whom to evict is decided above, and a full pool just says so.
//
// Thread safety: any thread, any method. One mutex, never held across a call out.
// Cost: construction is O(1) at any capacity. Acquire and Release are O(slots moved). Hold is O(1)
// amortized over Holds in a row, O(slots ever in use) for the first after an Acquire or Release.
// One bit for each slot up to the highest that was ever in use, and 4 bytes for as many as were
// ever free at a time. Acquire and Hold may allocate, Release does not. Invariants (see Validate):
// a slot is free or held, never both; free + held == capacity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"

namespace fermata {

class SlotPool {
 public:
  // SlotId::kNone is not a slot, so that `capacity` is at most 0xffffffff and the last slot
  // 0xfffffffe.
  explicit SlotPool(uint32_t capacity);

  // Fills all of `out`, or takes nothing and answers RESOURCE_EXHAUSTED/NO_SPACE. The slot freed
  // last comes first, because its memory is the warmest; when there is none, the lowest that was
  // never in use.
  Status Acquire(std::span<SlotId> out) FERMATA_EXCLUDES(mu_);

  // Gives slots back. Each must be held and be named once: a double release would give one slot to
  // two owners.
  void Release(std::span<const SlotId> slots) FERMATA_EXCLUDES(mu_);

  // Marks one given slot as held, for recovery from a durable record: ALREADY_EXISTS when it is
  // held, OUT_OF_RANGE when the pool has no such slot (the record comes from a disk),
  // RESOURCE_EXHAUSTED without memory. Changes the order in which the other free slots come.
  Status Hold(SlotId slot) FERMATA_EXCLUDES(mu_);

  uint32_t capacity() const { return capacity_; }
  uint32_t free() const FERMATA_EXCLUDES(mu_);
  bool IsHeld(SlotId slot) const FERMATA_EXCLUDES(mu_);  // False for a slot out of range.

  // Walks all that was ever in use; for tests and audits.
  void Validate() const FERMATA_EXCLUDES(mu_);

 private:
  // Room for `count` slots more in both arrays, so that what follows cannot fail half way.
  Status Reserve(size_t count) FERMATA_REQUIRES(mu_);
  uint32_t FreeLocked() const FERMATA_REQUIRES(mu_);
  bool HeldLocked(uint32_t number) const FERMATA_REQUIRES(mu_);
  uint64_t& Bits(uint32_t number) FERMATA_REQUIRES(mu_) { return held_[number / 64]; }
  static uint64_t Bit(uint32_t number) { return uint64_t{1} << (number % 64); }

  const uint32_t capacity_;
  mutable Mutex mu_;
  // Slots from here on were never in use: they are free without being written down anywhere, since
  // an arena may have 2^31 of them.
  uint32_t ever_used_ FERMATA_GUARDED_BY(mu_) = 0;
  std::vector<uint32_t> free_ FERMATA_GUARDED_BY(mu_);   // a stack of slots that were in use
  std::vector<uint64_t> held_ FERMATA_GUARDED_BY(mu_);   // one bit a slot: refuses a second release
  std::vector<uint32_t> place_ FERMATA_GUARDED_BY(mu_);  // slot -> its place in free_: Hold's alone
};

}  // namespace fermata
