// SPDX-License-Identifier: Apache-2.0
#include "bench/trace.h"

#include <algorithm>

#include "base/check.h"

namespace fermata::bench {

const char* GapKindName(GapKind kind) {
  switch (kind) {
    case GapKind::kNone:
      return "none";
    case GapKind::kTool:
      return "tool";
    case GapKind::kHuman:
      return "human";
  }
  return "none";
}

const char* EndKindName(EndKind kind) {
  switch (kind) {
    case EndKind::kUnknown:
      return "-";
    case EndKind::kTool:
      return "tool";
    case EndKind::kHuman:
      return "human";
    case EndKind::kFinal:
      return "final";
  }
  return "-";
}

void Trace::Expand(size_t index, uint64_t first, std::vector<uint64_t>* out) const {
  const Request* request = &requests_[index];
  uint64_t end = request->blocks;
  out->resize(end - std::min(end, first));
  // From the back: each request on the chain fills what lies between its own `keep` and what is
  // still missing.
  while (end > first) {
    if (end > request->keep) {
      uint64_t at = request->keep;
      for (uint32_t i = 0; i < request->run_count && at < end; ++i) {
        const BlockRun& run = runs_[request->first_run + i];
        const uint64_t count = std::min<uint64_t>(run.count, end - at);
        for (uint64_t k = at < first ? std::min(first - at, count) : 0; k < count; ++k)
          (*out)[at + k - first] = run.first + k;
        at += count;
      }
      end = request->keep;
    }
    if (end <= first) return;
    FERMATA_CHECK(request->parent_request != kNoRequest);
    request = &requests_[request->parent_request];
  }
}

uint64_t Trace::CommonBlocks(size_t a, size_t b) const {
  uint64_t common = std::min(requests_[a].blocks, requests_[b].blocks);
  while (a != b) {
    size_t& later = a > b ? a : b;
    const Request& request = requests_[later];
    if (request.parent_request == kNoRequest) return 0;
    common = std::min<uint64_t>(common, request.keep);
    later = request.parent_request;
  }
  return common;
}

void Trace::Add(Request request, const std::vector<BlockRun>& new_runs) {
  FERMATA_CHECK(requests_.empty() || requests_.back().t_ms <= request.t_ms);
  FERMATA_CHECK(requests_.size() < kMaxRequests);
  if (request.keep == 0) request.parent_request = kNoRequest;
  while (request.parent_request != kNoRequest) {
    FERMATA_CHECK(request.parent_request < requests_.size());
    const Request& parent = requests_[request.parent_request];
    FERMATA_CHECK(request.keep <= parent.blocks);
    if (request.keep > parent.keep) break;
    request.parent_request = parent.parent_request;  // the parent adds nothing to what is kept
  }
  request.first_run = static_cast<uint32_t>(runs_.size());
  request.run_count = static_cast<uint32_t>(new_runs.size());
  request.blocks = request.keep;
  for (const BlockRun& run : new_runs) {
    request.blocks += run.count;
    if (run.count > 0) max_block_ = std::max(max_block_, run.first + run.count - 1);
    runs_.push_back(run);
  }
  FERMATA_CHECK(request.blocks == request.in_tokens / kBlockTokens);
  CountSession(request.session);
  block_touches_ += request.blocks;
  requests_.push_back(request);
}

void Trace::CountSession(uint32_t session) {
  if (session >= seen_.size()) seen_.resize(session + size_t{1});
  if (!seen_[session]) ++session_count_;
  seen_[session] = true;
}

uint16_t Trace::InternTool(std::string_view tool_name) {
  // A handful of names in any real trace, so a scan is the cheapest map.
  for (size_t i = 0; i < tools_.size(); ++i) {
    if (tools_[i] == tool_name) return static_cast<uint16_t>(i);
  }
  if (tools_.size() >= kMaxTools) return 0;
  tools_.emplace_back(tool_name);
  return static_cast<uint16_t>(tools_.size() - 1);
}

void Trace::Truncate(size_t count) {
  if (count >= requests_.size()) return;
  requests_.resize(count);
  seen_.clear();
  session_count_ = 0;
  max_block_ = 0;
  block_touches_ = 0;
  for (const Request& request : requests_) {
    CountSession(request.session);
    block_touches_ += request.blocks;
    for (uint32_t i = 0; i < request.run_count; ++i) {
      const BlockRun& run = runs_[request.first_run + i];
      if (run.count > 0) max_block_ = std::max(max_block_, run.first + run.count - 1);
    }
  }
}

}  // namespace fermata::bench
