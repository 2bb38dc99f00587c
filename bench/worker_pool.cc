// SPDX-License-Identifier: Apache-2.0
#include "bench/worker_pool.h"

namespace fermata::bench {

WorkerPool::WorkerPool(uint32_t threads) {
  for (uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  start_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Work(const std::function<void(size_t)>& body, size_t count) {
  for (;;) {
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= count) return;
    body(i);
  }
}

void WorkerPool::ParallelFor(size_t count, const std::function<void(size_t)>& body) {
  if (threads_.empty() || count <= threads_.size()) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  {
    MutexLock lock(&mu_);
    next_.store(0, std::memory_order_relaxed);
    body_ = &body;
    count_ = count;
    busy_ = threads_.size();
    ++round_;
  }
  start_.NotifyAll();
  Work(body, count);
  MutexLock lock(&mu_);
  while (busy_ > 0) done_.Wait(&mu_);
  body_ = nullptr;
}

void WorkerPool::Run() {
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(size_t)>* body = nullptr;
    size_t count = 0;
    {
      MutexLock lock(&mu_);
      while (!stop_ && round_ == seen) start_.Wait(&mu_);
      if (stop_) return;
      seen = round_;
      body = body_;
      count = count_;
    }
    Work(*body, count);
    {
      MutexLock lock(&mu_);
      if (--busy_ > 0) continue;
    }
    done_.NotifyAll();
  }
}

}  // namespace fermata::bench
