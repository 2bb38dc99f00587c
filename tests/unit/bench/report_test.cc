// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fermata::bench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(Report, TextSaysWhatItMeansThatRequestsDidNotFit) {
  EXPECT_THAT(TextReport(Input()), Not(HasSubstr("did not fit")));
  metrics_.requests_cut = 122;
  metrics_.tokens_hit_cut = 3323904;
  EXPECT_THAT(TextReport(Input()),
              HasSubstr("122 requests did not fit the device tier beside those that ran then; "
                        "3,323,904 of their hit tokens were not loaded\n"
                        "           (an engine would make them wait; "));
}

// That the text is JSON at all, bench_cli_test.py shows, which parses it.
TEST_F(Report, JsonHasThePromisedKeysWithTheRightValues) {
  const std::string json = JsonReport(Input());
  for (const char* pair : {"\"passed\": true",
                           "\"requests\": 1234,",
                           "\"tokens_prompt\": 1000000,",
                           "\"tokens_hit_device\": 700000,",
                           "\"tokens_hit_host\": 200000,",
                           "\"tokens_hit_ssd\": 50000,",
                           "\"tokens_recomputed\": 50000,",
                           "\"hit_ratio\": 0.95,",
                           "\"evictions\": 600,",
                           "\"orphans\": 0,",
                           "\"bytes_d2h\": 1000,",
                           "\"bytes_h2d\": 2000,",
                           "\"bytes_ssd_written\": 6000,",
                           "\"bytes_ssd_read\": 3000,",
                           "\"oracle_checks\": 1855,",
                           "\"oracle_failures\": 0,",
                           "\"p50\": 50.0,",
                           "\"p95\": 95.0,",
                           "\"p99\": 99.0,",
                           "\"wall_s\": ",
                           "\"peak_rss_bytes\": ",
                           "\"requests_cut\": ",
                           "\"config\": {",
                           "\"sha256\": \"00ff\"",
                           "\"ssd.io\": \"io_uring\""}) {
    EXPECT_THAT(json, HasSubstr(pair));
  }
}

TEST_F(Report, ResumeIsNullOnTheVirtualClockAndSaysWhy) {
  options_.real_clock = false;
  metrics_.resume_ms.clear();
  const std::string json = JsonReport(Input());
  EXPECT_THAT(json, HasSubstr("\"p99\": null"));
  EXPECT_THAT(json, HasSubstr("on the virtual clock"));
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
  const std::string data = html.substr(begin, html.find("</script>", begin) - begin);
  EXPECT_THAT(data, HasSubstr("a<\\/script>b"));
  EXPECT_THAT(data, EndsWith("]]}"));  // the last point of the CDF, whole
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
