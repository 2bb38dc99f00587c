// SPDX-License-Identifier: Apache-2.0
#include "base/segmented_array.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace fermata {
namespace {

// Below this a segment comes from the heap: small caches stay small.
constexpr size_t kMapped = size_t{4} << 20;

}  // namespace

void* AllocateSegment(size_t bytes) {
  if (bytes < kMapped) return ::operator new(bytes);
  void* const segment =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (segment == MAP_FAILED) throw std::bad_alloc();  // STYLE_OK(throw): as operator new does
  (void)madvise(segment, bytes, MADV_HUGEPAGE);       // Without, it is only slower.
  return segment;
}

void* AllocateZeroedSegment(size_t bytes) {
  void* const segment = AllocateSegment(bytes);
  return bytes < kMapped ? std::memset(segment, 0, bytes) : segment;  // Mapped memory is zero.
}

void FreeSegment(void* segment, size_t bytes) {
  if (bytes < kMapped) {
    ::operator delete(segment);
  } else {
    munmap(segment, bytes);
  }
}

}  // namespace fermata
