// SPDX-License-Identifier: Apache-2.0
#include "tiers/slot_books.h"

namespace fermata {

SlotBooks::SlotBooks(std::span<const TierGroup> groups) {
  FERMATA_CHECK(CheckGroups(groups).ok());
  for (const TierGroup& group : groups) {
    pools_.push_back(std::make_unique<SlotPool>(static_cast<uint32_t>(group.slots)));
  }
}

Status SlotBooks::CheckGroups(std::span<const TierGroup> groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].block_bytes == 0) {
      return ErrorF(StatusCode::kInvalidArgument, "groups[%zu].block_bytes: 0", i);
    }
    if (groups[i].slots > Raw(SlotId::kNone)) {
      return ErrorF(StatusCode::kInvalidArgument, "groups[%zu].slots: %llu is more than %u", i,
                    static_cast<unsigned long long>(groups[i].slots), Raw(SlotId::kNone));
    }
  }
  return Status();
}

std::string TierName(TierKind kind, uint32_t ordinal) {
  const char* word = "?";
  switch (kind) {
    case TierKind::kDevice:
      word = "device";
      break;
    case TierKind::kHost:
      word = "host";
      break;
    case TierKind::kSsd:
      word = "ssd";
      break;
    case TierKind::kRemote:
      word = "remote";
      break;
    case TierKind::kSim:
      word = "sim";
      break;
  }
  return std::string(word) + ":" + std::to_string(ordinal);
}

}  // namespace fermata
