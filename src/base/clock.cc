// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctime>

namespace fermata {

uint64_t SystemClock::NowNs() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec) +
         1;
}

}  // namespace fermata
