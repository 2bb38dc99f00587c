// SPDX-License-Identifier: Apache-2.0
//
// Cache: sessions, whose turns and ends are told to the policies.
#include "cache/cache.h"

namespace fermata {
namespace {

Status NoSession() {
  return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                 "session is no live handle of this cache");
}

}  // namespace

Result<ObjectId> Cache::OpenSession(ObjectId parent, uint32_t priority) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  if (parent != 0 && sessions_.Find(parent) == nullptr) return NoSession();
  if (sessions_.full()) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                   "%u sessions live, as many as config.max_sequences", sessions_.size());
  }
  auto session = std::make_unique<Session>();
  session->serial = next_session_serial_++;
  session->parent = parent;
  session->priority = priority;
  return sessions_.Add(std::move(session));
}

Status Cache::BeginTurn(ObjectId id) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  const Session* const session = sessions_.Find(id);
  if (session == nullptr) return NoSession();
  const uint64_t now = clock_->NowNs();
  store_->ForEachPolicy([&](EvictionPolicy* policy) { policy->OnTurnBegun(session->serial, now); });
  return Status();
}

Result<bool> Cache::EndTurn(ObjectId id, const TurnEnd& turn) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  const Session* const session = sessions_.Find(id);
  if (session == nullptr) return NoSession();
  const uint64_t now = clock_->NowNs();
  bool used = false;
  store_->ForEachPolicy(
      [&](EvictionPolicy* policy) { used |= policy->OnTurnEnded(session->serial, turn, now); });
  return used;
}

Result<bool> Cache::EndSession(ObjectId id) {
  WriterLock lock(&mu_);
  const Session* const session = sessions_.Find(id);
  if (session == nullptr) return NoSession();
  const uint64_t now = clock_->NowNs();
  bool used = false;
  store_->ForEachPolicy(
      [&](EvictionPolicy* policy) { used |= policy->OnSessionEnded(session->serial, now); });
  sessions_.Remove(id);
  return used;
}

}  // namespace fermata
