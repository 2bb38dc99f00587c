// SPDX-License-Identifier: Apache-2.0
//
// The configuration of a cache as the library sees it: the C structs with defaults filled in and
// every field checked once. Limits that follow from it (slots per tier and group) are derived here
// and nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "tiers/tier.h"

namespace fermata {

constexpr uint64_t kSlotAlignment = 4096;  // direct I/O and DMA want no less
constexpr uint64_t kMaxTokens = uint64_t{1} << 24;

struct GroupConfig {
  uint32_t block_tokens = 0;
  uint64_t block_bytes = 0;
};

struct TierConfig {
  TierKind kind = TierKind::kDevice;
  uint32_t ordinal = 0;
  bool direct_io = true;
  bool io_uring = true;
  bool huge_pages = true;
  uint64_t capacity_bytes = 0;
  uint64_t staging_bytes = 0;
  std::string directory;
  uint32_t io_depth = 32;
  std::vector<TierGroup> groups;  // derived: slots per group
};

// Faults of sim tiers; see fermata_x_sim_faults.
struct SimFaults {
  uint32_t read_error_ppm = 0;
  uint32_t write_error_ppm = 0;
  uint32_t short_read_ppm = 0;
  uint32_t torn_write_ppm = 0;
  uint32_t misdirected_write_ppm = 0;
  uint32_t bit_flip_ppm = 0;
  uint32_t lost_write_ppm = 0;
  uint64_t latency_min_ns = 0;
  uint64_t latency_max_ns = 0;
};

struct CacheConfig {
  uint32_t chain_tokens = 16;
  std::vector<GroupConfig> groups;
  std::vector<TierConfig> tiers;
  uint32_t event_capacity = 0;
  std::string policy = "lru-superseded";
  LogSink log;
  uint64_t lease_ns = 10'000'000'000;
  uint32_t max_sequences = 65536;
  uint32_t max_jobs = 4096;
  uint32_t free_watermark_ppm = 0;
  // Experimental: see fermata_experimental.h.
  bool manual_clock = false;
  bool step_driven = false;
  bool metadata_only = false;
  uint64_t seed = 1;
  SimFaults sim;
  uint32_t index_hash_bits = 0;  // what the prefix index uses of its hash; 0: all of it

  // Checks everything, names the field and the value of the first error, and derives the slots per
  // tier and group.
  Status Finish();
};

}  // namespace fermata
