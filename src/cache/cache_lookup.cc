// SPDX-License-Identifier: Apache-2.0
//
// Cache: spaces, lookups and leases.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace fermata {
namespace {

constexpr size_t kExpiredKept = 1024;

Status BadHandle(const char* what) {
  return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                 "%s is no live handle of this cache", what);
}

}  // namespace

// --- spaces ---

Result<ObjectId> Cache::OpenSpace(const SpaceIdentity& identity) {
  if (identity.weights.empty()) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "space.weights is empty; a digest or revision of the weights is required");
  }
  if (identity.ranks == 0 || identity.rank >= identity.ranks) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "space.rank is %u of space.ranks %u, want rank < ranks", identity.rank,
                  identity.ranks);
  }
  if (identity.replicated > 1) {
    return ErrorF(StatusCode::kInvalidArgument, "space.replicated is %u, want 0 or 1",
                  identity.replicated);
  }
  const std::string canonical = CanonicalBytes(identity, config_);
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  if (spaces_.full())
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull, "too many spaces are open");
  SpaceState* state = space_table_.Find(canonical);
  if (state == nullptr) {
    state = space_table_.Add(canonical);
    std::vector<uint32_t> unused = space_table_.Sweep([this](uint32_t number) {
      mu_.AssertHeld();
      return store_->blocks_of_space(number) != 0;
    });
    // Tasks run in order, so the record is there before any block of the space can be.
    executor_->Post(
        [this, record = SpaceRecord{state->number, canonical}, unused = std::move(unused)] {
          for (const std::unique_ptr<Tier>& tier : tiers_) {
            PutSpaceRecord(tier.get(), record);
            for (const uint32_t number : unused) (void)tier->DropSpace(number, /*sync=*/false);
          }
        });
  }
  state->key_mode =
      identity.key_mode;  // A recovered space learns it here; it is part of the identity.
  auto handle = std::make_unique<SpaceHandle>();
  handle->space = state;
  ++state->handles;
  return spaces_.Add(std::move(handle));
}

void Cache::PutSpaceRecord(Tier* tier, const SpaceRecord& record) {
  const Status status = tier->PutSpace(record, /*sync=*/false);
  if (!status.ok() && config_.log)
    config_.log(LogLevel::kWarning, "operation=put_space status=" + status.ToString());
}

Status Cache::CloseSpace(ObjectId id) {
  MutexLock lock(&mu_);
  const SpaceHandle* const handle = spaces_.Find(id);
  if (handle == nullptr) return BadHandle("space");
  if (handle->space->handles == 1 && handle->space->users != 0) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kInUse,
                   "%u sequences and leases of the space live", handle->space->users);
  }
  --handle->space->handles;
  spaces_.Remove(id);
  return Status();
}

// --- lookup ---

Status Cache::CheckName(const SpaceState& space, const LookupRequest& request,
                        NamedPrefix* prefix) const {
  prefix->mode = space.key_mode;
  prefix->chain_tokens = config_.chain_tokens;
  prefix->tokens = request.tokens;
  prefix->keys = request.keys;
  prefix->key_bytes = request.key_bytes;
  prefix->extras = request.extras;
  if (space.key_mode == KeyMode::kTokens && !request.keys.empty()) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "keys are given, but the space names blocks by tokens");
  }
  if (space.key_mode == KeyMode::kBlocks) {
    if (!request.tokens.empty())
      return ErrorF(StatusCode::kInvalidArgument,
                    "tokens are given, but the space names blocks by keys");
    if (!request.keys.empty() && (request.key_bytes == 0 || request.key_bytes > 255)) {
      return ErrorF(StatusCode::kInvalidArgument, "key_bytes is %u, want 1..255",
                    request.key_bytes);
    }
  }
  const uint64_t named = prefix->units() * config_.chain_tokens;
  if (named > kMaxTokens || request.token_count > kMaxTokens) {
    return ErrorF(StatusCode::kInvalidArgument, "token_count is %" PRIu64 ", want at most %" PRIu64,
                  std::max(named, request.token_count), kMaxTokens);
  }
  return Status();
}

void Cache::FindPrefix(const SpaceState& space, const NamedPrefix& prefix, uint64_t token_limit,
                       bool on_sick_tiers_too, FoundPrefix* found) {
  const uint64_t units = prefix.units();
  std::vector<std::byte> scratch;
  found->blocks.assign(config_.groups.size(), {});
  uint64_t tokens = token_limit;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const uint64_t per_block = units_of(g);
    BlockId parent = BlockId::kNone;
    for (uint64_t first = 0; first + per_block <= units; first += per_block) {
      while (found->chain.size() < first + per_block) {
        const Hash128& before = found->chain.empty() ? space.seed : found->chain.back();
        found->chain.push_back(ChainHash(before, prefix.Name(found->chain.size(), 1, &scratch)));
      }
      const Hash128& key = found->chain[first + per_block - 1];
      const BlockId id =
          store_->Find(space.number, g, parent, key, prefix.Name(first, per_block, &scratch));
      if (id == BlockId::kNone || (!on_sick_tiers_too && store_->BestTier(id) < 0)) break;
      found->blocks[g].push_back(id);
      parent = id;
    }
    tokens = std::min(tokens, found->blocks[g].size() * config_.groups[g].block_tokens);
  }
  found->tokens = tokens / joint_step_ * joint_step_;
}

// Each stretch of the first group's block counts for the slowest tier that a group needs for it.
void Cache::CountTiers(const FoundPrefix& found, LookupAnswer* answer) {
  answer->tier_tokens.assign(tiers_.size(), 0);
  const uint64_t stretch = config_.groups[0].block_tokens;
  for (uint64_t begin = 0; begin < found.tokens; begin += stretch) {
    int slowest = 0;
    bool pending = false;
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      const uint64_t block_tokens = config_.groups[g].block_tokens;
      for (uint64_t i = begin / block_tokens; i <= (begin + stretch - 1) / block_tokens; ++i) {
        const BlockId id = found.blocks[g][i];
        slowest = std::max(slowest, store_->BestTier(id));
        pending |= store_->at(id, 0).presence == Presence::kIncoming;
      }
    }
    answer->tier_tokens[static_cast<size_t>(std::max(slowest, 0))] += stretch;
    if (pending) answer->pending_tokens += stretch;
  }
}

// The session's next prompt leaves its last path at the first block that differs: what is beyond
// it, and nobody else ever used, is superseded. 98 % of such blocks are never asked for again on
// real agents' traces.
void Cache::NoteSupersession(ObjectId id, const FoundPrefix& found) {
  const Session* const session = sessions_.Find(id);
  if (session == nullptr) return;
  for (GroupIndex g = 0; g < session->path.size(); ++g) {
    const std::vector<RememberedBlock>& path = session->path[g];
    size_t same = 0;
    while (same < path.size() && same < found.blocks[g].size() &&
           path[same].block == found.blocks[g][same])
      ++same;
    SupersedePath(*session, path, same);
  }
}

void Cache::SupersedePath(const Session& session, const std::vector<RememberedBlock>& path,
                          size_t from) {
  for (size_t i = from; i < path.size(); ++i) {
    if (!store_->IsAlive(path[i].block, path[i].uid)) continue;
    if (store_->owner(path[i].block) == session.serial) store_->Supersede(path[i].block);
  }
}

uint64_t Cache::LeadingDeviceTokens(const FoundPrefix& found) const {
  uint64_t tokens = found.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    uint64_t blocks = 0;
    for (const BlockId id : found.blocks[g]) {
      if (store_->BestTier(id) != 0) break;
      ++blocks;
    }
    tokens = std::min(tokens, blocks * config_.groups[g].block_tokens);
  }
  return tokens;
}

Result<LookupAnswer> Cache::Lookup(ObjectId space_id, const LookupRequest& request) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  const SpaceHandle* const handle = spaces_.Find(space_id);
  if (handle == nullptr) return BadHandle("space");
  if (request.session != 0 && sessions_.Find(request.session) == nullptr)
    return BadHandle("item.session");
  SpaceState* const space = handle->space;
  NamedPrefix prefix;
  FERMATA_RETURN_IF_ERROR(CheckName(*space, request, &prefix));
  if (request.lease && leases_.full()) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull, "%u leases live, want fewer",
                   leases_.size());
  }
  const uint64_t total = std::max(request.token_count, prefix.units() * config_.chain_tokens);
  const uint64_t limit = total > request.leave_tokens ? total - request.leave_tokens : 0;
  FoundPrefix found;
  FindPrefix(*space, prefix, limit, /*on_sick_tiers_too=*/false, &found);
  if (request.lease && request.session != 0) NoteSupersession(request.session, found);
  // What is not worth loading is left to be computed again.
  const uint64_t worth = placement_->WorthTaking(LeadingDeviceTokens(found), found.tokens);
  found.tokens = std::min(found.tokens, worth) / joint_step_ * joint_step_;
  LookupAnswer answer;
  answer.hit_tokens = found.tokens;
  CountTiers(found, &answer);
  if (!request.lease) return answer;
  if (found.tokens == 0) {
    query_tokens_ += total;
    return answer;
  }
  auto lease = std::make_unique<Lease>();
  lease->space = space;
  lease->session = request.session;
  lease->tokens = found.tokens;
  lease->query_tokens = total;
  const uint64_t now = clock_->NowNs();
  lease->deadline_ns = request.lease_deadline_ns != 0
                           ? request.lease_deadline_ns
                           : now + std::min(config_.lease_ns, UINT64_MAX - now);
  const uint64_t units = found.tokens / config_.chain_tokens;
  if (space->key_mode == KeyMode::kTokens) {
    lease->token_ids.assign(request.tokens.begin(),
                            request.tokens.begin() + static_cast<std::ptrdiff_t>(found.tokens));
  } else {
    lease->keys.assign(request.keys.begin(), request.keys.begin() + static_cast<std::ptrdiff_t>(
                                                                        units * request.key_bytes));
    lease->key_bytes = request.key_bytes;
  }
  lease->extras = request.extras;
  found.chain.resize(units);
  lease->chain = std::move(found.chain);
  lease->blocks = std::move(found.blocks);
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    lease->blocks[g].resize(found.tokens / config_.groups[g].block_tokens);
    for (const BlockId id : lease->blocks[g]) store_->Ref(id);
  }
  ++space->users;
  const uint64_t deadline = lease->deadline_ns;
  Lease* const raw = lease.get();
  const ObjectId id = leases_.Add(std::move(lease));
  raw->timer = executor_->PostAt(deadline, [this, id] {
    MutexLock timer_lock(&mu_);
    Lease* const due = leases_.Find(id);
    if (due == nullptr || due->expired) return;
    due->timer = 0;
    EndLease(id);
  });
  answer.lease = id;
  return answer;
}

// --- leases ---

// Lets go of the blocks, deepest first. The husk stays for a while, so that a late taker is told
// EXPIRED.
void Cache::EndLease(ObjectId id) {
  Lease* const lease = leases_.Find(id);
  for (std::vector<BlockId>& blocks : lease->blocks) {
    for (size_t i = blocks.size(); i-- > 0;) store_->Unref(blocks[i]);
    blocks.clear();
  }
  if (lease->timer != 0) executor_->CancelTimer(lease->timer);
  --lease->space->users;
  lease->expired = true;
  ++expired_leases_;
  expired_.push_back(id);
  while (expired_.size() > kExpiredKept || (leases_.full() && !expired_.empty())) {
    leases_.Remove(expired_.front());
    expired_.pop_front();
  }
  RoomMayHaveGrown();
}

Status Cache::TakeLease(ObjectId lease_id, ObjectId sequence_id) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Lease* const lease = leases_.Find(lease_id);
  if (lease == nullptr) return BadHandle("lease");
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(sequence_id, &sequence));
  if (sequence->space != lease->space)
    return ErrorF(StatusCode::kInvalidArgument,
                  "the lease and the sequence are of different spaces");
  if (sequence->tokens != 0 || sequence->state != SequenceState::kRunning) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                   "the sequence has %" PRIu64 " tokens already, want an empty one",
                   sequence->tokens);
  }
  const auto same_extra = [](const ExtraPart& a, const ExtraPart& b) {
    return a.type == b.type && a.begin == b.begin && a.end == b.end && a.data == b.data;
  };
  if (!std::equal(sequence->extras.begin(), sequence->extras.end(), lease->extras.begin(),
                  lease->extras.end(), same_extra)) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "the sequence was created with other extras than the lookup named");
  }
  if (!lease->expired && lease->deadline_ns <= clock_->NowNs()) EndLease(lease_id);
  bool killed = false;
  for (const std::vector<BlockId>& blocks : lease->blocks) {
    for (const BlockId id : blocks) killed |= store_->block(id).state != BlockState::kPublished;
  }
  if (lease->expired || killed) {
    if (!lease->expired) EndLease(lease_id);
    std::erase(expired_, lease_id);
    leases_.Remove(lease_id);
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kLeaseExpired,
                   killed ? "the leased blocks were erased" : "the lease has expired");
  }
  FoundPrefix found;
  found.blocks = lease->blocks;
  found.tokens = lease->tokens;
  LookupAnswer counted;
  CountTiers(found, &counted);
  for (TierIndex t = 0; t < tiers_.size(); ++t)
    store_->counters(t).hit_tokens += counted.tier_tokens[t];
  query_tokens_ += lease->query_tokens;
  hit_tokens_ += lease->tokens;
  if (sequence->session == 0) sequence->session = lease->session;
  const Session* const session = sessions_.Find(sequence->session);
  const SessionId serial = session == nullptr ? kNoSession : session->serial;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    for (const BlockId id : lease->blocks[g]) {
      store_->Touch(id, serial);
      table.blocks.push_back(TableEntry{id, id});  // The lease's reference becomes the table's.
    }
    table.published = table.blocks.size();
  }
  sequence->tokens = sequence->marked = lease->tokens;
  sequence->token_ids = std::move(lease->token_ids);
  sequence->keys = std::move(lease->keys);
  sequence->key_bytes = lease->key_bytes;
  sequence->chain = std::move(lease->chain);
  if (lease->timer != 0) executor_->CancelTimer(lease->timer);
  --lease->space->users;
  leases_.Remove(lease_id);
  RememberPath(sequence);
  return Status();
}

Status Cache::DropLease(ObjectId id) {
  MutexLock lock(&mu_);
  Lease* const lease = leases_.Find(id);
  if (lease == nullptr) return BadHandle("lease");
  if (!lease->expired) {
    EndLease(id);
    --expired_leases_;
  }
  std::erase(expired_, id);
  leases_.Remove(id);
  return Status();
}

Result<uint64_t> Cache::TrimLease(ObjectId id, uint64_t tokens) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Lease* const lease = leases_.Find(id);
  if (lease == nullptr) return BadHandle("lease");
  if (!lease->expired && lease->deadline_ns <= clock_->NowNs()) EndLease(id);
  if (lease->expired)
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kLeaseExpired, "the lease has expired");
  if (tokens >= lease->tokens) return lease->tokens;
  lease->tokens = tokens / joint_step_ * joint_step_;
  const uint64_t units = lease->tokens / config_.chain_tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    std::vector<BlockId>& blocks = lease->blocks[g];
    while (blocks.size() > lease->tokens / config_.groups[g].block_tokens) {
      store_->Unref(blocks.back());
      blocks.pop_back();
    }
  }
  lease->chain.resize(units);
  if (lease->space->key_mode == KeyMode::kTokens) {
    lease->token_ids.resize(lease->tokens);
  } else {
    lease->keys.resize(units * lease->key_bytes);
  }
  RoomMayHaveGrown();
  return lease->tokens;
}

}  // namespace fermata
