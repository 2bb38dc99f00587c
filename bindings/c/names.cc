// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/names.h"

#include "bindings/c/structs.h"
#include "cache/config.h"

namespace fermata::c {

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

}  // namespace fermata::c
