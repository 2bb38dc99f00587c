// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: statistics, events, audit, dump. Check, unwrap, call, report; no logic.
#include <fermata/fermata.h>

#include <algorithm>

#include "bindings/c/registry.h"
#include "bindings/c/structs.h"

using namespace fermata;     // STYLE_OK(using-namespace): C functions have no namespace to be in
using namespace fermata::c;  // STYLE_OK(using-namespace): as above

namespace {

fermata_tier_stats ToC(const TierStats& tier) {
  fermata_tier_stats out = {};
  out.kind = static_cast<uint32_t>(tier.kind);
  out.ordinal = tier.ordinal;
  out.slots = tier.slots;
  out.free_slots = tier.free_slots;
  out.live_slots = tier.live_slots;
  out.cached_slots = tier.cached_slots;
  out.in_flight_slots = tier.in_flight_slots;
  out.bytes_read = tier.counters.bytes_read;
  out.bytes_written = tier.counters.bytes_written;
  out.hit_tokens = tier.counters.hit_tokens;
  out.evictions = tier.counters.evictions;
  out.healthy = tier.healthy ? 1 : 0;
  return out;
}

}  // namespace

fermata_status fermata_stats_get(fermata_cache handle, fermata_stats* out, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    fermata_stats filled;
    FERMATA_RETURN_IF_ERROR(ReadStruct(static_cast<const fermata_stats*>(out), "out", &filled));
    const uint32_t caller_size = filled.struct_size;
    if (filled.tiers == nullptr && filled.tier_capacity != 0) {
      return ErrorF(StatusCode::kInvalidArgument, "out.tiers is NULL, but tier_capacity is %u",
                    filled.tier_capacity);
    }
    const CacheStats stats = cache->Stats();
    filled.tier_count = static_cast<uint32_t>(stats.tiers.size());
    filled.query_tokens = stats.query_tokens;
    filled.hit_tokens = stats.hit_tokens;
    filled.blocks = stats.blocks;
    filled.sequences = stats.sequences;
    filled.sessions = stats.sessions;
    filled.leases = stats.leases;
    filled.jobs = stats.jobs;
    filled.dropped_blocks = stats.dropped_blocks;
    filled.lost_blocks = stats.lost_blocks;
    filled.superseded_blocks = stats.superseded_blocks;
    for (size_t i = 0; i < std::min<size_t>(filled.tier_capacity, stats.tiers.size()); ++i)
      filled.tiers[i] = ToC(stats.tiers[i]);
    WriteStruct(filled, out, caller_size);
    return Status();
  });
}

fermata_status fermata_stats_visit(fermata_cache handle, fermata_stats_visitor visitor, void* user,
                                   fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (visitor == nullptr) return ErrorF(StatusCode::kInvalidArgument, "visitor is NULL");
    cache->VisitStats([&](const char* name, uint64_t value, const char* text) {
      visitor(user, name, value, text);
    });
    return Status();
  });
}

fermata_status fermata_room(fermata_cache handle, uint32_t group, uint64_t* out_free,
                            uint64_t* out_evictable, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (group >= cache->config().groups.size()) {
      return ErrorF(StatusCode::kInvalidArgument, "group is %u, but the cache has %zu", group,
                    cache->config().groups.size());
    }
    uint64_t free = 0;
    uint64_t evictable = 0;
    FERMATA_RETURN_IF_ERROR(cache->Room(static_cast<GroupIndex>(group), &free, &evictable));
    if (out_free != nullptr) *out_free = free;
    if (out_evictable != nullptr) *out_evictable = evictable;
    return Status();
  });
}

fermata_status fermata_events_poll(fermata_cache handle, fermata_event* out, size_t capacity,
                                   size_t* out_count, uint64_t* out_lost, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_count == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_count is NULL");
    *out_count = 0;
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    FERMATA_RETURN_IF_ERROR(CheckArray(out, capacity, 1u << 24, "out"));
    std::vector<StoreEvent> events;
    uint64_t lost = 0;
    FERMATA_RETURN_IF_ERROR(cache->PollEvents(&events, capacity, &lost));
    for (size_t i = 0; i < events.size(); ++i) {
      fermata_event event = {};
      event.kind = events[i].stored ? FERMATA_EVENT_STORED : FERMATA_EVENT_REMOVED;
      event.tier = events[i].tier;
      event.group = events[i].group;
      event.end_token = events[i].end_token;
      event.key[0] = events[i].key.lo;
      event.key[1] = events[i].key.hi;
      WriteElement(event, out, i);
    }
    *out_count = events.size();
    if (out_lost != nullptr) *out_lost = lost;
    return Status();
  });
}

fermata_status fermata_audit(fermata_cache handle, fermata_audit_report* out,
                             fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    fermata_audit_report filled = {};
    filled.struct_size = sizeof filled;
    if (out != nullptr)
      FERMATA_RETURN_IF_ERROR(
          ReadStruct(static_cast<const fermata_audit_report*>(out), "out", &filled));
    const uint32_t caller_size = filled.struct_size;
    const Status status = cache->Audit(&filled.blocks, &filled.orphans);
    if (out != nullptr) WriteStruct(filled, out, caller_size);
    return status;
  });
}

fermata_status fermata_state_dump(fermata_cache handle, char* out, size_t capacity,
                                  size_t* out_needed, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (out == nullptr && capacity != 0)
      return ErrorF(StatusCode::kInvalidArgument, "out is NULL, but capacity is %zu", capacity);
    const std::string text = cache->Dump();
    if (out_needed != nullptr) *out_needed = text.size() + 1;
    if (capacity == 0) return Status();
    const size_t n = std::min(capacity - 1, text.size());
    std::memcpy(out, text.data(), n);
    out[n] = '\0';
    return Status();
  });
}
