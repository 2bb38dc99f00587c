// SPDX-License-Identifier: Apache-2.0
#include "allocators/slot_pool.h"

#include <algorithm>
#include <new>

namespace fermata {

SlotPool::SlotPool(uint32_t capacity) : capacity_(capacity) {}

uint32_t SlotPool::FreeLocked() const {
  return capacity_ - (ever_used_ - static_cast<uint32_t>(free_.size()));
}

Status SlotPool::Reserve(size_t count) {
  const size_t want = ever_used_ + count;
  if (want <= std::min(64 * held_.size(), free_.capacity())) return Status();
  // Doubled, so that growth is amortized.
  const size_t room =
      std::min<size_t>(std::max<size_t>({want, 2 * size_t{ever_used_}, 64}), capacity_);
  try {
    held_.resize((room + 63) / 64);
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
  place_.clear();
  for (SlotId& slot : out) {
    uint32_t number = ever_used_;
    if (free_.empty()) {
      ++ever_used_;
    } else {
      number = free_.back();
      free_.pop_back();
    }
    Bits(number) |= Bit(number);
    slot = SlotId{number};
  }
  return Status();
}

void SlotPool::Release(std::span<const SlotId> slots) {
  MutexLock lock(&mu_);
  place_.clear();
  for (const SlotId slot : slots) {
    const uint32_t number = Raw(slot);
    FERMATA_CHECK(number < capacity_);
    FERMATA_CHECK(HeldLocked(number));  // else: released twice, or never acquired
    Bits(number) &= ~Bit(number);
    free_.push_back(number);  // within what Reserve made
  }
}

Status SlotPool::Hold(SlotId slot) {
  const uint32_t number = Raw(slot);
  if (number >= capacity_) {
    return ErrorF(StatusCode::kOutOfRange, "slot %u of %u", number, capacity_);
  }
  MutexLock lock(&mu_);
  if (HeldLocked(number))
    return ErrorF(StatusCode::kAlreadyExists, "slot %u is held already", number);
  if (number >= ever_used_) {
    const uint32_t first = ever_used_;
    FERMATA_RETURN_IF_ERROR(Reserve(size_t{number} - first + 1));
    const bool placed = place_.size() == first;
    for (uint32_t skipped = number; skipped-- > first;) free_.push_back(skipped);  // lowest first
    if (placed) {
      place_.resize(size_t{number} + 1);
      for (size_t i = free_.size() - (number - first); i < free_.size(); ++i)
        place_[free_[i]] = static_cast<uint32_t>(i);
    }
    ever_used_ = number + 1;
    Bits(number) |= Bit(number);
    return Status();
  }
  if (place_.size() != ever_used_) {
    try {
      place_.resize(ever_used_);
    } catch (const std::bad_alloc&) {
      return ErrorF(StatusCode::kResourceExhausted, "no memory to find slot %u", number);
    }
    for (size_t i = 0; i < free_.size(); ++i) place_[free_[i]] = static_cast<uint32_t>(i);
  }
  const uint32_t place = place_[number];
  const uint32_t top = free_.back();
  free_.pop_back();
  if (top != number) {
    free_[place] = top;
    place_[top] = place;
  }
  Bits(number) |= Bit(number);
  return Status();
}

uint32_t SlotPool::free() const {
  MutexLock lock(&mu_);
  return FreeLocked();
}

bool SlotPool::IsHeld(SlotId slot) const {
  MutexLock lock(&mu_);
  return HeldLocked(Raw(slot));
}

bool SlotPool::HeldLocked(uint32_t number) const {
  return number < ever_used_ && (held_[number / 64] & Bit(number)) != 0;
}

void SlotPool::Validate() const {
  MutexLock lock(&mu_);
  FERMATA_CHECK(ever_used_ <= capacity_);
  FERMATA_CHECK(free_.capacity() >= ever_used_ && 64 * held_.size() >= ever_used_);
  std::vector<bool> seen(ever_used_);
  for (const uint32_t number : free_) {
    FERMATA_CHECK(number < ever_used_ && !seen[number] && !HeldLocked(number));
    seen[number] = true;
  }
  size_t held = 0;
  for (uint32_t number = 0; number < ever_used_; ++number) held += HeldLocked(number) ? 1 : 0;
  FERMATA_CHECK(held + free_.size() == ever_used_);
}

}  // namespace fermata
