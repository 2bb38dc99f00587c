// SPDX-License-Identifier: Apache-2.0
//
// Typed numbers, so that a slot is never taken for a block. kNone values mark absence.
#pragma once

#include <cstdint>

namespace fermata {

enum class SlotId : uint32_t { kNone = 0xffffffffu };
enum class BlockId : uint32_t { kNone = 0xffffffffu };
// A run of consecutive blocks of one prefix (cache/block_store.h).
enum class RunId : uint32_t { kNone = 0xffffffffu };
using GroupIndex = uint16_t;
using TierIndex = uint8_t;  // Position of a tier in the cache's order; 0 is the device.

constexpr uint32_t Raw(SlotId id) { return static_cast<uint32_t>(id); }
constexpr uint32_t Raw(BlockId id) { return static_cast<uint32_t>(id); }
constexpr uint32_t Raw(RunId id) { return static_cast<uint32_t>(id); }

}  // namespace fermata
