// SPDX-License-Identifier: Apache-2.0
//
// SsdBreaker: counts I/O errors in a row and, after kTripAfter, refuses work but for one probe per
// second. A success of any request closes it. It knows nothing of what the requests are.
//
// Thread safety: healthy() and trips() any thread, the rest the executor's thread. Cost: O(1).
#pragma once

#include <atomic>
#include <cstdint>

namespace fermata {

class SsdBreaker {
 public:
  static constexpr uint32_t kTripAfter = 8;
  static constexpr uint64_t kProbeEveryNs = 1'000'000'000;

  bool healthy() const { return !open_.load(std::memory_order_acquire); }
  uint64_t trips() const { return trips_.load(std::memory_order_relaxed); }

  // Whether a request may go to the device now.
  bool Admit(uint64_t now_ns) {
    if (healthy()) return true;
    if (now_ns < next_probe_ns_) return false;
    next_probe_ns_ = now_ns + kProbeEveryNs;
    return true;
  }

  void OnSuccess() {
    errors_in_a_row_ = 0;
    open_.store(false, std::memory_order_release);
  }

  // True when this error opened it.
  bool OnError(uint64_t now_ns) {
    if (++errors_in_a_row_ < kTripAfter || !healthy()) return false;
    next_probe_ns_ = now_ns + kProbeEveryNs;
    trips_.fetch_add(1, std::memory_order_relaxed);
    open_.store(true, std::memory_order_release);
    return true;
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<uint64_t> trips_{0};
  uint32_t errors_in_a_row_ = 0;
  uint64_t next_probe_ns_ = 0;
};

}  // namespace fermata
