// SPDX-License-Identifier: Apache-2.0
//
// SegmentedArray: an array that grows without moving what it holds, so that growth never stalls its
// user and needs no second copy at the peak. Segments double in size; large ones ask for 2 MiB
// pages and take memory only as they are touched.
//
// Elements start as zero bytes and are never constructed or destroyed: T must be trivially
// copyable, and all-zero a state it allows.
//
// Threads: as a vector's. Elements do not move: a reader of what exists needs no lock against
// Grow. Cost: access O(1) (one bit scan); Grow O(1), one allocation per doubling. Memory that
// cannot be had: std::bad_alloc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace fermata {

// Memory in pages of 2 MiB where it is large; std::bad_alloc when there is none.
void* AllocateSegment(size_t bytes);
void* AllocateZeroedSegment(size_t bytes);
void FreeSegment(void* segment, size_t bytes);

template <typename T>
class SegmentedArray {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  SegmentedArray() = default;
  SegmentedArray(const SegmentedArray&) = delete;
  SegmentedArray& operator=(const SegmentedArray&) = delete;
  ~SegmentedArray() {
    for (uint32_t s = 0; s < segments_; ++s) FreeSegment(segment_[s], SizeOf(s) * sizeof(T));
  }

  size_t size() const { return size_; }
  T& operator[](size_t i) { return segment_[SegmentOf(i)][Offset(i)]; }
  const T& operator[](size_t i) const { return segment_[SegmentOf(i)][Offset(i)]; }

  // Never shrinks.
  void Grow(size_t size) {
    while (capacity_ < size) {
      segment_[segments_] = static_cast<T*>(AllocateZeroedSegment(SizeOf(segments_) * sizeof(T)));
      capacity_ += SizeOf(segments_);
      ++segments_;
    }
    if (size > size_) size_ = size;
  }

 private:
  static constexpr size_t kFirst = 256;  // elements of the first segment
  // Segment 0 holds [0, 256), segment s > 0 holds [256 << (s - 1), 256 << s).
  static uint32_t SegmentOf(size_t i) { return static_cast<uint32_t>(std::bit_width(i / kFirst)); }
  static size_t SizeOf(uint32_t s) { return s == 0 ? kFirst : kFirst << (s - 1); }
  static size_t Offset(size_t i) {
    const uint32_t s = SegmentOf(i);
    return s == 0 ? i : i - (kFirst << (s - 1));
  }

  T* segment_[40] = {};
  uint32_t segments_ = 0;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace fermata
