// SPDX-License-Identifier: Apache-2.0
//
// Readers of public trace formats. Each takes text that is already in memory and gives a Trace or
// an INVALID_ARGUMENT status "FILE:LINE: field 'x': why"; none of them crashes, loops or runs out
// of bounds on any input.
//
//   kvt1            one JSON object a line, blocks as runs; the project's own format
//   mooncake        JSONL {timestamp, input_length, output_length, hash_ids}; sessions are inferred
//   from prefixes kv-cache-tester one JSON object a file (one conversation), 64-token hash ids
//   local to it; a file or a directory tracelab        CSV of session rounds: prefix_len,
//   input_len, output_len, tool_wait_after_ms
//
// Thread safety: free functions without state. Cost: O(text); a file is held whole while it is
// read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "bench/trace.h"

namespace fermata::bench {

enum class TraceFormat { kAuto, kKvt1, kMooncake, kKvCacheTester, kTraceLab };

const char* TraceFormatName(TraceFormat format);
Result<TraceFormat> ParseTraceFormat(std::string_view name);

struct TraceOptions {
  TraceFormat format = TraceFormat::kAuto;
  uint64_t seed = 1;  // of synthetic session arrivals
  double spread_hours =
      20;  // sessions of a source without arrival times start uniformly over so long
  bool shared_tools = true;  // kv-cache-tester: conversations with equal tool_tokens share the
                             // blocks of their tools
  uint64_t max_blocks = uint64_t{1} << 28;  // tracelab: in all prompts together, 4 bytes each; a
                                            // row of 20 bytes may ask for 32768 of them
};

// `path`: a file (plain or gzip), or a directory of kv-cache-tester files, read in the order of
// their names.
Result<Trace> ReadTrace(const std::string& path, const TraceOptions& options);

// Text that names itself in errors.
struct TraceText {
  std::string name;
  std::string text;
};

Result<Trace> ReadKvt1(const TraceText& file);
Result<Trace> ReadMooncake(const TraceText& file);
Result<Trace> ReadKvCacheTester(const std::vector<TraceText>& files, const TraceOptions& options);
Result<Trace> ReadTraceLab(const TraceText& file, const TraceOptions& options);

// Time that sources without measured durations are given: 500 ms to the first token, 25 ms for each
// generated one.
inline uint64_t ModelledDurationMs(uint64_t out_tokens) { return 500 + 25 * out_tokens; }

}  // namespace fermata::bench
