// SPDX-License-Identifier: Apache-2.0
#include "bench/index.h"

#include <algorithm>

namespace fermata::bench {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

using MeasureRows = Status (*)(const IndexSizes&, IndexFigures*);

struct RowGroup {
  MeasureRows measure;
  std::vector<const char*> keys;
};

// Memory first: its children are forked from a process that has not used any yet.
const std::vector<RowGroup>& RowGroups() {
  static const std::vector<RowGroup> groups = {
      {MeasureIndexMemory, {"bytes_per_block_1m", "bytes_per_block_10m"}},
      {MeasureIndexAbi, {"abi_call_ns"}},
      {MeasureSlotPool, {"alloc_ns_batched", "alloc_ns_single", "free_ns_batched"}},
      {MeasureIndexFork, {"fork_us", "fork_copies"}},
      {MeasureIndexResume, {"resume_131k_us"}},
      {MeasureIndexWrongHits, {"wrong_hits_8bit", "wrong_hits_16bit"}},
      {MeasureIndexScaling, {"lookup_scaling_2t"}},
      {MeasureIndexUnderWrites, {"lookup_under_writes"}},
      {MeasureIndexMatch, {"match_131k_us", "match_131k_cold_us", "sha256_131k_us"}},
      {MeasureIndexEviction,
       {"evict64_p99_us_1m", "evict64_single_p99_us_1m", "evict64_visits_1k",
        "evict64_visits_1m"}}};
  return groups;
}

bool Wanted(const IndexOptions& options, const char* key) {
  return options.only.empty() ||
         std::find(options.only.begin(), options.only.end(), key) != options.only.end();
}

// Asked for, or what such a row is held against.
bool InReport(const IndexOptions& options, const IndexRow& row) {
  if (Wanted(options, row.key)) return true;
  const auto& rows = IndexRows();
  return std::any_of(rows.begin(), rows.end(), [&](const IndexRow& other) {
    return Wanted(options, other.key) && std::string_view(other.reference) == row.key;
  });
}

bool IsReference(const std::string& key) { return key.compare(0, 4, "ref_") == 0; }

}  // namespace

IndexSizes IndexSizes::Full() {
  IndexSizes s{};
  s.sessions_1k = 1000;
  s.sessions_100k = 100'000;
  s.sessions_1m = 1'000'000;
  s.evict_calls = 2048;          // 131,072 victims
  s.evict_reference_calls = 41;  // a second each: their p99 is the slowest of them
  s.context_blocks = 8192;
  s.resident_blocks = 10'000'000;
  s.warm_calls = 101;
  s.cold_calls = 31;
  s.resume_calls = 1001;
  s.flush_bytes = 256 * kMiB;
  s.identity_blocks = 20'000;
  s.identity_lookups = 10'000'000;
  s.blocks_1m = 1'000'000;
  s.blocks_10m = 10'000'000;
  s.pool_ids = 16'384;
  s.rounds = 101;
  s.fork_blocks = 8192;
  s.abi_calls = 100'000;
  s.scaling_rounds = 11;
  s.scaling_ms = 500;
  s.write_windows = 5;
  s.write_ms = 1000;
  s.writes_per_s = 95'000;
  return s;
}

IndexSizes IndexSizes::Quick() {
  IndexSizes s = Full();
  s.sessions_100k = 20'000;
  s.sessions_1m = 100'000;
  s.evict_calls = 512;
  s.evict_reference_calls = 31;
  s.resident_blocks = 1'000'000;
  s.warm_calls = 31;
  s.cold_calls = 11;
  s.resume_calls = 101;
  s.identity_lookups = 500'000;
  s.blocks_1m = 200'000;
  s.blocks_10m = 1'000'000;
  s.rounds = 31;
  s.abi_calls = 10'000;
  s.scaling_rounds = 5;
  s.scaling_ms = 100;
  s.write_windows = 5;
  s.write_ms = 200;
  return s;
}

IndexSizes IndexSizes::Tiny() {
  IndexSizes s = Quick();
  s.sessions_1k = 64;
  s.sessions_100k = 128;
  s.sessions_1m = 256;
  s.evict_calls = 4;
  s.evict_reference_calls = 2;
  s.context_blocks = 256;
  s.resident_blocks = 2048;
  s.warm_calls = 3;
  s.cold_calls = 3;
  s.resume_calls = 3;
  s.flush_bytes = 2 * kMiB;
  s.identity_blocks = 256;
  s.identity_lookups = 4096;
  s.blocks_1m = 1000;
  s.blocks_10m = 5000;
  s.pool_ids = 256;
  s.rounds = 3;
  s.fork_blocks = 64;
  s.abi_calls = 100;
  s.scaling_rounds = 3;
  s.scaling_ms = 5;
  s.write_windows = 3;
  s.write_ms = 5;
  s.writes_per_s = 0;  // a test may run beside anything
  return s;
}

void IndexFigures::Set(std::string_view key, std::optional<double> value) {
  for (auto& [name, figure] : figures_) {
    if (name != key) continue;
    figure = value;
    return;
  }
  figures_.emplace_back(key, value);
}

const std::pair<std::string, std::optional<double>>* IndexFigures::Find(
    std::string_view key) const {
  for (const auto& figure : figures_) {
    if (figure.first == key) return &figure;
  }
  return nullptr;
}

std::optional<double> IndexFigures::Get(std::string_view key) const {
  const auto* const figure = Find(key);
  return figure == nullptr ? std::nullopt : figure->second;
}

const std::vector<IndexRow>& IndexRows() {
  static const std::vector<IndexRow> rows = {
      {"evict64_p99_us_1m", "us", "ref_evict64_p99_us_1m", "<= 10"},
      {"evict64_single_p99_us_1m", "us", "ref_evict64_single_p99_us_1m", "<= 25"},
      {"evict64_visits_1k", "a victim", "ref_evict64_visits_1k", "<= 3"},
      {"evict64_visits_1m", "a victim", "ref_evict64_visits_1m", "<= 3, as with 1k"},
      {"resume_131k_us", "us", "ref_resume_131k_us", "<= 2"},
      {"match_131k_us", "us", "sha256_131k_us", "<= 30"},
      {"match_131k_cold_us", "us", "ref_sha256_131k_cold_us", "<= 110"},
      {"sha256_131k_us", "us", "", "is a reference"},
      {"wrong_hits_8bit", "", "ref_wrong_hits_8bit", "0"},
      {"wrong_hits_16bit", "", "ref_wrong_hits_16bit", "0"},
      {"bytes_per_block_1m", "bytes", "ref_bytes_per_block_1m", "<= 48"},
      {"bytes_per_block_10m", "bytes", "ref_bytes_per_block_10m", "<= 48"},
      {"alloc_ns_batched", "ns", "ref_alloc_ns_batched", "<= 10"},
      {"alloc_ns_single", "ns", "ref_alloc_ns_single", "<= 25"},
      {"free_ns_batched", "ns", "ref_free_ns_batched", "<= 10"},
      {"fork_us", "us", "ref_fork_us", "<= 1"},
      {"fork_copies", "blocks", "", "0"},
      {"lookup_scaling_2t", "ratio", "ref_lookup_scaling_2t", ">= 0.85"},
      {"lookup_under_writes", "ratio", "ref_lookup_under_writes", ">= 0.8"},
      {"abi_call_ns", "ns", "ref_abi_call_ns", "<= 20"}};
  return rows;
}

const IndexRow* FindIndexRow(std::string_view key) {
  for (const IndexRow& row : IndexRows()) {
    if (key == row.key) return &row;
  }
  return nullptr;
}

Status RunIndex(const IndexOptions& options, IndexReport* report) {
  *report = IndexReport();
  report->options = options;
  report->sizes = options.tiny    ? IndexSizes::Tiny()
                  : options.quick ? IndexSizes::Quick()
                                  : IndexSizes::Full();
  for (const std::string& key : options.only) {
    if (FindIndexRow(key) == nullptr) {
      return ErrorF(StatusCode::kInvalidArgument, "--only %s: no such row; see index --help",
                    key.substr(0, 60).c_str());
    }
  }
  IndexFigures measured;
  for (const RowGroup& group : RowGroups()) {
    std::string keys;
    for (const char* key : group.keys) {
      if (Wanted(options, key)) keys += (keys.empty() ? "" : ", ") + std::string(key);
    }
    if (keys.empty()) continue;
    const Status status = group.measure(report->sizes, &measured);
    if (!status.ok()) report->failures.push_back(keys + ": " + status.message());
  }
  for (const IndexRow& row : IndexRows()) {
    if (InReport(options, row)) report->figures.Set(row.key, measured.Get(row.key));
  }
  for (const bool references : {true, false}) {
    for (const auto& [key, value] : measured.all()) {
      if (IsReference(key) == references && FindIndexRow(key) == nullptr) {
        report->figures.Set(key, value);
      }
    }
  }
  return Status();
}

}  // namespace fermata::bench
