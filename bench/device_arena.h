// SPDX-License-Identifier: Apache-2.0
//
// DeviceArena stands in for an engine's device memory: `slots` blocks in one or two regions (a K
// and a V plane), in plain memory on huge pages where they are to be had. It also plays the engine:
// writes blocks as the oracle says, checks them, and can spoil one behind the library's back.
//
// Thread safety: different slots from different threads. Cost: memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "bench/oracle.h"

namespace fermata::bench {

class DeviceArena {
 public:
  // REQUIRES: block_bytes % 64 == 0. Two planes unless a block is too small to be worth it.
  static Result<std::unique_ptr<DeviceArena>> Create(uint32_t slots, uint64_t block_bytes);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  uint32_t planes() const { return planes_; }
  uint64_t plane_bytes() const { return plane_bytes_; }
  std::byte* plane(uint32_t index) const { return planes_base_[index]; }

  void Write(uint32_t slot, const ContentSeed& block) const;
  // Where the block's cold form (its planes one after the other) first differs, or kAllRight.
  size_t FindWrong(uint32_t slot, const ContentSeed& block) const;
  void FlipByte(uint32_t slot, uint64_t offset) const;

 private:
  DeviceArena(uint32_t slots, uint32_t planes, uint64_t plane_bytes)
      : slots_(slots), planes_(planes), plane_bytes_(plane_bytes) {}
  std::byte* At(uint32_t slot, uint32_t plane_index) const {
    return planes_base_[plane_index] + slot * plane_bytes_;
  }

  const uint32_t slots_;
  const uint32_t planes_;
  const uint64_t plane_bytes_;
  std::byte* planes_base_[2] = {nullptr, nullptr};
};

}  // namespace fermata::bench
