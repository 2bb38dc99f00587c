// SPDX-License-Identifier: Apache-2.0
#include "cache/job_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace fermata {

Result<std::shared_ptr<JobQueue>> JobQueue::Create(uint32_t depth) {
  if (depth == 0 || depth > 65536)
    return ErrorF(StatusCode::kInvalidArgument, "depth is %u, want 1..65536", depth);
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return ErrorF(StatusCode::kResourceExhausted, "eventfd: errno %d", errno);
  return std::shared_ptr<JobQueue>(new JobQueue(depth, fd));
}

JobQueue::~JobQueue() { close(fd_); }

Status JobQueue::Reserve() {
  MutexLock lock(&mu_);
  if (closed_)
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle, "the queue was destroyed");
  if (reserved_ + ready_.size() >= depth_) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                   "queue of depth %u: %u in flight, %zu undelivered", depth_, reserved_,
                   ready_.size());
  }
  ++reserved_;
  return Status();
}

void JobQueue::Unreserve() {
  MutexLock lock(&mu_);
  FERMATA_CHECK(reserved_ > 0);
  --reserved_;
}

void JobQueue::Push(const Completion& completion) {
  MutexLock lock(&mu_);
  FERMATA_CHECK(reserved_ > 0);
  --reserved_;
  if (ready_.empty() && watched_) Signal();
  ready_.push_back(completion);
  arrived_.NotifyAll();
}

size_t JobQueue::Poll(std::span<Completion> out, uint64_t timeout_ns) {
  if (out.empty()) return 0;
  MutexLock lock(&mu_);
  if (ready_.empty() && timeout_ns != 0 && !closed_) {
    // One wait: a spurious wake-up ends it early, which the contract ("at most") allows and callers
    // loop over anyway.
    arrived_.WaitFor(&mu_, timeout_ns);
  }
  const size_t n = std::min(out.size(), ready_.size());
  for (size_t i = 0; i < n; ++i) {
    out[i] = ready_.front();
    ready_.pop_front();
  }
  if (n != 0 && ready_.empty() && watched_) {
    uint64_t drained = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &drained, sizeof drained);
  }
  return n;
}

int JobQueue::fd() {
  MutexLock lock(&mu_);
  if (!watched_ && !ready_.empty()) Signal();
  watched_ = true;
  return fd_;
}

void JobQueue::Signal() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

bool JobQueue::CloseIfIdle() {
  MutexLock lock(&mu_);
  if (reserved_ != 0) return false;
  closed_ = true;
  arrived_.NotifyAll();
  return true;
}

}  // namespace fermata
