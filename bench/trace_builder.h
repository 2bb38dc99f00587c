// SPDX-License-Identifier: Apache-2.0
//
// TraceBuilder turns requests with explicit paths, in any order, into a Trace: sorts by arrival,
// names blocks densely in order of first use, and finds for each request the latest earlier one
// that shares its longest known prefix. PathTrie makes the nodes that paths consist of. Neither
// knows where requests come from.
//
// A path is one node per 512-token block. A node stands for a block *and* all its ancestors, so
// equal node = equal prefix.
//
// Thread safety: none; one owner. Cost: O(blocks touched), 4 bytes per touched block until Finish.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bench/trace.h"

namespace fermata::bench {

constexpr uint32_t kRootNode = 0;

class PathTrie {
 public:
  // The node that `id` leads to from `parent`; made when new.
  uint32_t Child(uint32_t parent, uint64_t id) {
    const auto [it, inserted] = children_.try_emplace({parent, id}, next_);
    if (inserted) ++next_;
    return it->second;
  }
  // A node that nothing else leads to.
  uint32_t Fresh() { return next_++; }
  uint32_t size() const { return next_; }

 private:
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, uint32_t> children_;
  uint32_t next_ = kRootNode + 1;
};

class TraceBuilder {
 public:
  // Takes t_ms, dur_ms, session, parent_session, in_tokens, out_tokens, end and tool of `request`;
  // the rest (turn, gap, blocks) is derived. REQUIRES: path.size() == in_tokens / 512; tool
  // interned in tools_of().
  void Add(const Request& request, std::span<const uint32_t> path);
  Trace& tools_of() { return trace_; }
  size_t size() const { return pending_.size(); }

  // A turn that waited is told apart by how the one before it ended: tool -> tool, else human.
  Trace Finish();

 private:
  struct Pending {
    Request request;
    size_t path_begin = 0;
  };
  Trace trace_;
  std::vector<Pending> pending_;
  std::vector<uint32_t> paths_;
};

}  // namespace fermata::bench
