// SPDX-License-Identifier: Apache-2.0
//
// `fermata-bench index`: what the prefix index and its neighbours cost, and beside each figure a
// clean-room reference of the usual design, measured in the same run and by turns with ours. Ours
// is measured through the C ABI alone, on caches without bytes, so that only the books are timed.
//
// Thread safety: one thread; forks for the rows of memory and starts threads of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace fermata::bench {

// How much of each row is measured. The figures named "1m" or "10m" are of other sizes in a quick
// run, which the report says: they show that the rows work, not what they cost.
struct IndexSizes {
  // evict64: sessions of the three scales, and appends of 64 blocks timed at each.
  uint64_t sessions_1k, sessions_100k, sessions_1m;
  uint64_t evict_calls, evict_reference_calls;
  // resume and match: blocks of the long context, blocks resident beside it, timed calls.
  uint64_t context_blocks, resident_blocks, warm_calls, cold_calls, resume_calls;
  uint64_t flush_bytes;
  // wrong_hits.
  uint64_t identity_blocks, identity_lookups;
  // bytes_per_block.
  uint64_t blocks_1m, blocks_10m;
  // alloc, fork, abi: rounds, of which the median counts.
  uint64_t pool_ids, rounds, fork_blocks, abi_calls;
  // threads: rounds of so many ms; windows of so many ms; changes a second that the writer must
  // reach in a window for it to count, 0 = any.
  uint64_t scaling_rounds, scaling_ms, write_windows, write_ms, writes_per_s;

  static IndexSizes Full();
  static IndexSizes Quick();
  static IndexSizes Tiny();
};

struct IndexOptions {
  bool quick = false;
  bool tiny = false;  // for tests: all rows in seconds, figures without meaning
  std::vector<std::string> only;

  const char* size_name() const { return tiny ? "tiny" : quick ? "quick" : "full"; }
};

// The figures of one run by key, in the order in which they were first named. A figure that could
// not be had is there without a value.
class IndexFigures {
 public:
  void Set(std::string_view key, std::optional<double> value);
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  std::optional<double> Get(std::string_view key) const;
  const std::vector<std::pair<std::string, std::optional<double>>>& all() const { return figures_; }

 private:
  const std::pair<std::string, std::optional<double>>* Find(std::string_view key) const;
  std::vector<std::pair<std::string, std::optional<double>>> figures_;
};

// One row of the report.
struct IndexRow {
  const char* key;
  const char* unit;
  const char* reference;  // key of the figure it is held against; "" = none
  const char* target;     // in words, for the reader
};

struct IndexReport {
  IndexOptions options;
  IndexSizes sizes;
  IndexFigures figures;               // the rows asked for in their order, then refs, then the rest
  std::vector<std::string> failures;  // what was not measured, or did not hold, and why
};

const std::vector<IndexRow>& IndexRows();
// The row of a key; null for a figure that only accompanies one.
const IndexRow* FindIndexRow(std::string_view key);

// INVALID_ARGUMENT for a key of --only that is no row. A row that fails is in report->failures.
Status RunIndex(const IndexOptions& options, IndexReport* report);

std::string IndexTextReport(const IndexReport& report);
std::string IndexJsonReport(const IndexReport& report);

// --- the measurements: each fills in the figures of its rows and what accompanies them ---

Status MeasureIndexEviction(const IndexSizes& sizes, IndexFigures* out);     // index_evict.cc
Status MeasureIndexResume(const IndexSizes& sizes, IndexFigures* out);       // index_match.cc
Status MeasureIndexMatch(const IndexSizes& sizes, IndexFigures* out);        // index_match.cc
Status MeasureIndexWrongHits(const IndexSizes& sizes, IndexFigures* out);    // index_hits.cc
Status MeasureIndexMemory(const IndexSizes& sizes, IndexFigures* out);       // index_memory.cc
Status MeasureSlotPool(const IndexSizes& sizes, IndexFigures* out);          // index_slot_pool.cc
Status MeasureIndexFork(const IndexSizes& sizes, IndexFigures* out);         // index_fork.cc
Status MeasureIndexAbi(const IndexSizes& sizes, IndexFigures* out);          // index_fork.cc
Status MeasureIndexScaling(const IndexSizes& sizes, IndexFigures* out);      // index_threads.cc
Status MeasureIndexUnderWrites(const IndexSizes& sizes, IndexFigures* out);  // index_threads.cc

}  // namespace fermata::bench
