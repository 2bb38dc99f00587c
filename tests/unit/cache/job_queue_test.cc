// SPDX-License-Identifier: Apache-2.0
//
// Completions: a place for each that was reserved, each delivered once and in order, the eventfd
// readable exactly while something waits.
#include "cache/job_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <latch>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace fermata {
namespace {

std::shared_ptr<JobQueue> MakeQueue(uint32_t depth) {
  Result<std::shared_ptr<JobQueue>> queue = JobQueue::Create(depth);
  EXPECT_TRUE(queue.ok()) << queue.status().ToString();
  return *queue;
}

bool Readable(JobQueue& queue) {
  pollfd fd{queue.fd(), POLLIN, 0};
  return poll(&fd, 1, 0) == 1;
}

void Complete(JobQueue* queue, uint64_t user_data) {
  ASSERT_TRUE(queue->Reserve().ok());
  Completion completion;
  completion.user_data = user_data;
  queue->Push(completion);
}

TEST(JobQueue, RefusesADepthOutOfRangeByName) {
  for (const uint32_t depth : {0u, 65537u}) {
    const Result<std::shared_ptr<JobQueue>> queue = JobQueue::Create(depth);
    ASSERT_FALSE(queue.ok());
    EXPECT_EQ(queue.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(queue.status().message(), "depth is " + std::to_string(depth) + ", want 1..65536");
  }
}

TEST(JobQueue, IsFullWhileJobsInFlightAndUndeliveredCompletionsFillIt) {
  const auto queue = MakeQueue(2);
  ASSERT_TRUE(queue->Reserve().ok());
  ASSERT_TRUE(queue->Reserve().ok());
  Status full = queue->Reserve();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(full.reason(), Reason::kQueueFull);
  queue->Push(Completion{});  // In flight becomes undelivered: still full.
  EXPECT_EQ(queue->Reserve().reason(), Reason::kQueueFull);
  Completion out;
  ASSERT_EQ(queue->Poll(std::span(&out, 1), 0), 1u);
  EXPECT_TRUE(queue->Reserve().ok());
}

TEST(JobQueue, APlaceThatIsNotNeededComesBack) {
  const auto queue = MakeQueue(1);
  ASSERT_TRUE(queue->Reserve().ok());
  queue->Unreserve();
  EXPECT_TRUE(queue->Reserve().ok());
}

TEST(JobQueue, DeliversEachCompletionOnceAndInOrder) {
  const auto queue = MakeQueue(8);
  Completion sent;
  sent.status = StatusCode::kDataLoss;
  sent.reason = Reason::kChecksum;
  sent.user_data = 100;
  sent.job = 7;
  sent.items_total = 5;
  sent.items_ok = 3;
  sent.valid_tokens = 48;
  ASSERT_TRUE(queue->Reserve().ok());
  queue->Push(sent);
  for (uint64_t i = 101; i < 105; ++i) Complete(queue.get(), i);
  std::vector<Completion> out(2);
  ASSERT_EQ(queue->Poll(out, 0), 2u);
  EXPECT_EQ(out[0].status, StatusCode::kDataLoss);
  EXPECT_EQ(out[0].reason, Reason::kChecksum);
  EXPECT_EQ(out[0].user_data, 100u);
  EXPECT_EQ(out[0].job, 7u);
  EXPECT_EQ(out[0].items_total, 5u);
  EXPECT_EQ(out[0].items_ok, 3u);
  EXPECT_EQ(out[0].valid_tokens, 48u);
  EXPECT_EQ(out[1].user_data, 101u);
  out.resize(8);
  ASSERT_EQ(queue->Poll(out, 0), 3u);
  EXPECT_EQ(out[0].user_data, 102u);
  EXPECT_EQ(out[2].user_data, 104u);
  EXPECT_EQ(queue->Poll(out, 0), 0u);
  EXPECT_EQ(queue->Poll({}, 1'000'000'000), 0u);  // No room to deliver to: does not wait.
}

TEST(JobQueue, TheDescriptorIsReadableExactlyWhileSomethingWaits) {
  const auto queue = MakeQueue(4);
  EXPECT_FALSE(Readable(*queue));
  Complete(queue.get(), 1);
  Complete(queue.get(), 2);
  EXPECT_TRUE(Readable(*queue));
  Completion out;
  ASSERT_EQ(queue->Poll(std::span(&out, 1), 0), 1u);
  EXPECT_TRUE(Readable(*queue));
  ASSERT_EQ(queue->Poll(std::span(&out, 1), 0), 1u);
  EXPECT_FALSE(Readable(*queue));
  Complete(queue.get(), 3);
  EXPECT_TRUE(Readable(*queue));
}

TEST(JobQueue, ClosesOnlyWhenNoJobWillReportHere) {
  const auto queue = MakeQueue(4);
  ASSERT_TRUE(queue->Reserve().ok());
  EXPECT_FALSE(queue->CloseIfIdle());
  EXPECT_TRUE(queue->Reserve().ok());  // A refused close changes nothing.
  queue->Unreserve();
  queue->Push(Completion{});
  EXPECT_TRUE(queue->CloseIfIdle());  // What is undelivered does not hold it open,
  const Status status = queue->Reserve();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.reason(), Reason::kBadHandle);
  Completion out;
  EXPECT_EQ(queue->Poll(std::span(&out, 1), 0), 1u);  // and is not lost either.
}

TEST(JobQueue, ACloseEndsTheWaitOfThosePolling) {
  const auto queue = MakeQueue(4);
  constexpr uint64_t kLong = 5'000'000'000;
  const SystemClock clock;
  const uint64_t start = clock.NowNs();
  std::latch polling(2);
  std::vector<std::thread> pollers;
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      Completion out;
      polling.count_down();
      EXPECT_EQ(queue->Poll(std::span(&out, 1), kLong), 0u);
    });
  }
  polling.wait();  // Most likely they wait already; one that comes after the close must not wait.
  EXPECT_TRUE(queue->CloseIfIdle());
  for (std::thread& poller : pollers) poller.join();
  EXPECT_LT(clock.NowNs() - start, kLong);
}

TEST(JobQueue, WaitingPollsAndConcurrentPushesLoseAndDoubleNothing) {
  constexpr uint64_t kEach = 300;
  const auto queue = MakeQueue(16);
  const auto push_all = [&queue](uint64_t first) {
    for (uint64_t i = first; i < first + kEach;) {
      if (!queue->Reserve().ok()) {
        std::this_thread::yield();
        continue;
      }
      Completion completion;
      completion.user_data = i++;
      queue->Push(completion);
    }
  };
  std::thread one(push_all, 0);
  std::thread two(push_all, kEach);
  std::vector<int> seen(2 * kEach);
  size_t total = 0;
  std::vector<Completion> out(5);
  while (total < seen.size()) {
    const size_t n = queue->Poll(out, 10'000'000'000);
    for (size_t i = 0; i < n; ++i) ++seen[out[i].user_data];
    total += n;
  }
  one.join();
  two.join();
  EXPECT_EQ(seen, std::vector<int>(2 * kEach, 1));
  EXPECT_FALSE(Readable(*queue));
}

}  // namespace
}  // namespace fermata
