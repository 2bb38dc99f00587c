// SPDX-License-Identifier: Apache-2.0
#include "allocators/slot_pool.h"

namespace fermata {

SlotPool::SlotPool(uint32_t capacity)
    : capacity_(capacity), free_(capacity), place_(capacity), free_count_(capacity) {
  for (uint32_t place = 0; place < capacity; ++place) {
    const uint32_t slot = capacity - 1 - place;  // the top of the stack is slot 0
    free_[place] = slot;
    place_[slot] = place;
  }
}

Status SlotPool::Acquire(std::span<SlotId> out) {
  MutexLock lock(&mu_);
  if (out.size() > free_count_) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace, "want %zu, free %u of %u",
                   out.size(), free_count_, capacity_);
  }
  for (SlotId& slot : out) {
    const uint32_t number = free_[--free_count_];
    place_[number] = kHeld;
    slot = SlotId{number};
  }
  return Status();
}

void SlotPool::Release(std::span<const SlotId> slots) {
  MutexLock lock(&mu_);
  for (const SlotId slot : slots) {
    const uint32_t number = Raw(slot);
    FERMATA_CHECK(number < capacity_);
    FERMATA_CHECK(place_[number] == kHeld);  // else: released twice
    place_[number] = free_count_;
    free_[free_count_++] = number;
  }
}

Status SlotPool::Hold(SlotId slot) {
  const uint32_t number = Raw(slot);
  if (number >= capacity_) {
    return ErrorF(StatusCode::kOutOfRange, "slot %u of %u", number, capacity_);
  }
  MutexLock lock(&mu_);
  const uint32_t place = place_[number];
  if (place == kHeld) return ErrorF(StatusCode::kAlreadyExists, "slot %u is held already", number);
  const uint32_t top = free_[--free_count_];
  free_[place] = top;
  place_[top] = place;
  place_[number] = kHeld;  // last: `top` may be `number` itself
  return Status();
}

uint32_t SlotPool::free() const {
  MutexLock lock(&mu_);
  return free_count_;
}

bool SlotPool::IsHeld(SlotId slot) const {
  if (Raw(slot) >= capacity_) return false;
  MutexLock lock(&mu_);
  return place_[Raw(slot)] == kHeld;
}

void SlotPool::Validate() const {
  MutexLock lock(&mu_);
  uint32_t free_slots = 0;
  for (uint32_t number = 0; number < capacity_; ++number) {
    if (place_[number] == kHeld) continue;
    FERMATA_CHECK(place_[number] < free_count_);
    FERMATA_CHECK(free_[place_[number]] == number);
    ++free_slots;
  }
  FERMATA_CHECK(free_slots == free_count_);
}

}  // namespace fermata
