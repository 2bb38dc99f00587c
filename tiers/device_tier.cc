// SPDX-License-Identifier: Apache-2.0
#include "tiers/device_tier.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "tiers/slot_books.h"

namespace fermata {
namespace {

using Ull = unsigned long long;
// Products of 64-bit strides and 32-bit numbers of slots.
__extension__ using U128 = unsigned __int128;

Status CheckRegion(size_t index, const DeviceRegion& region, uint32_t slots, bool metadata_only) {
  if (region.base == nullptr && !metadata_only) {
    return ErrorF(StatusCode::kInvalidArgument, "regions[%zu].base: null", index);
  }
  if (region.slot_bytes == 0) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout, "regions[%zu].slot_bytes: 0",
                   index);
  }
  if (region.slot_stride < region.slot_bytes) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                   "regions[%zu].slot_stride: %llu is less than slot_bytes %llu", index,
                   Ull{region.slot_stride}, Ull{region.slot_bytes});
  }
  uint64_t bytes = 0;
  uint64_t end = 0;
  if (__builtin_mul_overflow(region.slot_stride, uint64_t{slots}, &bytes) ||
      __builtin_add_overflow(uint64_t{reinterpret_cast<uintptr_t>(region.base)}, bytes, &end)) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "regions[%zu]: %u slots of stride %llu from %p pass the end of 64 bits", index,
                  slots, Ull{region.slot_stride}, static_cast<const void*>(region.base));
  }
  return Status();
}

// The smallest k >= 0 with low <= a * k mod m <= high, or none. 0 < low <= high < m. As Euclid's
// algorithm: logarithmic in m.
std::optional<U128> FirstMultipleIn(U128 a, U128 m, U128 low, U128 high) {
  a %= m;
  if (a == 0) return std::nullopt;
  if (2 * a > m) return FirstMultipleIn(m - a, m, m - high, m - low);
  const U128 k = (low + a - 1) / a;
  if (k * a <= high) return k;
  // No multiple of a lies in the range itself: go round m as often as it takes.
  const std::optional<U128> rounds = FirstMultipleIn(a - m % a, a, low % a, high % a);
  if (!rounds) return std::nullopt;
  return (low + m * *rounds + a - 1) / a;
}

// The slots of one region, `slots` times [base + k * stride, + bytes).
struct Strided {
  Strided(const DeviceRegion& region, uint32_t the_slots)
      : base(reinterpret_cast<uintptr_t>(region.base)),
        bytes(region.slot_bytes),
        stride(region.slot_stride),
        slots(the_slots) {}
  U128 end() const { return base + stride * (slots - 1) + bytes; }
  U128 base;
  U128 bytes;
  U128 stride;
  U128 slots;
};

// Whether some slot of one has a byte of some slot of the other. Exact at any strides: K and V may
// lie in each other's gaps. REQUIRES: low.base <= high.base.
bool ShareBytes(const Strided& low, const Strided& high) {
  if (high.base >= low.end()) return false;
  // Slot k of `high` meets slot m of `low` when 0 <= at + k * high.stride - m * low.stride <
  // window.
  const U128 window = low.bytes + high.bytes - 1;
  if (window >= low.stride) return true;  // no gap of `low` is wide enough
  const U128 at = high.base - low.base + high.bytes - 1;
  U128 k = 0;
  if (at % low.stride >= window) {
    const U128 from = low.stride - at % low.stride;
    const std::optional<U128> first =
        FirstMultipleIn(high.stride, low.stride, from, from + window - 1);
    if (!first) return false;
    k = *first;
  }
  // m grows with k: if the first is past the end of `low`, so are the others.
  return k < high.slots && (at + k * high.stride) / low.stride < low.slots;
}

bool Overlap(const Strided& a, const Strided& b) {
  return a.base <= b.base ? ShareBytes(a, b) : ShareBytes(b, a);
}

Status CheckApart(std::span<const DeviceRegion> regions, uint32_t slots) {
  std::vector<size_t> order(regions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::less<>()(regions[a].base, regions[b].base); });
  for (size_t i = 0; i < order.size(); ++i) {
    const Strided one(regions[order[i]], slots);
    for (size_t j = i + 1; j < order.size(); ++j) {
      const Strided other(regions[order[j]], slots);
      if (other.base >= one.end()) break;
      if (!ShareBytes(one, other)) continue;
      return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                     "regions[%zu] and regions[%zu] overlap: two blocks would share bytes",
                     std::min(order[i], order[j]), std::max(order[i], order[j]));
    }
  }
  return Status();
}

}  // namespace

DeviceTier::DeviceTier(uint32_t ordinal, std::vector<uint64_t> block_bytes_per_group,
                       std::unique_ptr<DeviceOps> ops, bool metadata_only)
    : info_{TierKind::kDevice, ordinal,
            metadata_only ? static_cast<uint32_t>(kTierNoBytes) : uint32_t{0},
            TierName(TierKind::kDevice, ordinal)},
      block_bytes_(std::move(block_bytes_per_group)),
      ops_(std::move(ops)),
      metadata_only_(metadata_only),
      arenas_(block_bytes_.size()),
      next_ticket_((uint64_t{ordinal} << 48) +
                   1) {  // tickets of two devices never meet in one `user`
  FERMATA_CHECK(ops_ != nullptr || metadata_only_);
  copies_.reserve(kMaxInFlight);
}

DeviceTier::~DeviceTier() {
  // A copy in flight would go on writing into memory that the engine takes back after this.
  FERMATA_CHECK(in_flight() == 0);
}

Status DeviceTier::RegisterArena(GroupIndex group, std::span<const DeviceRegion> regions,
                                 uint32_t slots) {
  if (group >= block_bytes_.size()) {
    return ErrorF(StatusCode::kInvalidArgument, "group: %u of %zu", unsigned{group},
                  block_bytes_.size());
  }
  if (slots == 0 || slots == Raw(SlotId::kNone)) {
    return ErrorF(StatusCode::kInvalidArgument, "slots: %u", slots);
  }
  if (regions.empty()) return ErrorF(StatusCode::kInvalidArgument, "regions: none");
  uint64_t sum = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    FERMATA_RETURN_IF_ERROR(CheckRegion(i, regions[i], slots, metadata_only_));
    if (__builtin_add_overflow(sum, regions[i].slot_bytes, &sum)) {
      return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                     "regions: the sum of slot_bytes passes 64 bits at regions[%zu]", i);
    }
  }
  if (sum != block_bytes_[group]) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                   "regions: slot_bytes add up to %llu, group %u has block_bytes %llu", Ull{sum},
                   unsigned{group}, Ull{block_bytes_[group]});
  }
  // Without bytes, bases are not addresses.
  if (!metadata_only_) FERMATA_RETURN_IF_ERROR(CheckApart(regions, slots));
  {
    MutexLock lock(&mu_);
    if (arenas_[group] == nullptr) {
      if (!metadata_only_) FERMATA_RETURN_IF_ERROR(CheckApartFromOthers(regions, slots));
      arenas_[group] =
          std::make_unique<Arena>(std::vector<DeviceRegion>(regions.begin(), regions.end()), slots);
      return Status();
    }
  }
  return ErrorF(StatusCode::kAlreadyExists, "group: %u has an arena already", unsigned{group});
}

Status DeviceTier::CheckApartFromOthers(std::span<const DeviceRegion> regions,
                                        uint32_t slots) const {
  for (size_t group = 0; group < arenas_.size(); ++group) {
    if (arenas_[group] == nullptr) continue;
    const Arena& arena = *arenas_[group];
    for (size_t i = 0; i < regions.size(); ++i) {
      for (size_t j = 0; j < arena.regions.size(); ++j) {
        if (!Overlap(Strided(regions[i], slots), Strided(arena.regions[j], arena.pool.capacity())))
          continue;
        return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                       "regions[%zu] overlaps regions[%zu] of the arena of group %zu", i, j, group);
      }
    }
  }
  return Status();
}

Status DeviceTier::UnregisterArena(GroupIndex group) {
  MutexLock lock(&mu_);
  if (group >= arenas_.size() || arenas_[group] == nullptr) {
    return ErrorF(StatusCode::kNotFound, "group: %u has no arena", unsigned{group});
  }
  const Arena& arena = *arenas_[group];
  const uint32_t held = arena.pool.capacity() - arena.pool.free();
  if (held != 0 || arena.copies != 0) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kInUse,
                   "arena of group %u: %u slots are held, %llu copies are in flight",
                   unsigned{group}, held, Ull{arena.copies});
  }
  arenas_[group] = nullptr;
  return Status();
}

bool DeviceTier::HasArena(GroupIndex group) const {
  MutexLock lock(&mu_);
  return group < arenas_.size() && arenas_[group] != nullptr;
}

uint64_t DeviceTier::OffsetOf(GroupIndex group, size_t region, SlotId slot) const {
  MutexLock lock(&mu_);
  FERMATA_CHECK(group < arenas_.size() && arenas_[group] != nullptr);
  const Arena& arena = *arenas_[group];
  FERMATA_CHECK(region < arena.regions.size() && Raw(slot) < arena.pool.capacity());
  return uint64_t{Raw(slot)} * arena.regions[region].slot_stride;
}

uint64_t DeviceTier::slots(GroupIndex group) const {
  MutexLock lock(&mu_);
  FERMATA_CHECK(group < arenas_.size());
  return arenas_[group] == nullptr ? 0 : arenas_[group]->pool.capacity();
}

uint64_t DeviceTier::free_slots(GroupIndex group) const {
  MutexLock lock(&mu_);
  FERMATA_CHECK(group < arenas_.size());
  return arenas_[group] == nullptr ? 0 : arenas_[group]->pool.free();
}

Status DeviceTier::Acquire(GroupIndex group, std::span<SlotId> out) {
  MutexLock lock(&mu_);
  FERMATA_CHECK(group < arenas_.size());
  if (arenas_[group] != nullptr) return arenas_[group]->pool.Acquire(out);
  if (out.empty()) return Status();
  return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                 "want %zu, free 0 of 0: group %u has no arena", out.size(), unsigned{group});
}

void DeviceTier::Release(GroupIndex group, std::span<const SlotId> slots) {
  MutexLock lock(&mu_);
  FERMATA_CHECK(group < arenas_.size());
  if (slots.empty()) return;
  FERMATA_CHECK(arenas_[group] != nullptr);  // it cannot leave while slots of it are held
  arenas_[group]->pool.Release(slots);
}

void DeviceTier::Prepare(const TierIo& io) {
  runs_.clear();
  MutexLock lock(&mu_);
  FERMATA_CHECK(io.group < arenas_.size() && arenas_[io.group] != nullptr);
  Arena& arena = *arenas_[io.group];
  FERMATA_CHECK(arena.pool.IsHeld(io.slot));  // else the bytes would be another block's
  ++arena.copies;
  if (metadata_only_) return;
  FERMATA_CHECK(io.buffer != nullptr);
  std::byte* cold = io.buffer;
  for (const DeviceRegion& region : arena.regions) {
    std::byte* const hot = region.base + uint64_t{Raw(io.slot)} * region.slot_stride;
    if (io.op == TierIo::Op::kRead) {
      runs_.push_back(CopyRun{hot, cold, region.slot_bytes});
    } else {
      runs_.push_back(CopyRun{cold, hot, region.slot_bytes});
    }
    cold += region.slot_bytes;
  }
}

size_t DeviceTier::Submit(std::span<const TierIo> batch) {
  size_t accepted = 0;
  for (const TierIo& io : batch) {
    if (copies_.size() == kMaxInFlight) break;
    Prepare(io);
    Status status;
    const bool is_read = io.op == TierIo::Op::kRead;
    const uint64_t ticket = next_ticket_++;
    if (!metadata_only_) {
      status = ops_->CopySubmit(
          runs_, is_read ? CopyDirection::kDeviceToHost : CopyDirection::kHostToDevice, ticket);
    }
    const bool started = status.ok();
    copies_.push_back(Copy{io.cookie, ticket, io.group, is_read, started, std::move(status)});
    ++accepted;
  }
  in_flight_.store(copies_.size(), std::memory_order_relaxed);
  return accepted;
}

size_t DeviceTier::Poll(std::span<TierCompletion> out) {
  size_t taken = 0;
  size_t kept = 0;
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    bool ended = false;
    if (taken < out.size()) {
      ended = true;
      if (copy.started && !metadata_only_) {
        Result<bool> done = ops_->CopyPoll(copy.ticket);
        if (!done.ok()) {
          copy.status = done.status();
        } else {
          ended = *done;
        }
      }
    }
    if (ended) {
      Finish(copy, copy.status);
      out[taken++] = TierCompletion{copy.cookie, std::move(copy.status)};
    } else {
      if (kept != i) copies_[kept] = std::move(copy);
      ++kept;
    }
  }
  copies_.erase(copies_.begin() + static_cast<ptrdiff_t>(kept), copies_.end());
  in_flight_.store(copies_.size(), std::memory_order_relaxed);
  return taken;
}

void DeviceTier::Finish(const Copy& copy, const Status& status) {
  if (!status.ok()) {
    errors_.fetch_add(1, std::memory_order_relaxed);
  } else if (copy.is_read) {
    reads_.fetch_add(1, std::memory_order_relaxed);
  } else {
    writes_.fetch_add(1, std::memory_order_relaxed);
  }
  MutexLock lock(&mu_);
  Arena* const arena = arenas_[copy.group].get();
  FERMATA_CHECK(arena != nullptr && arena->copies > 0);
  --arena->copies;
}

void DeviceTier::VisitStats(const StatVisitor& visit) const {
  visit("reads", reads_.load(std::memory_order_relaxed), nullptr);
  visit("writes", writes_.load(std::memory_order_relaxed), nullptr);
  visit("errors", errors_.load(std::memory_order_relaxed), nullptr);
  visit("bytes", metadata_only_ ? 0 : 1, metadata_only_ ? "none" : "moved");
}

}  // namespace fermata
