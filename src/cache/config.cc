// SPDX-License-Identifier: Apache-2.0
#include "cache/config.h"

#include <algorithm>
#include <cinttypes>

#include "cache/policy.h"

namespace fermata {
namespace {

constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxCapacityBytes = uint64_t{1} << 50;  // 1 PiB: beyond it a size is a mistake
constexpr uint64_t kMaxSlots = uint64_t{1} << 31;

uint64_t SlotBytes(const GroupConfig& group) {
  return (group.block_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

Status CheckGroups(const CacheConfig& config) {
  if (config.groups.empty() || config.groups.size() > 16) {
    return ErrorF(StatusCode::kInvalidArgument, "config.group_count is %zu, want 1..16",
                  config.groups.size());
  }
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const GroupConfig& group = config.groups[i];
    if (group.block_tokens == 0 || group.block_tokens > 65536 ||
        group.block_tokens % config.chain_tokens != 0) {
      return ErrorF(
          StatusCode::kInvalidArgument,
          "groups[%zu].block_tokens is %u, want a multiple of chain_tokens (%u) up to 65536", i,
          group.block_tokens, config.chain_tokens);
    }
    if (group.block_bytes == 0 || group.block_bytes > kMaxBlockBytes) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "groups[%zu].block_bytes is %" PRIu64 ", want 1..%" PRIu64, i,
                    group.block_bytes, kMaxBlockBytes);
    }
  }
  return Status();
}

// Slots are shared out so that every group covers the same number of tokens: slots_g *
// block_tokens_g is equal for all. One group gets everything.
Status DeriveSlots(const CacheConfig& config, size_t index, TierConfig* tier) {
  tier->groups.clear();
  double bytes_per_token = 0;
  for (const GroupConfig& group : config.groups) {
    bytes_per_token += static_cast<double>(SlotBytes(group)) / group.block_tokens;
  }
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupConfig& group = config.groups[g];
    uint64_t slots = 0;
    if (config.groups.size() == 1) {
      slots = tier->capacity_bytes / SlotBytes(group);
    } else {
      slots = static_cast<uint64_t>(static_cast<double>(tier->capacity_bytes) / bytes_per_token /
                                    group.block_tokens);
    }
    if (slots == 0) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "tiers[%zu].capacity_bytes is %" PRIu64
                    ": too small for one block of group %zu (%" PRIu64 " bytes)",
                    index, tier->capacity_bytes, g, SlotBytes(group));
    }
    if (slots >= kMaxSlots) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "tiers[%zu].capacity_bytes is %" PRIu64 ": %" PRIu64
                    " slots of group %zu, want fewer than 2^31",
                    index, tier->capacity_bytes, slots, g);
    }
    tier->groups.push_back(TierGroup{group.block_bytes, slots});
  }
  return Status();
}

Status FinishTier(const CacheConfig& config, size_t index, TierConfig* tier) {
  if (tier->kind == TierKind::kDevice) {
    for (const GroupConfig& group : config.groups)
      tier->groups.push_back(TierGroup{group.block_bytes, 0});
    return Status();
  }
  if (tier->kind == TierKind::kRemote) {
    return ErrorF(StatusCode::kUnimplemented, "tiers[%zu].kind is REMOTE, which this version lacks",
                  index);
  }
  if (tier->capacity_bytes > kMaxCapacityBytes) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "tiers[%zu].capacity_bytes is %" PRIu64 ", want at most %" PRIu64, index,
                  tier->capacity_bytes, kMaxCapacityBytes);
  }
  if (tier->kind == TierKind::kSsd && tier->directory.empty() && !config.metadata_only) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "tiers[%zu].directory is missing; an ssd tier needs one", index);
  }
  if (tier->kind == TierKind::kSsd && tier->directory.size() > 3000) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "tiers[%zu].directory has %zu characters, want at most 3000", index,
                  tier->directory.size());
  }
  if (tier->io_depth == 0 || tier->io_depth > 1024) {
    return ErrorF(StatusCode::kInvalidArgument, "tiers[%zu].io_depth is %u, want 1..1024", index,
                  tier->io_depth);
  }
  FERMATA_RETURN_IF_ERROR(DeriveSlots(config, index, tier));
  if (tier->kind == TierKind::kHost) {
    uint64_t largest = 0;
    for (const GroupConfig& group : config.groups) largest = std::max(largest, SlotBytes(group));
    if (tier->staging_bytes == 0) {
      tier->staging_bytes =
          std::min<uint64_t>(uint64_t{64} << 20, std::max(8 * largest, tier->capacity_bytes / 8));
      tier->staging_bytes = std::max(tier->staging_bytes, largest);
    }
    if (tier->staging_bytes < largest || tier->staging_bytes > kMaxCapacityBytes) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "tiers[%zu].staging_bytes is %" PRIu64 ", want at least one slot (%" PRIu64 ")",
                    index, tier->staging_bytes, largest);
    }
  }
  return Status();
}

}  // namespace

Status CacheConfig::Finish() {
  if (chain_tokens == 0 || chain_tokens > 65536) {
    return ErrorF(StatusCode::kInvalidArgument, "config.chain_tokens is %u, want 1..65536",
                  chain_tokens);
  }
  FERMATA_RETURN_IF_ERROR(CheckGroups(*this));
  if (tiers.empty() || tiers.size() > 32) {
    return ErrorF(StatusCode::kInvalidArgument, "config.tier_count is %zu, want 1..32",
                  tiers.size());
  }
  if (tiers.front().kind != TierKind::kDevice) {
    return ErrorF(StatusCode::kInvalidArgument, "tiers[0].kind is %d, want DEVICE first",
                  static_cast<int>(tiers[0].kind));
  }
  int hosts = 0;
  for (size_t i = 0; i < tiers.size(); ++i) {
    if (i > 0 && tiers[i].kind == TierKind::kDevice) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "tiers[%zu].kind is DEVICE: want one device tier, the first", i);
    }
    if (tiers[i].kind == TierKind::kHost && (++hosts > 1 || i != 1)) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "tiers[%zu].kind is HOST: want at most one, right after the device", i);
    }
    for (size_t j = 0; j < i; ++j) {
      if (tiers[j].kind == tiers[i].kind && tiers[j].ordinal == tiers[i].ordinal) {
        return ErrorF(StatusCode::kInvalidArgument,
                      "tiers[%zu].ordinal is %u, which tiers[%zu] of the same kind has", i,
                      tiers[i].ordinal, j);
      }
    }
    FERMATA_RETURN_IF_ERROR(FinishTier(*this, i, &tiers[i]));
  }
  if (max_sequences > 1'048'576) {
    return ErrorF(StatusCode::kInvalidArgument, "config.max_sequences is %u, want at most 1048576",
                  max_sequences);
  }
  if (max_jobs > 65536)
    return ErrorF(StatusCode::kInvalidArgument, "config.max_jobs is %u, want at most 65536",
                  max_jobs);
  if (event_capacity > 16'777'216) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "config.event_capacity is %u, want at most 16777216", event_capacity);
  }
  if (free_watermark_ppm > 1'000'000) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "config.free_watermark_ppm is %u, want at most 1000000", free_watermark_ppm);
  }
  if (FindPolicy(policy) == nullptr) {
    std::string known;
    for (const std::string& name : PolicyNames()) known += (known.empty() ? "" : ", ") + name;
    return ErrorF(StatusCode::kInvalidArgument, "config.policy is \"%.64s\", want one of: %s",
                  policy.c_str(), known.c_str());
  }
  return Status();
}

}  // namespace fermata
