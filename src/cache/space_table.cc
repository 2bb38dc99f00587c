// SPDX-License-Identifier: Apache-2.0
#include "cache/space_table.h"

#include <algorithm>

#include "base/check.h"

namespace fermata {

SpaceState* SpaceTable::Find(const std::string& identity) const {
  const auto it = by_identity_.find(identity);
  return it == by_identity_.end() ? nullptr : it->second.get();
}

SpaceState* SpaceTable::Add(std::string identity) {
  SpaceState* const space = Insert(std::move(identity));
  Renumber(space);
  return space;
}

SpaceState* SpaceTable::Insert(std::string identity) {
  auto space = std::make_unique<SpaceState>();
  space->seed = ContentHash(std::as_bytes(std::span(identity)));
  space->key_mode = KeyModeOf(identity);
  space->identity = identity;
  const auto [it, fresh] = by_identity_.emplace(std::move(identity), std::move(space));
  FERMATA_CHECK(fresh);
  return it->second.get();
}

void SpaceTable::Restore(const SpaceRecord& record) {
  next_number_ = std::max(next_number_, record.number + 1);
  SpaceState* known = Find(record.identity);
  if (known == nullptr) known = Insert(record.identity);
  // The highest number of an identity is its present epoch.
  known->number = std::max(known->number, record.number);
  const auto [owner, fresh] = recorded_.emplace(record.number, known);
  if (owner->second != known) owner->second = nullptr;
}

void SpaceTable::Settle() {
  for (const auto& [identity, space] : by_identity_) {
    if (recorded_.at(space->number) == nullptr) Renumber(space.get());
  }
  recorded_.clear();
}

std::vector<uint32_t> SpaceTable::Sweep(const std::function<bool(uint32_t number)>& used) {
  std::vector<uint32_t> gone;
  if (by_identity_.size() < sweep_at_) return gone;
  for (auto it = by_identity_.begin(); it != by_identity_.end();) {
    const SpaceState& space = *it->second;
    if (space.users == 0 && space.handles == 0 && space.number + 1 != next_number_ &&
        !used(space.number)) {
      gone.push_back(space.number);
      by_identity_.erase(it++);
    } else {
      ++it;
    }
  }
  sweep_at_ = std::max<size_t>(64, 2 * by_identity_.size());
  return gone;
}

}  // namespace fermata
