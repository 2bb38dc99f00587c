// SPDX-License-Identifier: Apache-2.0
//
// WorkerPool runs one function over an index range on its threads and the caller's, and returns
// when all of it is done. For the checking and writing of many blocks at memory speed. Knows
// nothing of blocks.
//
// Thread safety: ParallelFor from one thread at a time. Cost: two wake-ups a call; ranges shorter
// than the pool run on the caller alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace fermata::bench {

class WorkerPool {
 public:
  explicit WorkerPool(uint32_t threads);  // the caller's included; 0 and 1 make none
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls body(i) once for each i in [0, count), on any of the threads. Everything it wrote is
  // visible on return.
  void ParallelFor(size_t count, const std::function<void(size_t)>& body);

 private:
  void Run();
  void Work(const std::function<void(size_t)>& body, size_t count);

  std::atomic<size_t> next_{0};  // relaxed: the mutex orders everything else
  Mutex mu_;
  CondVar start_;
  CondVar done_;
  const std::function<void(size_t)>* body_ FERMATA_GUARDED_BY(mu_) = nullptr;
  size_t count_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t round_ FERMATA_GUARDED_BY(mu_) = 0;
  size_t busy_ FERMATA_GUARDED_BY(mu_) = 0;
  bool stop_ FERMATA_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace fermata::bench
