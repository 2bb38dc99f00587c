// SPDX-License-Identifier: Apache-2.0
//
// The policies that --policy may name: the library's and those that the program registered, through
// the one internal door (docs/architecture.md). Thread safety: free functions without state.
#pragma once

#include <string>
#include <string_view>

namespace fermata::bench {

bool IsPolicyName(std::string_view name);
// "lru or lru-superseded", for help and refusals.
std::string KnownPolicies();

}  // namespace fermata::bench
