// SPDX-License-Identifier: Apache-2.0
//
// Cache: statistics, events, audit, dump. None of it changes anything.
#include <cinttypes>
#include <cstdio>

#include "cache/cache.h"

namespace fermata {

CacheStats Cache::Stats() {
  ReaderLock lock(&mu_);
  CacheStats stats;
  stats.query_tokens = query_tokens_;
  stats.hit_tokens = hit_tokens_;
  stats.blocks = store_->blocks_in_use();
  stats.sequences = sequences_.size();
  stats.sessions = sessions_.size();
  stats.leases = leases_.size() - static_cast<uint64_t>(expired_.size());
  stats.jobs = jobs_.size();
  stats.dropped_blocks = store_->dropped;
  stats.lost_blocks = store_->lost;
  stats.superseded_blocks = store_->supersedings;
  stats.tiers.resize(tiers_.size());
  for (TierIndex t = 0; t < tiers_.size(); ++t) {
    TierStats& tier = stats.tiers[t];
    tier.kind = tiers_[t]->info().kind;
    tier.ordinal = tiers_[t]->info().ordinal;
    tier.healthy = tiers_[t]->healthy();
    tier.counters = store_->counters(t);
    const uint64_t* const slots = tier.counters.slots_of_use;
    tier.live_slots = slots[static_cast<size_t>(SlotUse::kLive)];
    tier.cached_slots = slots[static_cast<size_t>(SlotUse::kCached)];
    tier.in_flight_slots = slots[static_cast<size_t>(SlotUse::kInFlight)];
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      tier.slots += tiers_[t]->slots(g);
      tier.free_slots += tiers_[t]->free_slots(g);
    }
  }
  const std::vector<uint64_t> held = HeldSlots();
  for (size_t i = 0; i < held.size(); ++i)
    stats.tiers[i / config_.groups.size()].live_slots += held[i];
  return stats;
}

void Cache::VisitStats(const StatVisitor& visitor) {
  struct Counter {
    const char* name;
    uint64_t value;
  };
  std::vector<Counter> counters;
  {
    ReaderLock lock(&mu_);
    counters = {{"cache.query_tokens", query_tokens_},
                {"cache.hit_tokens", hit_tokens_},
                {"cache.resumed_tokens", resumed_tokens_},
                {"cache.blocks", store_->blocks_in_use()},
                {"cache.dropped_blocks", store_->dropped},
                {"cache.lost_blocks", store_->lost},
                {"cache.superseded_blocks", store_->supersedings},
                {"cache.runs", store_->runs_in_use()},
                {"cache.victims", store_->victims},
                {"cache.victim_visits", store_->victim_visits},
                {"cache.recovered_blocks", recovered_blocks_},
                {"cache.recovered_orphans", recovered_orphans_},
                {"cache.expired_leases", expired_leases_},
                {"cache.transfers_in_flight", mover_->transfers_in_flight()}};
  }
  for (const Counter& counter : counters) visitor(counter.name, counter.value, nullptr);
  visitor("cache.policy", 0, config_.policy.c_str());
  visitor("host.memory", host_pool_->allocated(), host_pool_->mode());
  for (const std::unique_ptr<Tier>& tier : tiers_) tier->VisitStats(visitor);
}

Status Cache::Room(GroupIndex group, uint64_t* free, uint64_t* evictable) {
  ReaderLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  *free = device_->free_slots(group);
  *evictable = mover_->Evictable(0, group);
  return Status();
}

Status Cache::PollEvents(std::vector<StoreEvent>* out, size_t capacity, uint64_t* lost) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  while (out->size() < capacity && !store_->events.empty()) {
    out->push_back(store_->events.front());
    store_->events.pop_front();
  }
  *lost = store_->events_lost;
  store_->events_lost = 0;
  return Status();
}

// Slots that belong to no block: reserved by sequences, granted to jobs or requests.
std::vector<uint64_t> Cache::HeldSlots() const {
  std::vector<uint64_t> held = mover_->HeldSlots();
  sequences_.ForEach([&](ObjectId, const Sequence& sequence) {
    for (size_t g = 0; g < sequence.groups.size(); ++g)
      held[g] += sequence.groups[g].reserved.size();
  });
  jobs_.ForEach([&](ObjectId, const Job& job) {
    for (size_t g = 0; g < job.slots.size(); ++g) held[g] += job.slots[g].size();
  });
  return held;
}

void Cache::CountRefs(std::vector<uint32_t>* refs) {
  refs->assign(store_->block_capacity(), 0);
  sequences_.ForEach([&](ObjectId, const Sequence& sequence) {
    for (const GroupTable& table : sequence.groups) {
      if (table.anchor != BlockId::kNone) ++(*refs)[Raw(table.anchor)];
      for (const OwnBlock& own : table.own) ++(*refs)[Raw(own.block)];
      for (const BlockId block : table.tail) ++(*refs)[Raw(block)];
      for (const CopySource& source : table.copy_sources) ++(*refs)[Raw(source.block)];
    }
    for (const QuarantinedBlock& held : sequence.quarantine) ++(*refs)[Raw(held.block)];
  });
  leases_.ForEach([&](ObjectId, const Lease& lease) {
    for (const BlockId anchor : lease.anchors) {
      if (anchor != BlockId::kNone) ++(*refs)[Raw(anchor)];
    }
  });
}

Status Cache::Audit(uint64_t* blocks, uint64_t* orphans) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  std::vector<uint32_t> refs;
  CountRefs(&refs);
  *blocks = store_->blocks_in_use();
  return store_->Audit(refs, HeldSlots(), orphans);
}

std::string Cache::Dump() {
  WriterLock lock(&mu_);
  std::string out;
  char line[256];
  const auto add = [&](const char* format, auto... values) {
    std::snprintf(line, sizeof line, format, values...);
    out += line;
  };
  add("cache policy=%s sequences=%u leases=%u sessions=%u jobs=%u transfers=%" PRIu64 "\n",
      config_.policy.c_str(), sequences_.size(), leases_.size(), sessions_.size(), jobs_.size(),
      mover_->transfers_in_flight());
  for (TierIndex t = 0; t < tiers_.size(); ++t) {
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      add("tier %s group=%u slots=%" PRIu64 " free=%" PRIu64 " evictable=%" PRIu64
          " leaving=%" PRIu64 "\n",
          tiers_[t]->info().name.c_str(), g, tiers_[t]->slots(g), tiers_[t]->free_slots(g),
          store_->pool(t, g).evictable, store_->pool(t, g).leaving);
    }
  }
  sequences_.ForEach([&](ObjectId id, const Sequence& s) {
    mu_.AssertHeld();
    add("sequence %" PRIx64 " space=%u state=%u tokens=%" PRIu64 " marked=%" PRIu64 "%s\n", id,
        s.space->number, static_cast<unsigned>(s.state), s.tokens, s.marked,
        s.frozen ? " frozen" : "");
    for (size_t g = 0; g < s.groups.size(); ++g) {
      add("  group %zu reserved=%zu published=%" PRIu64 " blocks=", g, s.groups[g].reserved.size(),
          s.groups[g].published);
      VisitTable(s.groups[g], 0, [&](uint64_t, BlockId block) {
        add("%u ", Raw(block));
        return true;
      });
      out += "\n";
    }
  });
  for (uint32_t i = 0; i < store_->block_capacity(); ++i) {
    const BlockId id{i};
    if (store_->state(id) == BlockState::kFree) continue;
    if (store_->state(id) == BlockState::kPrivate) {
      add("block %u group=%u private refs=%u at", i, store_->group(id), store_->private_refs(id));
    } else {
      const BlockId parent = store_->parent_block(id);
      const Run& run = store_->run(store_->run_of(id));
      add("block %u uid=%" PRIx64
          " group=%u state=%u space=%u depth=%u run=%u refs=%u parent=%d"
          "%s%s at",
          i, store_->uid(id), run.group, static_cast<unsigned>(run.state), run.space,
          store_->block_depth(id), Raw(store_->run_of(id)), run.refs, static_cast<int>(Raw(parent)),
          run.superseded ? " superseded" : "", run.shared ? " shared" : "");
    }
    for (TierIndex t = 0; t < tiers_.size(); ++t) {
      const Residency& r = store_->at(BlockId{i}, t);
      if (r.presence == Presence::kAbsent) continue;
      add(" %s:%u%s%s", tiers_[t]->info().name.c_str(), Raw(r.slot),
          r.presence == Presence::kIncoming ? "(coming)" : "", r.leaving ? "(leaving)" : "");
    }
    out += "\n";
  }
  return out;
}

}  // namespace fermata
