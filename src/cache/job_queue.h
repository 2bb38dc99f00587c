// SPDX-License-Identifier: Apache-2.0
//
// JobQueue: where jobs report their one end. A job reserves its place when it is accepted, so that
// a completion always has room. Belongs to no cache and outlives them.
//
// Threads: any. Its mutex is a leaf (docs/locking.md). Cost: O(1) a completion; one eventfd write
// when the queue stops being empty, if anybody watches it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "base/mutex.h"
#include "base/status.h"

namespace fermata {

struct Completion {
  StatusCode status = StatusCode::kOk;
  Reason reason = Reason::kNone;
  uint64_t user_data = 0;
  uint64_t job = 0;  // the C ABI's handle
  uint32_t items_total = 0;
  uint32_t items_ok = 0;
  uint64_t valid_tokens = 0;
};

class JobQueue {
 public:
  static Result<std::shared_ptr<JobQueue>> Create(uint32_t depth);
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  Status Reserve() FERMATA_EXCLUDES(mu_);                         // RESOURCE_EXHAUSTED/QUEUE_FULL
  void Unreserve() FERMATA_EXCLUDES(mu_);                         // the job was refused after all
  void Push(const Completion& completion) FERMATA_EXCLUDES(mu_);  // REQUIRES: reserved
  // Takes up to out.size(); waits at most `timeout_ns` for the first, and not at all for one that
  // will not come: CloseIfIdle ends the waiting of all.
  size_t Poll(std::span<Completion> out, uint64_t timeout_ns) FERMATA_EXCLUDES(mu_);
  // True when no job will report here any more; from then on Reserve fails.
  bool CloseIfIdle() FERMATA_EXCLUDES(mu_);
  // Readable while completions wait. Until it has been asked for, nobody can watch it, and no
  // system call is spent on it.
  int fd() FERMATA_EXCLUDES(mu_);

 private:
  JobQueue(uint32_t depth, int fd) : depth_(depth), fd_(fd) {}
  void Signal() FERMATA_REQUIRES(mu_);

  const uint32_t depth_;
  const int fd_;
  Mutex mu_;
  CondVar arrived_;
  std::deque<Completion> ready_ FERMATA_GUARDED_BY(mu_);
  uint32_t reserved_ FERMATA_GUARDED_BY(mu_) = 0;
  bool closed_ FERMATA_GUARDED_BY(mu_) = false;
  bool watched_ FERMATA_GUARDED_BY(mu_) = false;  // somebody has the descriptor
};

}  // namespace fermata
