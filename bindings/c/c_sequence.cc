// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: sessions, lookups, leases, sequences and their jobs. Check, unwrap, call, report; no
// logic.
#include <fermata/fermata.h>

#include "bindings/c/registry.h"
#include "bindings/c/structs.h"

using namespace fermata;     // STYLE_OK(using-namespace): C functions have no namespace to be in
using namespace fermata::c;  // STYLE_OK(using-namespace): as above

namespace {

constexpr size_t kMaxBatch = 65536;

Status ReadExtras(const fermata_extra* extras, uint32_t count, std::vector<ExtraPart>* out) {
  FERMATA_RETURN_IF_ERROR(CheckArray(extras, count, 64, "extras"));
  for (uint32_t i = 0; i < count; ++i) {
    fermata_extra in;
    FERMATA_RETURN_IF_ERROR(ReadStruct(Element(extras, i), "extras[]", &in));
    ExtraPart part;
    part.type = in.type;
    part.begin = in.token_begin;
    part.end = in.token_end;
    FERMATA_RETURN_IF_ERROR(CheckBytes(in.data, "extras[].data", &part.data));
    out->push_back(std::move(part));
  }
  return CheckAndSortExtras(out);
}

// The tokens or keys of a lookup or an append as spans.
Status ReadName(const uint32_t* tokens, uint64_t token_count, const void* keys, uint64_t key_count,
                uint32_t key_bytes, std::span<const uint32_t>* out_tokens,
                std::span<const std::byte>* out_keys) {
  if (token_count > kMaxTokens) {
    return ErrorF(StatusCode::kInvalidArgument, "token_count is %llu, want at most 16777216",
                  static_cast<unsigned long long>(token_count));
  }
  if (key_count > kMaxTokens) {
    return ErrorF(StatusCode::kInvalidArgument, "key_count is %llu, want at most 16777216",
                  static_cast<unsigned long long>(key_count));
  }
  if (key_count > 0 && keys == nullptr) {
    return ErrorF(StatusCode::kInvalidArgument, "keys is NULL, but key_count is %llu",
                  static_cast<unsigned long long>(key_count));
  }
  if (key_count > 0 && (key_bytes == 0 || key_bytes > 255))
    return ErrorF(StatusCode::kInvalidArgument, "key_bytes is %u, want 1..255", key_bytes);
  if (tokens != nullptr) *out_tokens = std::span(tokens, token_count);
  if (key_count > 0)
    *out_keys = std::span(static_cast<const std::byte*>(keys), key_count * key_bytes);
  return Status();
}

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

Status FindSequence(fermata_sequence handle, CacheRef* cache, ObjectId* id) {
  return Resolve(handle.id, Kind::kSequence, "sequence", cache, id);
}

Status ReadLoad(const fermata_load_options* in, LoadOptions* out) {
  fermata_load_options options;
  FERMATA_RETURN_IF_ERROR(ReadStruct(in, "options", &options));
  if (options.flags != 0)
    return ErrorF(StatusCode::kInvalidArgument, "options.flags is 0x%x: unknown bits",
                  options.flags);
  FERMATA_RETURN_IF_ERROR(ResolveQueue(options.queue.id, "options.queue", &out->queue));
  out->user_data = options.user_data;
  out->reserve_tokens = options.reserve_tokens;
  out->deadline_ns = options.deadline_ns;
  return Status();
}

// Runs `one` on every element, which reports through the element's own status and reason.
template <typename T, typename F>
Status ForEachItem(T* items, size_t count, F&& one) {
  FERMATA_RETURN_IF_ERROR(CheckArray(items, count, kMaxBatch, "items"));
  for (size_t i = 0; i < count; ++i) {
    T item;
    FERMATA_RETURN_IF_ERROR(ReadStruct(Element(items, i), "items[]", &item));
    const Status status = one(&item);
    item.status = static_cast<fermata_status>(status.code());
    item.reason = static_cast<uint32_t>(status.reason());
    WriteElement(item, items, i);
    if (count == 1 && !status.ok())
      return status;  // A batch of one answers as a plain call does, text included.
  }
  return Status();
}

}  // namespace

// -----------------------------------------------------------------------------------------------
// sessions

fermata_status fermata_session_open(fermata_cache handle, const fermata_session_options* options,
                                    fermata_session* out_session, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_session == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_session is NULL");
    out_session->id = 0;
    CacheRef cache;
    ObjectId unused = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(handle.id, Kind::kCache, "cache", &cache, &unused));
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

// --------------------------------------------------------------------------------------- lookup
// and leases

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

// ----------------------------------------------------------------------------------------------
// sequences

fermata_status fermata_sequence_create(fermata_space space, const fermata_sequence_options* options,
                                       fermata_sequence* out_sequence, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_sequence == nullptr)
      return ErrorF(StatusCode::kInvalidArgument, "out_sequence is NULL");
    out_sequence->id = 0;
    CacheRef cache;
    ObjectId space_id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(space.id, Kind::kSpace, "space", &cache, &space_id));
    fermata_sequence_options in = {};
    if (options != nullptr) FERMATA_RETURN_IF_ERROR(ReadStruct(options, "options", &in));
    if ((in.flags & ~FERMATA_SEQUENCE_NO_STORE) != 0)
      return ErrorF(StatusCode::kInvalidArgument, "options.flags is 0x%x: unknown bits", in.flags);
    if (in.reserved != 0)
      return ErrorF(StatusCode::kInvalidArgument, "options.reserved is %u, want 0", in.reserved);
    SequenceOptions wanted;
    wanted.no_store = (in.flags & FERMATA_SEQUENCE_NO_STORE) != 0;
    FERMATA_RETURN_IF_ERROR(
        ResolveIn(cache, in.session.id, Kind::kSession, "options.session", true, &wanted.session));
    FERMATA_RETURN_IF_ERROR(ReadExtras(in.extras, in.extra_count, &wanted.extras));
    Result<ObjectId> id = cache->CreateSequence(space_id, std::move(wanted));
    if (id.ok()) out_sequence->id = cache.HandleOf(Kind::kSequence, *id);
    return id.status();
  });
}

fermata_status fermata_append(fermata_cache handle, fermata_append_item* items, size_t count,
                              fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId unused = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(handle.id, Kind::kCache, "cache", &cache, &unused));
    return ForEachItem(items, count, [&](fermata_append_item* item) -> Status {
      item->copy_count = 0;
      if (item->flags != 0)
        return ErrorF(StatusCode::kInvalidArgument, "item.flags is 0x%x: unknown bits",
                      item->flags);
      AppendRequest request;
      FERMATA_RETURN_IF_ERROR(ResolveIn(cache, item->sequence.id, Kind::kSequence, "item.sequence",
                                        false, &request.sequence));
      FERMATA_RETURN_IF_ERROR(ReadName(item->tokens, item->token_count, item->keys, item->key_count,
                                       item->key_bytes, &request.tokens, &request.keys));
      if (item->copies == nullptr && item->copy_capacity != 0) {
        return ErrorF(StatusCode::kInvalidArgument, "item.copies is NULL, but copy_capacity is %u",
                      item->copy_capacity);
      }
      request.token_count = item->token_count;
      request.key_bytes = item->key_bytes;
      std::vector<BlockCopy> copies;
      FERMATA_RETURN_IF_ERROR(cache->Append(request, &copies, item->copy_capacity));
      for (const BlockCopy& copy : copies) {
        item->copies[item->copy_count++] =
            fermata_block_copy{copy.group, Raw(copy.source), Raw(copy.target), copy.valid_tokens};
      }
      return Status();
    });
  });
}

fermata_status fermata_mark(fermata_cache handle, fermata_mark_item* items, size_t count,
                            fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId unused = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(handle.id, Kind::kCache, "cache", &cache, &unused));
    return ForEachItem(items, count, [&](fermata_mark_item* item) -> Status {
      ObjectId id = 0;
      FERMATA_RETURN_IF_ERROR(
          ResolveIn(cache, item->sequence.id, Kind::kSequence, "item.sequence", false, &id));
      return cache->Mark(id, item->tokens, item->event);
    });
  });
}

fermata_status fermata_sequence_fork(fermata_sequence sequence, fermata_sequence* out_children,
                                     size_t count, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    if (count == 0) return Status();
    if (out_children == nullptr)
      return ErrorF(StatusCode::kInvalidArgument, "out_children is NULL, but count is %zu", count);
    Result<std::vector<ObjectId>> children = cache->Fork(id, count);
    if (!children.ok()) return children.status();
    for (size_t i = 0; i < count; ++i)
      out_children[i].id = cache.HandleOf(Kind::kSequence, (*children)[i]);
    return Status();
  });
}

fermata_status fermata_sequence_truncate(fermata_sequence sequence, uint64_t tokens,
                                         fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    return cache->Truncate(id, tokens);
  });
}

fermata_status fermata_release(fermata_cache handle, const fermata_sequence* sequences,
                               size_t count, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId unused = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(handle.id, Kind::kCache, "cache", &cache, &unused));
    if (count > kMaxBatch)
      return ErrorF(StatusCode::kInvalidArgument, "count is %zu, want at most %zu", count,
                    kMaxBatch);
    if (count > 0 && sequences == nullptr)
      return ErrorF(StatusCode::kInvalidArgument, "sequences is NULL, but count is %zu", count);
    Status first;
    for (size_t i = 0; i < count; ++i) {
      if (sequences[i].id == 0) continue;
      ObjectId id = 0;
      Status status = ResolveIn(cache, sequences[i].id, Kind::kSequence, "sequences[]", false, &id);
      if (status.ok()) status = cache->Release(id);
      if (first.ok()) first = std::move(status);
    }
    return first;
  });
}

fermata_status fermata_sequence_get_info(fermata_sequence sequence, fermata_sequence_info* out,
                                         fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    fermata_sequence_info filled;
    FERMATA_RETURN_IF_ERROR(
        ReadStruct(static_cast<const fermata_sequence_info*>(out), "out", &filled));
    const uint32_t caller_size = filled.struct_size;
    Result<SequenceInfo> info = cache->Info(id);
    if (!info.ok()) return info.status();
    filled.state = static_cast<uint32_t>(info->state);
    filled.tokens = info->tokens;
    filled.marked_tokens = info->marked_tokens;
    filled.published_tokens = info->published_tokens;
    filled.device_tokens = info->device_tokens;
    filled.reserved_tokens = info->reserved_tokens;
    WriteStruct(filled, out, caller_size);
    return Status();
  });
}

fermata_status fermata_sequence_slots(fermata_sequence sequence, uint32_t group, uint64_t first,
                                      uint32_t* out_slots, size_t capacity, size_t* out_count,
                                      fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_count == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_count is NULL");
    *out_count = 0;
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    if (group >= cache->config().groups.size()) {
      return ErrorF(StatusCode::kInvalidArgument, "group is %u, but the cache has %zu", group,
                    cache->config().groups.size());
    }
    if (out_slots == nullptr && capacity != 0)
      return ErrorF(StatusCode::kInvalidArgument, "out_slots is NULL, but capacity is %zu",
                    capacity);
    Result<size_t> n =
        cache->Slots(id, static_cast<GroupIndex>(group), first, std::span(out_slots, capacity));
    if (n.ok()) *out_count = *n;
    return n.status();
  });
}

// ---------------------------------------------------------------------------------------------------
// jobs

fermata_status fermata_sequence_load(fermata_sequence sequence, const fermata_load_options* options,
                                     fermata_job* out_job, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_job != nullptr) out_job->id = 0;
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    LoadOptions load;
    FERMATA_RETURN_IF_ERROR(ReadLoad(options, &load));
    Result<ObjectId> job = cache->Load(id, load);
    if (job.ok() && out_job != nullptr) out_job->id = cache.HandleOf(Kind::kJob, *job);
    return job.status();
  });
}

fermata_status fermata_sequence_resume(fermata_sequence sequence,
                                       const fermata_load_options* options, fermata_job* out_job,
                                       fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_job != nullptr) out_job->id = 0;
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    LoadOptions load;
    FERMATA_RETURN_IF_ERROR(ReadLoad(options, &load));
    Result<ObjectId> job = cache->Resume(id, load);
    if (job.ok() && out_job != nullptr) out_job->id = cache.HandleOf(Kind::kJob, *job);
    return job.status();
  });
}

fermata_status fermata_sequence_park(fermata_sequence sequence, const fermata_park_options* options,
                                     fermata_job* out_job, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_job != nullptr) out_job->id = 0;
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(FindSequence(sequence, &cache, &id));
    fermata_park_options in = {};
    if (options != nullptr) FERMATA_RETURN_IF_ERROR(ReadStruct(options, "options", &in));
    if (in.mode > FERMATA_PARK_DROP)
      return ErrorF(StatusCode::kInvalidArgument, "options.mode is %u, want 0..2", in.mode);
    std::shared_ptr<JobQueue> queue;
    if (in.mode != FERMATA_PARK_LAZY)
      FERMATA_RETURN_IF_ERROR(ResolveQueue(in.queue.id, "options.queue", &queue));
    Result<ObjectId> job =
        cache->Park(id, static_cast<ParkMode>(in.mode), std::move(queue), in.user_data);
    if (job.ok() && out_job != nullptr) out_job->id = cache.HandleOf(Kind::kJob, *job);
    return job.status();
  });
}

fermata_status fermata_job_cancel(fermata_job job, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(job.id, Kind::kJob, "job", &cache, &id));
    return cache->CancelJob(id);
  });
}
