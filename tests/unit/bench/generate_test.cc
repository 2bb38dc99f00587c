// SPDX-License-Identifier: Apache-2.0
#include "bench/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/convert.h"
#include "trace_test_util.h"

namespace fermata::bench {
namespace {

using ::testing::HasSubstr;

Trace Generate(const GenerateOptions& options) {
  Result<Trace> trace = GenerateTrace(options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return std::move(*trace);
}

TEST(Generate, EqualSeedsGiveEqualTraces) {
  GenerateOptions options;
  const Trace one = Generate(options), two = Generate(options);
  EXPECT_EQ(ToKvt1(one), ToKvt1(two));
  EXPECT_EQ(one.sha256, two.sha256);
  options.seed = 2;
  EXPECT_NE(Generate(options).sha256, one.sha256);
}

// Against TraceLab's published percentiles, wide enough for 3,000 sessions and for what we draw
// otherwise.
TEST(Generate, FollowsThePublishedPercentiles) {
  GenerateOptions options;
  options.sessions = 3000;
  options.hours = 2000;
  options.max_steps = 3000;
  options.context_scale = 1;
  options.max_context = 1000000;
  const Trace trace = Generate(options);
  std::vector<uint64_t> tool_ms, human_ms, duration_ms, output;
  std::vector<uint32_t> steps(trace.session_limit(), 0);
  size_t finals = 0, children = 0;
  for (const Request& r : trace.requests()) {
    duration_ms.push_back(r.dur_ms);
    output.push_back(r.out_tokens);
    if (r.gap == GapKind::kTool) tool_ms.push_back(r.gap_ms);
    if (r.gap == GapKind::kHuman) human_ms.push_back(r.gap_ms);
    if (r.end == EndKind::kTool) ++steps[r.session];
    finals += r.end == EndKind::kFinal;
    children += r.parent_session >= 0 && r.turn == 0;
  }
  const auto quantile = [](std::vector<uint64_t>* values, double share) {
    std::sort(values->begin(), values->end());
    return static_cast<double>(
        (*values)[static_cast<size_t>(share * static_cast<double>(values->size() - 1))]);
  };
  EXPECT_NEAR(quantile(&human_ms, 0.5) / 86e3, 1, 0.25);
  EXPECT_NEAR(quantile(&human_ms, 0.9) / 1236e3, 1, 0.35);
  EXPECT_NEAR(quantile(&tool_ms, 0.5) / 285, 1, 0.5);
  EXPECT_NEAR(quantile(&duration_ms, 0.5) / 5.7e3, 1, 0.2);
  EXPECT_NEAR(quantile(&duration_ms, 0.9) / 22.2e3, 1, 0.25);
  EXPECT_NEAR(quantile(&output, 0.5) / 230, 1, 0.2);
  EXPECT_GT(children, 0u);
  EXPECT_LE(finals, children);  // a sub-agent that the end of time cut off has none
  EXPECT_GT(finals, children / 2);
}

TEST(Generate, PromptsGrowAndSubAgentsShareTheirParentsHarness) {
  GenerateOptions options;
  options.sessions = 60;
  const Trace trace = Generate(options);
  std::vector<size_t> last(trace.session_limit(), trace.requests().size());
  std::vector<size_t> first(trace.session_limit(), trace.requests().size());
  uint64_t kept = 0, all = 0;
  for (size_t i = 0; i < trace.requests().size(); ++i) {
    const Request& r = trace.requests()[i];
    if (r.turn > 0) {
      kept += Shared(trace, last[r.session], i);
      all += r.blocks;
    } else {
      first[r.session] = i;
      if (r.parent_session >= 0) {
        EXPECT_GT(Shared(trace, first[static_cast<size_t>(r.parent_session)], i), 0u);
      }
    }
    last[r.session] = i;
  }
  EXPECT_GT(static_cast<double>(kept) / static_cast<double>(all), 0.85);
}

TEST(Generate, BadOptionsAreNamed) {
  GenerateOptions options;
  options.sessions = 0;
  EXPECT_THAT(GenerateTrace(options).status().message(), HasSubstr("--sessions"));
  options = GenerateOptions();
  options.hours = -1;
  EXPECT_THAT(GenerateTrace(options).status().message(), HasSubstr("--hours"));
  options = GenerateOptions();
  options.context_scale = 1e9;
  EXPECT_THAT(GenerateTrace(options).status().message(), HasSubstr("--context-scale"));
  options = GenerateOptions();
  options.max_context = 1;
  EXPECT_THAT(GenerateTrace(options).status().message(), HasSubstr("--max-context"));
  options = GenerateOptions();
  options.max_steps = 0;
  EXPECT_THAT(GenerateTrace(options).status().message(), HasSubstr("--max-steps"));
}

}  // namespace
}  // namespace fermata::bench
