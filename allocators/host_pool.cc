// SPDX-License-Identifier: Apache-2.0
#include "allocators/host_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace fermata {
namespace {

constexpr uint64_t kPopulateChunkBytes = uint64_t{64} << 20;

// Reserves `bytes` (a multiple of 4096) of address space that begins at a multiple of 2 MiB and
// ends where it ends, so that no 2 MiB page can reach past it. Null when the system refuses.
std::byte* MapAligned(uint64_t bytes) {
  const uint64_t with_slack = bytes + kHostPoolAlignment;
  void* const mapped = mmap(nullptr, with_slack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uintptr_t>(mapped);
  const uint64_t aligned = (start + kHostPoolAlignment - 1) & ~(kHostPoolAlignment - 1);
  std::byte* const base = static_cast<std::byte*>(mapped);
  std::byte* const piece = base + (aligned - start);
  // Unmapping parts of our own fresh mapping can fail only for want of a kernel map entry; then
  // address space is lost, no memory.
  if (aligned > start) munmap(base, aligned - start);
  const uint64_t tail = start + with_slack - (aligned + bytes);
  if (tail > 0) munmap(piece + bytes, tail);
  return piece;
}

// Has every page backed now. False when the system has no memory for it.
bool Populate(std::byte* piece, uint64_t bytes) {
  for (uint64_t offset = 0; offset < bytes; offset += kPopulateChunkBytes) {
    const uint64_t chunk = std::min(kPopulateChunkBytes, bytes - offset);
    int result = 0;
    do {
      result = madvise(piece + offset, chunk, MADV_POPULATE_WRITE);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    if (result == 0) continue;
    if (errno != EINVAL && errno != ENOSYS && errno != EPERM) return false;
    // A kernel (or a sandbox's) without it: touch each page.
    for (uint64_t at = offset; at < offset + chunk; at += kPageBytes) {
      static_cast<volatile std::byte*>(piece)[at] = std::byte{0};
    }
  }
  return true;
}

}  // namespace

HugePagePool::HugePagePool(uint64_t cap_bytes, bool want_huge_pages)
    : cap_bytes_(cap_bytes), want_huge_pages_(want_huge_pages) {}

HugePagePool::~HugePagePool() {
  MutexLock lock(&mu_);
  for (const auto& [start, bytes] : pieces_) munmap(start, RoundUpToPage(bytes));
}

Result<std::span<std::byte>> HugePagePool::Allocate(uint64_t bytes) {
  if (bytes == 0) return ErrorF(StatusCode::kInvalidArgument, "host memory of 0 bytes");
  {
    MutexLock lock(&mu_);
    // Charged first: what is being mapped by another thread counts against the cap too.
    if (bytes > cap_bytes_ || bytes > kMaxPieceBytes ||
        RoundUpToPage(bytes) > cap_bytes_ - charged_) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                     "host memory: want %llu bytes, %llu of %llu are in use",
                     static_cast<unsigned long long>(bytes),
                     static_cast<unsigned long long>(charged_),
                     static_cast<unsigned long long>(cap_bytes_));
    }
    charged_ += RoundUpToPage(bytes);
    peak_ = std::max(peak_, charged_);
  }
  const uint64_t rounded = RoundUpToPage(bytes);
  std::byte* const piece = MapAligned(rounded);
  bool refused = false;
  if (piece != nullptr) {
    // Only whole 2 MiB pages: the tail could not have one. Asking not to have them keeps the two
    // modes apart where the system gives them to everybody.
    const uint64_t whole = rounded & ~(kHostPoolAlignment - 1);
    if (!want_huge_pages_) {
      madvise(piece, rounded,
              MADV_NOHUGEPAGE);  // refused where there are none: nothing to avoid then
    } else if (whole > 0) {
      refused = madvise(piece, whole, MADV_HUGEPAGE) != 0;
    }
    if (Populate(piece, rounded)) {
      MutexLock lock(&mu_);
      refused_ = refused_ || refused;
      pieces_[piece] = bytes;
      return std::span<std::byte>(piece, bytes);
    }
  }
  const int error = errno;
  if (piece != nullptr) munmap(piece, rounded);
  MutexLock lock(&mu_);
  charged_ -= rounded;
  return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                 "host memory: the system has no %llu bytes (errno %d)",
                 static_cast<unsigned long long>(bytes), error);
}

void HugePagePool::Free(std::span<std::byte> piece) {
  {
    MutexLock lock(&mu_);
    const auto it = pieces_.find(piece.data());
    FERMATA_CHECK(it != pieces_.end() && it->second == piece.size());
    pieces_.erase(it);
  }
  FERMATA_CHECK(munmap(piece.data(), RoundUpToPage(piece.size())) == 0);
  MutexLock lock(&mu_);
  charged_ -= RoundUpToPage(piece.size());  // after the unmapping: the cap holds at the peak
}

uint64_t HugePagePool::allocated() const {
  MutexLock lock(&mu_);
  return charged_;
}

uint64_t HugePagePool::peak() const {
  MutexLock lock(&mu_);
  return peak_;
}

const char* HugePagePool::mode() const {
  MutexLock lock(&mu_);
  return want_huge_pages_ && !refused_ ? "huge_pages" : "small_pages";
}

uint64_t HugePagePool::HugePageBytes() const {
  std::map<std::byte*, uint64_t> pieces;
  {
    MutexLock lock(&mu_);
    pieces = pieces_;
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> smaps(std::fopen("/proc/self/smaps", "re"),
                                                    std::fclose);
  if (smaps == nullptr) return 0;
  uint64_t huge_bytes = 0;
  bool ours = false;
  char line[512];
  while (std::fgets(line, sizeof(line), smaps.get()) != nullptr) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    unsigned long long kib = 0;
    if (std::sscanf(line, "%llx-%llx ", &begin, &end) == 2) {
      // The kernel may have split a piece's mapping where its advice changes: each part lies inside
      // the piece.
      ours = std::any_of(pieces.begin(), pieces.end(), [&](const auto& piece) {
        const uint64_t start = reinterpret_cast<uintptr_t>(piece.first);
        return begin >= start && begin < start + piece.second;
      });
    } else if (ours && std::sscanf(line, "AnonHugePages: %llu kB", &kib) == 1) {
      huge_bytes += uint64_t{kib} * 1024;
    }
  }
  return huge_bytes;
}

}  // namespace fermata
