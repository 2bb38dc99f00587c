// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace fermata {
namespace {

struct Pair {
  SharedMutex mu;
  uint64_t first FERMATA_GUARDED_BY(mu) = 0;
  uint64_t second FERMATA_GUARDED_BY(mu) = 0;
};

TEST(SharedMutex, ReadersNeverSeeHalfOfAWrite) {
  constexpr uint64_t kWrites = 20'000;
  Pair pair;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> torn{0};
  std::atomic<uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
        ReaderLock lock(&pair.mu);
        if (pair.first != pair.second) torn.fetch_add(1);
        reads.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      for (uint64_t n = 0; n < kWrites; ++n) {
        WriterLock lock(&pair.mu);
        ++pair.first;
        ++pair.second;
      }
    });
  }
  // Writers end although readers never pause: none of them starves.
  for (std::thread& writer : writers) writer.join();
  over.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn.load(), 0u);
  EXPECT_GT(reads.load(), 0u);
  ReaderLock lock(&pair.mu);
  EXPECT_EQ(pair.first, 2 * kWrites);
}

TEST(SharedMutex, ReadersShareIt) {
  SharedMutex mu;
  std::atomic<int> inside{0};
  std::array<std::thread, 2> readers;
  for (std::thread& reader : readers) {
    reader = std::thread([&] {
      ReaderLock lock(&mu);
      inside.fetch_add(1);
      inside.notify_all();
      // Ends only if both are inside at a time.
      for (int seen = inside.load(); seen < 2; seen = inside.load()) inside.wait(seen);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(inside.load(), 2);
}

TEST(SharedMutex, AWaitingWriterLetsReadersAndWritersIn) {
  SharedMutex mu;
  CondVar changed;
  int value = 0;
  std::thread other([&] {
    for (;;) {
      WriterLock lock(&mu);
      if (value != 1) continue;  // not yet waited for
      value = 2;
      changed.NotifyAll();
      return;
    }
  });
  {
    WriterLock lock(&mu);
    value = 1;
    while (value != 2) changed.WaitFor(&mu, 10'000'000'000);
  }
  other.join();
  ReaderLock lock(&mu);
  EXPECT_EQ(value, 2);
}

}  // namespace
}  // namespace fermata
