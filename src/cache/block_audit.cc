// SPDX-License-Identifier: Apache-2.0
//
// BlockStore::Audit: recounts from the blocks alone what BlockStore keeps by increments. Shares no
// arithmetic with it.
#include <cinttypes>

#include "cache/block_store.h"

namespace fermata {
namespace {

#define AUDIT(condition, ...) \
  if (!(condition)) return ErrorF(StatusCode::kInternal, "audit: " __VA_ARGS__)

}  // namespace

Status BlockStore::AuditBlock(BlockId id, const std::vector<uint32_t>& refs) const {
  const Block& b = block(id);
  AUDIT(b.refs == refs[Raw(id)], "block %u has %u refs, recounted %u", Raw(id), b.refs,
        refs[Raw(id)]);
  AUDIT(b.copies <= b.refs, "block %u has %u refs, %u of them copies", Raw(id), b.refs, b.copies);
  AUDIT(b.state == BlockState::kPublished || b.refs != 0 || AnyIoPins(id),
        "block %u is nobody's and not findable", Raw(id));
  bool somewhere = false;
  for (TierIndex t = 0; t < tier_count_; ++t) {
    const Residency& r = at(id, t);
    somewhere |= r.presence == Presence::kResident;
    AUDIT((r.slot != SlotId::kNone) == (r.presence != Presence::kAbsent),
          "block %u on tier %u: slot without copy", Raw(id), t);
    AUDIT(r.presence != Presence::kIncoming || r.io_pins > 0,
          "block %u arrives on tier %u by no transfer", Raw(id), t);
    AUDIT(!r.told_inserted || r.presence == Presence::kResident,
          "block %u on tier %u: policy believes in it", Raw(id), t);
    if (b.state != BlockState::kPublished) continue;
    uint32_t children = 0;
    for (BlockId c = b.first_child; c != BlockId::kNone; c = block(c).next_sibling) {
      AUDIT(block(c).parent == id && block(c).state == BlockState::kPublished,
            "block %u is no child of %u", Raw(c), Raw(id));
      if (Resident(c, t) && !at(c, t).leaving) ++children;
    }
    AUDIT(children == r.children, "block %u on tier %u has %u children, recounted %u", Raw(id), t,
          r.children, children);
    if (tiers_[t]->has(kTierDurable) && r.presence == Presence::kResident &&
        b.parent != BlockId::kNone) {
      AUDIT(at(b.parent, t).presence != Presence::kAbsent,
            "block %u is on durable tier %u without its parent", Raw(id), t);
    }
  }
  if (b.state != BlockState::kPublished) return Status();
  AUDIT(somewhere, "published block %u is resident nowhere", Raw(id));
  AUDIT(Find(b.space, b.group, b.parent, b.key, name(id)) == id,
        "published block %u is not what the index finds", Raw(id));
  return Status();
}

Status BlockStore::AuditPools(const std::vector<uint64_t>& held) const {
  for (TierIndex t = 0; t < tier_count_; ++t) {
    uint64_t uses[4] = {};
    for (GroupIndex g = 0; g < group_count_; ++g) {
      const uint64_t capacity = tiers_[t]->slots(g);
      std::vector<bool> seen(capacity);
      uint64_t used = held[t * group_count_ + g];
      uint64_t evictable = 0;
      for (uint32_t i = 0; i < blocks_.size(); ++i) {
        const BlockId id{i};
        if (block(id).state == BlockState::kFree || block(id).group != g) continue;
        const Residency& r = at(id, t);
        if (r.presence == Presence::kAbsent) continue;
        AUDIT(Raw(r.slot) < capacity && !seen[Raw(r.slot)],
              "slot %u of tier %u group %u has two blocks", Raw(r.slot), t, g);
        seen[Raw(r.slot)] = true;
        ++uses[r.io_pins != 0 ? 3 : block(id).refs != 0 ? 1 : 2];
        ++used;
        const bool published =
            block(id).state == BlockState::kPublished && r.presence == Presence::kResident;
        if (published && !Needed(id, t)) ++evictable;
      }
      AUDIT(used + tiers_[t]->free_slots(g) == capacity,
            "tier %u group %u: %" PRIu64 " used + %" PRIu64 " free != %" PRIu64, t, g, used,
            tiers_[t]->free_slots(g), capacity);
      AUDIT(evictable == pool(t, g).evictable,
            "tier %u group %u: %" PRIu64 " evictable, recounted %" PRIu64, t, g,
            pool(t, g).evictable, evictable);
    }
    for (size_t use = 1; use < 4; ++use) {
      AUDIT(uses[use] == counters_[t].slots_of_use[use],
            "tier %u: %" PRIu64 " slots of use %zu, recounted %" PRIu64, t,
            counters_[t].slots_of_use[use], use, uses[use]);
    }
  }
  return Status();
}

Status BlockStore::Audit(const std::vector<uint32_t>& refs, const std::vector<uint64_t>& held,
                         uint64_t* orphans) const {
  uint64_t indexed = 0;
  uint64_t published = 0;
  *orphans = 0;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    const BlockId id{i};
    if (block(id).state == BlockState::kFree) continue;
    FERMATA_RETURN_IF_ERROR(AuditBlock(id, refs));
    if (block(id).state != BlockState::kPublished) continue;
    ++published;
    const BlockId parent = block(id).parent;
    if (parent == BlockId::kNone) continue;
    bool parent_somewhere = false;
    for (TierIndex t = 0; t < tier_count_; ++t) parent_somewhere |= Resident(parent, t);
    if (!parent_somewhere || block(parent).state != BlockState::kPublished) ++*orphans;
  }
  for (const auto& [bucket, head] : index_) {
    for (BlockId id = head; id != BlockId::kNone; id = block(id).next_of_hash) ++indexed;
  }
  uint64_t in_spaces = 0;
  for (const auto& [number, count] : blocks_of_space_) in_spaces += count;
  AUDIT(in_spaces == published, "%" PRIu64 " blocks in spaces, %" PRIu64 " published blocks",
        in_spaces, published);
  AUDIT(indexed == published, "%" PRIu64 " index entries, %" PRIu64 " published blocks", indexed,
        published);
  return AuditPools(held);
}

}  // namespace fermata
