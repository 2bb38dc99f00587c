// SPDX-License-Identifier: Apache-2.0
//
// The only mutexes of the project: std::mutex with Clang's annotations, and one that readers share
// on top of it. Not absl::Mutex, because
// Debian's prebuilt Abseil makes ThreadSanitizer report races in correct programs. Ranks are in
// docs/locking.md.
#pragma once

#include <atomic>
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

// Tells the processor that this is a loop that waits.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Sleeps while *word is `expected`, or a little; the waker wakes one. Not std::atomic's wait, which
// yields the processor before it sleeps: on a busy machine that costs a time slice.
void FutexWait(const std::atomic<uint32_t>* word, uint32_t expected);
void FutexWake(const std::atomic<uint32_t>* word);

// Held by one writer, or by any number of readers. A writer that waits goes before readers that
// come after it, so that neither starves: readers that find it line up for the mutex it holds.
// Readers hold it for microseconds, never across a wait, and do not nest.
class FERMATA_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() FERMATA_ACQUIRE() {
    mu_.lock();
    Close();
  }
  void Unlock() FERMATA_RELEASE() {
    Open();
    mu_.unlock();
  }
  void ReaderLock() FERMATA_ACQUIRE_SHARED() {
    for (int spins = 0; spins < kSpins; ++spins) {
      if ((state_.load(std::memory_order_relaxed) & kWriter) == 0) {
        if ((state_.fetch_add(kReader, std::memory_order_acquire) & kWriter) == 0) return;
        Leave();
      }
      SpinPause();
    }
    // Behind the writer, and before the next one.
    const std::lock_guard<std::mutex> lock(mu_);
    state_.fetch_add(kReader, std::memory_order_acquire);
  }
  void ReaderUnlock() FERMATA_RELEASE_SHARED() { Leave(); }
  void AssertHeld() const FERMATA_ASSERT_HELD() {}
  void AssertReaderHeld() const FERMATA_ASSERT_READER_HELD() {}

 private:
  friend class CondVar;
  static constexpr uint32_t kWriter = 1;  // a writer is in or waits for the readers to leave
  static constexpr uint32_t kReader = 2;

  // What each side holds it for takes microseconds: sleeping and being woken costs more.
  static constexpr int kSpins = 2000;

  void Close() {
    uint32_t state = state_.fetch_or(kWriter, std::memory_order_acquire) | kWriter;
    for (int spins = 0; state != kWriter; ++spins) {
      if (spins < kSpins) {
        SpinPause();
      } else {
        FutexWait(&state_, state);
      }
      state = state_.load(std::memory_order_acquire);
    }
  }
  void Open() { state_.fetch_and(~kWriter, std::memory_order_release); }
  void Leave() {
    if (state_.fetch_sub(kReader, std::memory_order_acq_rel) == (kReader | kWriter))
      FutexWake(&state_);
  }

  std::mutex mu_;  // the writer's
  std::atomic<uint32_t> state_{0};
};

class FERMATA_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex* mu) FERMATA_ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~WriterLock() FERMATA_RELEASE() { mu_->Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex* const mu_;
};

class FERMATA_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex* mu) FERMATA_ACQUIRE_SHARED(mu) : mu_(mu) { mu_->ReaderLock(); }
  ~ReaderLock() FERMATA_RELEASE_GENERIC() { mu_->ReaderUnlock(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex* const mu_;
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
    return WaitOn(&mu->mu_, timeout_ns);
  }
  bool WaitFor(SharedMutex* mu, uint64_t timeout_ns) FERMATA_REQUIRES(mu) {
    mu->Open();
    const bool notified = WaitOn(&mu->mu_, timeout_ns);
    mu->Close();
    return notified;
  }

 private:
  bool WaitOn(std::mutex* mu, uint64_t timeout_ns) {
    std::unique_lock<std::mutex> lock(*mu, std::adopt_lock);
    // Capped so that the sum with now() cannot overflow.
    const auto timeout =
        std::chrono::nanoseconds(timeout_ns > (uint64_t{1} << 60) ? uint64_t{1} << 60 : timeout_ns);
    const bool notified = cv_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }

  std::condition_variable cv_;
};

}  // namespace fermata
