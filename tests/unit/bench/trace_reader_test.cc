// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_test_util.h"

namespace fermata::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ReadMooncake, PartialBlocksDoNotCount) {
  const Trace trace = ReadSample("tiny.mooncake.jsonl");
  EXPECT_EQ(trace.format, "mooncake");
  ASSERT_EQ(trace.requests().size(), 4u);
  EXPECT_EQ(Blocks(trace, 0).size(), 2u);
  EXPECT_EQ(Blocks(trace, 2).size(), 4u);
  EXPECT_EQ(Blocks(trace, 3).size(), 1u);
  EXPECT_EQ(Shared(trace, 0, 1), 1u);
  EXPECT_EQ(Shared(trace, 0, 2), 2u);
}

TEST(ReadMooncake, LongestExtendedPromptIsTheSession) {
  const Trace trace = ReadSample("tiny.mooncake.jsonl");
  EXPECT_EQ(trace.requests()[0].session, 0u);
  EXPECT_EQ(trace.requests()[1].session, 1u);
  EXPECT_EQ(trace.requests()[2].session, 0u);
  EXPECT_EQ(trace.requests()[2].turn, 1u);
  // One shared block is everyone's system prompt, not a conversation.
  EXPECT_EQ(trace.requests()[3].session, 2u);
}

TEST(ReadMooncake, DurationIsModelled) {
  const Trace trace = ReadSample("tiny.mooncake.jsonl");
  EXPECT_EQ(trace.requests()[2].dur_ms, 13000u);
  EXPECT_EQ(trace.requests()[1].dur_ms, 600u);
  EXPECT_EQ(trace.requests()[2].gap_ms, 5000u - 750u);
}

TEST(ReadKvCacheTester, RegroupsLocalIdsIntoBlocksOf512) {
  const Trace trace = ReadSample("tiny.tester.json");
  EXPECT_EQ(trace.format, "kv-cache-tester");
  ASSERT_EQ(trace.requests().size(), 5u);
  EXPECT_EQ(Blocks(trace, 0).size(), 2u);
  EXPECT_EQ(Blocks(trace, 1).size(), 3u);
  EXPECT_EQ(Shared(trace, 0, 1), 2u);
  EXPECT_EQ(Shared(trace, 1, 4), 2u);  // the third block differs in both halves
}

TEST(ReadKvCacheTester, SubagentIsASessionThatEndsFinal) {
  const Trace trace = ReadSample("tiny.tester.json");
  const Request& first = trace.requests()[2];
  const Request& last = trace.requests()[3];
  EXPECT_EQ(first.session, 1u);
  EXPECT_EQ(first.parent_session, 0);
  EXPECT_EQ(first.t_ms, 7500u);
  EXPECT_EQ(first.end, EndKind::kTool);
  EXPECT_EQ(last.end, EndKind::kFinal);
  EXPECT_EQ(Shared(trace, 1, 2), 1u);
}

TEST(ReadKvCacheTester, ApiTimeIsTheDurationAndUnknownStopsAreUnk) {
  const Trace trace = ReadSample("tiny.tester.json");
  EXPECT_EQ(trace.requests()[1].dur_ms, 2250u);
  EXPECT_EQ(trace.tool(trace.requests()[0].tool), "unk");
  EXPECT_EQ(trace.tool(trace.requests()[1].tool), "tool");
}

TEST(ReadKvCacheTester, ConversationsShareToolDefinitionsOfEqualSize) {
  Result<std::string> text = ReadTextFile(SamplePath("tiny.tester.json"), nullptr);
  ASSERT_TRUE(text.ok());
  const std::vector<TraceText> files = {{"one", *text}, {"two", *text}};
  TraceOptions options;
  Result<Trace> shared = ReadKvCacheTester(files, options);
  ASSERT_TRUE(shared.ok());
  const auto of_session = [](const Trace& trace, uint32_t session) {
    for (size_t i = 0; i < trace.requests().size(); ++i) {
      if (trace.requests()[i].session == session) return i;
    }
    return size_t{0};
  };
  // tool_tokens 512 of 256-token units: exactly one block.
  EXPECT_EQ(Shared(*shared, of_session(*shared, 0), of_session(*shared, 2)), 1u);
  options.shared_tools = false;
  Result<Trace> apart = ReadKvCacheTester(files, options);
  ASSERT_TRUE(apart.ok());
  EXPECT_EQ(Shared(*apart, of_session(*apart, 0), of_session(*apart, 2)), 0u);
}

TEST(ReadTraceLab, PrefixKeepsWholeBlocksOfTheRoundBefore) {
  const Trace trace = ReadSample("tiny.tracelab.csv");
  ASSERT_EQ(trace.requests().size(), 4u);
  const auto& r = trace.requests();
  EXPECT_EQ(r[0].session, 0u);
  EXPECT_EQ(r[0].in_tokens, 1100u);
  // b arrives while a runs: a's next round waits for 500 + 25*20 ms and a tool of 250 ms.
  EXPECT_EQ(r[1].session, 1u);
  EXPECT_EQ(r[2].t_ms, 100u + 1000u + 250u);
  EXPECT_EQ(r[2].in_tokens, 1620u);
  EXPECT_EQ(Shared(trace, 0, 2), 2u);
  // A prefix of 600 tokens after that is a compaction to one block.
  EXPECT_EQ(Shared(trace, 2, 3), 1u);
  EXPECT_EQ(r[0].end, EndKind::kTool);
  EXPECT_EQ(r[2].end, EndKind::kHuman);
}

TEST(ReadTraceLab, OtherHeaderWithoutArrivals) {
  TraceOptions options;
  options.spread_hours = 1;
  const Trace trace = ReadSample("tiny.tracelab2.csv", options);
  ASSERT_EQ(trace.requests().size(), 2u);
  EXPECT_LT(trace.requests()[0].t_ms, 3'600'000u);
  EXPECT_EQ(trace.requests()[1].t_ms, trace.requests()[0].t_ms + 1000 + 250);
  options.seed = 2;
  EXPECT_NE(ReadSample("tiny.tracelab2.csv", options).requests()[0].t_ms, trace.requests()[0].t_ms);
}

struct BadCase {
  const char* file;
  const char* where;
  const char* why;
};

TEST(ReadTrace, BadInputNamesFileLineAndField) {
  const BadCase cases[] = {
      {"bad_keep.kvt1.jsonl", ":2: field 'keep': ", "3 is more than the 2 blocks of line p"},
      {"bad_cut_line.kvt1.jsonl", ":2: ", "not a JSON object"},
      {"bad_ids.mooncake.jsonl", ":1: field 'hash_ids': ", "got -8"},
      {"bad_time.tester.json", ":1: requests[1]: field 't': ", "want a number, got \"soon\""},
      {"bad_round.tracelab.csv", ":3: field 'round_idx': ", "want 1, got 2"},
  };
  for (const BadCase& bad : cases) {
    const std::string error = ErrorOf(ReadTrace(SamplePath(bad.file), TraceOptions()));
    EXPECT_THAT(error, StartsWith(SamplePath(bad.file) + bad.where)) << bad.file;
    EXPECT_THAT(error, HasSubstr(bad.why)) << bad.file;
  }
}

TEST(ReadTrace, BadJsonIsRefusedWithTheByteAndWhatTheParserSays) {
  const auto expect = [](const std::string& text, const std::string& message) {
    const std::string start = "f:1: " + message;
    EXPECT_THAT(ErrorOf(ReadMooncake({"f", text})), StartsWith(start));
    EXPECT_THAT(ErrorOf(ReadKvt1({"f", text})), StartsWith(start));
    EXPECT_THAT(ErrorOf(ReadKvCacheTester({{"f", text}}, TraceOptions())), StartsWith(start));
  };
  const std::string no = "not a JSON object: ";
  expect(std::string("{\"t\":1}\0{}", 10), no + "byte 8: is NUL");
  expect("{\"t\":NaN}", no + "byte 6: syntax error while parsing value - invalid literal");
  expect("{\"t\":\"\xff\"}", no + "byte 7: syntax error while parsing value - invalid string: "
                                  "ill-formed UTF-8 byte; last read: '\"?'");
  expect("{\"t\":1e999}", no + "number overflow parsing '1e999'");
  expect("{\"t\":1", no + "byte 7: syntax error while parsing object - unexpected end of input");
  expect("{\"t\":1} x", no + "byte 9: syntax error while parsing value - invalid literal");
  expect(std::string(100000, '['), no + "byte 100001: syntax error while parsing value");
  expect("{\"t\":" + std::string(100000, '[') + std::string(100000, ']') + "}", "field '");
  expect("[1]", no + "it is a JSON array");
  expect("7", no + "it is a JSON number");
  expect(" ", no + "byte 2: syntax error while parsing value - unexpected end of input");
  expect("{\"t\":1,\"u\":{\"x\":1},\"x\":2,\"t\":1}", "field 't': named twice in one object");
  expect("{\"t\":[{\"a\\tb\":1,\"a\\tb\":1}]}", "field 'a?b': named twice in one object");
}

std::string Kvt1Line(const std::string& field, const std::string& value) {
  const std::pair<const char*, const char*> fields[] = {
      {"t", "5"},          {"s", "0"},      {"i", "0"},          {"ps", "-1"},       {"p", "-1"},
      {"in", "1024"},      {"out", "1"},    {"keep", "0"},       {"new", "[[0,2]]"}, {"dur", "1"},
      {"gap", "\"none\""}, {"gap_ms", "0"}, {"end", "\"tool\""}, {"tool", "\"-\""}};
  std::string line = "{";
  for (const auto& [name, good] : fields) {
    if (name == field && value.empty()) continue;  // left out
    if (line.size() > 1) line += ",";
    line += "\"" + std::string(name) + "\":" + (name == field ? value : good);
  }
  return line + "}\n";
}

TEST(ReadKvt1, EveryFieldIsCheckedForPresenceTypeAndRange) {
  ASSERT_EQ(ErrorOf(ReadKvt1({"f", Kvt1Line("", "")})), "accepted");
  for (const char* field : {"t", "s", "i", "ps", "p", "in", "out", "keep", "new", "dur", "gap",
                            "gap_ms", "end", "tool"}) {
    const std::string prefix = std::string("f:1: field '") + field + "': ";
    EXPECT_EQ(ErrorOf(ReadKvt1({"f", Kvt1Line(field, "")})), prefix + "missing");
    for (const char* bad : {"-2", "1e300", "18446744073709551615", "1.5", "{}", "[1]", "[[1,1,1]]",
                            "[[0,4294967296]]", "null", "true", "\"odd\""}) {
      if (std::string(field) == "tool" && bad[0] == '"') continue;
      EXPECT_THAT(ErrorOf(ReadKvt1({"f", Kvt1Line(field, bad)})), StartsWith(prefix))
          << field << " = " << bad;
    }
  }
}

TEST(ReadKvt1, TimeMayNotRunBackwards) {
  const std::string text = Kvt1Line("t", "9") + Kvt1Line("t", "8");
  EXPECT_EQ(ErrorOf(ReadKvt1({"f", text})), "f:2: field 't': 8 is before the line above, 9");
}

TEST(ReadKvt1, ParentMustBeEarlier) {
  const std::string text = Kvt1Line("p", "0");
  EXPECT_EQ(ErrorOf(ReadKvt1({"f", text})), "f:1: field 'p': line 0 is not an earlier one");
}

TEST(ReadTrace, UnknownAndEmptyFilesAreRefused) {
  EXPECT_THAT(ErrorOf(ReadTrace(SamplePath("no-such-file"), TraceOptions())),
              HasSubstr("cannot open"));
  EXPECT_THAT(ErrorOf(ReadTrace(std::string(FERMATA_TEST_TRACES), TraceOptions())),
              HasSubstr("bad_time.tester.json:1: requests[1]"));
  EXPECT_THAT(ErrorOf(ReadTrace("/dev/null", TraceOptions())), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace fermata::bench
