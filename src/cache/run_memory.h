// SPDX-License-Identifier: Apache-2.0
//
// RunMemory: where runs keep their blocks' ids and names. Pieces of like size come from slabs of
// their own, so that taking and giving back one is a few instructions and touches no neighbour:
// among a million idle sessions that is what an eviction costs most. What is given back is kept for
// pieces of its size; memory goes back to the system when the cache does. Larger pieces come from
// the heap, which joins what is given back: there a call costs little beside the blocks it is for.
//
// Threads: under the owner's lock. Cost: O(1); a slab now and then. Rounding wastes at most 1/16 of
// a piece (15 bytes of small ones).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fermata {

class RunMemory {
 public:
  RunMemory() = default;
  ~RunMemory();
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  // Aligned to 16 bytes; std::bad_alloc when there is none.
  std::byte* Allocate(size_t bytes);
  void Free(std::byte* piece, size_t bytes);  // `bytes` as it was asked for; null is nothing

 private:
  static constexpr size_t kStep = 16;   // of classes up to kFine
  static constexpr size_t kFine = 256;  // above, each octave has 16
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kLargest = 0;  // so that AddressSanitizer sees what runs past a piece
#else
  static constexpr size_t kLargest = 2048;
#endif
  static constexpr size_t kClasses = kFine / kStep + 1 + 16 * 3;

  struct Slab {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  struct Class {
    std::byte* free = nullptr;  // chained through their first bytes
    std::byte* next = nullptr;  // not yet used part of the newest slab
    std::byte* end = nullptr;
    size_t slab_bytes = 0;  // of the newest slab
  };
  static size_t ClassOf(size_t bytes, size_t* rounded);

  std::array<Class, kClasses> classes_{};
  std::vector<Slab> slabs_;
};

}  // namespace fermata
