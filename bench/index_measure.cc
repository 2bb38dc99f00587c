// SPDX-License-Identifier: Apache-2.0
#include "bench/index_measure.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/hash.h"

namespace fermata::bench {

uint64_t IndexNowNs() {
  static const SystemClock clock;
  return clock.NowNs();
}

uint64_t ThreadCpuNs() {
  timespec time{};
  FERMATA_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

double Samples::Percentile(double share) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const size_t index = std::min(sorted.size(), static_cast<size_t>(std::max(rank, 1.0))) - 1;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(index),
                   sorted.end());
  return sorted[index];
}

double Samples::Least() const {
  return values_.empty() ? 0 : *std::min_element(values_.begin(), values_.end());
}

void CacheFlusher::Flush() {
  constexpr size_t kLine = 64 / sizeof(uint64_t);
  for (size_t i = 0; i < lines_.size(); i += kLine) ++lines_[i];
  KeepResult(lines_);
}

void FillTokens(uint64_t stream, std::span<uint32_t> out) {
  // MixU64 is one-to-one, so half of it may be equal between two streams, but not both halves of
  // the first: a block of two tokens or more tells streams apart.
  uint64_t state = MixU64(stream);
  for (size_t i = 0; i < out.size(); i += 2) {
    out[i] = static_cast<uint32_t>(state);
    if (i + 1 < out.size()) out[i + 1] = static_cast<uint32_t>(state >> 32);
    state = state * 6364136223846793005u + 1442695040888963407u;
  }
}

}  // namespace fermata::bench
