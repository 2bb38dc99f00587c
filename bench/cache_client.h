// SPDX-License-Identifier: Apache-2.0
//
// CacheClient is the engine's side of the C ABI as a replay needs it: opens a cache for
// ReplayOptions, and turns each call into a Status that names it. It waits where an engine would go
// on serving others: it steps the library on the virtual clock and polls the completion queue on
// the real one. Knows no trace and counts nothing but retries.
//
// Uses only <fermata/fermata.h> and <fermata/fermata_experimental.h>.
// Thread safety: one thread.
#pragma once

#define FERMATA_ALLOW_EXPERIMENTAL
#include <fermata/fermata.h>
#include <fermata/fermata_experimental.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bench/device_arena.h"
#include "bench/metrics.h"
#include "bench/replay_options.h"

namespace fermata::bench {

// The blocks of one prompt as the library is told them: `ids` as they are, or as tokens.
struct PromptKeys {
  std::span<const uint64_t> ids;
  std::span<const uint32_t> tokens;  // token keys only: ids.size() * block_tokens of them
};

struct LookupResult {
  fermata_lease lease{0};
  uint64_t hit_tokens = 0;
  uint64_t tier_tokens[kTierSlots] = {0, 0, 0};
};

struct LoadResult {
  bool no_space = false;  // nothing was done
  bool lost = false;      // some block could not be read back; valid_tokens says how much is there
  uint64_t valid_tokens = 0;
};

class CacheClient {
 public:
  // `arena` is null on the virtual clock. `handles`: sessions and sequences that may be open at a
  // time.
  static Result<std::unique_ptr<CacheClient>> Open(const ReplayOptions& options, uint64_t handles,
                                                   const DeviceArena* arena);
  ~CacheClient();
  CacheClient(const CacheClient&) = delete;
  CacheClient& operator=(const CacheClient&) = delete;
  Status Close();

  // Virtual clock: moves time forward to `ms` of the trace and runs what fell due. Real clock:
  // nothing.
  Status AdvanceTo(uint64_t ms);

  Status OpenSession(fermata_session parent, fermata_session* out);
  Status BeginTurn(fermata_session session);
  Status EndTurn(fermata_session session, uint32_t kind, const std::string& tool);

  Status Lookup(fermata_session session, const PromptKeys& prompt, LookupResult* out);
  Status TrimLease(fermata_lease lease, uint64_t tokens);
  Status DropLease(fermata_lease lease);
  Status CreateSequence(fermata_session session, fermata_lease lease, fermata_sequence* out);
  Status Room(uint64_t* free, uint64_t* evictable);
  Status Load(fermata_sequence sequence, uint64_t reserve_tokens, LoadResult* out);
  // The next turn of a parked sequence; reserves nothing.
  Status Resume(fermata_sequence sequence, LoadResult* out);
  Status Park(fermata_sequence sequence);
  Status Truncate(fermata_sequence sequence, uint64_t tokens);
  Status Info(fermata_sequence sequence, fermata_sequence_info* out);
  // Grows by prompt blocks [first, end). *retry: no room just now; load again and retry.
  Status Append(fermata_sequence sequence, const PromptKeys& prompt, uint64_t first, uint64_t end,
                bool* retry);
  Status Slots(fermata_sequence sequence, uint64_t count, std::vector<uint32_t>* out);
  Status Mark(fermata_sequence sequence, uint64_t tokens);
  Status Release(fermata_sequence sequence);

  // An audit's finding is no error of the call: *contradiction is its message, or empty.
  Status Audit(uint64_t* orphans, std::string* contradiction);
  Status ReadTiers(Metrics* out);
  Status ReadAllStats(Metrics* out);
  uint64_t would_block() const { return would_block_; }

 private:
  explicit CacheClient(const ReplayOptions& options) : options_(options) {}
  Status OpenCache(uint64_t handles);
  Status RegisterArena(const DeviceArena* arena);
  Status OpenSpace();
  // Lets the library get on with it; *moved is false when a stepped library had nothing to do.
  Status Pump(bool* moved);
  using LoadCall = fermata_status (*)(fermata_sequence, const fermata_load_options*, fermata_job*,
                                      fermata_error*);
  Status LoadBy(LoadCall call, const char* name, fermata_sequence sequence, uint64_t reserve_tokens,
                LoadResult* out);
  Status WaitForJob(LoadResult* out, bool* again);

  const ReplayOptions options_;
  SystemClock clock_;
  fermata_cache cache_{0};
  fermata_arena arena_{0};
  fermata_space space_{0};
  fermata_queue queue_{0};
  uint32_t tier_count_ = 0;
  uint32_t slot_of_tier_[kTierSlots] = {0, 0, 0};  // a tier's place in the config -> TierSlot
  uint64_t trace_ms_ = 0;
  uint64_t would_block_ = 0;
};

}  // namespace fermata::bench
