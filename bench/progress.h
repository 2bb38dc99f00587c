// SPDX-License-Identifier: Apache-2.0
//
// A progress line on stderr that overwrites itself; silent unless stderr is a terminal.
// Thread safety: one thread. Cost: one look at the clock per 16 updates.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "bench/metrics.h"

namespace fermata::bench {

class Progress {
 public:
  Progress(uint64_t requests, bool quiet);
  ~Progress();  // Wipes the line.
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Update(const Metrics& metrics);

 private:
  const uint64_t requests_;
  const bool shown_;
  SystemClock clock_;
  const uint64_t started_ns_;
  uint64_t last_ns_ = 0;
  uint64_t updates_ = 0;
};

}  // namespace fermata::bench
