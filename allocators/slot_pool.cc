// SPDX-License-Identifier: Apache-2.0
#include "allocators/slot_pool.h"

#include <algorithm>
#include <new>

namespace fermata {

SlotPool::SlotPool(uint32_t capacity) : capacity_(capacity) {}

uint32_t SlotPool::FreeLocked() const {
  return capacity_ - static_cast<uint32_t>(place_.size() - free_.size());
}

Status SlotPool::Reserve(size_t count) {
  const size_t want = place_.size() + count;
  if (want <= std::min(place_.capacity(), free_.capacity())) return Status();
  // Doubled, so that growth is amortized.
  const size_t room = std::min<size_t>(std::max<size_t>({want, 2 * place_.size(), 64}), capacity_);
  try {
    place_.reserve(room);
    free_.reserve(room);
  } catch (const std::bad_alloc&) {
    return ErrorF(StatusCode::kResourceExhausted, "no memory for the books of %zu slots", room);
  }
  return Status();
}

Status SlotPool::Acquire(std::span<SlotId> out) {
  MutexLock lock(&mu_);
  if (out.size() > FreeLocked()) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace, "want %zu, free %u of %u",
                   out.size(), FreeLocked(), capacity_);
  }
  if (out.size() > free_.size()) FERMATA_RETURN_IF_ERROR(Reserve(out.size() - free_.size()));
  for (SlotId& slot : out) {
    if (free_.empty()) {
      slot = SlotId{static_cast<uint32_t>(place_.size())};
      place_.push_back(kHeld);
      continue;
    }
    const uint32_t number = free_.back();
    free_.pop_back();
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
    // else: released twice, or never acquired
    FERMATA_CHECK(number < place_.size() && place_[number] == kHeld);
    place_[number] = static_cast<uint32_t>(free_.size());
    free_.push_back(number);  // within what Reserve made
  }
}

Status SlotPool::Hold(SlotId slot) {
  const uint32_t number = Raw(slot);
  if (number >= capacity_) {
    return ErrorF(StatusCode::kOutOfRange, "slot %u of %u", number, capacity_);
  }
  MutexLock lock(&mu_);
  if (number >= place_.size()) {
    const auto first = static_cast<uint32_t>(place_.size());
    FERMATA_RETURN_IF_ERROR(Reserve(size_t{number} - first + 1));
    place_.resize(size_t{number} + 1, kHeld);
    for (uint32_t skipped = number; skipped-- > first;) {  // downwards: the lowest comes first
      place_[skipped] = static_cast<uint32_t>(free_.size());
      free_.push_back(skipped);
    }
    return Status();
  }
  const uint32_t place = place_[number];
  if (place == kHeld) return ErrorF(StatusCode::kAlreadyExists, "slot %u is held already", number);
  const uint32_t top = free_.back();
  free_.pop_back();
  if (top != number) {
    free_[place] = top;
    place_[top] = place;
  }
  place_[number] = kHeld;
  return Status();
}

uint32_t SlotPool::free() const {
  MutexLock lock(&mu_);
  return FreeLocked();
}

bool SlotPool::IsHeld(SlotId slot) const {
  MutexLock lock(&mu_);
  return Raw(slot) < place_.size() && place_[Raw(slot)] == kHeld;
}

void SlotPool::Validate() const {
  MutexLock lock(&mu_);
  FERMATA_CHECK(place_.size() <= capacity_);
  FERMATA_CHECK(free_.capacity() >= place_.size());
  size_t free_slots = 0;
  for (uint32_t number = 0; number < place_.size(); ++number) {
    if (place_[number] == kHeld) continue;
    FERMATA_CHECK(place_[number] < free_.size());
    FERMATA_CHECK(free_[place_[number]] == number);
    ++free_slots;
  }
  FERMATA_CHECK(free_slots == free_.size());
}

}  // namespace fermata
