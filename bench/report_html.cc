// SPDX-License-Identifier: Apache-2.0
//
// The HTML report: the page (report.html), the chart library and the data in one file that needs no
// network. The page draws itself from the data, so all that happens here is to gather and to
// splice.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "bench/report.h"

namespace fermata::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr size_t kCdfPoints = 200;

OrderedJson Timeline(const Metrics& metrics) {
  OrderedJson out = OrderedJson::array();
  for (const TimelineBucket& bucket : metrics.timeline) {
    OrderedJson point;
    point["h"] = static_cast<double>(bucket.end_ms) / 3'600'000.0;
    point["prompt"] = bucket.prompt;
    point["recomputed"] = bucket.recomputed;
    for (uint32_t i = 0; i < kTierSlots; ++i) {
      point["hit"].push_back(bucket.hit[i]);
      point["used"].push_back(bucket.used_slots[i]);
    }
    out.push_back(point);
  }
  return out;
}

// [milliseconds, share of resumes at most that long].
OrderedJson Cdf(const Metrics& metrics) {
  OrderedJson out = OrderedJson::array();
  const size_t count = metrics.resume_ms.size();
  const size_t step = std::max<size_t>(1, count / kCdfPoints);
  for (size_t i = 0; i < count; i += step) {
    out.push_back({metrics.resume_ms[i], static_cast<double>(i + 1) / static_cast<double>(count)});
  }
  if (count > 0) out.push_back({metrics.resume_ms.back(), 1.0});
  return out;
}

void Splice(const std::string& mark, const std::string& with, std::string* page) {
  const size_t at = page->find(mark);
  FERMATA_CHECK(at != std::string::npos);
  page->replace(at, mark.size(), with);
}

}  // namespace

std::string HtmlReport(const ReportInput& input) {
  OrderedJson data = OrderedJson::parse(JsonReport(input), nullptr, /*allow_exceptions=*/false);
  data["timeline"] = Timeline(*input.metrics);
  data["cdf"] = Cdf(*input.metrics);
  std::string text = data.dump(-1, ' ', true);
  // Nothing in a string may end the script element.
  for (size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at + 3)) {
    text.replace(at, 2, "<\\/");
  }
  std::string page = kReportTemplate;
  Splice("/*CHART-LIBRARY*/", kChartLibrary, &page);
  Splice("/*REPORT-DATA*/", text, &page);
  return page;
}

}  // namespace fermata::bench
