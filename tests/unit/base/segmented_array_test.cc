// SPDX-License-Identifier: Apache-2.0
#include "base/segmented_array.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace fermata {
namespace {

TEST(SegmentedArray, ElementsStartAsZeroAndKeepTheirPlace) {
  // Past the size from which segments are mapped: 8 bytes each, 4 MiB.
  constexpr size_t kElements = 1'500'000;
  SegmentedArray<uint64_t> array;
  EXPECT_EQ(array.size(), 0u);
  array.Grow(1);
  const uint64_t* const first = &array[0];
  for (size_t i = 0; i < kElements; ++i) {
    array.Grow(i + 1);
    ASSERT_EQ(array[i], 0u) << i;
    array[i] = i ^ 0x5555;
  }
  EXPECT_EQ(&array[0], first);
  EXPECT_EQ(array.size(), kElements);
  for (size_t i = 0; i < kElements; ++i) ASSERT_EQ(array[i], i ^ 0x5555) << i;
}

TEST(SegmentedArray, EveryBorderOfASegmentIsRight) {
  SegmentedArray<uint32_t> array;
  array.Grow(1 << 20);
  for (uint32_t i = 0; i < (1u << 20); ++i) array[i] = i;
  for (uint32_t border = 256; border < (1u << 20); border *= 2) {
    EXPECT_EQ(&array[border - 1] - &array[border / 2 == 128 ? 0 : border / 2],
              static_cast<std::ptrdiff_t>(border - 1 - (border / 2 == 128 ? 0 : border / 2)));
    EXPECT_EQ(array[border - 1], border - 1);
    EXPECT_EQ(array[border], border);
  }
  array.Grow(10);  // never shrinks
  EXPECT_EQ(array.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace fermata
