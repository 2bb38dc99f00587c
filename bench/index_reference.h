// SPDX-License-Identifier: Apache-2.0
//
// What the figures of `fermata-bench index` are held against: the usual designs of prefix caches,
// written anew from their published descriptions (SGLang's radix tree: Zheng et al. 2024; vLLM's
// blocks: Kwon et al. 2023), as small as they can be and without what would only slow them down: no
// locks, no tokens, no statistics.
//
// Thread safety: none; one owner each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "bench/index_measure.h"

namespace fermata::bench {

// A radix tree whose leaves are evicted by last use. Each call of Evict walks the tree for its
// leaves, makes a heap of them and pops it; a parent that loses its last child joins the heap.
class RefRadixTree {
 public:
  struct Node {
    Node* parent = nullptr;
    uint64_t key = 0;  // among the parent's children: what the first tokens would say
    uint64_t last_use = 0;
    uint64_t blocks = 0;
    std::unordered_map<uint64_t, std::unique_ptr<Node>> children;
  };

  RefRadixTree() = default;
  Node* root() { return &root_; }
  // REQUIRES: the parent has no child of that key.
  Node* Add(Node* parent, uint64_t key, uint64_t blocks, uint64_t last_use);
  // Evicts whole leaves, least recently used first, until `blocks` are free; returns how many were
  // freed. `keys`, if not null, gets the key of each.
  uint64_t Evict(uint64_t blocks, std::vector<uint64_t>* keys);
  // Nodes looked at by all calls of Evict, and blocks they freed.
  uint64_t visits() const { return visits_; }
  uint64_t victims() const { return victims_; }

 private:
  Node root_;
  uint64_t visits_ = 0;
  uint64_t victims_ = 0;
};

struct RefHashOf {
  size_t operator()(const Hash128& hash) const { return static_cast<size_t>(hash.lo); }
};

// A pool of blocks: a map from the chained hash of a full block to the block, and a list of the
// blocks that nobody holds, least recently let go first. The hash alone finds a block.
class RefBlockPool {
 public:
  struct Block {
    uint32_t id = 0;
    uint32_t refs = 0;
    bool named = false;
    Hash128 hash;
    Block* older = nullptr;
    Block* newer = nullptr;
  };

  explicit RefBlockPool(uint32_t blocks);
  // The block of that hash, or null.
  Block* Find(const Hash128& hash) const;
  // The block that was let go longest ago, held once and without its name; null when all are held.
  Block* Take();
  void Publish(Block* block, const Hash128& hash);
  void Hold(Block* block);
  void Release(Block* block);

 private:
  void Unlink(Block* block);
  void LinkNewest(Block* block);

  HugeArray<Block> blocks_;  // zeroes are a block without a name
  Block idle_;               // of the list: idle_.newer is the oldest, idle_.older the newest
  std::unordered_map<Hash128, Block*, RefHashOf> named_;
};

// SHA-256 of (the digest before, the tokens of a block), block after block, with OpenSSL.
class RefShaChain {
 public:
  using Digest = std::array<std::byte, 32>;
  RefShaChain();
  ~RefShaChain();
  RefShaChain(const RefShaChain&) = delete;
  RefShaChain& operator=(const RefShaChain&) = delete;

  // The digest after the last whole block; `names`, if not null, gets the first 128 bits of each.
  Digest Chain(std::span<const uint32_t> tokens, std::vector<Hash128>* names);

 private:
  void* const context_;  // EVP_MD_CTX
  void* const method_;   // EVP_MD, fetched once: fetching costs more than a block
};

// The same with XXH3-128: no proof against an adversary, and the fastest that a chain can be.
Hash128 RefXxhChain(std::span<const uint32_t> tokens);

// The blocks of `names`, in order, up to the first that is not there: how many.
size_t RefFindPrefix(const RefBlockPool& pool, std::span<const Hash128> names);

}  // namespace fermata::bench
