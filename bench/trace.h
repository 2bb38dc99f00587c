// SPDX-License-Identifier: Apache-2.0
//
// Trace: a workload in memory: requests in order of arrival, each the name of its prompt's full
// 512-token blocks, when it came, how long it ran and what followed. Knows nothing of files,
// formats or caches.
//
// Blocks are kept as in kvt1: "the first `keep` blocks of an earlier request, then these runs of
// ids", because prompts repeat one another almost whole (7.6 M block touches in 32 k requests need
// 266 k ids). Expand() unrolls one request.
//
// Thread safety: immutable once built; Expand writes to its argument only.
// Cost: Expand is O(blocks + requests on the chain of parents). Add shortens that chain where a
// parent adds nothing. Invariants: requests are ordered by t_ms; parent_request < own index; keep
// <= blocks of the parent; equal id = equal block with equal ancestors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fermata::bench {

constexpr uint32_t kBlockTokens = 512;  // of a trace's block; --block-split cuts them smaller
constexpr uint32_t kNoRequest = 0xffffffffu;
constexpr int32_t kNoSessionNumber = -1;

// What a reader accepts; far above real workloads and low enough that no sum of them overflows or
// exhausts memory.
constexpr uint64_t kMaxPromptTokens = uint64_t{1} << 24;
constexpr uint64_t kMaxTimeMs = uint64_t{1} << 42;  // 139 years
constexpr uint64_t kMaxBlockNumber = uint64_t{1} << 48;
constexpr uint64_t kMaxSessionNumber = (uint64_t{1} << 20) - 1;
constexpr uint64_t kMaxRequests = uint64_t{1} << 26;
constexpr size_t kMaxTools = 65535;

enum class GapKind : uint8_t { kNone, kTool, kHuman };
enum class EndKind : uint8_t { kUnknown, kTool, kHuman, kFinal };

const char* GapKindName(GapKind kind);
const char* EndKindName(EndKind kind);  // kUnknown is "-"

struct BlockRun {
  uint64_t first = 0;
  uint32_t count = 0;
};

struct Request {
  uint64_t t_ms = 0;
  uint64_t dur_ms = 0;
  uint64_t gap_ms = 0;
  uint32_t session = 0;
  uint32_t turn = 0;
  int32_t parent_session = kNoSessionNumber;
  uint32_t in_tokens = 0;
  uint32_t out_tokens = 0;
  uint32_t parent_request = kNoRequest;
  uint32_t keep = 0;
  uint32_t blocks = 0;  // keep + all runs == in_tokens / 512
  uint32_t first_run = 0;
  uint32_t run_count = 0;
  GapKind gap = GapKind::kNone;
  EndKind end = EndKind::kUnknown;
  uint16_t tool = 0;  // index into tools; 0 is "-"
};

class Trace {
 public:
  Trace() : tools_(1, "-") {}

  const std::vector<Request>& requests() const { return requests_; }
  const std::vector<BlockRun>& runs() const { return runs_; }
  const std::string& tool(uint16_t index) const { return tools_[index]; }
  uint32_t session_limit() const { return static_cast<uint32_t>(seen_.size()); }  // highest + 1
  uint32_t session_count() const { return session_count_; }  // that have a request
  uint64_t max_block() const { return max_block_; }
  uint64_t block_touches() const { return block_touches_; }

  // Writes the block ids of request `index` from block `first` on.
  void Expand(size_t index, uint64_t first, std::vector<uint64_t>* out) const;
  void Expand(size_t index, std::vector<uint64_t>* out) const { Expand(index, 0, out); }
  // Leading blocks that two requests have from the same ancestor; they may agree further by chance.
  // O(requests on the chains).
  uint64_t CommonBlocks(size_t a, size_t b) const;

  // REQUIRES: the invariants above. Fills first_run, run_count and blocks, and shortens the chain
  // of parents.
  void Add(Request request, const std::vector<BlockRun>& new_runs);
  // Index of a tool's name; 0 ("-") when there are too many names.
  uint16_t InternTool(std::string_view name);
  // Keeps the first `count` requests.
  void Truncate(size_t count);

  std::string name;    // file or "generated"
  std::string format;  // "kvt1", ...
  std::string sha256;  // of the files as they are on disk, or of a generated trace's kvt1 text

 private:
  void CountSession(uint32_t session);

  std::vector<Request> requests_;
  std::vector<BlockRun> runs_;
  std::vector<std::string> tools_;
  std::vector<bool> seen_;  // by session number
  uint32_t session_count_ = 0;
  uint64_t max_block_ = 0;
  uint64_t block_touches_ = 0;
};

}  // namespace fermata::bench
