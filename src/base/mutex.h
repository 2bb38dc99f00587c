// SPDX-License-Identifier: Apache-2.0
//
// The only mutex of the project: std::mutex with Clang's annotations. Not absl::Mutex, because
// Debian's prebuilt Abseil makes ThreadSanitizer report races in correct programs. Ranks are in
// docs/locking.md.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/thread_annotations.h"

namespace fermata {

class FERMATA_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() FERMATA_ACQUIRE() { mu_.lock(); }
  void Unlock() FERMATA_RELEASE() { mu_.unlock(); }
  void AssertHeld() const FERMATA_ASSERT_HELD() {}

 private:
  friend class CondVar;
  std::mutex mu_;
};

class FERMATA_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mu) FERMATA_ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() FERMATA_RELEASE() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

class CondVar {
 public:
  void NotifyAll() { cv_.notify_all(); }
  void Wait(Mutex* mu) FERMATA_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when `timeout_ns` passed first.
  bool WaitFor(Mutex* mu, uint64_t timeout_ns) FERMATA_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // Capped so that the sum with now() cannot overflow.
    const auto timeout =
        std::chrono::nanoseconds(timeout_ns > (uint64_t{1} << 60) ? uint64_t{1} << 60 : timeout_ns);
    const bool notified = cv_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }

 private:
  std::condition_variable cv_;
};

}  // namespace fermata
