// SPDX-License-Identifier: Apache-2.0
//
// The JSON report. Keys are flat where scripts look for them ("requests", "oracle_failures", ...)
// and nested where they only explain ("config", "trace", "tiers", "io"). resume_ms is null on the
// virtual clock, where loads take no time.
#include <nlohmann/json.hpp>

#include "bench/report.h"

namespace fermata::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson Config(const ReplayOptions& options) {
  OrderedJson config;
  config["device_blocks"] = options.device_blocks;
  config["host_blocks"] = options.host_blocks;
  config["ssd_blocks"] = options.ssd_blocks;
  config["policy"] = options.policy;
  config["clock"] = options.real_clock ? "real" : "virtual";
  config["dir"] = options.dir;
  config["block_bytes"] = options.payload_bytes();
  config["block_split"] = options.block_split;
  config["block_tokens"] = options.block_tokens();
  config["by"] = options.by_handle ? "handles" : "names";
  config["keys"] = options.token_keys ? "tokens" : "blocks";
  config["sabotage"] = options.sabotage;
  config["seed"] = options.seed;
  config["threads"] = options.threads;
  return config;
}

OrderedJson ResumeMs(const ReplayOptions& options, const Metrics& metrics) {
  OrderedJson resume;
  const bool measured = options.real_clock && !metrics.resume_ms.empty();
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}}) {
    resume[name] = measured ? OrderedJson(metrics.ResumeMs(share)) : OrderedJson(nullptr);
  }
  resume["count"] = metrics.resume_ms.size();
  if (!options.real_clock) resume["note"] = "not measured: loads take no time on the virtual clock";
  return resume;
}

OrderedJson Tiers(const Metrics& metrics) {
  OrderedJson tiers;
  for (uint32_t i = 0; i < kTierSlots; ++i) {
    const TierMetrics& tier = metrics.tiers[i];
    if (!tier.present) continue;
    OrderedJson& out = tiers[TierSlotName(i)];
    out["slots"] = tier.slots;
    out["used_slots"] = tier.used_slots;
    out["hit_tokens"] = metrics.tokens_hit[i];
    out["evictions"] = tier.evictions;
    out["bytes_read"] = tier.bytes_read;
    out["bytes_written"] = tier.bytes_written;
    out["healthy"] = tier.healthy != 0;
  }
  return tiers;
}

}  // namespace

std::string JsonReport(const ReportInput& input) {
  const Metrics& m = *input.metrics;
  const Trace& trace = *input.trace;
  OrderedJson out;
  out["passed"] = m.passed();
  out["requests"] = m.requests;
  out["tokens_prompt"] = m.tokens_prompt;
  out["tokens_hit_device"] = m.tokens_hit[kDevice];
  out["tokens_hit_host"] = m.tokens_hit[kHost];
  out["tokens_hit_ssd"] = m.tokens_hit[kSsd];
  out["tokens_recomputed"] = m.tokens_recomputed;
  out["hit_ratio"] = m.HitRatio();
  out["evictions"] = m.evictions();
  out["orphans"] = m.orphans_max;
  out["audits"] = m.audits;
  out["audit_error"] = m.audit_error.empty() ? OrderedJson(nullptr) : OrderedJson(m.audit_error);
  out["bytes_d2h"] = m.tiers[kDevice].bytes_read;
  out["bytes_h2d"] = m.tiers[kDevice].bytes_written;
  out["bytes_ssd_written"] = m.tiers[kSsd].bytes_written;
  out["bytes_ssd_read"] = m.tiers[kSsd].bytes_read;
  out["oracle_checks"] = m.oracle_checks;
  out["oracle_failures"] = m.oracle_failures;
  out["oracle_bytes"] = m.oracle_bytes;
  out["wall_s"] = m.wall_s;
  out["audit_s"] = m.audit_s;
  out["resumed"] = m.resumed;
  out["check_s"] = m.check_s;
  out["write_s"] = m.write_s;
  out["peak_rss_bytes"] = m.peak_rss_bytes;
  out["resume_ms"] = ResumeMs(*input.options, m);
  out["requests_cut"] = m.requests_cut;
  out["blocks_cut"] = m.blocks_cut;
  out["tokens_hit_cut"] = m.tokens_hit_cut;
  out["tokens_lost"] = m.tokens_lost;
  out["blocks_written"] = m.blocks_written;
  out["blocks_sabotaged"] = m.blocks_sabotaged;
  out["load_jobs"] = m.load_jobs;
  out["would_block"] = m.would_block;
  out["lost_blocks"] = m.lost_blocks;
  out["dropped_blocks"] = m.dropped_blocks;
  out["superseded_blocks"] = m.superseded_blocks;
  out["tiers"] = Tiers(m);
  out["config"] = Config(*input.options);
  out["trace"]["name"] = trace.name;
  out["trace"]["format"] = trace.format;
  out["trace"]["sha256"] = trace.sha256;
  out["trace"]["requests"] = trace.requests().size();
  out["trace"]["sessions"] = trace.session_count();
  out["trace"]["block_touches"] = trace.block_touches();
  for (const auto& [name, text] : m.stat_words) out["io"][name] = text;
  for (const auto& [name, value] : m.stat_counters) out["counters"][name] = value;
  // A file name may hold any bytes.
  return out.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace fermata::bench
