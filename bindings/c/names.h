// SPDX-License-Identifier: Apache-2.0
//
// What names a prefix, as it crosses the C ABI: tokens or keys, and extra parts.
#pragma once

#include <fermata/fermata.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "cache/identity.h"

namespace fermata::c {

// Checked and sorted. At most 64.
Status ReadExtras(const fermata_extra* extras, uint32_t count, std::vector<ExtraPart>* out);

// The tokens or keys of a lookup or an append, as spans of the caller's memory. NULL tokens with a
// count give an empty span: the caller says what that means.
Status ReadName(const uint32_t* tokens, uint64_t token_count, const void* keys, uint64_t key_count,
                uint32_t key_bytes, std::span<const uint32_t>* out_tokens,
                std::span<const std::byte>* out_keys);

}  // namespace fermata::c
