// SPDX-License-Identifier: Apache-2.0
//
// Where work runs. Everything asynchronous in the cache is a task posted here, a timer, or a poller
// of a tier: one thread at a time, in order. ThreadExecutor owns a thread, and nothing else here
// does; StepExecutor has none and runs work when told, so that a whole cache can live under one
// seed.
//
// Thread safety: Post, PostAt and CancelTimer from any thread. AddPoller and RemovePoller before
// work starts and after Stop, or from a task. Tasks, timers and pollers run one at a time, with no
// lock of the executor held.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace fermata {

using Task = std::function<void()>;

// A source of completions (a ring, say).
class Poller {
 public:
  virtual ~Poller() = default;
  // Handles what is ready; true when there was something. Never waits.
  virtual bool Poll() = 0;
  // A descriptor that becomes readable when Poll() may have something to do; -1: ask again every
  // millisecond while busy().
  virtual int fd() const { return -1; }
  // Whether a completion is outstanding at all.
  virtual bool busy() const = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(Task task) = 0;
  // Runs `task` once the clock has reached `deadline_ns`. Returns an id for CancelTimer.
  virtual uint64_t PostAt(uint64_t deadline_ns, Task task) = 0;
  virtual void CancelTimer(uint64_t id) = 0;  // No-op when it has run.
  virtual void AddPoller(Poller* poller) = 0;
  virtual void RemovePoller(Poller* poller) = 0;
  // True on the thread that runs tasks right now.
  virtual bool InTask() const = 0;
  // Runs no more work after it returns. From any number of threads, but not from a task.
  virtual void Stop() = 0;
  // For the end of the process: starts no more work, and waits at most `timeout_ns` for the piece
  // that runs now. The thread, if there is one, stays asleep for good.
  virtual void Freeze(uint64_t /*timeout_ns*/) {}
};

// The state both executors share: tasks in order, timers by deadline, pollers.
class WorkQueue {
 public:
  explicit WorkQueue(const Clock* clock) : clock_(clock) {}
  void Post(Task task) FERMATA_EXCLUDES(mu_);
  uint64_t PostAt(uint64_t deadline_ns, Task task) FERMATA_EXCLUDES(mu_);
  void CancelTimer(uint64_t id) FERMATA_EXCLUDES(mu_);
  void AddPoller(Poller* poller) FERMATA_EXCLUDES(mu_);
  void RemovePoller(Poller* poller) FERMATA_EXCLUDES(mu_);
  // Runs one task, due timer, or productive poll. False when there was none.
  bool RunOne() FERMATA_EXCLUDES(mu_);
  // Deadline of the next timer, 0 when there is none.
  uint64_t NextTimerNs() const FERMATA_EXCLUDES(mu_);
  std::vector<Poller*> pollers() const FERMATA_EXCLUDES(mu_);
  bool HasTask() const FERMATA_EXCLUDES(mu_);

 private:
  bool TakeTask(Task* task) FERMATA_EXCLUDES(mu_);

  const Clock* const clock_;
  mutable Mutex mu_;
  std::vector<Task> tasks_ FERMATA_GUARDED_BY(mu_);
  size_t next_task_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t next_timer_id_ FERMATA_GUARDED_BY(mu_) = 1;
  std::map<std::pair<uint64_t, uint64_t>, Task> timers_ FERMATA_GUARDED_BY(mu_);  // (deadline, id)
  std::map<uint64_t, uint64_t> timer_deadlines_ FERMATA_GUARDED_BY(mu_);          // id -> deadline
  std::vector<Poller*> pollers_ FERMATA_GUARDED_BY(mu_);
};

class StepExecutor final : public Executor {
 public:
  explicit StepExecutor(const Clock* clock) : queue_(clock) {}
  void Post(Task task) override { queue_.Post(std::move(task)); }
  uint64_t PostAt(uint64_t deadline_ns, Task task) override {
    return queue_.PostAt(deadline_ns, std::move(task));
  }
  void CancelTimer(uint64_t id) override { queue_.CancelTimer(id); }
  void AddPoller(Poller* poller) override { queue_.AddPoller(poller); }
  void RemovePoller(Poller* poller) override { queue_.RemovePoller(poller); }
  bool InTask() const override { return in_task_; }
  void Stop() override {}
  // Runs up to `max_steps` pieces of work; returns how many. One thread at a time.
  uint64_t Step(uint64_t max_steps);

 private:
  WorkQueue queue_;
  bool in_task_ = false;
};

class ThreadExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<ThreadExecutor>> Create(const Clock* clock);
  ~ThreadExecutor() override;
  void Post(Task task) override;
  uint64_t PostAt(uint64_t deadline_ns, Task task) override;
  void CancelTimer(uint64_t id) override { queue_.CancelTimer(id); }
  void AddPoller(Poller* poller) override;
  void RemovePoller(Poller* poller) override;
  bool InTask() const override {
    return std::this_thread::get_id() == thread_id_.load(std::memory_order_acquire);
  }
  void Stop() override;
  void Freeze(uint64_t timeout_ns) override;

 private:
  ThreadExecutor(const Clock* clock, int wake_fd)
      : clock_(clock), wake_fd_(wake_fd), queue_(clock) {}
  void Run();
  void Wake();
  void Sleep();

  const Clock* const clock_;
  const int wake_fd_;  // eventfd
  WorkQueue queue_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> freeze_{false};
  Mutex frozen_mu_;
  CondVar frozen_changed_;
  bool frozen_ FERMATA_GUARDED_BY(frozen_mu_) = false;  // the thread has seen freeze_ and sleeps
  std::atomic<bool> asleep_{
      false};  // Posts write the eventfd only when the thread sleeps or is about to.
  std::atomic<std::thread::id> thread_id_{};
  std::thread thread_;
  std::once_flag joined_;  // one Stop joins; the others wait until it has
};

}  // namespace fermata
