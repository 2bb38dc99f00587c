// SPDX-License-Identifier: Apache-2.0
#include "bench/device_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kLeastBytesForTwoPlanes = 1024;
constexpr uint32_t kRank = 0;

}  // namespace

Result<std::unique_ptr<DeviceArena>> DeviceArena::Create(uint32_t slots, uint64_t block_bytes) {
  FERMATA_CHECK(block_bytes % (2 * kOracleGranule) == 0 && block_bytes > 0);
  const uint32_t planes = block_bytes >= kLeastBytesForTwoPlanes ? 2 : 1;
  std::unique_ptr<DeviceArena> arena(new DeviceArena(slots, planes, block_bytes / planes));
  const size_t bytes = slots * arena->plane_bytes_;
  for (uint32_t i = 0; i < planes; ++i) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      return ErrorF(StatusCode::kResourceExhausted, "device arena: no memory for %zu bytes: %s",
                    bytes, std::strerror(errno));
    }
    madvise(base, bytes, MADV_HUGEPAGE);  // a wish; without it everything is the same but slower
    arena->planes_base_[i] = static_cast<std::byte*>(base);
  }
  return arena;
}

DeviceArena::~DeviceArena() {
  for (uint32_t i = 0; i < planes_; ++i) {
    if (planes_base_[i] != nullptr) munmap(planes_base_[i], slots_ * plane_bytes_);
  }
}

void DeviceArena::Write(uint32_t slot, const ContentSeed& block) const {
  FERMATA_CHECK(slot < slots_);
  for (uint32_t i = 0; i < planes_; ++i) {
    FillPlane(SeedOfPlane(block, i, kRank), At(slot, i), plane_bytes_);
  }
}

size_t DeviceArena::FindWrong(uint32_t slot, const ContentSeed& block) const {
  FERMATA_CHECK(slot < slots_);
  for (uint32_t i = 0; i < planes_; ++i) {
    const size_t wrong = FindWrongByte(SeedOfPlane(block, i, kRank), At(slot, i), plane_bytes_);
    if (wrong != kAllRight) return i * plane_bytes_ + wrong;
  }
  return kAllRight;
}

void DeviceArena::FlipByte(uint32_t slot, uint64_t offset) const {
  FERMATA_CHECK(slot < slots_ && offset < planes_ * plane_bytes_);
  std::byte* const at =
      At(slot, static_cast<uint32_t>(offset / plane_bytes_)) + offset % plane_bytes_;
  *at = ~*at;
}

}  // namespace fermata::bench
