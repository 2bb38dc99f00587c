// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: sessions, lookups and leases. Check, unwrap, call, report; no logic.
#include <fermata/fermata.h>

#include "bindings/c/names.h"
#include "bindings/c/registry.h"
#include "bindings/c/structs.h"

using namespace fermata;     // STYLE_OK(using-namespace): C functions have no namespace to be in
using namespace fermata::c;  // STYLE_OK(using-namespace): as above

namespace {

Status ReadLookup(const CacheRef& cache, const fermata_lookup_item& item, LookupRequest* request) {
  if ((item.flags & ~FERMATA_LOOKUP_NO_LEASE) != 0)
    return ErrorF(StatusCode::kInvalidArgument, "item.flags is 0x%x: unknown bits", item.flags);
  FERMATA_RETURN_IF_ERROR(
      ResolveIn(cache, item.session.id, Kind::kSession, "item.session", true, &request->session));
  request->lease = (item.flags & FERMATA_LOOKUP_NO_LEASE) == 0;
  FERMATA_RETURN_IF_ERROR(ReadName(item.tokens, item.token_count, item.keys, item.key_count,
                                   item.key_bytes, &request->tokens, &request->keys));
  if (item.tokens == nullptr && item.keys == nullptr && item.token_count > 0) {
    return ErrorF(StatusCode::kInvalidArgument, "item.tokens is NULL, but token_count is %llu",
                  static_cast<unsigned long long>(item.token_count));
  }
  if (item.tier_tokens == nullptr && item.tier_capacity != 0) {
    return ErrorF(StatusCode::kInvalidArgument, "item.tier_tokens is NULL, but tier_capacity is %u",
                  item.tier_capacity);
  }
  request->key_bytes = item.key_bytes;
  request->token_count = item.token_count;
  request->leave_tokens = item.leave_tokens;
  request->lease_deadline_ns = item.lease_deadline_ns;
  return ReadExtras(item.extras, item.extra_count, &request->extras);
}

Status LookupOne(const CacheRef& cache, ObjectId space, fermata_lookup_item* item) {
  item->hit_tokens = item->pending_tokens = 0;
  item->lease.id = 0;
  LookupRequest request;
  FERMATA_RETURN_IF_ERROR(ReadLookup(cache, *item, &request));
  Result<LookupAnswer> answer = cache->Lookup(space, request);
  if (!answer.ok()) return answer.status();
  item->hit_tokens = answer->hit_tokens;
  item->pending_tokens = answer->pending_tokens;
  item->lease.id = cache.HandleOf(Kind::kLease, answer->lease);
  for (uint32_t t = 0; t < item->tier_capacity; ++t)
    item->tier_tokens[t] = t < answer->tier_tokens.size() ? answer->tier_tokens[t] : 0;
  return Status();
}

}  // namespace

// --- sessions ---

fermata_status fermata_session_open(fermata_cache handle, const fermata_session_options* options,
                                    fermata_session* out_session, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_session == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_session is NULL");
    out_session->id = 0;
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    fermata_session_options in = {};
    if (options != nullptr) FERMATA_RETURN_IF_ERROR(ReadStruct(options, "options", &in));
    ObjectId parent = 0;
    FERMATA_RETURN_IF_ERROR(
        ResolveIn(cache, in.parent.id, Kind::kSession, "options.parent", true, &parent));
    Result<ObjectId> id = cache->OpenSession(parent, in.priority);
    if (id.ok()) out_session->id = cache.HandleOf(Kind::kSession, *id);
    return id.status();
  });
}

fermata_status fermata_session_begin_turn(fermata_session session, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(session.id, Kind::kSession, "session", &cache, &id));
    return cache->BeginTurn(id);
  });
}

fermata_status fermata_session_end_turn(fermata_session session, const fermata_turn_end* turn,
                                        uint32_t* out_verdict, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(session.id, Kind::kSession, "session", &cache, &id));
    fermata_turn_end in = {};
    if (turn != nullptr) FERMATA_RETURN_IF_ERROR(ReadStruct(turn, "turn", &in));
    if (in.kind > FERMATA_TURN_FINAL)
      return ErrorF(StatusCode::kInvalidArgument, "turn.kind is %u, want 0..3", in.kind);
    if (in.confidence_ppm > 1'000'000)
      return ErrorF(StatusCode::kInvalidArgument, "turn.confidence_ppm is %u, want at most 1000000",
                    in.confidence_ppm);
    if (in.tool.size > 255)
      return ErrorF(StatusCode::kInvalidArgument, "turn.tool.size is %llu, want at most 255",
                    static_cast<unsigned long long>(in.tool.size));
    std::string tool;
    FERMATA_RETURN_IF_ERROR(CheckBytes(in.tool, "turn.tool", &tool));
    TurnEnd end;
    end.kind = static_cast<TurnKind>(in.kind);
    end.tool = tool;
    end.expected_ns = in.expected_ns;
    end.due_ns = in.due_ns;
    end.confidence_ppm = in.confidence_ppm;
    end.priority = in.priority;
    Result<bool> used = cache->EndTurn(id, end);
    if (used.ok() && out_verdict != nullptr)
      *out_verdict = *used ? FERMATA_VERDICT_ACCEPTED : FERMATA_VERDICT_IGNORED;
    return used.status();
  });
}

fermata_status fermata_session_end(fermata_session session, uint32_t* out_verdict,
                                   fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (session.id == 0) return Status();
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(session.id, Kind::kSession, "session", &cache, &id));
    Result<bool> used = cache->EndSession(id);
    if (used.ok() && out_verdict != nullptr)
      *out_verdict = *used ? FERMATA_VERDICT_ACCEPTED : FERMATA_VERDICT_IGNORED;
    return used.status();
  });
}

// --- lookup and leases ---

fermata_status fermata_lookup(fermata_space space, fermata_lookup_item* items, size_t count,
                              fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(space.id, Kind::kSpace, "space", &cache, &id));
    return ForEachItem(items, count,
                       [&](fermata_lookup_item* item) { return LookupOne(cache, id, item); });
  });
}

fermata_status fermata_erase(fermata_space space, const fermata_lookup_item* item,
                             uint64_t from_token, uint64_t* out_blocks, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(space.id, Kind::kSpace, "space", &cache, &id));
    fermata_lookup_item in;
    FERMATA_RETURN_IF_ERROR(ReadStruct(item, "item", &in));
    LookupRequest request;
    FERMATA_RETURN_IF_ERROR(ReadLookup(cache, in, &request));
    Result<uint64_t> killed = cache->Erase(id, request, from_token);
    if (killed.ok() && out_blocks != nullptr) *out_blocks = *killed;
    return killed.status();
  });
}

fermata_status fermata_lease_take(fermata_lease lease, fermata_sequence sequence,
                                  fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId lease_id = 0;
    ObjectId sequence_id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(lease.id, Kind::kLease, "lease", &cache, &lease_id));
    FERMATA_RETURN_IF_ERROR(
        ResolveIn(cache, sequence.id, Kind::kSequence, "sequence", false, &sequence_id));
    return cache->TakeLease(lease_id, sequence_id);
  });
}

fermata_status fermata_lease_drop(fermata_lease lease, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (lease.id == 0) return Status();
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(lease.id, Kind::kLease, "lease", &cache, &id));
    return cache->DropLease(id);
  });
}

fermata_status fermata_lease_trim(fermata_lease lease, uint64_t tokens, uint64_t* out_tokens,
                                  fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(lease.id, Kind::kLease, "lease", &cache, &id));
    Result<uint64_t> left = cache->TrimLease(id, tokens);
    if (left.ok() && out_tokens != nullptr) *out_tokens = *left;
    return left.status();
  });
}
