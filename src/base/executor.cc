// SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace fermata {

void WorkQueue::Post(Task task) {
  MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
}

uint64_t WorkQueue::PostAt(uint64_t deadline_ns, Task task) {
  MutexLock lock(&mu_);
  const uint64_t id = next_timer_id_++;
  timers_.emplace(std::pair(deadline_ns, id), std::move(task));
  timer_deadlines_.emplace(id, deadline_ns);
  return id;
}

void WorkQueue::CancelTimer(uint64_t id) {
  MutexLock lock(&mu_);
  const auto it = timer_deadlines_.find(id);
  if (it == timer_deadlines_.end()) return;
  timers_.erase(std::pair(it->second, id));
  timer_deadlines_.erase(it);
}

void WorkQueue::AddPoller(Poller* poller) {
  MutexLock lock(&mu_);
  pollers_.push_back(poller);
}

void WorkQueue::RemovePoller(Poller* poller) {
  MutexLock lock(&mu_);
  std::erase(pollers_, poller);
}

bool WorkQueue::TakeTask(Task* task) {
  MutexLock lock(&mu_);
  if (!timers_.empty() && timers_.begin()->first.first <= clock_->NowNs()) {
    const auto it = timers_.begin();
    *task = std::move(it->second);
    timer_deadlines_.erase(it->first.second);
    timers_.erase(it);
    return true;
  }
  if (next_task_ == tasks_.size()) return false;
  *task = std::move(tasks_[next_task_++]);
  if (next_task_ == tasks_.size()) {
    tasks_.clear();
    next_task_ = 0;
  }
  return true;
}

bool WorkQueue::RunOne() {
  Task task;
  if (TakeTask(&task)) {
    task();
    return true;
  }
  for (Poller* poller : pollers()) {
    if (poller->busy() && poller->Poll()) return true;
  }
  return false;
}

uint64_t WorkQueue::NextTimerNs() const {
  MutexLock lock(&mu_);
  return timers_.empty() ? 0 : timers_.begin()->first.first;
}

std::vector<Poller*> WorkQueue::pollers() const {
  MutexLock lock(&mu_);
  return pollers_;
}

bool WorkQueue::HasTask() const {
  MutexLock lock(&mu_);
  return next_task_ != tasks_.size();
}

uint64_t StepExecutor::Step(uint64_t max_steps) {
  uint64_t ran = 0;
  in_task_ = true;
  while (ran < max_steps && queue_.RunOne()) ++ran;
  in_task_ = false;
  return ran;
}

Result<std::unique_ptr<ThreadExecutor>> ThreadExecutor::Create(const Clock* clock) {
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return ErrorF(StatusCode::kResourceExhausted, "eventfd: errno %d", errno);
  std::unique_ptr<ThreadExecutor> executor(new ThreadExecutor(clock, wake_fd));
  // The engine's signals are the engine's: none is delivered to the library's thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    executor->thread_ = std::thread([self = executor.get()] { self->Run(); });
  } catch (const std::system_error& e) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return ErrorF(StatusCode::kResourceExhausted, "cannot start the library's thread: %s",
                  e.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return executor;
}

ThreadExecutor::~ThreadExecutor() {
  Stop();
  close(wake_fd_);
}

void ThreadExecutor::Post(Task task) {
  queue_.Post(std::move(task));
  Wake();
}

uint64_t ThreadExecutor::PostAt(uint64_t deadline_ns, Task task) {
  const uint64_t id = queue_.PostAt(deadline_ns, std::move(task));
  Wake();
  return id;
}

void ThreadExecutor::AddPoller(Poller* poller) {
  queue_.AddPoller(poller);
  Wake();
}

void ThreadExecutor::RemovePoller(Poller* poller) { queue_.RemovePoller(poller); }

void ThreadExecutor::Stop() {
  stop_.store(true, std::memory_order_seq_cst);
  Wake();
  // Two joins of one thread are undefined, and a `joinable` asked by both is no guard.
  std::call_once(joined_, [this] {
    if (thread_.joinable()) thread_.join();
  });
}

void ThreadExecutor::Wake() {
  // seq_cst pairs with Sleep(): either we see asleep_, or Sleep() sees the work that was queued
  // before this load.
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      write(wake_fd_, &one, sizeof one);  // EAGAIN: already signalled.
}

void ThreadExecutor::Run() {
  thread_id_.store(std::this_thread::get_id(), std::memory_order_release);
  while (!stop_.load(std::memory_order_acquire)) {
    if (freeze_.load(std::memory_order_acquire)) {
      {
        MutexLock lock(&frozen_mu_);
        frozen_ = true;
        frozen_changed_.NotifyAll();
      }
      while (!stop_.load(std::memory_order_acquire)) {
        pollfd wake{wake_fd_, POLLIN, 0};
        asleep_.store(true, std::memory_order_seq_cst);
        poll(&wake, 1, -1);
        uint64_t drained = 0;
        [[maybe_unused]] const ssize_t got = read(wake_fd_, &drained, sizeof drained);
      }
      return;
    }
    if (!queue_.RunOne()) Sleep();
  }
}

void ThreadExecutor::Freeze(uint64_t timeout_ns) {
  if (InTask()) return;  // The process ends from within a task: there is nothing to wait for.
  freeze_.store(true, std::memory_order_seq_cst);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
  MutexLock lock(&frozen_mu_);
  const uint64_t deadline = clock_->NowNs() + timeout_ns;
  while (!frozen_) {
    const uint64_t now = clock_->NowNs();
    if (now >= deadline || !frozen_changed_.WaitFor(&frozen_mu_, deadline - now)) return;
  }
}

void ThreadExecutor::Sleep() {
  asleep_.store(true, std::memory_order_seq_cst);
  const uint64_t timer = queue_.NextTimerNs();
  const uint64_t now = clock_->NowNs();
  const bool due = timer != 0 && timer <= now;
  if (!queue_.HasTask() && !due && !stop_.load(std::memory_order_seq_cst)) {
    int timeout_ms = -1;
    if (timer != 0)
      timeout_ms = static_cast<int>(std::min<uint64_t>((timer - now) / 1'000'000 + 1, 1'000'000));
    std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
    for (Poller* poller : queue_.pollers()) {
      if (!poller->busy()) continue;
      if (poller->fd() >= 0) {
        fds.push_back({poller->fd(), POLLIN, 0});
      } else {
        timeout_ms = 1;
      }
    }
    poll(fds.data(), fds.size(),
         timeout_ms);  // EINTR cannot happen (signals are blocked) and would do no harm.
  }
  asleep_.store(false, std::memory_order_seq_cst);
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &drained, sizeof drained);
}

}  // namespace fermata
