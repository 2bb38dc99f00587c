// SPDX-License-Identifier: Apache-2.0
//
// CompletionQueue: a bounded first-in-first-out of completions, for tiers whose requests are done
// when they are accepted. It knows nothing of what was asked.
//
// Threads: Push and Take by the executor's thread; size() by any. Cost: O(1) each, no allocation
// after construction.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "tiers/tier.h"

namespace fermata {

class CompletionQueue {
 public:
  explicit CompletionQueue(size_t capacity) : ring_(capacity) {}

  size_t capacity() const { return ring_.size(); }
  // Relaxed: a count for whoever wants to know; the completions themselves stay on one thread.
  size_t size() const { return size_.load(std::memory_order_relaxed); }

  void Push(uint64_t cookie, Status status) {
    const size_t count = size();
    FERMATA_CHECK(count < ring_.size());
    ring_[(first_ + count) % ring_.size()] = TierCompletion{cookie, std::move(status)};
    size_.store(count + 1, std::memory_order_relaxed);
  }

  size_t Take(std::span<TierCompletion> out) {
    const size_t taken = std::min(out.size(), size());
    for (size_t i = 0; i < taken; ++i) {
      out[i] = std::move(ring_[first_]);
      first_ = (first_ + 1) % ring_.size();
    }
    size_.store(size() - taken, std::memory_order_relaxed);
    return taken;
  }

 private:
  std::vector<TierCompletion> ring_;
  size_t first_ = 0;
  std::atomic<size_t> size_{0};
};

}  // namespace fermata
