// SPDX-License-Identifier: Apache-2.0
//
// What replay.cc and replay_place.cc share: one replay under way. Not for others; see replay.h.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "bench/cache_client.h"
#include "bench/device_arena.h"
#include "bench/oracle.h"
#include "bench/replay.h"
#include "bench/report.h"
#include "bench/worker_pool.h"

namespace fermata::bench {

struct Running {
  uint64_t end_ms = 0;
  size_t request = 0;
  fermata_sequence sequence{0};
  bool operator>(const Running& other) const {
    return std::tie(end_ms, request) > std::tie(other.end_ms, other.request);
  }
};

// The sequence that a session has parked, and the request whose prompt it holds.
struct Kept {
  fermata_sequence sequence{0};
  size_t request = 0;
};

struct FileCloser {
  void operator()(FILE* file) const { std::fclose(file); }
};

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options, CacheClient* client,
         const DeviceArena* arena, const ReplayObserver& observer)
      : trace_(trace),
        options_(options),
        client_(client),
        arena_(arena),
        observer_(observer),
        pool_(arena == nullptr ? 1 : options.threads),
        random_(options.seed),
        space_seed_(
            SeedOfSpace("fermata-bench replay/1 split=" + std::to_string(options.block_split))),
        sessions_(trace.session_limit(), fermata_session{0}),
        kept_(options.by_handle ? trace.session_limit() : 0) {}

  Status OpenCsv();
  Status Run();
  Metrics& metrics() { return metrics_; }

 private:
  Status Arrive(size_t index);
  Status Place(size_t index, fermata_session session, RequestRow* row, fermata_sequence* sequence);
  Status PlaceByHandle(size_t index, RequestRow* row, fermata_sequence* sequence, bool* placed);
  Status Park(const Running& running);
  Status Fit(fermata_sequence sequence, uint64_t found, uint64_t* blocks, LoadResult* load);
  Status Fill(size_t index, fermata_sequence sequence, uint64_t valid, uint64_t blocks);
  Status AppendRest(fermata_sequence sequence, uint64_t valid, uint64_t blocks);
  Status Verify(size_t index, fermata_sequence sequence, uint64_t blocks);
  Status WriteNew(fermata_sequence sequence, uint64_t first, uint64_t end);
  Status Depart(const Running& running);
  Status Audit();
  Status SampleUntil(uint64_t ms, bool last);
  Status SessionOf(const Request& request, fermata_session* out);
  // Everything the calls need to know about the prompt from block `first` on (a multiple of the
  // split): split ids, tokens, oracle seeds.
  void Spell(size_t index, uint64_t first);
  void Count(const RequestRow& row);
  void ReportFailure(size_t index, uint64_t block, size_t offset) const;

  const Trace& trace_;
  const ReplayOptions& options_;
  CacheClient* const client_;
  const DeviceArena* const arena_;
  const ReplayObserver& observer_;
  WorkerPool pool_;
  Random random_;
  SystemClock clock_;
  const ContentSeed space_seed_;
  Metrics metrics_;
  std::unique_ptr<FILE, FileCloser> csv_;
  std::vector<fermata_session> sessions_;
  std::vector<Kept> kept_;  // --by-handle: per session, its parked sequence
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  uint64_t bucket_ms_ = 1;
  TimelineBucket bucket_;

  // Of the request at hand, reused.
  std::vector<uint64_t> trace_ids_;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> tokens_;
  std::vector<ContentSeed> seeds_;  // real clock: of each block of ids_
  std::vector<uint32_t> slots_;
  std::vector<size_t> wrong_;
  uint64_t first_ = 0;  // block that ids_ begin with
  PromptKeys prompt_;
};

}  // namespace fermata::bench
