// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <initializer_list>

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

struct BadText {
  const char* text;
  const char* message;  // all of it, or its beginning when it ends in "..."
};

void ExpectRefusals(std::initializer_list<BadText> cases,
                    const std::function<Result<Trace>(const std::string&)>& read) {
  for (const BadText& bad : cases) {
    std::string message = bad.message;
    if (message.ends_with("...")) {
      message.resize(message.size() - 3);
      EXPECT_THAT(ErrorOf(read(bad.text)), StartsWith(message)) << bad.text;
    } else {
      EXPECT_EQ(ErrorOf(read(bad.text)), message) << bad.text;
    }
  }
}

TEST(ReadMooncake, BadLinesNameLineFieldAndValue) {
  const std::string good =
      R"({"timestamp": 5, "input_length": 1100, "output_length": 1, "hash_ids": [1, 2, 3]})"
      "\n";
  const auto read = [&](const std::string& line) { return ReadMooncake({"f", good + line}); };
  ASSERT_EQ(ErrorOf(read(good)), "accepted");
  ExpectRefusals(
      {
          {R"({"input_length":0,"output_length":1,"hash_ids":[]})",
           "f:2: field 'timestamp': missing"},
          {R"({"timestamp":5,"output_length":1,"hash_ids":[]})",
           "f:2: field 'input_length': missing"},
          {R"({"timestamp":5,"input_length":0,"hash_ids":[]})",
           "f:2: field 'output_length': missing"},
          {R"({"timestamp":5,"input_length":0,"output_length":1})",
           "f:2: field 'hash_ids': missing"},
          {R"({"timestamp":"5","input_length":0,"output_length":1,"hash_ids":[]})",
           "f:2: field 'timestamp': want a whole number, got \"5\""},
          {R"({"timestamp":-1,"input_length":0,"output_length":1,"hash_ids":[]})",
           "f:2: field 'timestamp': want 0 to 4398046511104, got -1"},
          {R"({"timestamp":1e300,"input_length":0,"output_length":1,"hash_ids":[]})",
           "f:2: field 'timestamp': want a whole number, got 1e+300"},
          {R"({"timestamp":4,"input_length":0,"output_length":1,"hash_ids":[]})",
           "f:2: field 'timestamp': 4 is before the line above, 5"},
          {R"({"timestamp":4398046511105,"input_length":0,"output_length":1,"hash_ids":[]})",
           "f:2: field 'timestamp': want 0 to 4398046511104, got 4398046511105"},
          {R"({"timestamp":5,"input_length":16777217,"output_length":1,"hash_ids":[]})",
           "f:2: field 'input_length': want 0 to 16777216, got 16777217"},
          {R"({"timestamp":5,"input_length":512.5,"output_length":1,"hash_ids":[]})",
           "f:2: field 'input_length': want a whole number, got 512.5"},
          {R"({"timestamp":5,"input_length":null,"output_length":1,"hash_ids":[]})",
           "f:2: field 'input_length': want a whole number, got null"},
          {R"({"timestamp":5,"input_length":0,"output_length":18446744073709551616,"hash_ids":[]})",
           "f:2: field 'output_length': want a whole number, got 1.8446744073709552e+19"},
          {R"({"timestamp":5,"input_length":0,"output_length":true,"hash_ids":[]})",
           "f:2: field 'output_length': want a whole number, got true"},
          {R"({"timestamp":5,"input_length":0,"output_length":1,"hash_ids":7})",
           "f:2: field 'hash_ids': want an array, got 7"},
          {R"({"timestamp":5,"input_length":0,"output_length":1,"hash_ids":{"a":1}})",
           "f:2: field 'hash_ids': want an array, got an object"},
          {R"({"timestamp":5,"input_length":1024,"output_length":1,"hash_ids":[1]})",
           "f:2: field 'hash_ids': has 1 ids for an input_length of 1024"},
          {R"({"timestamp":5,"input_length":1024,"output_length":1,"hash_ids":[1,2,3]})",
           "f:2: field 'hash_ids': has 3 ids for an input_length of 1024"},
          {R"({"timestamp":5,"input_length":600,"output_length":1,"hash_ids":[1,"x"]})",
           "f:2: field 'hash_ids': want a whole number, got \"x\""},
          {R"({"timestamp":5,"input_length":600,"output_length":1,"hash_ids":[281474976710657,2]})",
           "f:2: field 'hash_ids': want 0 to 281474976710656, got 281474976710657"},
          {R"({"timestamp":5,"input_length":600,"output_length":1,"hash_ids":[[1],2]})",
           "f:2: field 'hash_ids': want a whole number, got an array"},
          {R"({"timestamp":5,"input_length":0,"input_length":1,"output_length":1,"hash_ids":[]})",
           "f:2: field 'input_length': named twice in one object"},
          {R"([5,0,1,[]])", "f:2: not a JSON object: it is a JSON array"},
          {"\n", "f:2: not a JSON object: byte 1: ..."},
          {R"({"timestamp":5,"input_length":0)", "f:2: not a JSON object: byte 32: ..."},
      },
      read);
}

TEST(ReadTraceLab, BadRowsNameLineColumnAndValue) {
  const auto read = [](const std::string& row) {
    return ReadTraceLab({"f",
                         "id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms,"
                         "arrival_time\na,0,0,1100,20,250.4,100\n" +
                             row},
                        TraceOptions());
  };
  ASSERT_EQ(ErrorOf(read("a,1,1120.0,5e2,10,0,0.5\r\n")), "accepted");
  ExpectRefusals(
      {
          {"a,1,0,600,20,0", "f:3: has 6 columns, the header 7"},
          {"a,1,0,600,20,0,1,2", "f:3: has 8 columns, the header 7"},
          {"\n", "f:3: has 1 columns, the header 7"},
          {",0,0,600,20,0,1", "f:3: field 'session_id': is empty"},
          {"a,2,0,600,20,0,1", "f:3: field 'round_idx': want 1, got 2, in session 'a'"},
          {"a,0,0,600,20,0,1", "f:3: field 'round_idx': want 1, got 0, in session 'a'"},
          {"a,-1,0,600,20,0,1", "f:3: field 'round_idx': want 0 to 67108864, got -1"},
          {"a,0.5,0,600,20,0,1", "f:3: field 'round_idx': want a whole number, got '0.5'"},
          {"a,,0,600,20,0,1", "f:3: field 'round_idx': want a number, got ''"},
          {"a,1,x,600,20,0,1", "f:3: field 'prefix_len': want a number, got 'x'"},
          {"a,1,0x10,600,20,0,1", "f:3: field 'prefix_len': want a number, got '0x10'"},
          {"a,1,16777217,0,20,0,1", "f:3: field 'prefix_len': want 0 to 16777216, got 16777217"},
          {"a,1,16777216,1,20,0,1",
           "f:3: field 'input_len': 1 with a prefix_len of 16777216 is more than 16777216 tokens"},
          {"a,1,0,600.7,20,0,1", "f:3: field 'input_len': want a whole number, got '600.7'"},
          {"a,1,0,nan,20,0,1", "f:3: field 'input_len': want a number, got 'nan'"},
          {"a,1,0,inf,20,0,1", "f:3: field 'input_len': want a number, got 'inf'"},
          {"a,1,0, 600,20,0,1", "f:3: field 'input_len': want a number, got ' 600'"},
          {"a,1,0,\"600\",20,0,1", "f:3: field 'input_len': want a number, got '\"600\"'"},
          {"a,1,0,600,1e300,0,1", "f:3: field 'output_len': want 0 to 16777216, got 1e300"},
          {"a,1,0,600,1e999,0,1", "f:3: field 'output_len': want a number, got '1e999'"},
          {"a,1,0,600,\x1b[2J\xff,0,1", "f:3: field 'output_len': want a number, got '?[2J?'"},
          {"a,1,0,600,20,-5,1", "f:3: field 'tool_wait_after_ms': want 0 to 4398046511104, got -5"},
          {"a,1,0,600,20,4398046511105,1",
           "f:3: field 'tool_wait_after_ms': want 0 to 4398046511104, got 4398046511105"},
          {"a,1,0,600,20,4398046511104,1\na,2,0,0,0,0,1",
           "f:4: field 'tool_wait_after_ms': the waits of session 'a' end at 4398046513454 ms, "
           "after 4398046511104"},
          {"a,1,0,600,20,0,soon", "f:3: field 'arrival_time': want a number, got 'soon'"},
      },
      read);
}

TEST(ReadTraceLab, BadHeadersNameTheColumn) {
  ExpectRefusals(
      {
          {"id,round_idx,prefix_len,input_len,output_len\n",
           "f:1: field 'tool_wait_after_ms': column missing"},
          {"id,session_id,round_idx\n", "f:1: field 'session_id': column named twice"},
          {"id,round_idx,colour\n", "f:1: field 'colour': unknown column"},
          {"id,round_idx,\n", "f:1: field '': unknown column"},
          {"id;round_idx\n", "f:1: field 'id;round_idx': unknown column"},
          {"\xef\xbb\xbfid,round_idx\n", "f:1: field '???id': unknown column"},
          {"\n", "f:1: field '': unknown column"},
      },
      [](const std::string& text) {
        return ReadTraceLab({"f", text}, TraceOptions());
      });
}

TEST(ReadTraceLab, FewBytesOfTextCannotNameMoreBlocksThanMemoryHolds) {
  std::string text = "id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n";
  for (int i = 0; i < 4; ++i) text += "a," + std::to_string(i) + ",0,5120,0,0\n";
  TraceOptions options;
  options.max_blocks = 40;
  EXPECT_EQ(ErrorOf(ReadTraceLab({"f", text}, options)), "accepted");
  options.max_blocks = 39;
  EXPECT_EQ(ErrorOf(ReadTraceLab({"f", text}, options)),
            "f:5: field 'input_len': 5120 makes more than 39 blocks in all rows");
}

TEST(ReadKvCacheTester, BadRequestsNameTheirPlaceFieldAndValue) {
  const auto read = [](const std::string& requests) {
    return ReadKvCacheTester({{"f", R"({"block_size":256,"tool_tokens":512,"requests":[)"
                                    R"({"t":1,"type":"n","in":512,"out":1,"hash_ids":[1,2]},)" +
                                        requests + "]}"}},
                             TraceOptions());
  };
  ASSERT_EQ(ErrorOf(read(R"({"t":2,"type":"s","in":513,"out":1,"hash_ids":[1,2,3]})")), "accepted");
  const std::string sub = R"({"t":2,"type":"subagent","requests":[)";
  ExpectRefusals(
      {
          {"7", "f:1: requests[1]: want an object, got 7"},
          {R"({"type":"n","in":0,"out":1,"hash_ids":[]})", "f:1: requests[1]: field 't': missing"},
          {R"({"t":-1,"type":"n","in":0,"out":1,"hash_ids":[]})",
           "f:1: requests[1]: field 't': want 0 to 1000000000, got -1"},
          {R"({"t":1e10,"type":"n","in":0,"out":1,"hash_ids":[]})",
           "f:1: requests[1]: field 't': want 0 to 1000000000, got 10000000000.0"},
          {R"({"t":0.5,"type":"n","in":0,"out":1,"hash_ids":[]})",
           "f:1: requests[1]: field 't': 0.5 is before the request above, 1"},
          {R"({"t":2,"in":0,"out":1,"hash_ids":[]})", "f:1: requests[1]: field 'type': missing"},
          {R"({"t":2,"type":7,"in":0,"out":1,"hash_ids":[]})",
           "f:1: requests[1]: field 'type': want a string, got 7"},
          {R"({"t":2,"type":"x\u0007","in":0,"out":1,"hash_ids":[]})",
           "f:1: requests[1]: field 'type': want n, s or subagent, got 'x?'"},
          {R"({"t":2,"type":"n","out":1,"hash_ids":[]})", "f:1: requests[1]: field 'in': missing"},
          {R"({"t":2,"type":"n","in":-3,"out":1,"hash_ids":[]})",
           "f:1: requests[1]: field 'in': want 0 to 16777216, got -3"},
          {R"({"t":2,"type":"n","in":0,"out":1.5,"hash_ids":[]})",
           "f:1: requests[1]: field 'out': want a whole number, got 1.5"},
          {R"({"t":2,"type":"n","in":0,"out":1})", "f:1: requests[1]: field 'hash_ids': missing"},
          {R"({"t":2,"type":"n","in":0,"out":1,"hash_ids":"1"})",
           "f:1: requests[1]: field 'hash_ids': want an array, got \"1\""},
          {R"({"t":2,"type":"n","in":512,"out":1,"hash_ids":[1]})",
           "f:1: requests[1]: field 'hash_ids': has 1 ids for 512 tokens of blocks of 256"},
          {R"({"t":2,"type":"n","in":512,"out":1,"hash_ids":[1,2,3,4]})",
           "f:1: requests[1]: field 'hash_ids': has 4 ids for 512 tokens of blocks of 256"},
          {R"({"t":2,"type":"n","in":512,"out":1,"hash_ids":[1,4294967296]})",
           "f:1: requests[1]: field 'hash_ids': want 0 to 4294967295, got 4294967296"},
          {R"({"t":2,"type":"n","in":513,"out":1,"hash_ids":[1,2,"tail"]})",
           "f:1: requests[1]: field 'hash_ids': want a whole number, got \"tail\""},
          {R"({"t":2,"type":"n","in":0,"out":1,"hash_ids":[],"stop":3})",
           "f:1: requests[1]: field 'stop': want a string, got 3"},
          {R"({"t":2,"type":"n","in":0,"out":1,"hash_ids":[],"api_time":"2"})",
           "f:1: requests[1]: field 'api_time': want a number, got \"2\""},
          {R"({"t":2,"type":"n","in":0,"out":1,"hash_ids":[],"api_time":-2})",
           "f:1: requests[1]: field 'api_time': want 0 to 1000000000, got -2"},
          {R"({"t":2,"type":"subagent"})", "f:1: requests[1]: field 'requests': missing"},
          {R"({"t":2,"type":"subagent","requests":[7]})",
           "f:1: requests[1].requests[0]: want an object, got 7"},
          {(sub + R"({"t":"x","type":"n","in":0,"out":1,"hash_ids":[]}]})").c_str(),
           "f:1: requests[1].requests[0]: field 't': want a number, got \"x\""},
          {(sub + R"({"t":2,"type":"subagent","requests":[]}]})").c_str(),
           "f:1: requests[1].requests[0]: field 'type': a subagent inside a subagent"},
      },
      read);
}

TEST(ReadKvCacheTester, BadConversationsNameFieldAndValue) {
  ExpectRefusals(
      {
          {R"({"requests":[]})", "f:1: field 'block_size': missing"},
          {R"({"block_size":0,"requests":[]})", "f:1: field 'block_size': 0 does not divide 512"},
          {R"({"block_size":7,"requests":[]})", "f:1: field 'block_size': 7 does not divide 512"},
          {R"({"block_size":1024,"requests":[]})",
           "f:1: field 'block_size': want 0 to 512, got 1024"},
          {R"({"block_size":"64","requests":[]})",
           "f:1: field 'block_size': want a whole number, got \"64\""},
          {R"({"block_size":64,"tool_tokens":-1,"requests":[]})",
           "f:1: field 'tool_tokens': want 0 to 16777216, got -1"},
          {R"({"block_size":64})", "f:1: field 'requests': missing"},
          {R"({"block_size":64,"requests":{}})",
           "f:1: field 'requests': want an array, got an object"},
          {R"({"block_size":64,"requests":[],"requests":[]})",
           "f:1: field 'requests': named twice in one object"},
          {"[]", "f:1: not a JSON object: it is a JSON array"},
          {"", "f:1: not a JSON object: byte 1: ..."},
      },
      [](const std::string& text) {
        return ReadKvCacheTester({{"f", text}}, TraceOptions());
      });
}

TEST(ReadTrace, DirectoryWithoutOneRequestIsRefused) {
  const std::string directory = ::testing::TempDir() + "fermata-empty-trace";
  std::filesystem::create_directories(directory);
  ASSERT_TRUE(WriteTextFile(directory + "/one.json", R"({"block_size":64,"requests":[]})").ok());
  EXPECT_EQ(ErrorOf(ReadTrace(directory, TraceOptions())), directory + ": no requests in it");
  std::filesystem::remove_all(directory);
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
