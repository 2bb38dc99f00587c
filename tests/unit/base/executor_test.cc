// SPDX-License-Identifier: Apache-2.0
//
// Both executors run the same work in the same order; the threaded one wakes for posts, timers and
// pollers and stops clean.
#include "base/executor.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace fermata {
namespace {

class StepExecutorTest : public testing::Test {
 protected:
  ManualClock clock_;
  StepExecutor executor_{&clock_};
  std::vector<int> order_;
};

TEST_F(StepExecutorTest, RunsTasksInOrderAndOnlyWhenStepped) {
  for (int i = 0; i < 3; ++i) executor_.Post([this, i] { order_.push_back(i); });
  EXPECT_TRUE(order_.empty());
  EXPECT_EQ(executor_.Step(2), 2u);
  EXPECT_EQ(order_, (std::vector<int>{0, 1}));
  EXPECT_EQ(executor_.Step(10), 1u);
  EXPECT_EQ(order_, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(executor_.Step(10), 0u);
}

TEST_F(StepExecutorTest, ATaskMayPostAnother) {
  executor_.Post([this] {
    order_.push_back(1);
    executor_.Post([this] { order_.push_back(2); });
  });
  EXPECT_EQ(executor_.Step(10), 2u);
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
}

TEST_F(StepExecutorTest, TimersRunWhenDueByDeadlineThenByPosting) {
  executor_.PostAt(20, [this] { order_.push_back(20); });
  executor_.PostAt(10, [this] { order_.push_back(10); });
  executor_.PostAt(10, [this] { order_.push_back(11); });
  EXPECT_EQ(executor_.Step(10), 0u);
  clock_.AdvanceNs(8);  // 9: one short.
  EXPECT_EQ(executor_.Step(10), 0u);
  clock_.AdvanceNs(1);
  EXPECT_EQ(executor_.Step(10), 2u);
  clock_.AdvanceNs(100);
  EXPECT_EQ(executor_.Step(10), 1u);
  EXPECT_EQ(order_, (std::vector<int>{10, 11, 20}));
}

TEST_F(StepExecutorTest, ACancelledTimerDoesNotRunAndALateCancelIsNoHarm) {
  const uint64_t cancelled = executor_.PostAt(5, [this] { order_.push_back(1); });
  const uint64_t kept = executor_.PostAt(5, [this] { order_.push_back(2); });
  executor_.CancelTimer(cancelled);
  clock_.AdvanceNs(10);
  EXPECT_EQ(executor_.Step(10), 1u);
  EXPECT_EQ(order_, (std::vector<int>{2}));
  executor_.CancelTimer(kept);
  executor_.CancelTimer(12345);
}

TEST_F(StepExecutorTest, InTaskIsTrueInsideOnly) {
  bool inside = false;
  executor_.Post([&] { inside = executor_.InTask(); });
  EXPECT_FALSE(executor_.InTask());
  executor_.Step(1);
  EXPECT_TRUE(inside);
  EXPECT_FALSE(executor_.InTask());
}

class CountingPoller final : public Poller {
 public:
  explicit CountingPoller(uint64_t outstanding) : outstanding_(outstanding) {}
  bool Poll() override {
    if (outstanding_ == 0) return false;
    --outstanding_;
    return true;
  }
  bool busy() const override { return outstanding_ != 0; }
  uint64_t outstanding() const { return outstanding_; }

 private:
  uint64_t outstanding_;
};

TEST_F(StepExecutorTest, BusyPollersArePolledUntilTheyAreDone) {
  CountingPoller poller(3);
  executor_.AddPoller(&poller);
  EXPECT_EQ(executor_.Step(100), 3u);
  executor_.RemovePoller(&poller);
  CountingPoller removed(1);
  executor_.AddPoller(&removed);
  executor_.RemovePoller(&removed);
  EXPECT_EQ(executor_.Step(100), 0u);
  EXPECT_EQ(removed.outstanding(), 1u);
}

std::unique_ptr<ThreadExecutor> CreateThreadExecutor(const Clock* clock) {
  auto executor = ThreadExecutor::Create(clock);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return std::move(executor.value());
}

TEST(ThreadExecutor, RunsPostsOfManyThreadsOneAtATime) {
  const SystemClock clock;
  const auto executor = CreateThreadExecutor(&clock);
  constexpr int kThreads = 4;
  constexpr int kPosts = 500;
  std::latch done(kThreads * kPosts);
  int unguarded = 0;  // Only tasks touch it: a second thread running tasks would be a race.
  std::atomic<int> outside{0};
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t) {
    posters.emplace_back([&] {
      for (int i = 0; i < kPosts; ++i) {
        executor->Post([&] {
          ++unguarded;
          if (!executor->InTask()) outside.fetch_add(1);
          done.count_down();
        });
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  done.wait();
  executor->Stop();
  EXPECT_EQ(unguarded, kThreads * kPosts);
  EXPECT_EQ(outside.load(), 0);
  EXPECT_FALSE(executor->InTask());
}

TEST(ThreadExecutor, WakesForATimerPostedWhileItSleeps) {
  const SystemClock clock;
  const auto executor = CreateThreadExecutor(&clock);
  std::latch fired(1);
  const uint64_t deadline = clock.NowNs() + 2'000'000;
  uint64_t ran_at = 0;
  executor->PostAt(deadline, [&] {
    ran_at = clock.NowNs();
    fired.count_down();
  });
  fired.wait();
  EXPECT_GE(ran_at, deadline);
}

// Ready once, when its descriptor says so.
class FdPoller final : public Poller {
 public:
  FdPoller() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~FdPoller() override { close(fd_); }
  void Signal() {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  bool Poll() override {
    uint64_t value = 0;
    if (read(fd_, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) return false;
    busy_.store(false);
    done_.count_down();
    return true;
  }
  int fd() const override { return fd_; }
  bool busy() const override { return busy_.load(); }
  void Wait() { done_.wait(); }

 private:
  const int fd_;
  std::atomic<bool> busy_{true};
  std::latch done_{1};
};

TEST(ThreadExecutor, WakesForAPollersDescriptor) {
  const SystemClock clock;
  FdPoller poller;
  const auto executor = CreateThreadExecutor(&clock);
  executor->AddPoller(&poller);
  poller.Signal();
  poller.Wait();
  executor->Stop();
}

TEST(ThreadExecutor, StopTwiceAndDropUnrunTimersIsClean) {
  const SystemClock clock;
  const auto executor = CreateThreadExecutor(&clock);
  std::atomic<int> runs{0};
  executor->PostAt(clock.NowNs() + 3'600'000'000'000, [&] { runs.fetch_add(1); });
  executor->Stop();
  executor->Stop();
  executor->Post([&] { runs.fetch_add(1); });  // Accepted, never run: no more work after Stop.
  EXPECT_EQ(runs.load(), 0);
}

// Two threads that close one cache both stop its executor.
TEST(ThreadExecutor, StopFromManyThreadsReturnsToEachOnceTheWorkHasEnded) {
  const SystemClock clock;
  constexpr int kStoppers = 4;
  for (int round = 0; round < 50; ++round) {
    const auto executor = CreateThreadExecutor(&clock);
    std::latch started(1);
    std::latch stopping(kStoppers);
    std::atomic<bool> ended{false};
    executor->Post([&] {
      started.count_down();
      stopping.wait();
      ended.store(true);
    });
    started.wait();
    std::atomic<int> after_the_end{0};
    std::vector<std::thread> stoppers;
    for (int i = 0; i < kStoppers; ++i) {
      stoppers.emplace_back([&] {
        stopping.arrive_and_wait();
        executor->Stop();
        if (ended.load()) after_the_end.fetch_add(1);
      });
    }
    for (std::thread& stopper : stoppers) stopper.join();
    EXPECT_EQ(after_the_end.load(), kStoppers);
  }
}

}  // namespace
}  // namespace fermata
