// SPDX-License-Identifier: Apache-2.0
#include "bench/replay.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <queue>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "bench/cache_client.h"
#include "bench/device_arena.h"
#include "bench/oracle.h"
#include "bench/report.h"
#include "bench/worker_pool.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kAuditEvery = 1000;
constexpr uint64_t kTimelineBuckets = 240;
constexpr uint64_t kFailuresShown = 10;
constexpr uint32_t kFitTriesMax = 4;

struct Running {
  uint64_t end_ms = 0;
  size_t request = 0;
  fermata_sequence sequence{0};
  bool operator>(const Running& other) const {
    return std::tie(end_ms, request) > std::tie(other.end_ms, other.request);
  }
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
        sessions_(trace.session_limit(), fermata_session{0}) {}

  Status OpenCsv();
  Status Run();
  Metrics& metrics() { return metrics_; }

 private:
  Status Arrive(size_t index);
  Status Place(size_t index, fermata_session session, RequestRow* row, fermata_sequence* sequence);
  Status Fit(fermata_sequence sequence, uint64_t found, uint64_t* blocks, LoadResult* load);
  Status AppendRest(fermata_sequence sequence, uint64_t valid, uint64_t blocks);
  Status Verify(size_t index, fermata_sequence sequence, uint64_t blocks);
  Status WriteNew(fermata_sequence sequence, uint64_t first, uint64_t end);
  Status Depart(const Running& running);
  Status Audit();
  Status SampleUntil(uint64_t ms, bool last);
  Status SessionOf(const Request& request, fermata_session* out);
  void Spell(size_t index);
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
  PromptKeys prompt_;
};

Status Replay::OpenCsv() {
  if (options_.per_request.empty()) return Status();
  csv_.reset(std::fopen(options_.per_request.c_str(), "wb"));
  if (csv_ == nullptr) {
    return ErrorF(StatusCode::kUnavailable, "%s: cannot create: %s", options_.per_request.c_str(),
                  std::strerror(errno));
  }
  WriteCsvHeader(csv_.get());
  return Status();
}

Status Replay::Run() {
  const std::vector<Request>& requests = trace_.requests();
  bucket_ms_ = requests.back().t_ms / kTimelineBuckets + 1;
  bucket_.end_ms = bucket_ms_;
  const uint64_t started_ns = clock_.NowNs();
  for (size_t i = 0; i < requests.size(); ++i) {
    while (!running_.empty() && running_.top().end_ms <= requests[i].t_ms) {
      FERMATA_RETURN_IF_ERROR(Depart(running_.top()));
      running_.pop();
    }
    FERMATA_RETURN_IF_ERROR(SampleUntil(requests[i].t_ms, false));
    FERMATA_RETURN_IF_ERROR(client_->AdvanceTo(requests[i].t_ms));
    FERMATA_RETURN_IF_ERROR(Arrive(i));
    if (metrics_.requests % kAuditEvery == 0) FERMATA_RETURN_IF_ERROR(Audit());
    if (!metrics_.audit_error.empty())
      break;  // the books are wrong: nothing after this means anything
    observer_(metrics_);
  }
  FERMATA_RETURN_IF_ERROR(SampleUntil(requests.back().t_ms, true));
  for (; !running_.empty(); running_.pop()) FERMATA_RETURN_IF_ERROR(Depart(running_.top()));
  if (metrics_.audit_error.empty()) FERMATA_RETURN_IF_ERROR(Audit());
  FERMATA_RETURN_IF_ERROR(client_->ReadTiers(&metrics_));
  FERMATA_RETURN_IF_ERROR(client_->ReadAllStats(&metrics_));
  metrics_.wall_s = static_cast<double>(clock_.NowNs() - started_ns) * 1e-9;
  metrics_.would_block = client_->would_block();
  std::sort(metrics_.resume_ms.begin(), metrics_.resume_ms.end());
  if (csv_ != nullptr) {
    const bool good = std::ferror(csv_.get()) == 0;
    if (std::fclose(csv_.release()) != 0 || !good) {
      return ErrorF(StatusCode::kUnavailable, "%s: cannot write: %s", options_.per_request.c_str(),
                    std::strerror(errno));
    }
  }
  return Status();
}

// Everything the calls need to know about the prompt: split ids, tokens, oracle seeds.
void Replay::Spell(size_t index) {
  trace_.Expand(index, &trace_ids_);
  const uint64_t split = options_.block_split;
  if (split == 1) {
    ids_.swap(trace_ids_);
  } else {
    ids_.resize(trace_ids_.size() * split);
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = trace_ids_[i / split] * split + i % split;
  }
  if (options_.token_keys) {
    tokens_.resize(ids_.size() * options_.block_tokens());
    for (size_t i = 0; i < ids_.size(); ++i) {
      ExpandTokens(ids_[i], options_.block_tokens(), &tokens_[i * options_.block_tokens()]);
    }
  }
  if (arena_ != nullptr) {
    seeds_.resize(ids_.size());
    ContentSeed seed = space_seed_;
    for (size_t i = 0; i < ids_.size(); ++i) seeds_[i] = seed = Extend(seed, ids_[i]);
  }
  prompt_ = {ids_, tokens_};
}

Status Replay::SessionOf(const Request& request, fermata_session* out) {
  fermata_session& session = sessions_[request.session];
  if (session.id == 0) {
    fermata_session parent{0};
    if (request.parent_session >= 0 &&
        static_cast<size_t>(request.parent_session) < sessions_.size()) {
      parent = sessions_[static_cast<size_t>(request.parent_session)];
    }
    FERMATA_RETURN_IF_ERROR(client_->OpenSession(parent, &session));
  }
  *out = session;
  return Status();
}

Status Replay::Arrive(size_t index) {
  const Request& request = trace_.requests()[index];
  RequestRow row;
  row.index = index;
  row.prompt = request.in_tokens;
  fermata_session session{0};
  fermata_sequence sequence{0};
  FERMATA_RETURN_IF_ERROR(SessionOf(request, &session));
  FERMATA_RETURN_IF_ERROR(client_->BeginTurn(session));
  if (request.blocks > 0) FERMATA_RETURN_IF_ERROR(Place(index, session, &row, &sequence));
  running_.push({request.t_ms + request.dur_ms, index, sequence});
  Count(row);
  return Status();
}

Status Replay::Place(size_t index, fermata_session session, RequestRow* row,
                     fermata_sequence* sequence) {
  const uint64_t block_tokens = options_.block_tokens();
  Spell(index);
  const uint64_t started_ns = clock_.NowNs();
  LookupResult lookup;
  FERMATA_RETURN_IF_ERROR(client_->Lookup(session, prompt_, &lookup));
  const uint64_t hit = lookup.hit_tokens / block_tokens;
  for (uint32_t i = 0; i < kTierSlots; ++i) row->hit[i] = lookup.tier_tokens[i];

  uint64_t free = 0, evictable = 0;
  FERMATA_RETURN_IF_ERROR(client_->Room(&free, &evictable));
  const uint64_t on_device = lookup.tier_tokens[kDevice] / block_tokens;
  uint64_t blocks = std::min<uint64_t>(ids_.size(), on_device + free + evictable);
  if (blocks < hit) {
    FERMATA_RETURN_IF_ERROR(blocks == 0 ? client_->DropLease(lookup.lease)
                                        : client_->TrimLease(lookup.lease, blocks * block_tokens));
    if (blocks == 0) lookup.lease = fermata_lease{0};
  }
  FERMATA_RETURN_IF_ERROR(client_->CreateSequence(session, lookup.lease, sequence));
  LoadResult load;
  if (blocks > 0) FERMATA_RETURN_IF_ERROR(Fit(*sequence, std::min(hit, blocks), &blocks, &load));
  const uint64_t found = std::min(hit, blocks);
  const uint64_t valid = std::min(load.valid_tokens / block_tokens, found);
  if (blocks < ids_.size()) {
    ++metrics_.requests_cut;
    metrics_.blocks_cut += ids_.size() - blocks;
    metrics_.tokens_hit_cut += (hit - found) * block_tokens;
  }
  // What was found but not given back is no hit; the deepest blocks lie in the lowest tier.
  uint64_t lost = (found - valid) * block_tokens;
  metrics_.tokens_lost += lost;
  for (uint32_t i = kTierSlots; i-- > 0 && lost > 0;) {
    const uint64_t taken = std::min(lost, row->hit[i]);
    row->hit[i] -= taken;
    lost -= taken;
  }
  if (arena_ != nullptr && row->hit[kHost] + row->hit[kSsd] > 0 && valid > 0) {
    metrics_.resume_ms.push_back(static_cast<double>(clock_.NowNs() - started_ns) * 1e-6);
  }
  FERMATA_RETURN_IF_ERROR(Verify(index, *sequence, valid));
  if (valid == blocks) return Status();
  FERMATA_RETURN_IF_ERROR(AppendRest(*sequence, valid, blocks));
  FERMATA_RETURN_IF_ERROR(WriteNew(*sequence, valid, blocks));
  metrics_.blocks_written += blocks - valid;
  return client_->Mark(*sequence, blocks * block_tokens);
}

// Loads what was found and reserves the rest of *blocks; shortens the request when the library says
// that it does not fit.
Status Replay::Fit(fermata_sequence sequence, uint64_t found, uint64_t* blocks, LoadResult* load) {
  const uint64_t block_tokens = options_.block_tokens();
  for (uint32_t tries = 0; tries < kFitTriesMax; ++tries) {
    ++metrics_.load_jobs;
    FERMATA_RETURN_IF_ERROR(client_->Load(sequence, *blocks * block_tokens, load));
    if (!load->no_space) return Status();
    uint64_t free = 0, evictable = 0;
    fermata_sequence_info info;
    FERMATA_RETURN_IF_ERROR(client_->Room(&free, &evictable));
    FERMATA_RETURN_IF_ERROR(client_->Info(sequence, &info));
    const uint64_t fits = info.device_tokens / block_tokens + free + evictable;
    if (fits >= *blocks) {
      return ErrorF(
          StatusCode::kInternal,
          "fermata_sequence_load: NO_SPACE for %llu blocks though fermata_room finds %llu",
          static_cast<unsigned long long>(*blocks), static_cast<unsigned long long>(fits));
    }
    *blocks = fits;
    if (fits < found) FERMATA_RETURN_IF_ERROR(client_->Truncate(sequence, fits * block_tokens));
    if (fits == 0) return Status();
  }
  return ErrorF(StatusCode::kInternal,
                "fermata_sequence_load: NO_SPACE %u times over, each for less", kFitTriesMax);
}

Status Replay::AppendRest(fermata_sequence sequence, uint64_t valid, uint64_t blocks) {
  for (uint32_t tries = 0; tries < kFitTriesMax; ++tries) {
    bool retry = false;
    FERMATA_RETURN_IF_ERROR(client_->Append(sequence, prompt_, valid, blocks, &retry));
    if (!retry) return Status();
    // A load that lost blocks gave its reservation up with them: state the need anew.
    LoadResult load;
    ++metrics_.load_jobs;
    FERMATA_RETURN_IF_ERROR(client_->Load(sequence, blocks * options_.block_tokens(), &load));
  }
  return ErrorF(StatusCode::kInternal, "fermata_append: no room for %llu blocks that were reserved",
                static_cast<unsigned long long>(blocks - valid));
}

Status Replay::Verify(size_t index, fermata_sequence sequence, uint64_t blocks) {
  if (arena_ == nullptr || blocks == 0) return Status();
  const uint64_t started_ns = clock_.NowNs();
  FERMATA_RETURN_IF_ERROR(client_->Slots(sequence, blocks, &slots_));
  wrong_.assign(blocks, kAllRight);
  pool_.ParallelFor(blocks,
                    [this](size_t i) { wrong_[i] = arena_->FindWrong(slots_[i], seeds_[i]); });
  for (uint64_t i = 0; i < blocks; ++i) {
    if (wrong_[i] == kAllRight) continue;
    if (++metrics_.oracle_failures <= kFailuresShown) ReportFailure(index, i, wrong_[i]);
  }
  metrics_.oracle_checks += blocks;
  metrics_.oracle_bytes += blocks * options_.block_bytes;
  metrics_.check_s += static_cast<double>(clock_.NowNs() - started_ns) * 1e-9;
  return Status();
}

void Replay::ReportFailure(size_t index, uint64_t block, size_t offset) const {
  std::fprintf(
      stderr,
      "wrong bytes: request %zu, block %llu (id %llu), slot %u, first wrong byte at %zu of "
      "%llu\n",
      index, static_cast<unsigned long long>(block), static_cast<unsigned long long>(ids_[block]),
      slots_[block], offset, static_cast<unsigned long long>(options_.block_bytes));
}

Status Replay::WriteNew(fermata_sequence sequence, uint64_t first, uint64_t end) {
  if (arena_ == nullptr) return Status();
  const uint64_t started_ns = clock_.NowNs();
  FERMATA_RETURN_IF_ERROR(client_->Slots(sequence, end, &slots_));
  pool_.ParallelFor(end - first, [this, first](size_t i) {
    arena_->Write(slots_[first + i], seeds_[first + i]);
  });
  if (options_.sabotage > 0) {
    for (uint64_t i = first; i < end; ++i) {
      if ((metrics_.blocks_written + i - first + 1) % options_.sabotage != 0) continue;
      arena_->FlipByte(slots_[i], random_.Below(options_.block_bytes));
      ++metrics_.blocks_sabotaged;
    }
  }
  metrics_.write_s += static_cast<double>(clock_.NowNs() - started_ns) * 1e-9;
  return Status();
}

Status Replay::Depart(const Running& running) {
  const Request& request = trace_.requests()[running.request];
  FERMATA_RETURN_IF_ERROR(client_->AdvanceTo(running.end_ms));
  FERMATA_RETURN_IF_ERROR(client_->Release(running.sequence));
  uint32_t kind = 0;
  switch (request.end) {
    case EndKind::kUnknown:
      break;
    case EndKind::kTool:
      kind = FERMATA_TURN_TOOL;
      break;
    case EndKind::kHuman:
      kind = FERMATA_TURN_HUMAN;
      break;
    case EndKind::kFinal:
      kind = FERMATA_TURN_FINAL;
      break;
  }
  return client_->EndTurn(sessions_[request.session], kind, trace_.tool(request.tool));
}

void Replay::Count(const RequestRow& row) {
  const uint64_t recomputed = row.recomputed();
  ++metrics_.requests;
  metrics_.tokens_prompt += row.prompt;
  metrics_.tokens_recomputed += recomputed;
  bucket_.prompt += row.prompt;
  bucket_.recomputed += recomputed;
  for (uint32_t i = 0; i < kTierSlots; ++i) {
    metrics_.tokens_hit[i] += row.hit[i];
    bucket_.hit[i] += row.hit[i];
  }
  if (csv_ != nullptr) WriteCsvRow(row, csv_.get());
}

Status Replay::Audit() {
  ++metrics_.audits;
  FERMATA_RETURN_IF_ERROR(client_->Audit(&metrics_.orphans, &metrics_.audit_error));
  metrics_.orphans_max = std::max(metrics_.orphans_max, metrics_.orphans);
  return Status();
}

// Closes the timeline's buckets that end before `ms`.
Status Replay::SampleUntil(uint64_t ms, bool last) {
  if (ms < bucket_.end_ms && !last) return Status();
  FERMATA_RETURN_IF_ERROR(client_->ReadTiers(&metrics_));
  while (ms >= bucket_.end_ms || last) {
    for (uint32_t i = 0; i < kTierSlots; ++i) {
      bucket_.used_slots[i] = metrics_.tiers[i].used_slots;
    }
    metrics_.timeline.push_back(bucket_);
    const uint64_t next_ms = bucket_.end_ms + bucket_ms_;
    bucket_ = TimelineBucket();
    bucket_.end_ms = next_ms;
    if (last) return Status();
  }
  return Status();
}

}  // namespace

void ExpandTokens(uint64_t block, uint32_t block_tokens, uint32_t* out) {
  for (uint32_t i = 2; i < block_tokens; ++i) {
    const uint32_t x = static_cast<uint32_t>(block) * 0x9e3779b1u + i * 0x85ebca6bu;
    out[i] = (x ^ (x >> 15)) & 0x1ffffu;  // the size of a large vocabulary
  }
  // Two tokens spell the id, so that no two blocks agree.
  out[0] = static_cast<uint32_t>(block);
  if (block_tokens > 1) out[1] = static_cast<uint32_t>(block >> 32);
}

Result<Metrics> RunReplay(const Trace& trace, const ReplayOptions& options,
                          const ReplayObserver& observer) {
  std::unique_ptr<DeviceArena> arena;
  if (options.real_clock) {
    Result<std::unique_ptr<DeviceArena>> made =
        DeviceArena::Create(static_cast<uint32_t>(options.device_blocks), options.block_bytes);
    if (!made.ok()) return made.status();
    arena = std::move(*made);
  }
  Result<std::unique_ptr<CacheClient>> client =
      CacheClient::Open(options, trace.session_count(), arena.get());
  if (!client.ok()) return client.status();
  Replay replay(trace, options, client->get(), arena.get(), observer);
  FERMATA_RETURN_IF_ERROR(replay.OpenCsv());
  FERMATA_RETURN_IF_ERROR(replay.Run());
  FERMATA_RETURN_IF_ERROR((*client)->Close());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  replay.metrics().peak_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  return std::move(replay.metrics());
}

}  // namespace fermata::bench
