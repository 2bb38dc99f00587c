// SPDX-License-Identifier: Apache-2.0
//
// Mutex excludes, CondVar wakes and times out, and both are clean under ThreadSanitizer.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.h"

namespace fermata {
namespace {

struct Counter {
  Mutex mu;
  CondVar changed;
  uint64_t value FERMATA_GUARDED_BY(mu) = 0;
};

TEST(Mutex, NoIncrementIsLost) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 10000; ++i) {
        MutexLock lock(&counter.mu);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&counter.mu);
  EXPECT_EQ(counter.value, 40000u);
}

TEST(CondVar, WaiterSeesWhatTheNotifierWrote) {
  Counter counter;
  std::thread notifier([&counter] {
    MutexLock lock(&counter.mu);
    counter.value = 7;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(&counter.mu);
    while (counter.value == 0) counter.changed.Wait(&counter.mu);
    EXPECT_EQ(counter.value, 7u);
  }
  notifier.join();
}

TEST(CondVar, WaitForTimesOutAndHoldsTheMutexAgain) {
  Counter counter;
  const SystemClock clock;
  MutexLock lock(&counter.mu);
  const uint64_t start = clock.NowNs();
  // A spurious wake-up may end one wait early; the sum of them is bounded from below.
  while (counter.changed.WaitFor(&counter.mu, 1'000'000)) {
  }
  EXPECT_GE(clock.NowNs() - start, 1'000'000u);
  counter.value = 1;  // Would be reported by TSan and -Wthread-safety if the mutex were not held.
  EXPECT_EQ(counter.value, 1u);
}

TEST(CondVar, AnEndlessTimeoutDoesNotOverflow) {
  Counter counter;
  std::thread notifier([&counter] {
    MutexLock lock(&counter.mu);
    counter.value = 1;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(&counter.mu);
    bool notified = true;
    while (counter.value == 0) notified = counter.changed.WaitFor(&counter.mu, ~uint64_t{0});
    EXPECT_TRUE(notified);
  }
  notifier.join();
}

}  // namespace
}  // namespace fermata
