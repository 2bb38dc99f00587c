// SPDX-License-Identifier: Apache-2.0
//
// Exact least-recently-used order over the leaves of one pool. The moment of use is when a block is
// let go (unpinned), the deepest block of a path first, so that at the end of a turn the deepest
// goes first. With `superseded_first`, blocks that their own session has left behind go before all
// others, in the same order among themselves.
//
// Cost: O(1), but for a block that becomes a leaf in the middle of the order (its child was not the
// next to go): that is O(log of those that did so before it and are still there).
#pragma once

#include <memory>

#include "cache/policy.h"

namespace fermata {

std::unique_ptr<EvictionPolicy> MakeLruPolicy(bool superseded_first);

}  // namespace fermata
