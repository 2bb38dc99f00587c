// SPDX-License-Identifier: Apache-2.0
#include "bench/replay.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/replay_run.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kTimelineBuckets = 240;

}  // namespace

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
    if (options_.audit_every != 0 && metrics_.requests % options_.audit_every == 0)
      FERMATA_RETURN_IF_ERROR(Audit());
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
  bool placed = request.blocks == 0;
  if (!placed && options_.by_handle)
    FERMATA_RETURN_IF_ERROR(PlaceByHandle(index, &row, &sequence, &placed));
  if (!placed) FERMATA_RETURN_IF_ERROR(Place(index, session, &row, &sequence));
  running_.push({request.t_ms + request.dur_ms, index, sequence});
  Count(row);
  return Status();
}

Status Replay::Depart(const Running& running) {
  const Request& request = trace_.requests()[running.request];
  FERMATA_RETURN_IF_ERROR(client_->AdvanceTo(running.end_ms));
  FERMATA_RETURN_IF_ERROR(options_.by_handle ? Park(running) : client_->Release(running.sequence));
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
  const uint64_t started_ns = clock_.NowNs();
  FERMATA_RETURN_IF_ERROR(client_->Audit(&metrics_.orphans, &metrics_.audit_error));
  metrics_.orphans_max = std::max(metrics_.orphans_max, metrics_.orphans);
  metrics_.audit_s += static_cast<double>(clock_.NowNs() - started_ns) * 1e-9;
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
