// SPDX-License-Identifier: Apache-2.0
//
// StagingPool: a fixed number of equal buffers in host memory for blocks in passage between two
// tiers that are not memory. It does not know who waits for a buffer or what passes through it.
//
// Thread safety: any thread. Cost: Acquire and Release O(1), no allocation after Create.
// Invariants: a buffer is free or with one owner; each begins at a multiple of 4096.
#pragma once

#include <memory>

#include "allocators/host_pool.h"
#include "allocators/slot_pool.h"

namespace fermata {

class StagingPool {
 public:
  // `pool` outlives the result. With 0 buffers `pool` may be null and nothing is allocated.
  static Result<std::unique_ptr<StagingPool>> Create(HostPool* pool, uint64_t buffer_bytes,
                                                     uint32_t buffers);
  ~StagingPool();  // REQUIRES: every buffer was released.
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  std::byte* Acquire();             // Null when none is free.
  void Release(std::byte* buffer);  // Exactly what Acquire returned, once.

  uint32_t buffers() const { return slots_.capacity(); }
  uint32_t free() const { return slots_.free(); }
  // All buffers together, to be registered with a device in one piece.
  std::span<std::byte> memory() const { return memory_; }

 private:
  StagingPool(HostPool* pool, std::span<std::byte> memory, uint64_t stride, uint32_t buffers)
      : pool_(pool), memory_(memory), stride_(stride), slots_(buffers) {}

  HostPool* const pool_;
  const std::span<std::byte> memory_;
  const uint64_t stride_;
  SlotPool slots_;
};

}  // namespace fermata
