// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_builder.h"

#include <algorithm>

#include "base/check.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kUnnamed = ~uint64_t{0};

struct NodeState {
  uint64_t block = kUnnamed;
  uint32_t last_request = kNoRequest;
};

void AppendBlock(uint64_t block, std::vector<BlockRun>* runs) {
  if (!runs->empty() && runs->back().first + runs->back().count == block) {
    ++runs->back().count;
  } else {
    runs->push_back({block, 1});
  }
}

}  // namespace

void TraceBuilder::Add(const Request& request, std::span<const uint32_t> path) {
  FERMATA_CHECK(path.size() == request.in_tokens / kBlockTokens);
  pending_.push_back({request, paths_.size()});
  paths_.insert(paths_.end(), path.begin(), path.end());
}

Trace TraceBuilder::Finish() {
  std::stable_sort(pending_.begin(), pending_.end(), [](const Pending& a, const Pending& b) {
    return a.request.t_ms < b.request.t_ms;
  });
  uint32_t node_count = 0;
  for (const uint32_t node : paths_) node_count = std::max(node_count, node + 1);
  std::vector<NodeState> nodes(node_count);
  std::vector<uint32_t> last_of_session;
  std::vector<BlockRun> runs;
  uint64_t next_block = 0;

  for (const Pending& pending : pending_) {
    Request request = pending.request;
    const uint32_t index = static_cast<uint32_t>(trace_.requests().size());
    const std::span<const uint32_t> path(paths_.data() + pending.path_begin,
                                         request.in_tokens / kBlockTokens);
    request.keep = 0;
    request.parent_request = kNoRequest;
    while (request.keep < path.size() && nodes[path[request.keep]].block != kUnnamed) {
      request.parent_request = nodes[path[request.keep]].last_request;
      ++request.keep;
    }
    runs.clear();
    for (size_t i = request.keep; i < path.size(); ++i) {
      FERMATA_CHECK(nodes[path[i]].block ==
                    kUnnamed);  // a node seen under an unseen parent is no prefix
      nodes[path[i]].block = next_block++;
      AppendBlock(nodes[path[i]].block, &runs);
    }
    for (const uint32_t node : path) nodes[node].last_request = index;

    if (request.session >= last_of_session.size()) {
      last_of_session.resize(request.session + size_t{1}, kNoRequest);
    }
    request.turn = 0;
    request.gap = GapKind::kNone;
    request.gap_ms = 0;
    if (last_of_session[request.session] != kNoRequest) {
      const Request& before = trace_.requests()[last_of_session[request.session]];
      const uint64_t ended = before.t_ms + before.dur_ms;
      request.turn = before.turn + 1;
      request.gap = before.end == EndKind::kTool ? GapKind::kTool : GapKind::kHuman;
      request.gap_ms = request.t_ms > ended ? request.t_ms - ended : 0;
    }
    last_of_session[request.session] = index;
    trace_.Add(request, runs);
  }
  pending_.clear();
  paths_.clear();
  return std::move(trace_);
}

}  // namespace fermata::bench
