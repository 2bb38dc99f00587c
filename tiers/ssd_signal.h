// SPDX-License-Identifier: Apache-2.0
//
// FileSizeSignalBlock: while it lives, a write of this thread past RLIMIT_FSIZE fails with EFBIG
// and raises no SIGXFSZ, whose default action would end the engine's process. For code that writes
// on a thread that is the caller's; the library's own threads have all signals blocked.
//
// Thread safety: it is about the thread that makes it, and dies on that one. Cost: three system
// calls, five when a signal came.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace fermata {

class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlock() {
    // What our writes raised is ours and goes; one that waited before we came is the caller's.
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &now) == SIGXFSZ) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace fermata
