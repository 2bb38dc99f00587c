// SPDX-License-Identifier: Apache-2.0
#include "bench/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/convert.h"
#include "bench/trace_builder.h"
#include "trace_test_util.h"

namespace fermata::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Trace, ExpandUnrollsParentsAndRuns) {
  const Trace trace = ReadSample("tiny.kvt1.jsonl");
  EXPECT_THAT(Blocks(trace, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Blocks(trace, 1), ElementsAre(0, 4, 5));
  EXPECT_THAT(Blocks(trace, 2), ElementsAre(0, 1, 2, 3, 6, 9));
  EXPECT_THAT(Blocks(trace, 3), ElementsAre(0));
  EXPECT_THAT(Blocks(trace, 4), IsEmpty());
}

TEST(Trace, ExpandFromABlockIsTheEndOfTheWhole) {
  const Trace trace = ReadSample("tiny.kvt1.jsonl");
  for (size_t request = 0; request < trace.requests().size(); ++request) {
    const std::vector<uint64_t> whole = Blocks(trace, request);
    for (size_t first = 0; first <= whole.size() + 1; ++first) {
      std::vector<uint64_t> end;
      trace.Expand(request, first, &end);
      const size_t skipped = std::min(first, whole.size());
      EXPECT_EQ(end, std::vector<uint64_t>(whole.begin() + static_cast<std::ptrdiff_t>(skipped),
                                           whole.end()))
          << "request " << request << " from " << first;
    }
  }
}

TEST(Trace, CommonBlocksAreThoseOfTheLastSharedAncestor) {
  const Trace trace = ReadSample("tiny.kvt1.jsonl");
  EXPECT_EQ(trace.CommonBlocks(0, 0), 4u);
  EXPECT_EQ(trace.CommonBlocks(0, 1), 1u);  // 0 1 2 3 and 0 4 5
  EXPECT_EQ(trace.CommonBlocks(2, 0), 4u);  // 0 1 2 3 6 9
  EXPECT_EQ(trace.CommonBlocks(1, 2), 1u);
  EXPECT_EQ(trace.CommonBlocks(3, 2), 1u);
  EXPECT_EQ(trace.CommonBlocks(4, 0), 0u);
}

TEST(Trace, ParentThatAddsNothingIsPassedOver) {
  const Trace trace = ReadSample("tiny.kvt1.jsonl");
  // Line 3 keeps one block of line 2, which has it from line 0.
  EXPECT_EQ(trace.requests()[3].parent_request, 0u);
}

TEST(Trace, SessionsAreThoseThatHaveARequest) {
  Trace trace;
  for (const uint32_t session : {7u, 70000u, 7u, 2u}) {
    Request request;
    request.session = session;
    trace.Add(request, {});
  }
  EXPECT_EQ(trace.session_count(), 3u);
  EXPECT_EQ(trace.session_limit(), 70001u);
  trace.Truncate(1);
  EXPECT_EQ(trace.session_count(), 1u);
  EXPECT_EQ(trace.session_limit(), 8u);
}

TEST(Trace, TruncateForgetsWhatOnlyLaterRequestsHad) {
  Trace trace = ReadSample("tiny.kvt1.jsonl");
  EXPECT_EQ(trace.session_count(), 4u);
  EXPECT_EQ(trace.max_block(), 9u);
  EXPECT_EQ(trace.block_touches(), 14u);
  trace.Truncate(2);
  EXPECT_EQ(trace.session_count(), 2u);
  EXPECT_EQ(trace.max_block(), 5u);
  EXPECT_EQ(trace.block_touches(), 7u);
}

TEST(TraceBuilder, NamesBlocksInOrderOfArrivalNotOfAdding) {
  PathTrie trie;
  const uint32_t a = trie.Child(kRootNode, 100), ab = trie.Child(a, 7), ac = trie.Child(a, 8);
  EXPECT_EQ(trie.Child(a, 7), ab);
  TraceBuilder builder;
  Request late;
  late.t_ms = 50;
  late.in_tokens = 1024;
  builder.Add(late, std::vector<uint32_t>{a, ab});
  Request early;
  early.t_ms = 10;
  early.dur_ms = 15;
  early.in_tokens = 1100;
  early.end = EndKind::kTool;
  builder.Add(early, std::vector<uint32_t>{a, ac});
  const Trace trace = builder.Finish();
  EXPECT_THAT(Blocks(trace, 0), ElementsAre(0, 1));
  EXPECT_THAT(Blocks(trace, 1), ElementsAre(0, 2));
  EXPECT_EQ(trace.requests()[1].keep, 1u);
  EXPECT_EQ(trace.requests()[1].turn, 1u);
  EXPECT_EQ(trace.requests()[1].gap, GapKind::kTool);
  EXPECT_EQ(trace.requests()[1].gap_ms, 25u);
}

TEST(Convert, Kvt1ReadBackIsTheSameTrace) {
  Trace trace = ReadSample("tiny.kvt1.jsonl");
  const std::string text = ToKvt1(trace);
  Result<Trace> again = ReadKvt1({"again", text});
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_EQ(again->requests().size(), trace.requests().size());
  for (size_t i = 0; i < trace.requests().size(); ++i) {
    EXPECT_EQ(Blocks(*again, i), Blocks(trace, i)) << i;
    const Request& a = again->requests()[i];
    const Request& b = trace.requests()[i];
    EXPECT_EQ(a.t_ms, b.t_ms);
    EXPECT_EQ(a.dur_ms, b.dur_ms);
    EXPECT_EQ(a.gap, b.gap);
    EXPECT_EQ(a.gap_ms, b.gap_ms);
    EXPECT_EQ(a.end, b.end);
    EXPECT_EQ(again->tool(a.tool), trace.tool(b.tool));
    EXPECT_EQ(a.parent_session, b.parent_session);
    EXPECT_EQ(a.turn, b.turn);
    EXPECT_EQ(a.out_tokens, b.out_tokens);
  }
  EXPECT_EQ(ToKvt1(*again), text);
}

TEST(Convert, ToolNamesOfAnyBytesSurvive) {
  TraceBuilder builder;
  Request request;
  request.tool = builder.tools_of().InternTool("a\"b\\c\n\x01");
  builder.Add(request, {});
  const Trace trace = builder.Finish();
  Result<Trace> again = ReadKvt1({"again", ToKvt1(trace)});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->tool(again->requests()[0].tool), "a\"b\\c\n\x01");
}

}  // namespace
}  // namespace fermata::bench
