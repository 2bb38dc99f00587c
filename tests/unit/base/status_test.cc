// SPDX-License-Identifier: Apache-2.0
//
// Status carries a code, a stable reason and a sentence, and costs nothing when OK.
#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace fermata {
namespace {

TEST(Status, DefaultIsOkWithoutText) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.reason(), Reason::kNone);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
}

TEST(Status, NumbersAreTheCanonicalOnes) {
  // The C ABI maps by cast; the numbers are absl::StatusCode's.
  EXPECT_EQ(static_cast<int>(StatusCode::kCancelled), 1);
  EXPECT_EQ(static_cast<int>(StatusCode::kInvalidArgument), 3);
  EXPECT_EQ(static_cast<int>(StatusCode::kDeadlineExceeded), 4);
  EXPECT_EQ(static_cast<int>(StatusCode::kNotFound), 5);
  EXPECT_EQ(static_cast<int>(StatusCode::kResourceExhausted), 8);
  EXPECT_EQ(static_cast<int>(StatusCode::kFailedPrecondition), 9);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnimplemented), 12);
  EXPECT_EQ(static_cast<int>(StatusCode::kInternal), 13);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnavailable), 14);
  EXPECT_EQ(static_cast<int>(StatusCode::kDataLoss), 15);
}

TEST(Status, TextNamesCodeReasonAndNumbers) {
  const Status status =
      ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace, "want %d, free %d of %d", 8, 3, 64);
  EXPECT_EQ(status.ToString(), "RESOURCE_EXHAUSTED/NO_SPACE: want 8, free 3 of 64");
  EXPECT_EQ(ErrorF(StatusCode::kInternal, "x=%s", "y").ToString(), "INTERNAL: x=y");
}

TEST(Status, LongMessageIsCutAndNotOverrun) {
  const std::string text(4096, 'a');
  const Status status = ErrorF(StatusCode::kUnknown, "%s", text.c_str());
  EXPECT_EQ(status.message(), std::string(511, 'a'));
}

TEST(Status, CopyIsDeepAndMoveKeepsTheText) {
  Status first = ErrorF(StatusCode::kNotFound, "slot %u", 7u);
  const Status copy = first;  // NOLINT(performance-unnecessary-copy-initialization)
  const Status moved = std::move(first);
  EXPECT_EQ(copy.ToString(), "NOT_FOUND: slot 7");
  EXPECT_EQ(moved.ToString(), copy.ToString());
  EXPECT_NE(&moved.message(), &copy.message());
  Status assigned;
  assigned = copy;
  const Status& self = assigned;
  assigned = self;
  EXPECT_EQ(assigned.ToString(), copy.ToString());
}

TEST(Status, OkDropsAnyMessage) { EXPECT_EQ(Status(StatusCode::kOk, "ignored").message(), ""); }

TEST(Status, EveryNameIsItsOwn) {
  for (int a = 0; a <= 15; ++a) {
    const std::string name = StatusCodeName(static_cast<StatusCode>(a));
    EXPECT_NE(name, "UNKNOWN_STATUS") << a;
    for (int b = a + 1; b <= 15; ++b) EXPECT_NE(name, StatusCodeName(static_cast<StatusCode>(b)));
  }
  EXPECT_STREQ(StatusCodeName(static_cast<StatusCode>(16)), "UNKNOWN_STATUS");
  EXPECT_STREQ(StatusCodeName(static_cast<StatusCode>(-1)), "UNKNOWN_STATUS");
  for (const uint32_t reason :
       {0u, 1u, 2u, 3u, 10u, 11u, 20u, 21u, 22u, 23u, 24u, 30u, 31u, 40u, 41u}) {
    EXPECT_STRNE(ReasonName(static_cast<Reason>(reason)), "UNKNOWN_REASON") << reason;
  }
  EXPECT_STREQ(ReasonName(static_cast<Reason>(4)), "UNKNOWN_REASON");
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(**good, 3);
  const Result<int> bad(ErrorF(StatusCode::kAborted, "no"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kAborted);
}

TEST(ResultDeathTest, ValueOfAnErrorStops) {
  Result<int> bad(ErrorF(StatusCode::kAborted, "no"));
  EXPECT_DEATH(static_cast<void>(bad.value()), "ok");
  EXPECT_DEATH(static_cast<void>(Result<int>(Status())), "status_");
}

Status ReturnEarly(bool fail, bool* reached_end) {
  FERMATA_RETURN_IF_ERROR(fail ? ErrorF(StatusCode::kDataLoss, "torn") : Status());
  *reached_end = true;
  return Status();
}

TEST(Status, ReturnIfErrorReturnsErrorsOnly) {
  bool reached_end = false;
  EXPECT_EQ(ReturnEarly(true, &reached_end).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(reached_end);
  EXPECT_TRUE(ReturnEarly(false, &reached_end).ok());
  EXPECT_TRUE(reached_end);
}

}  // namespace
}  // namespace fermata
