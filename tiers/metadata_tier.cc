// SPDX-License-Identifier: Apache-2.0
#include "tiers/metadata_tier.h"

namespace fermata {

MetadataTier::MetadataTier(TierKind kind, uint32_t ordinal, std::vector<TierGroup> groups)
    : info_{kind, ordinal,
            static_cast<uint32_t>(kTierNoBytes) |
                (kind == TierKind::kSsd ? static_cast<uint32_t>(kTierDurable) : uint32_t{0}),
            TierName(kind, ordinal)},
      books_(groups) {}

size_t MetadataTier::Submit(std::span<const TierIo> batch) {
  const size_t accepted = std::min(batch.size(), done_.capacity() - done_.size());
  for (const TierIo& io : batch.first(accepted)) {
    FERMATA_CHECK(books_.IsHeld(io.group, io.slot));
    (io.op == TierIo::Op::kRead ? reads_ : writes_).fetch_add(1, std::memory_order_relaxed);
    done_.Push(io.cookie, Status());
  }
  return accepted;
}

void MetadataTier::VisitStats(const StatVisitor& visit) const {
  visit("reads", reads_.load(std::memory_order_relaxed), nullptr);
  visit("writes", writes_.load(std::memory_order_relaxed), nullptr);
  visit("bytes", 0, "none");
}

}  // namespace fermata
