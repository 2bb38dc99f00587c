// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: sequences. Check, unwrap, call, report; no logic.
#include <fermata/fermata.h>

#include "bindings/c/names.h"
#include "bindings/c/registry.h"
#include "bindings/c/structs.h"

using namespace fermata;     // STYLE_OK(using-namespace): C functions have no namespace to be in
using namespace fermata::c;  // STYLE_OK(using-namespace): as above

namespace {

Status FindSequence(fermata_sequence handle, CacheRef* cache, ObjectId* id) {
  return Resolve(handle.id, Kind::kSequence, "sequence", cache, id);
}

}  // namespace

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
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
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
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
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
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
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
