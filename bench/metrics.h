// SPDX-License-Identifier: Apache-2.0
//
// Metrics: what a replay found, in a form that the reports (text, JSON, CSV, HTML) print without
// asking anyone else. Tokens unless a name says otherwise. Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fermata::bench {

enum TierSlot : uint32_t { kDevice = 0, kHost = 1, kSsd = 2, kTierSlots = 3 };

struct TierMetrics {
  bool present = false;
  uint64_t slots = 0;
  uint64_t used_slots = 0;  // at the end
  uint64_t evictions = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t healthy = 1;
};

// A stretch of trace time.
struct TimelineBucket {
  uint64_t end_ms = 0;
  uint64_t prompt = 0;
  uint64_t hit[kTierSlots] = {0, 0, 0};
  uint64_t recomputed = 0;
  uint64_t used_slots[kTierSlots] = {0, 0, 0};  // at its end
};

struct Metrics {
  uint64_t requests = 0;
  uint64_t tokens_prompt = 0;
  uint64_t tokens_hit[kTierSlots] = {0, 0, 0};
  uint64_t tokens_hit_cut =
      0;  // of those, in requests that did not fit: found, but neither loaded nor checked
  uint64_t tokens_lost = 0;  // found, but could not be read back; counted as recomputed
  uint64_t tokens_recomputed = 0;
  uint64_t requests_cut = 0;
  uint64_t blocks_cut = 0;  // never given a slot because of that
  uint64_t blocks_written = 0;
  uint64_t blocks_sabotaged = 0;
  uint64_t orphans_max = 0;
  uint64_t orphans = 0;  // at the last audit
  uint64_t audits = 0;
  uint64_t oracle_checks = 0;
  uint64_t oracle_failures = 0;
  uint64_t oracle_bytes = 0;
  uint64_t load_jobs = 0;
  uint64_t resumed = 0;  // --by handles: requests that took up their session's last sequence
  uint64_t would_block = 0;
  uint64_t lost_blocks = 0;
  uint64_t dropped_blocks = 0;
  uint64_t superseded_blocks = 0;
  uint64_t peak_rss_bytes = 0;
  double wall_s = 0;
  double audit_s = 0;  // spent recounting the books, of wall_s
  double check_s = 0;  // spent checking, of wall_s
  double write_s = 0;  // spent writing new blocks
  TierMetrics tiers[kTierSlots];
  std::vector<double> resume_ms;  // sorted; real clock only
  std::vector<TimelineBucket> timeline;
  std::vector<std::pair<std::string, std::string>> stat_words;  // e.g. the I/O mode in use
  std::vector<std::pair<std::string, uint64_t>> stat_counters;
  std::string audit_error;  // the first contradiction; empty = none

  uint64_t tokens_hit_all() const { return tokens_hit[0] + tokens_hit[1] + tokens_hit[2]; }
  double HitRatio() const {
    return tokens_prompt == 0
               ? 0
               : static_cast<double>(tokens_hit_all()) / static_cast<double>(tokens_prompt);
  }
  uint64_t evictions() const {
    return tiers[0].evictions + tiers[1].evictions + tiers[2].evictions;
  }
  // Nearest rank; 0 when nothing was resumed.
  double ResumeMs(double share) const {
    if (resume_ms.empty()) return 0;
    const double rank = share * static_cast<double>(resume_ms.size());
    const size_t at = rank <= 1 ? 0 : static_cast<size_t>(rank + 0.999999) - 1;
    return resume_ms[at < resume_ms.size() ? at : resume_ms.size() - 1];
  }
  bool passed() const { return oracle_failures == 0 && orphans_max == 0 && audit_error.empty(); }
};

}  // namespace fermata::bench
