// SPDX-License-Identifier: Apache-2.0
#include "cache/run_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/segmented_array.h"

namespace fermata {
namespace {

// A class's first slab is small, for caches that are; each is twice the one before.
constexpr size_t kFirstSlab = 4096;
constexpr size_t kLastSlab = size_t{4} << 20;

}  // namespace

size_t RunMemory::ClassOf(size_t bytes, size_t* rounded) {
  if (bytes <= kFine) {
    const size_t steps = (bytes + kStep - 1) / kStep;
    *rounded = std::max<size_t>(1, steps) * kStep;
    return steps;
  }
  // [2^n + 1, 2^(n+1)] in sixteen steps.
  const size_t octave = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;
  const size_t step = (size_t{1} << octave) / 16;
  const size_t index = (bytes - (size_t{1} << octave) + step - 1) / step;  // 1..16
  *rounded = (size_t{1} << octave) + index * step;
  return kFine / kStep + (octave - 8) * 16 + index;
}

std::byte* RunMemory::Allocate(size_t bytes) {
  if (bytes > kLargest) return static_cast<std::byte*>(::operator new(bytes));
  size_t rounded = 0;
  Class& of = classes_[ClassOf(bytes, &rounded)];
  if (of.free != nullptr) {
    std::byte* const piece = of.free;
    std::memcpy(&of.free, piece, sizeof of.free);
    return piece;
  }
  if (static_cast<size_t>(of.end - of.next) < rounded) {
    const size_t slab = std::clamp(std::max(of.slab_bytes * 2, rounded), kFirstSlab, kLastSlab);
    slabs_.reserve(slabs_.size() + 1);
    void* const memory = AllocateSegment(slab);
    slabs_.push_back(Slab{memory, slab});
    of.slab_bytes = slab;
    of.next = static_cast<std::byte*>(memory);
    of.end = of.next + slab;
  }
  std::byte* const piece = of.next;
  of.next += rounded;
  return piece;
}

void RunMemory::Free(std::byte* piece, size_t bytes) {
  if (piece == nullptr) return;
  if (bytes > kLargest) {
    ::operator delete(piece);
    return;
  }
  size_t rounded = 0;
  Class& of = classes_[ClassOf(bytes, &rounded)];
  std::memcpy(piece, &of.free, sizeof of.free);
  of.free = piece;
}

RunMemory::~RunMemory() {
  for (const Slab& slab : slabs_) FreeSegment(slab.memory, slab.bytes);
}

}  // namespace fermata
