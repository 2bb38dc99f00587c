// SPDX-License-Identifier: Apache-2.0
//
// EvictionPolicy: in what order blocks leave one pool (one group of one tier instance). It orders
// runs: consecutive blocks of one prefix that were used alike, of which the deepest leaves first.
// The core reports events and takes victims one by one; the policy keeps an order and nothing else.
// It does not decide what may go: the core does, by reporting leaf and pin state, and it guarantees
// that no ancestor goes before a descendant in the same pool.
//
// A run is a candidate while it is a leaf of the pool (no run below it has something here) and not
// pinned. NextVictim must return a candidate or kNone. Events about a run come only between
// OnInserted and OnRemoved of this pool.
//
// Threads: all calls under the cache's lock; must not block, do I/O, or call out.
// Cost: every event and NextVictim amortised O(1) or O(log sessions); no scan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"

namespace fermata {

using SessionId = uint32_t;  // dense index of a live session; kNoSession = nobody's
constexpr SessionId kNoSession = 0xffffffffu;

enum class VictimReason : uint8_t { kRecency, kSuperseded, kSessionEnded, kValue };

struct Victim {
  RunId run = RunId::kNone;  // kNone: no candidate
  VictimReason reason = VictimReason::kRecency;
};

enum class TurnKind : uint8_t { kUnknown = 0, kTool = 1, kHuman = 2, kFinal = 3 };

struct TurnEnd {
  TurnKind kind = TurnKind::kUnknown;
  std::string_view tool;
  uint64_t expected_ns = 0;
  uint64_t due_ns = 0;
  uint32_t confidence_ppm = 0;
  uint32_t priority = 0;
};

// What a policy may ask about a run. Implemented by the core.
class RunView {
 public:
  virtual ~RunView() = default;
  virtual uint32_t depth(RunId run) const = 0;   // index of its first block in its prefix
  virtual uint32_t blocks(RunId run) const = 0;  // how many it has, wherever they lie
  virtual RunId parent(RunId run) const = 0;     // kNone at the root
  // The only session that ever used it, else kNoSession.
  virtual SessionId owner(RunId run) const = 0;
  virtual bool superseded(RunId run) const = 0;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // Something of it is resident here now; counts as used now, and is neither leaf nor unpinned.
  virtual void OnInserted(RunId run) = 0;
  virtual void OnRemoved(RunId run) = 0;
  virtual void OnBecameLeaf(RunId run) = 0;
  virtual void OnNoLongerLeaf(RunId run) = 0;
  // Of leaves only: what stops being a leaf is pinned. They say nothing about its use.
  virtual void OnPinned(RunId run) = 0;
  virtual void OnUnpinned(RunId run) = 0;
  // Somebody who used it has let go of it, or a block of it left the tier above. The core reports
  // the deepest run of a path first. `session`: as RunView::owner.
  virtual void OnTouched(RunId run, SessionId session) = 0;
  // `head` is from now on the run's leading part: as old as the run, before which it does not go,
  // and neither leaf nor unpinned.
  virtual void OnSplit(RunId run, RunId head) = 0;
  virtual void OnSuperseded(RunId) {}
  virtual void OnRevived(RunId) {}  // touched again after it was superseded
  virtual void OnTurnBegun(SessionId, uint64_t /*now_ns*/) {}
  // True when the hints in it are of use to this policy.
  virtual bool OnTurnEnded(SessionId, const TurnEnd&, uint64_t /*now_ns*/) { return false; }
  virtual bool OnSessionEnded(SessionId, uint64_t /*now_ns*/) { return false; }

  // The best candidate, without removing it. The core may pass over it (then it pins it).
  virtual Victim NextVictim() = 0;
  // The candidate that is likely to follow `run` as a victim, kNone when that takes a search. A
  // hint, by which the core has the next victims' memory ready.
  virtual RunId After(RunId /*run*/) const { return RunId::kNone; }
};

// Decisions that are no order of victims: admission, and the load-or-recompute cut. These defaults
// admit everything and always load.
//
// Threads, cost: as EvictionPolicy's, but WorthTaking: several threads may ask at a time, while
// nothing else is called.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  // Whether the victim of tier `from` may take room on `to`; if not, the next lower tier is asked,
  // and a block that none admits is dropped.
  virtual bool Admit(BlockId, TierIndex /*from*/, TierIndex /*to*/) { return true; }
  // How many of the leading `found_tokens` to take, of which `device_tokens` are on the device
  // already; the rest would be loaded, and what is not taken is computed again.
  virtual uint64_t WorthTaking(uint64_t /*device_tokens*/, uint64_t found_tokens) {
    return found_tokens;
  }
};

using PolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(const RunView* view)>;

// Registers a policy under a name for fermata_config.policy. The library registers its own;
// benchmarks and tests that link the same objects may add more before they open a cache (the one
// internal door, see docs/architecture.md).
void RegisterPolicy(const std::string& name, PolicyFactory factory);
// Null when the name is unknown.
PolicyFactory FindPolicy(std::string_view name);
std::vector<std::string> PolicyNames();

using PlacementFactory = std::function<std::unique_ptr<PlacementPolicy>()>;

// The placement decisions that go with a policy of this name. A policy without has the defaults.
void RegisterPlacement(const std::string& policy, PlacementFactory factory);
PlacementFactory FindPlacement(std::string_view policy);

}  // namespace fermata
