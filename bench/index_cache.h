// SPDX-License-Identifier: Apache-2.0
//
// IndexCache is a cache for `fermata-bench index`: one group of 16-token blocks, one device tier
// without bytes, a clock that stands still, no thread of its own. The calls that are timed are made
// on its handles directly; what it wraps is for building up, and turns each answer into a Status
// that names the call.
//
// Uses only <fermata/fermata.h> and <fermata/fermata_experimental.h>.
// Thread safety: as the C ABI; Step from one thread.
#pragma once

#define FERMATA_ALLOW_EXPERIMENTAL
#include <fermata/fermata.h>
#include <fermata/fermata_experimental.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "bench/index_measure.h"

namespace fermata::bench {

struct IndexCacheOptions {
  uint64_t slots = 0;  // of the device; what the row needs, since an exact fit may matter
  uint32_t max_sequences = 1024;
  uint32_t hash_bits = 0;  // see fermata_x_options
};

class IndexCache {
 public:
  static Result<std::unique_ptr<IndexCache>> Open(const IndexCacheOptions& options);
  ~IndexCache();
  IndexCache(const IndexCache&) = delete;
  IndexCache& operator=(const IndexCache&) = delete;

  fermata_cache cache() const { return cache_; }
  fermata_space space() const { return space_; }
  fermata_queue queue() const { return queue_; }

  Status Create(fermata_sequence* out);
  Status Append(fermata_sequence sequence, std::span<const uint32_t> tokens);
  Status Mark(fermata_sequence sequence, uint64_t tokens);
  Status AppendAndMark(fermata_sequence sequence, uint64_t length_before,
                       std::span<const uint32_t> tokens);
  Status Truncate(fermata_sequence sequence, uint64_t tokens);
  Status Fork(fermata_sequence sequence, std::span<fermata_sequence> children);
  Status Release(std::span<const fermata_sequence> sequences);
  // Tokens found; with a lease, it is dropped again.
  Status Lookup(std::span<const uint32_t> tokens, bool lease, uint64_t* hit);
  Status Stats(fermata_stats* out);
  // A counter of fermata_stats_visit; nothing when the library has none of that name.
  Status Counter(const char* name, std::optional<uint64_t>* out);
  // Runs what the library has posted to itself.
  Status Step();

 private:
  IndexCache() = default;
  fermata_cache cache_{0};
  fermata_arena arena_{0};
  fermata_space space_{0};
  fermata_queue queue_{0};
};

// "fermata_append: WOULD_BLOCK ..." from an answer of the C ABI; OK for FERMATA_OK.
Status IndexCallStatus(const char* call, fermata_status status, const fermata_error& error);

// Items with struct_size set, for the calls that are timed.
fermata_append_item AppendItem(fermata_sequence sequence, std::span<const uint32_t> tokens);
fermata_mark_item MarkItem(fermata_sequence sequence, uint64_t tokens);
fermata_lookup_item LookupItem(std::span<const uint32_t> tokens, bool lease);

// A family of contexts as conversations make them: a trunk of `pieces` pieces of `run` blocks, each
// appended and marked on its own, and where a piece ends another context branches off with a piece
// as long, so that no run of blocks without a branch is longer or shorter than `run`.
struct ContextFamily {
  uint64_t run = 1;     // blocks
  uint64_t pieces = 1;  // of the trunk

  uint64_t trunk_tokens() const { return run * pieces * kIndexBlockTokens; }
  uint64_t blocks() const { return 2 * run * pieces; }  // trunk and branches
  void TrunkTokens(uint64_t family, std::span<uint32_t> out) const;
  // Builds it through one buffer of one piece. The trunk's sequence is released when `keep` is
  // null.
  Status Build(IndexCache* cache, uint64_t family, fermata_sequence* keep) const;
};

// Builds families number 0, 1, ... until `blocks` blocks are cached; *families is how many.
Status BuildFamilies(IndexCache* cache, const ContextFamily& family, uint64_t blocks,
                     uint64_t* families);
// As many as BuildFamilies makes of it, in blocks.
uint64_t FamilyBlocks(const ContextFamily& family, uint64_t blocks);

}  // namespace fermata::bench
