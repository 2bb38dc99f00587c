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
  WriterLock lock(&mu_);
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
  WriterLock lock(&mu_);
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

bool Cache::AllHealthy() const {
  return std::all_of(tiers_.begin(), tiers_.end(),
                     [](const auto& tier) { return tier->healthy(); });
}

uint64_t Cache::HealthyBlocks(const std::vector<PathPiece>& path) const {
  uint64_t good = 0;
  for (const PathPiece& piece : path) {
    uint32_t i = piece.begin;
    while (i < piece.end && store_->BestTier(store_->block_at(store_->run(piece.run), i)) >= 0) ++i;
    good += i - piece.begin;
    if (i < piece.end) break;
  }
  return good;
}

void Cache::FindPrefix(const SpaceState& space, const NamedPrefix& prefix, uint64_t token_limit,
                       bool on_sick_tiers_too, FoundPrefix* found) const {
  found->groups.assign(config_.groups.size(), FoundGroup{});
  const bool all_healthy = on_sick_tiers_too || AllHealthy();
  uint64_t tokens = token_limit;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    FoundGroup& group = found->groups[g];
    group.blocks = store_->Match(space.number, g, prefix, units_of(g), &group.deepest);
    if (!all_healthy && group.blocks != 0) {
      std::vector<PathPiece> path;
      store_->Path(group.deepest, 0, &path);
      const uint64_t good = HealthyBlocks(path);
      if (good < group.blocks && good != 0)
        group.deepest = store_->Ancestor(group.deepest, static_cast<uint32_t>(good - 1));
      group.blocks = good;
    }
    if (group.blocks == 0) group.deepest = BlockId::kNone;
    tokens = std::min(tokens, group.blocks * config_.groups[g].block_tokens);
  }
  found->tokens = tokens / joint_step_ * joint_step_;
}

// The last block of a group that the joint prefix needs.
BlockId Cache::AnchorOf(const FoundPrefix& found, GroupIndex group) const {
  const uint64_t blocks = found.tokens / config_.groups[group].block_tokens;
  if (blocks == 0) return BlockId::kNone;
  const FoundGroup& has = found.groups[group];
  return blocks == has.blocks ? has.deepest
                              : store_->Ancestor(has.deepest, static_cast<uint32_t>(blocks - 1));
}

void Cache::Stretches(BlockId deepest, GroupIndex group, std::vector<Stretch>* out) const {
  const uint64_t block_tokens = config_.groups[group].block_tokens;
  const bool all_healthy = AllHealthy();
  std::vector<PathPiece> path;
  if (deepest != BlockId::kNone) store_->Path(deepest, 0, &path);
  uint64_t end = 0;
  const auto add = [&](uint64_t blocks, int tier, bool pending) {
    end += blocks * block_tokens;
    const TierIndex t = static_cast<TierIndex>(std::max(tier, 0));
    if (!out->empty() && out->back().tier == t && out->back().pending == pending) {
      out->back().end = end;
    } else {
      out->push_back(Stretch{end, t, pending});
    }
  };
  for (const PathPiece& piece : path) {
    const Run& run = store_->run(piece.run);
    TierIndex first = 0;
    while (first + size_t{1} < tiers_.size() && store_->run_tier(piece.run, first).present == 0)
      ++first;
    if (all_healthy && store_->run_tier(piece.run, first).resident == run.count) {
      add(piece.end - piece.begin, first, false);
      continue;
    }
    for (uint32_t i = piece.begin; i < piece.end; ++i) {
      const BlockId id = store_->block_at(run, i);
      add(1, store_->BestTier(id), store_->at(id, 0).presence == Presence::kIncoming);
    }
  }
}

// Each token counts for the slowest tier that a group needs for it.
uint64_t Cache::CountTiers(const std::vector<BlockId>& anchors, uint64_t tokens,
                           LookupAnswer* answer) const {
  answer->tier_tokens.assign(tiers_.size(), 0);
  answer->pending_tokens = 0;
  std::vector<std::vector<Stretch>> groups(anchors.size());
  std::vector<size_t> at(anchors.size());
  for (GroupIndex g = 0; g < anchors.size(); ++g) Stretches(anchors[g], g, &groups[g]);
  uint64_t leading = 0;
  for (uint64_t begin = 0; begin < tokens;) {
    uint64_t end = tokens;
    TierIndex slowest = 0;
    bool pending = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      while (groups[g][at[g]].end <= begin) ++at[g];
      const Stretch& stretch = groups[g][at[g]];
      end = std::min(end, stretch.end);
      slowest = std::max(slowest, stretch.tier);
      pending |= stretch.pending;
    }
    answer->tier_tokens[slowest] += end - begin;
    if (pending) answer->pending_tokens += end - begin;
    if (slowest == 0 && leading == begin) leading = end;
    begin = end;
  }
  return leading;
}

// The session's next prompt leaves its last path at the first block that differs: what is beyond
// it, and nobody else ever used, is superseded. 98 % of such blocks are never asked for again on
// real agents' traces.
void Cache::NoteSupersession(const Session& session, const FoundPrefix& found) {
  for (GroupIndex g = 0; g < session.path.size(); ++g) {
    const BlockId last = store_->DeepestAlive(session.path[g]);
    if (last == BlockId::kNone) continue;
    const uint32_t same = store_->CommonDepth(last, found.groups[g].deepest);
    store_->SupersedePath(last, same, session.serial);
  }
}

// What a lookup finds, and what to say about it. Changes nothing.
Status Cache::Find(ObjectId space_id, const LookupRequest& request, FoundForLookup* out) const {
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  const SpaceHandle* const handle = spaces_.Find(space_id);
  if (handle == nullptr) return BadHandle("space");
  if (request.session != 0 && sessions_.Find(request.session) == nullptr)
    return BadHandle("item.session");
  out->space = handle->space;
  NamedPrefix prefix;
  FERMATA_RETURN_IF_ERROR(CheckName(*out->space, request, &prefix));
  if (request.lease && leases_.full()) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull, "%u leases live, want fewer",
                   leases_.size());
  }
  out->total = std::max(request.token_count, prefix.units() * config_.chain_tokens);
  const uint64_t limit = out->total > request.leave_tokens ? out->total - request.leave_tokens : 0;
  FoundPrefix& found = out->prefix;
  FindPrefix(*out->space, prefix, limit, /*on_sick_tiers_too=*/false, &found);
  out->anchors.resize(config_.groups.size());
  const auto count = [&] {
    mu_.AssertReaderHeld();
    for (GroupIndex g = 0; g < out->anchors.size(); ++g) out->anchors[g] = AnchorOf(found, g);
    return CountTiers(out->anchors, found.tokens, &out->answer);
  };
  // What is not worth loading is left to be computed again.
  const uint64_t worth = placement_->WorthTaking(count(), found.tokens);
  if (worth < found.tokens) {
    found.tokens = worth / joint_step_ * joint_step_;
    count();
  }
  out->answer.hit_tokens = found.tokens;
  return Status();
}

Result<LookupAnswer> Cache::Lookup(ObjectId space_id, const LookupRequest& request) {
  FoundForLookup looked_up;
  if (!request.lease) {
    ReaderLock lock(&mu_);
    FERMATA_RETURN_IF_ERROR(Find(space_id, request, &looked_up));
    return std::move(looked_up.answer);
  }
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(Find(space_id, request, &looked_up));
  SpaceState* const space = looked_up.space;
  const FoundPrefix& found = looked_up.prefix;
  LookupAnswer& answer = looked_up.answer;
  const uint64_t total = looked_up.total;
  if (request.session != 0) NoteSupersession(*sessions_.Find(request.session), found);
  if (found.tokens == 0) {
    query_tokens_ += total;
    return std::move(answer);
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
  lease->key_bytes = request.key_bytes;
  lease->extras = request.extras;
  lease->anchors = std::move(looked_up.anchors);
  for (const BlockId anchor : lease->anchors) store_->Ref(anchor);
  ++space->users;
  const uint64_t deadline = lease->deadline_ns;
  Lease* const raw = lease.get();
  const ObjectId id = leases_.Add(std::move(lease));
  raw->timer = executor_->PostAt(deadline, [this, id] {
    WriterLock timer_lock(&mu_);
    Lease* const due = leases_.Find(id);
    if (due == nullptr || due->expired) return;
    due->timer = 0;
    EndLease(id);
  });
  answer.lease = id;
  return std::move(answer);
}

// --- leases ---

// Lets go of the blocks, deepest first. The husk stays for a while, so that a late taker is told
// EXPIRED.
void Cache::EndLease(ObjectId id) {
  Lease* const lease = leases_.Find(id);
  for (const BlockId anchor : lease->anchors) {
    if (anchor != BlockId::kNone) store_->Unref(anchor);
  }
  lease->anchors.clear();
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
  WriterLock lock(&mu_);
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
  for (const BlockId anchor : lease->anchors)
    killed |= anchor != BlockId::kNone && !store_->published(anchor);
  if (lease->expired || killed) {
    if (!lease->expired) EndLease(lease_id);
    std::erase(expired_, lease_id);
    leases_.Remove(lease_id);
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kLeaseExpired,
                   killed ? "the leased blocks were erased" : "the lease has expired");
  }
  LookupAnswer counted;
  CountTiers(lease->anchors, lease->tokens, &counted);
  for (TierIndex t = 0; t < tiers_.size(); ++t)
    store_->counters(t).hit_tokens += counted.tier_tokens[t];
  query_tokens_ += lease->query_tokens;
  hit_tokens_ += lease->tokens;
  if (sequence->session == 0) sequence->session = lease->session;
  const SessionId serial = SerialOf(sequence->session);
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    table.anchor = lease->anchors[g];  // The lease's reference becomes the table's.
    table.published = lease->tokens / config_.groups[g].block_tokens;
    if (table.anchor != BlockId::kNone) store_->TouchPath(table.anchor, 0, serial);
  }
  sequence->tokens = sequence->marked = lease->tokens;
  sequence->named_from = lease->tokens / config_.chain_tokens;
  const BlockId last = sequence->groups[0].anchor;
  sequence->key_before = last == BlockId::kNone ? sequence->space->seed : store_->key(last);
  sequence->token_ids.clear();
  sequence->keys.clear();
  sequence->chain.clear();
  sequence->key_bytes = lease->key_bytes;
  if (lease->timer != 0) executor_->CancelTimer(lease->timer);
  --lease->space->users;
  leases_.Remove(lease_id);
  RememberPath(sequence);
  return Status();
}

Status Cache::DropLease(ObjectId id) {
  WriterLock lock(&mu_);
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
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Lease* const lease = leases_.Find(id);
  if (lease == nullptr) return BadHandle("lease");
  if (!lease->expired && lease->deadline_ns <= clock_->NowNs()) EndLease(id);
  if (lease->expired)
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kLeaseExpired, "the lease has expired");
  if (tokens >= lease->tokens) return lease->tokens;
  lease->tokens = tokens / joint_step_ * joint_step_;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const uint64_t blocks = lease->tokens / config_.groups[g].block_tokens;
    const BlockId old = lease->anchors[g];
    if (old == BlockId::kNone) continue;
    BlockId& anchor = lease->anchors[g];
    anchor =
        blocks == 0 ? BlockId::kNone : store_->Ancestor(old, static_cast<uint32_t>(blocks - 1));
    if (anchor != BlockId::kNone) store_->Ref(anchor);
    store_->Unref(old);
  }
  RoomMayHaveGrown();
  return lease->tokens;
}

}  // namespace fermata
