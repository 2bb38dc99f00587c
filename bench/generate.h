// SPDX-License-Identifier: Apache-2.0
//
// A seeded workload of coding agents. Its distributions are piecewise log-linear through the
// percentiles that TraceLab (arXiv 2606.30560) and the kv-cache-tester traces publish: turns and
// tool steps per session, waits for tools and people, generation times, appended tokens,
// compaction, sub-agents that share their parent's harness prefix. It copies no trace.
//
// Equal options give an equal Trace in every build on every machine.
// Thread safety: a free function without state. Cost: about 1 us a request and a few ns a block
// touch.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "bench/trace.h"

namespace fermata::bench {

struct GenerateOptions {
  static constexpr uint32_t kMaxSessions = 20000;
  static constexpr double kMaxHours = 10000;
  static constexpr uint32_t kMaxSteps = 100000;
  static constexpr double kLeastScale = 0.01;
  static constexpr double kMaxScale = 10;
  static constexpr uint32_t kLeastContext = 20000;
  static constexpr uint32_t kMostContext = 2000000;

  uint64_t seed = 1;
  uint32_t sessions = 150;  // main sessions; sub-agents come on top
  double hours = 4;  // sessions start uniformly within it; what comes later than 1.3 of it is cut
  uint32_t max_steps = 160;       // of a session: tames the tail (p99 is 1,107)
  double context_scale = 0.6;     // of appended and initial tokens; 1 is as published
  uint32_t max_context = 200000;  // where a context is compacted
  Status Validate() const;
};

// The name of each option in messages is its flag: "--sessions".
Result<Trace> GenerateTrace(const GenerateOptions& options);

}  // namespace fermata::bench
