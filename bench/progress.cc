// SPDX-License-Identifier: Apache-2.0
#include "bench/progress.h"

#include <unistd.h>

#include <cstdio>

namespace fermata::bench {
namespace {

constexpr uint64_t kShowEveryNs = 100'000'000;

}  // namespace

Progress::Progress(uint64_t requests, bool quiet)
    : requests_(requests),
      shown_(!quiet && isatty(STDERR_FILENO) == 1),
      started_ns_(clock_.NowNs()) {}

Progress::~Progress() {
  if (shown_ && last_ns_ != 0) std::fputs("\r\x1b[K", stderr);
}

void Progress::Update(const Metrics& metrics) {
  if (!shown_ || ++updates_ % 16 != 0) return;
  const uint64_t now_ns = clock_.NowNs();
  if (now_ns - last_ns_ < kShowEveryNs) return;
  last_ns_ = now_ns;
  const double done = static_cast<double>(metrics.requests) / static_cast<double>(requests_);
  const double elapsed_s = static_cast<double>(now_ns - started_ns_) * 1e-9;
  std::fprintf(stderr, "\r\x1b[K%5.1f %%  %llu of %llu requests  hit %.2f %%", 100 * done,
               static_cast<unsigned long long>(metrics.requests),
               static_cast<unsigned long long>(requests_), 100 * metrics.HitRatio());
  if (metrics.oracle_bytes > 0) {
    std::fprintf(stderr, "  %.1f GB checked, %llu wrong",
                 static_cast<double>(metrics.oracle_bytes) * 1e-9,
                 static_cast<unsigned long long>(metrics.oracle_failures));
  }
  if (done > 0) std::fprintf(stderr, "  %.0f s left", elapsed_s * (1 - done) / done);
  std::fflush(stderr);
}

}  // namespace fermata::bench
