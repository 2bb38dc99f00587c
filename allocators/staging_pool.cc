// SPDX-License-Identifier: Apache-2.0
#include "allocators/staging_pool.h"

#include <limits>

namespace fermata {

Result<std::unique_ptr<StagingPool>> StagingPool::Create(HostPool* pool, uint64_t buffer_bytes,
                                                         uint32_t buffers) {
  if (buffers == 0) return std::unique_ptr<StagingPool>(new StagingPool(pool, {}, kPageBytes, 0));
  uint64_t bytes = 0;
  if (pool == nullptr || buffer_bytes == 0 ||
      buffer_bytes > std::numeric_limits<uint64_t>::max() - kPageBytes ||
      __builtin_mul_overflow(RoundUpToPage(buffer_bytes), uint64_t{buffers}, &bytes)) {
    return ErrorF(StatusCode::kInvalidArgument, "staging: %u buffers of %llu bytes, pool %s",
                  buffers, static_cast<unsigned long long>(buffer_bytes),
                  pool == nullptr ? "missing" : "given");
  }
  Result<std::span<std::byte>> memory = pool->Allocate(bytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<StagingPool>(
      new StagingPool(pool, *memory, RoundUpToPage(buffer_bytes), buffers));
}

StagingPool::~StagingPool() {
  // A buffer that is still out may be a device's target: freeing it would let the device write into
  // memory of others.
  FERMATA_CHECK(slots_.free() == slots_.capacity());
  if (!memory_.empty()) pool_->Free(memory_);
}

std::byte* StagingPool::Acquire() {
  SlotId slot = SlotId::kNone;
  if (!slots_.Acquire(std::span<SlotId>(&slot, 1)).ok()) return nullptr;
  return memory_.data() + Raw(slot) * stride_;
}

void StagingPool::Release(std::byte* buffer) {
  FERMATA_CHECK(buffer >= memory_.data() && buffer < memory_.data() + memory_.size());
  const uint64_t offset = static_cast<uint64_t>(buffer - memory_.data());
  FERMATA_CHECK(offset % stride_ == 0);
  const SlotId slot{static_cast<uint32_t>(offset / stride_)};
  slots_.Release(std::span<const SlotId>(&slot, 1));
}

}  // namespace fermata
