// SPDX-License-Identifier: Apache-2.0
//
// Reports of a replay: text for people, JSON for programs, CSV per request, and one self-contained
// HTML file with charts. They print Metrics and know nothing of how these came about. Thread
// safety: free functions without state.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "bench/metrics.h"
#include "bench/replay_options.h"
#include "bench/trace.h"

namespace fermata::bench {

// One request of the CSV, in tokens.
struct RequestRow {
  uint64_t index = 0;
  uint64_t prompt = 0;
  uint64_t hit[kTierSlots] = {0, 0, 0};

  uint64_t recomputed() const { return prompt - hit[kDevice] - hit[kHost] - hit[kSsd]; }
};

// "request,prompt_tokens,hit_device,hit_host,hit_ssd,recomputed"
void WriteCsvHeader(FILE* file);
void WriteCsvRow(const RequestRow& row, FILE* file);

struct ReportInput {
  const Trace* trace = nullptr;
  const ReplayOptions* options = nullptr;
  const Metrics* metrics = nullptr;
};

std::string TextReport(const ReportInput& input);
std::string JsonReport(const ReportInput& input);
std::string HtmlReport(const ReportInput& input);

// Names of a tier's place in keys: "device", "host", "ssd".
const char* TierSlotName(uint32_t slot);

// The page without its data and the chart library, both embedded when the program was built (see
// CMakeLists.txt).
extern const char kReportTemplate[];
extern const char kChartLibrary[];

}  // namespace fermata::bench
