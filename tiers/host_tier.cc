// SPDX-License-Identifier: Apache-2.0
#include "tiers/host_tier.h"

#include <cstring>

namespace fermata {

Result<std::unique_ptr<HostTier>> HostTier::Create(uint32_t ordinal, std::vector<TierGroup> groups,
                                                   HostPool* pool) {
  FERMATA_RETURN_IF_ERROR(SlotBooks::CheckGroups(groups));
  std::vector<uint64_t> starts;
  uint64_t total = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    starts.push_back(total);
    uint64_t bytes = 0;
    if (groups[i].block_bytes > (uint64_t{1} << 62) ||
        __builtin_mul_overflow(RoundUpToPage(groups[i].block_bytes), groups[i].slots, &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "groups[%zu]: %llu slots of %llu bytes pass the end of 64 bits", i,
                    static_cast<unsigned long long>(groups[i].slots),
                    static_cast<unsigned long long>(groups[i].block_bytes));
    }
  }
  std::span<std::byte> memory;
  if (total > 0) {
    Result<std::span<std::byte>> piece = pool->Allocate(total);
    if (!piece.ok()) return piece.status();
    memory = *piece;
  }
  return std::unique_ptr<HostTier>(
      new HostTier(ordinal, std::move(groups), std::move(starts), pool, memory));
}

HostTier::HostTier(uint32_t ordinal, std::vector<TierGroup> groups, std::vector<uint64_t> starts,
                   HostPool* pool, std::span<std::byte> memory)
    : info_{TierKind::kHost, ordinal, kTierMapped, TierName(TierKind::kHost, ordinal)},
      groups_(std::move(groups)),
      starts_(std::move(starts)),
      pool_(pool),
      memory_(memory),
      books_(groups_) {}

HostTier::~HostTier() {
  if (!memory_.empty()) pool_->Free(memory_);
}

std::byte* HostTier::Map(GroupIndex group, SlotId slot) {
  FERMATA_CHECK(group < groups_.size() && Raw(slot) < groups_[group].slots);
  return memory_.data() + starts_[group] + Raw(slot) * RoundUpToPage(groups_[group].block_bytes);
}

size_t HostTier::Submit(std::span<const TierIo> batch) {
  const size_t accepted = std::min(batch.size(), done_.capacity() - done_.size());
  for (const TierIo& io : batch.first(accepted)) {
    FERMATA_CHECK(books_.IsHeld(io.group, io.slot));  // else the bytes would be another block's
    FERMATA_CHECK(io.buffer != nullptr);
    std::byte* const slot = Map(io.group, io.slot);
    const bool is_read = io.op == TierIo::Op::kRead;
    if (io.buffer != slot) {
      std::memcpy(is_read ? io.buffer : slot, is_read ? slot : io.buffer,
                  groups_[io.group].block_bytes);
    }
    (is_read ? reads_ : writes_).fetch_add(1, std::memory_order_relaxed);
    done_.Push(io.cookie, Status());
  }
  return accepted;
}

void HostTier::VisitStats(const StatVisitor& visit) const {
  visit("reads", reads_.load(std::memory_order_relaxed), nullptr);
  visit("writes", writes_.load(std::memory_order_relaxed), nullptr);
  visit("memory_bytes", memory_.size(), nullptr);
  visit("memory_mode", 0, pool_ == nullptr ? "none" : pool_->mode());
}

}  // namespace fermata
