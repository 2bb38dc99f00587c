// SPDX-License-Identifier: Apache-2.0
//
// Replay plays a trace through a cache and counts. Events go in order of time, at equal times an
// end before an arrival. At its arrival a request looks its full prompt blocks up (the longest run
// of leading blocks in any tier is its hit, counted by tier), holds all of them on the device until
// its end, and is then released. A request that does not fit keeps as many leading blocks as do;
// its hits count all the same (Metrics::tokens_hit_cut says how many of those were not loaded).
//
// On the real clock every byte of every block that was hit and loaded is compared with the content
// oracle before anything else is done with it, and new blocks are written by the oracle. On the
// virtual clock no bytes exist.
//
// Thread safety: one thread, plus the pool that it owns. Cost beside the library's: a few ns a
// block touch.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>

#include "base/status.h"
#include "bench/metrics.h"
#include "bench/replay_options.h"
#include "bench/trace.h"

namespace fermata::bench {

// Called after every request; cheap, decides itself when to show something.
using ReplayObserver = std::function<void(const Metrics& so_far)>;

// REQUIRES: options.Validate() and ValidateFor(trace) are OK. An error is the library's, or of the
// per-request file. Wrong bytes and failed audits are no errors: see Metrics::passed().
Result<Metrics> RunReplay(const Trace& trace, const ReplayOptions& options,
                          const ReplayObserver& observer);

// Spells a block's id as tokens: equal ids give equal tokens, different ids different ones.
void ExpandTokens(uint64_t block, uint32_t block_tokens, uint32_t* out);

}  // namespace fermata::bench
