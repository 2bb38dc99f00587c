// SPDX-License-Identifier: Apache-2.0
//
// Damaged traces: thousands of seeded mutations of each sample. A reader either refuses with a
// message that starts with the file's name, or gives a trace that can be used; run under the
// sanitizers this also shows that it stays within bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "bench/convert.h"
#include "trace_test_util.h"

namespace fermata::bench {
namespace {

using ::testing::StartsWith;

std::string Mutate(std::string text, Random* random) {
  const uint64_t times = 1 + random->Below(3);
  for (uint64_t i = 0; i < times && !text.empty(); ++i) {
    const size_t at = random->Below(text.size());
    switch (random->Below(7)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text[at] = static_cast<char>(random->Below(256));
        break;
      case 2:
        text.erase(at, 1 + random->Below(40));
        break;
      case 3:
        text.insert(at, text.substr(random->Below(text.size()), 1 + random->Below(60)));
        break;
      case 4: {  // a number becomes another
        const size_t digit = text.find_first_of("0123456789", at);
        constexpr const char* kNumbers[] = {
            "-1",  "18446744073709551616", "1e999", "4294967296", "99999999", "0", "0.5", "null",
            "\"\""};
        if (digit != std::string::npos) text.replace(digit, 1, kNumbers[random->Below(9)]);
        break;
      }
      case 5: {  // structure
        constexpr const char* kMarks[] = {"[", "]", "{", "}", ",", ":", "\"", "\n", "[[[[[["};
        text.insert(at, kMarks[random->Below(9)]);
        break;
      }
      default:
        text[at] = '9';
    }
  }
  return text;
}

void ExpectUsable(const Trace& trace) {
  uint64_t touches = 0;
  for (size_t i = 0; i < trace.requests().size(); ++i) {
    const std::vector<uint64_t> blocks = Blocks(trace, i);
    ASSERT_EQ(blocks.size(), trace.requests()[i].in_tokens / kBlockTokens);
    for (const uint64_t block : blocks) ASSERT_LE(block, trace.max_block());
    touches += blocks.size();
  }
  EXPECT_EQ(touches, trace.block_touches());
  Result<Trace> again = ReadKvt1({"again", ToKvt1(trace)});
  ASSERT_TRUE(again.ok()) << again.status().message();
}

void Fuzz(const std::string& sample, TraceFormat format) {
  Result<std::string> text = ReadTextFile(SamplePath(sample), nullptr);
  ASSERT_TRUE(text.ok());
  Random random(20261130);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 12000; ++i) {
    const TraceText file{"damaged", Mutate(*text, &random)};
    Result<Trace> trace = Status(StatusCode::kUnknown, "not read");
    if (format == TraceFormat::kKvt1) trace = ReadKvt1(file);
    if (format == TraceFormat::kMooncake) trace = ReadMooncake(file);
    if (format == TraceFormat::kKvCacheTester) trace = ReadKvCacheTester({file}, TraceOptions());
    if (format == TraceFormat::kTraceLab) trace = ReadTraceLab(file, TraceOptions());
    if (trace.ok()) {
      ++accepted;
      ExpectUsable(*trace);
      if (testing::Test::HasFatalFailure()) FAIL() << "mutation " << i << ":\n" << file.text;
    } else {
      ++refused;
      ASSERT_THAT(trace.status().message(), StartsWith("damaged:")) << file.text;
    }
  }
  // Both must happen often, or the mutations are too tame or too wild to mean anything.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(TraceFuzz, Kvt1) { Fuzz("tiny.kvt1.jsonl", TraceFormat::kKvt1); }
TEST(TraceFuzz, Mooncake) { Fuzz("tiny.mooncake.jsonl", TraceFormat::kMooncake); }
TEST(TraceFuzz, KvCacheTester) { Fuzz("tiny.tester.json", TraceFormat::kKvCacheTester); }
TEST(TraceFuzz, TraceLab) { Fuzz("tiny.tracelab.csv", TraceFormat::kTraceLab); }

}  // namespace
}  // namespace fermata::bench
