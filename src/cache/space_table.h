// SPDX-License-Identifier: Apache-2.0
//
// SpaceTable: the identities a cache knows, and their durable numbers. A number is an epoch of one
// identity: a reset gives the identity a new one, and no number is ever given twice. It knows no
// blocks and does no I/O.
//
// Threads: under the cache's lock. Cost: O(1), Sweep O(spaces).
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/objects.h"
#include "tiers/tier.h"

namespace fermata {

class SpaceTable {
 public:
  SpaceState* Find(const std::string& identity) const;  // null when unknown
  SpaceState* Add(std::string identity);                // REQUIRES: unknown. Under a fresh number.
  // Takes over what a durable tier recorded. REQUIRES: all tiers' records before the first Add.
  void Restore(const SpaceRecord& record);
  // After the last Restore. Stores of different histories may have given one number to two
  // identities, in whatever epoch: no identity keeps such a number, since the blocks that bear it
  // are of nobody knows whom.
  void Settle();
  void Renumber(SpaceState* space) { space->number = next_number_++; }

  // Forgets identities that nobody has open and `used` denies, when there are twice as many as
  // after the last time; returns their numbers. The newest number stays on record, so that none
  // comes twice after a restart.
  std::vector<uint32_t> Sweep(const std::function<bool(uint32_t number)>& used);

  template <typename F>
  void ForEach(F&& f) const {
    for (const auto& [identity, space] : by_identity_) f(space.get());
  }
  size_t size() const { return by_identity_.size(); }

 private:
  SpaceState* Insert(std::string identity);

  absl::flat_hash_map<std::string, std::unique_ptr<SpaceState>> by_identity_;
  absl::flat_hash_map<uint32_t, SpaceState*> recorded_;  // until Settle; null: of two identities
  uint32_t next_number_ = 1;
  size_t sweep_at_ = 64;
};

}  // namespace fermata
