// SPDX-License-Identifier: Apache-2.0
#include "cache/run_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"

namespace fermata {
namespace {

TEST(RunMemory, PiecesOfEverySizeAreAlignedAndApart) {
  RunMemory memory;
  Random random(1);
  struct Piece {
    std::byte* data;
    size_t bytes;
    int mark;
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < 20000; ++i) {
    if (pieces.size() > 200 || (!pieces.empty() && random.Below(3) == 0)) {
      const size_t at = random.Below(pieces.size());
      const Piece gone = pieces[at];
      for (size_t b = 0; b < gone.bytes; b += 1 + gone.bytes / 64)
        ASSERT_EQ(static_cast<int>(gone.data[b]), gone.mark);
      ASSERT_EQ(static_cast<int>(gone.data[gone.bytes - 1]), gone.mark);
      memory.Free(gone.data, gone.bytes);
      pieces[at] = pieces.back();
      pieces.pop_back();
      continue;
    }
    const size_t bytes = 1 + random.Below(uint64_t{1} << random.Below(20));
    Piece piece{memory.Allocate(bytes), bytes, static_cast<int>(random.Below(256))};
    ASSERT_EQ(reinterpret_cast<uintptr_t>(piece.data) % 16, 0u);
    std::memset(piece.data, piece.mark, bytes);
    pieces.push_back(piece);
  }
  for (const Piece& piece : pieces) memory.Free(piece.data, piece.bytes);
}

TEST(RunMemory, WhatIsGivenBackIsUsedAgain) {
  RunMemory memory;
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "every piece comes from the heap";
#endif
  for (const size_t bytes : {1u, 68u, 256u, 257u, 700u, 2048u}) {
    std::byte* const first = memory.Allocate(bytes);
    memory.Free(first, bytes);
    EXPECT_EQ(memory.Allocate(bytes), first) << bytes;
    memory.Free(first, bytes);
  }
  memory.Free(nullptr, 0);
}

}  // namespace
}  // namespace fermata
