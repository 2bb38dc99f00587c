// SPDX-License-Identifier: Apache-2.0
#include "bench/worker_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace fermata::bench {
namespace {

TEST(WorkerPool, CallsEveryIndexOnceAndShowsWhatWasWritten) {
  for (const uint32_t threads : {0u, 1u, 2u, 5u}) {
    WorkerPool pool(threads);
    for (size_t count = 0; count < 300; count += 1 + count / 3) {
      std::vector<int> calls(count,
                             0);  // not atomic: each index has one writer, the return orders it
      pool.ParallelFor(count, [&](size_t i) { ++calls[i]; });
      for (const int n : calls) ASSERT_EQ(n, 1);
    }
  }
}

TEST(WorkerPool, ManyShortRoundsLoseNothing) {
  WorkerPool pool(3);
  std::vector<uint64_t> sums(8, 0);
  for (uint64_t round = 0; round < 5000; ++round) {
    pool.ParallelFor(sums.size(), [&](size_t i) { sums[i] += round; });
  }
  for (const uint64_t sum : sums) EXPECT_EQ(sum, 5000u * 4999u / 2);
}

}  // namespace
}  // namespace fermata::bench
