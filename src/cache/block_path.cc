// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: walking the prefix tree. Paths, what they share, and what is remembered of them.
#include <algorithm>

#include "cache/block_store.h"

namespace fermata {

// --- paths ---

void BlockStore::Path(BlockId deepest, uint32_t first, std::vector<PathPiece>* out) const {
  const size_t begin = out->size();
  uint32_t end = index_of(deepest) + 1;
  for (RunId r = run_of(deepest); r != RunId::kNone; r = run(r).parent) {
    const Run& in = run(r);
    if (in.depth + end <= first) break;
    out->push_back(PathPiece{r, first > in.depth ? first - in.depth : 0, end});
    if (in.depth <= first) break;
    if (in.parent != RunId::kNone) end = run(in.parent).count;
  }
  std::reverse(out->begin() + static_cast<std::ptrdiff_t>(begin), out->end());
}

bool BlockStore::PathResident(BlockId deepest, TierIndex tier) const {
  for (RunId r = run_of(deepest); r != RunId::kNone; r = run(r).parent) {
    if (run_tier(r, tier).resident != run(r).count) return false;
  }
  return true;
}

BlockId BlockStore::Ancestor(BlockId id, uint32_t depth) const {
  RunId r = run_of(id);
  while (run(r).depth > depth) r = run(r).parent;
  return block_at(run(r), depth - run(r).depth);
}

void BlockStore::TouchPath(BlockId deepest, uint32_t first, SessionId session) {
  for (RunId r = run_of(deepest); r != RunId::kNone; r = run(r).parent) {
    Run& used = mut(r);
    if (used.depth + used.count <= first || used.state != BlockState::kPublished) return;
    if (!used.shared && used.owner != session) used.shared = true;
    if (!used.superseded) continue;
    used.superseded = false;
    for (TierIndex t = 0; t < tier_count_; ++t) {
      if (run_tier(r, t).told_inserted) pool(t, used.group).policy->OnRevived(r);
    }
  }
}

void BlockStore::SupersedePath(BlockId deepest, uint32_t first, SessionId session) {
  if (block_depth(deepest) < first) return;
  // Only what is of this path and behind the point goes.
  if (owner(run_of(deepest)) == session) SplitAfter(deepest);
  for (RunId r = run_of(deepest); r != RunId::kNone; r = run(r).parent) {
    if (run(r).depth + run(r).count <= first) return;
    if (owner(r) != session || run(r).superseded || run(r).state != BlockState::kPublished)
      continue;
    if (run(r).depth < first) SplitAfter(block_at(run(r), first - run(r).depth - 1));
    mut(r).superseded = true;
    supersedings += run(r).count;
    for (TierIndex t = 0; t < tier_count_; ++t) {
      if (run_tier(r, t).told_inserted) pool(t, run(r).group).policy->OnSuperseded(r);
    }
  }
}

uint32_t BlockStore::CommonDepth(BlockId a, BlockId b) const {
  if (a == BlockId::kNone || b == BlockId::kNone) return 0;
  RunId run_a = run_of(a);
  RunId run_b = run_of(b);
  uint32_t end_a = block_depth(a) + 1;
  uint32_t end_b = block_depth(b) + 1;
  while (run_a != run_b) {
    const bool climb_a =
        run_b == RunId::kNone || (run_a != RunId::kNone && run(run_a).depth >= run(run_b).depth);
    RunId& climbing = climb_a ? run_a : run_b;
    (climb_a ? end_a : end_b) = run(climbing).depth;
    climbing = run(climbing).parent;
  }
  return run_a == RunId::kNone ? 0 : std::min(end_a, end_b);
}

void BlockStore::Remember(BlockId deepest, std::vector<RememberedPiece>* out) const {
  std::vector<PathPiece> path;
  Path(deepest, 0, &path);
  for (const PathPiece& piece : path) {
    const Run& in = run(piece.run);
    out->push_back(RememberedPiece{piece.run, block_at(in, 0), in.first_uid, in.depth, piece.end});
  }
}

BlockId BlockStore::DeepestAlive(const std::vector<RememberedPiece>& pieces) const {
  for (size_t i = pieces.size(); i-- > 0;) {
    const RememberedPiece& piece = pieces[i];
    const auto of_piece = [&](RunId r) {
      return run(r).state == BlockState::kPublished && run(r).first_uid >= piece.uid &&
             run(r).first_uid < piece.uid + piece.count;
    };
    const auto last_of = [&](RunId r) {
      const uint64_t left = piece.uid + piece.count - run(r).first_uid;
      return block_at(run(r), static_cast<uint32_t>(std::min<uint64_t>(run(r).count, left)) - 1);
    };
    // A split leaves the end of a run its id.
    if (of_piece(piece.run)) return last_of(piece.run);
    if (!IsAlive(piece.first, piece.uid)) continue;
    // Its end is gone; what is left of it begins with its first block.
    RunId r = run_of(piece.first);
    for (bool more = true; more;) {
      more = false;
      const uint64_t next = run(r).first_uid + run(r).count;
      int looked_at = 0;
      for (RunId c = run(r).first_child; c != RunId::kNone && looked_at < 16;
           c = run(c).next_sibling, ++looked_at) {
        if (run(c).first_uid != next || !of_piece(c)) continue;
        r = c;
        more = true;
        break;
      }
    }
    if (of_piece(r)) return last_of(r);
    // It begins within a run: the piece was remembered after its run had grown a new head.
    const uint32_t index = index_of(piece.first);
    return block_at(
        run(r),
        static_cast<uint32_t>(std::min<uint64_t>(run(r).count, uint64_t{index} + piece.count)) - 1);
  }
  return BlockId::kNone;
}

}  // namespace fermata
