// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "bench/report.h"

namespace fermata::bench {
namespace {

[[gnu::format(printf, 2, 3)]] void Line(std::string* out, const char* format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  out->append(line).push_back('\n');
}

// 1234567 -> "1,234,567".
std::string Grouped(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string Bytes(uint64_t value) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  double scaled = static_cast<double>(value);
  size_t unit = 0;
  for (; scaled >= 1000 && unit + 1 < std::size(kUnits); ++unit) scaled /= 1000;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", scaled, kUnits[unit]);
  return text;
}

double Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

const char* TierSlotName(uint32_t slot) {
  constexpr const char* kNames[kTierSlots] = {"device", "host", "ssd"};
  return kNames[slot];
}

std::string TextReport(const ReportInput& input) {
  const Metrics& m = *input.metrics;
  const ReplayOptions& options = *input.options;
  std::string out;
  Line(&out, "trace      %s  %s requests, %s sessions, %s block touches", input.trace->name.c_str(),
       Grouped(m.requests).c_str(), Grouped(input.trace->session_count()).c_str(),
       Grouped(input.trace->block_touches()).c_str());
  Line(&out, "cache      %s, %s clock, blocks of %u tokens, %s%s", options.policy.c_str(),
       options.real_clock ? "real" : "virtual", options.block_tokens(),
       options.real_clock ? Bytes(options.block_bytes).c_str() : "no bytes",
       options.token_keys ? ", named by tokens" : "");
  Line(&out, "%s", "");
  Line(&out,
       "tier        hit tokens             %%        slots         used    evictions        read   "
       "  written");
  for (uint32_t i = 0; i < kTierSlots; ++i) {
    const TierMetrics& tier = m.tiers[i];
    if (!tier.present) continue;
    Line(&out, "%-8s %17s  %7.3f %% %12s %12s %12s %11s %11s%s", TierSlotName(i),
         Grouped(m.tokens_hit[i]).c_str(), Percent(m.tokens_hit[i], m.tokens_prompt),
         Grouped(tier.slots).c_str(), Grouped(tier.used_slots).c_str(),
         Grouped(tier.evictions).c_str(), Bytes(tier.bytes_read).c_str(),
         Bytes(tier.bytes_written).c_str(), tier.healthy != 0 ? "" : "  switched off");
  }
  Line(&out, "%-8s %17s  %7.3f %%", "hit", Grouped(m.tokens_hit_all()).c_str(), 100 * m.HitRatio());
  Line(&out, "%-8s %17s  %7.3f %%", "computed", Grouped(m.tokens_recomputed).c_str(),
       Percent(m.tokens_recomputed, m.tokens_prompt));
  Line(&out, "%s", "");
  if (m.requests_cut > 0) {
    Line(&out,
         "cut        %s requests did not fit the device tier beside those that ran then; %s of "
         "their hit tokens were not loaded",
         Grouped(m.requests_cut).c_str(), Grouped(m.tokens_hit_cut).c_str());
    Line(&out,
         "           (an engine would make them wait; a replay keeps the trace's times and caches "
         "what fits of each prompt)");
  }
  if (m.tokens_lost > 0) {
    Line(&out, "lost       %s tokens could not be read back and count as computed",
         Grouped(m.tokens_lost).c_str());
  }
  if (options.real_clock) {
    Line(&out, "oracle     %s blocks checked (%s), %s wrong", Grouped(m.oracle_checks).c_str(),
         Bytes(m.oracle_bytes).c_str(), Grouped(m.oracle_failures).c_str());
    if (m.resume_ms.empty()) {
      Line(&out, "resume     no request had to be brought back");
    } else {
      Line(&out, "resume     p50 %.3f ms, p95 %.3f ms, p99 %.3f ms over %s requests",
           m.ResumeMs(0.5), m.ResumeMs(0.95), m.ResumeMs(0.99),
           Grouped(m.resume_ms.size()).c_str());
    }
  } else {
    Line(&out, "oracle     not run: the virtual clock moves no bytes; resume latency likewise");
  }
  Line(&out, "audit      %s times, %s orphans%s%s", Grouped(m.audits).c_str(),
       Grouped(m.orphans_max).c_str(),
       m.audit_error.empty() ? "" : "; FAILED: ", m.audit_error.c_str());
  for (const auto& [name, text] : m.stat_words) {
    if (text.empty()) continue;
    Line(&out, "%-10s %s", name.c_str(), text.c_str());
  }
  Line(&out, "time       %.2f s (%.2f s checking, %.2f s writing), peak memory %s", m.wall_s,
       m.check_s, m.write_s, Bytes(m.peak_rss_bytes).c_str());
  Line(&out, "%s", m.passed() ? "PASSED" : "FAILED");
  return out;
}

}  // namespace fermata::bench
