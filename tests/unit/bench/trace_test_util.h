// SPDX-License-Identifier: Apache-2.0
//
// Samples for the tests of traces.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/trace.h"
#include "bench/trace_file.h"
#include "bench/trace_reader.h"

namespace fermata::bench {

inline std::string SamplePath(const std::string& name) {
  return std::string(FERMATA_TEST_TRACES) + "/" + name;
}

inline Trace ReadSample(const std::string& name, const TraceOptions& options = TraceOptions()) {
  Result<Trace> trace = ReadTrace(SamplePath(name), options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return trace.ok() ? std::move(*trace) : Trace();
}

inline std::string ErrorOf(const Result<Trace>& trace) {
  return trace.ok() ? "accepted" : trace.status().message();
}

inline std::vector<uint64_t> Blocks(const Trace& trace, size_t index) {
  std::vector<uint64_t> blocks;
  trace.Expand(index, &blocks);
  return blocks;
}

// How many leading blocks two requests share.
inline size_t Shared(const Trace& trace, size_t a, size_t b) {
  const std::vector<uint64_t> first = Blocks(trace, a), second = Blocks(trace, b);
  size_t shared = 0;
  while (shared < first.size() && shared < second.size() && first[shared] == second[shared]) {
    ++shared;
  }
  return shared;
}

}  // namespace fermata::bench
