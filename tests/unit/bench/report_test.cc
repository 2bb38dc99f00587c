// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fermata::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Report : public testing::Test {
 protected:
  void SetUp() override {
    trace_.name = "a</script>b";
    trace_.format = "kvt1";
    trace_.sha256 = "00ff";
    options_.real_clock = true;
    metrics_.requests = 1234;
    metrics_.tokens_prompt = 1000000;
    metrics_.tokens_hit[kDevice] = 700000;
    metrics_.tokens_hit[kHost] = 200000;
    metrics_.tokens_hit[kSsd] = 50000;
    metrics_.tokens_recomputed = 50000;
    metrics_.oracle_checks = 1855;
    for (uint32_t i = 0; i < kTierSlots; ++i) {
      metrics_.tiers[i].present = true;
      metrics_.tiers[i].slots = 10 + i;
      metrics_.tiers[i].evictions = 100 * (i + 1);
      metrics_.tiers[i].bytes_read = 1000 * (i + 1);
      metrics_.tiers[i].bytes_written = 2000 * (i + 1);
    }
    for (int i = 1; i <= 100; ++i) metrics_.resume_ms.push_back(i);
    TimelineBucket bucket;
    bucket.prompt = 1000000;
    bucket.end_ms = 3600000;
    metrics_.timeline.push_back(bucket);
    metrics_.stat_words.emplace_back("ssd.io", "io_uring");
  }
  ReportInput Input() const { return {&trace_, &options_, &metrics_}; }

  Trace trace_;
  ReplayOptions options_;
  Metrics metrics_;
};

TEST_F(Report, JsonHasThePromisedKeysWithTheRightValues) {
  const Json json = Json::parse(JsonReport(Input()));
  EXPECT_EQ(json["requests"], 1234);
  EXPECT_EQ(json["tokens_prompt"], 1000000);
  EXPECT_EQ(json["tokens_hit_device"], 700000);
  EXPECT_EQ(json["tokens_hit_host"], 200000);
  EXPECT_EQ(json["tokens_hit_ssd"], 50000);
  EXPECT_EQ(json["tokens_recomputed"], 50000);
  EXPECT_DOUBLE_EQ(json["hit_ratio"], 0.95);
  EXPECT_EQ(json["evictions"], 600);
  EXPECT_EQ(json["orphans"], 0);
  EXPECT_EQ(json["bytes_d2h"], 1000);
  EXPECT_EQ(json["bytes_h2d"], 2000);
  EXPECT_EQ(json["bytes_ssd_written"], 6000);
  EXPECT_EQ(json["bytes_ssd_read"], 3000);
  EXPECT_EQ(json["oracle_checks"], 1855);
  EXPECT_EQ(json["oracle_failures"], 0);
  EXPECT_EQ(json["resume_ms"]["p50"], 50.0);
  EXPECT_EQ(json["resume_ms"]["p95"], 95.0);
  EXPECT_EQ(json["resume_ms"]["p99"], 99.0);
  for (const char* key : {"wall_s", "peak_rss_bytes", "requests_cut", "config", "trace"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["trace"]["sha256"], "00ff");
  EXPECT_EQ(json["io"]["ssd.io"], "io_uring");
  EXPECT_EQ(json["passed"], true);
}

TEST_F(Report, ResumeIsNullOnTheVirtualClockAndSaysWhy) {
  options_.real_clock = false;
  metrics_.resume_ms.clear();
  const Json json = Json::parse(JsonReport(Input()));
  EXPECT_TRUE(json["resume_ms"]["p99"].is_null());
  EXPECT_THAT(json["resume_ms"]["note"].get<std::string>(), HasSubstr("virtual clock"));
}

TEST_F(Report, WrongBytesOrphansAndAuditsFailTheRun) {
  EXPECT_THAT(TextReport(Input()), HasSubstr("PASSED"));
  metrics_.oracle_failures = 1;
  EXPECT_FALSE(metrics_.passed());
  EXPECT_THAT(TextReport(Input()), HasSubstr("FAILED"));
  metrics_.oracle_failures = 0;
  metrics_.orphans_max = 1;
  EXPECT_FALSE(metrics_.passed());
  metrics_.orphans_max = 0;
  metrics_.audit_error = "block 5 is in two slots";
  EXPECT_FALSE(metrics_.passed());
  EXPECT_THAT(TextReport(Input()), HasSubstr("block 5 is in two slots"));
}

TEST_F(Report, TextNamesEveryTier) {
  const std::string text = TextReport(Input());
  EXPECT_THAT(text, HasSubstr("device             700,000   70.000 %"));
  EXPECT_THAT(text, HasSubstr("1,234 requests"));
  EXPECT_THAT(text, HasSubstr("p95 95.000 ms"));
}

TEST_F(Report, HtmlIsSelfContainedAndItsDataCannotEndTheScript) {
  const std::string html = HtmlReport(Input());
  const size_t begin = html.find("id=\"data\">") + 10;
  const size_t end = html.find("</script>", begin);
  const Json data = Json::parse(html.substr(begin, end - begin));
  EXPECT_EQ(data["trace"]["name"], "a</script>b");
  EXPECT_EQ(data["cdf"].back()[1], 1.0);
  EXPECT_EQ(data["timeline"].size(), 1u);
  EXPECT_THAT(html, HasSubstr("Chart.js v3"));
  EXPECT_THAT(html, Not(HasSubstr("src=\"http")));
  EXPECT_THAT(html, Not(HasSubstr("href=\"http")));
  EXPECT_THAT(html, Not(HasSubstr("/*REPORT-DATA*/")));
}

TEST(Csv, RowIsInTheOrderOfItsHeader) {
  char* text = nullptr;
  size_t size = 0;
  FILE* const file = open_memstream(&text, &size);
  WriteCsvHeader(file);
  RequestRow row;
  row.index = 3;
  row.prompt = 1000;
  row.hit[kDevice] = 512;
  row.hit[kSsd] = 256;
  WriteCsvRow(row, file);
  std::fclose(file);
  EXPECT_STREQ(text,
               "request,prompt_tokens,hit_device,hit_host,hit_ssd,recomputed\n"
               "3,1000,512,0,256,232\n");
  free(text);
}

TEST(Metrics, QuantilesAreNearestRank) {
  Metrics metrics;
  EXPECT_EQ(metrics.ResumeMs(0.5), 0);
  metrics.resume_ms = {1, 2, 3, 4};
  EXPECT_EQ(metrics.ResumeMs(0.5), 2);
  EXPECT_EQ(metrics.ResumeMs(0.51), 3);
  EXPECT_EQ(metrics.ResumeMs(0.99), 4);
  EXPECT_EQ(metrics.ResumeMs(0), 1);
}

}  // namespace
}  // namespace fermata::bench
