// SPDX-License-Identifier: Apache-2.0
//
// Exact least-recently-used order over the leaves of one pool. The moment of use is when a block is
// let go (unpinned), the deepest block of a path first, so that at the end of a turn the deepest
// goes first. With `superseded_first`, blocks that their own session has left behind go before all
// others, in the same order among themselves.
//
// Cost: unpinning and taking a victim O(1). A block that becomes a leaf is put at the place of its
// own time: its child went last from the old end, and in use its time is next to that child's, so
// the search from that end is short.
#pragma once

#include <memory>

#include "cache/policy.h"

namespace fermata {

std::unique_ptr<EvictionPolicy> MakeLruPolicy(bool superseded_first);

}  // namespace fermata
