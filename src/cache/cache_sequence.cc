// SPDX-License-Identifier: Apache-2.0
//
// Cache: sequences. Append, fork, truncate, release.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace fermata {

Status Cache::FindSequence(ObjectId id, Sequence** out) const {
  Sequence* const sequence = sequences_.Find(id);
  if (sequence == nullptr || sequence->released) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                   "sequence is no live handle of this cache");
  }
  *out = sequence;
  return Status();
}

Status Cache::FindRunning(ObjectId id, Sequence** out) {
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  FERMATA_RETURN_IF_ERROR(FindSequence(id, out));
  if ((*out)->state == SequenceState::kRunning) return Status();
  return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                 "the sequence is %s, want running",
                 (*out)->state == SequenceState::kLoading  ? "loading"
                 : (*out)->state == SequenceState::kParked ? "parked"
                                                           : "parking");
}

Result<ObjectId> Cache::CreateSequence(ObjectId space_id, SequenceOptions options) {
  WriterLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  const SpaceHandle* const handle = spaces_.Find(space_id);
  if (handle == nullptr)
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                   "space is no live handle of this cache");
  if (options.session != 0 && sessions_.Find(options.session) == nullptr) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                   "options.session is no live handle of this cache");
  }
  if (sequences_.full()) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                   "%u sequences live, as many as config.max_sequences", sequences_.size());
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->space = handle->space;
  sequence->session = options.session;
  sequence->no_store = options.no_store;
  sequence->extras = std::move(options.extras);
  sequence->key_before = handle->space->seed;
  sequence->groups.resize(config_.groups.size());
  ++handle->space->users;
  Sequence* const raw = sequence.get();
  raw->id = sequences_.Add(std::move(sequence));
  return raw->id;
}

// --- append ---

Status Cache::Append(const AppendRequest& request, std::vector<BlockCopy>* copies,
                     size_t copy_capacity) {
  WriterLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindRunning(request.sequence, &sequence));
  const bool by_tokens = sequence->space->key_mode == KeyMode::kTokens;
  const uint64_t total = sequence->tokens + request.token_count;
  if (request.token_count > kMaxTokens || total > kMaxTokens) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "token_count is %" PRIu64 " on top of %" PRIu64 ", want at most %" PRIu64
                  " in all",
                  request.token_count, sequence->tokens, kMaxTokens);
  }
  if (by_tokens ? (request.tokens.size() != request.token_count || !request.keys.empty())
                : !request.tokens.empty()) {
    return ErrorF(StatusCode::kInvalidArgument,
                  by_tokens
                      ? "the space names blocks by tokens: want token_count tokens and no keys"
                      : "the space names blocks by keys: want no tokens");
  }
  if (!request.keys.empty()) {
    if (request.key_bytes == 0 || request.key_bytes > 255 ||
        (sequence->key_bytes != 0 && request.key_bytes != sequence->key_bytes)) {
      return ErrorF(StatusCode::kInvalidArgument, "key_bytes is %u, want %s", request.key_bytes,
                    sequence->key_bytes == 0 ? "1..255" : "what earlier keys of the sequence have");
    }
    const uint64_t named =
        sequence->named_from + (sequence->keys.size() + request.keys.size()) / request.key_bytes;
    if (named > total / config_.chain_tokens) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "key_count names %" PRIu64 " units, but %" PRIu64 " tokens fill only %" PRIu64,
                    named, total, total / config_.chain_tokens);
    }
  }
  // First everything that can fail: which slots are needed, and having them.
  std::vector<std::vector<SlotId>> slots(config_.groups.size());
  std::vector<bool> copy_tail(config_.groups.size());
  std::vector<uint64_t> from_reserve(config_.groups.size());
  size_t copy_count = 0;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const uint64_t block_tokens = config_.groups[g].block_tokens;
    const GroupTable& table = sequence->groups[g];
    if (request.token_count == 0 || sequence->tokens % block_tokens == 0) continue;
    const BlockId tail = table.tail.back();
    if (!store_->Resident(tail, 0)) {
      return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                     "the sequence's last block is not on the device: load it first");
    }
    // What others hold, may find, or are copying from is not written on.
    // Those who copy from it have been told to before now: the engine runs copies in order.
    copy_tail[g] = store_->state(tail) != BlockState::kPrivate ||
                   store_->private_refs(tail) - store_->private_copies(tail) > 1 ||
                   store_->at(tail, 0).io_pins != 0;
    copy_count += copy_tail[g] ? 1 : 0;
  }
  if (copy_count > copy_capacity) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "copy_capacity is %zu, want %zu for the copy-on-write of this append",
                  copy_capacity, copy_count);
  }
  Status status;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const uint64_t block_tokens = config_.groups[g].block_tokens;
    const GroupTable& table = sequence->groups[g];
    const uint64_t blocks = (total + block_tokens - 1) / block_tokens;
    const uint64_t need = blocks - table.blocks() + (copy_tail[g] ? 1 : 0);
    from_reserve[g] = std::min<uint64_t>(need, table.reserved.size());
    status = mover_->AcquireNow(g, need - from_reserve[g], &slots[g]);
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) store_->tier(0)->Release(g, slots[g]);
    return status;
  }
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    std::vector<SlotId>& reserved = sequence->groups[g].reserved;
    slots[g].insert(slots[g].end(), reserved.end() - static_cast<std::ptrdiff_t>(from_reserve[g]),
                    reserved.end());
    reserved.resize(reserved.size() - from_reserve[g]);
  }
  // From here on nothing fails.
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const uint64_t block_tokens = config_.groups[g].block_tokens;
    GroupTable& table = sequence->groups[g];
    size_t next = 0;
    if (copy_tail[g]) {
      const BlockId old = table.tail.back();
      copies->push_back(BlockCopy{g, store_->at(old, 0).slot, slots[g][0],
                                  static_cast<uint32_t>(sequence->tokens % block_tokens)});
      const BlockId fresh = store_->NewPrivate(g, slots[g][next++]);
      store_->Ref(fresh);
      table.tail.back() = fresh;
      store_->BeginCopy(old);
      table.copy_sources.push_back(CopySource{old, table.blocks() - 1, sequence->tokens});
    }
    store_->NewPrivates(g, std::span(slots[g]).subspan(next), &table.tail);
  }
  sequence->tokens = total;
  sequence->token_ids.insert(sequence->token_ids.end(), request.tokens.begin(),
                             request.tokens.end());
  sequence->keys.insert(sequence->keys.end(), request.keys.begin(), request.keys.end());
  if (!request.keys.empty()) sequence->key_bytes = request.key_bytes;
  if (!request.keys.empty()) PublishMarked(sequence);  // A name may come after the bytes.
  return Status();
}

// --- cutting and letting go ---

void Cache::DropBlock(Sequence* sequence, BlockId block) {
  if (sequence->pending_marks.empty()) {
    store_->Unref(block);
  } else {
    sequence->quarantine.push_back(QuarantinedBlock{block, sequence->pending_marks.back().serial});
  }
}

void Cache::DropCopiedSources(Sequence* sequence) {
  for (GroupTable& table : sequence->groups) {
    std::erase_if(table.copy_sources, [&](const CopySource& source) {
      mu_.AssertHeld();
      if (source.after >= sequence->marked) return false;
      store_->EndCopy(source.block);
      store_->Unref(source.block);
      return true;
    });
  }
}

// Deepest first, as leaves have to go.
void Cache::CutTable(Sequence* sequence, GroupIndex group, uint64_t tokens) {
  GroupTable& table = sequence->groups[group];
  const uint64_t block_tokens = config_.groups[group].block_tokens;
  const uint64_t blocks = (tokens + block_tokens - 1) / block_tokens;
  const uint64_t full = tokens / block_tokens;
  while (!table.tail.empty() && table.blocks() > blocks) {
    DropBlock(sequence, table.tail.back());
    table.tail.pop_back();
  }
  while (!table.copy_sources.empty() && table.copy_sources.back().target >= blocks) {
    store_->EndCopy(table.copy_sources.back().block);
    DropBlock(sequence, table.copy_sources.back().block);
    table.copy_sources.pop_back();
  }
  if (table.published <= full) return;
  const BlockId old = table.anchor;
  BlockId part = BlockId::kNone;  // of which some tokens stay
  while (!table.own.empty() && table.own.back().index >= full) {
    if (table.own.back().index == full && blocks > full) {
      part = table.own.back().block;
    } else {
      DropBlock(sequence, table.own.back().block);
    }
    table.own.pop_back();
  }
  if (blocks > full) {
    if (part == BlockId::kNone) {
      part = store_->Ancestor(old, static_cast<uint32_t>(full));
      store_->Ref(part);
    }
    table.tail.push_back(part);
  }
  table.anchor =
      full == 0 ? BlockId::kNone : store_->Ancestor(old, static_cast<uint32_t>(full - 1));
  if (full != 0) store_->Ref(table.anchor);
  table.published = full;
  table.remembered = std::min(table.remembered, full);
  DropBlock(sequence, old);
}

void Cache::CutNames(Sequence* sequence, uint64_t tokens) {
  sequence->tokens = std::min(sequence->tokens, tokens);
  sequence->marked = std::min(sequence->marked, tokens);
  for (PendingMark& mark : sequence->pending_marks) mark.tokens = std::min(mark.tokens, tokens);
  for (GroupTable& table : sequence->groups) {
    for (CopySource& source : table.copy_sources) source.after = std::min(source.after, tokens);
  }
  const bool by_tokens = sequence->space->key_mode == KeyMode::kTokens;
  const uint64_t units = tokens / config_.chain_tokens;
  if (units < sequence->named_from) {
    // What is still needed of the names is in the tree: those behind the group that is published
    // least far are in its next block.
    GroupIndex least = 0;
    uint64_t from = UINT64_MAX;
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      const uint64_t end = tokens / config_.groups[g].block_tokens * config_.groups[g].block_tokens;
      if (end < from) least = g;
      from = std::min(from, end);
    }
    const uint64_t block_tokens = config_.groups[least].block_tokens;
    const BlockId anchor = sequence->groups[least].anchor;
    sequence->token_ids.clear();
    sequence->keys.clear();
    sequence->chain.clear();
    sequence->named_from = from / config_.chain_tokens;
    sequence->key_before = sequence->space->seed;
    if (tokens == 0) return;
    const uint32_t index = static_cast<uint32_t>(from / block_tokens);
    BlockId part = BlockId::kNone;  // the last block whose name is wanted
    if (anchor != BlockId::kNone)
      part = store_->Ancestor(anchor, from == tokens ? index - 1 : index);
    if (part == BlockId::kNone || !store_->published(part)) {
      // It was erased, or the device was lost: nothing is published any more that would want them.
      sequence->frozen = true;
      return;
    }
    if (from != 0) sequence->key_before = store_->key(store_->Ancestor(anchor, index - 1));
    if (from == tokens) return;
    const std::span<const std::byte> name = store_->name(part);
    if (by_tokens) {
      sequence->token_ids = TokensOfName(name, units_of(least), config_.chain_tokens);
    } else {
      // Framed by its length; see NamedPrefix::Name.
      const std::span<const std::byte> keys =
          name.subspan(1, units_of(least) * sequence->key_bytes);
      sequence->keys.assign(keys.begin(), keys.end());
    }
  }
  const uint64_t kept = tokens - sequence->named_from * config_.chain_tokens;
  const uint64_t kept_units = kept / config_.chain_tokens;
  if (sequence->token_ids.size() > kept) sequence->token_ids.resize(kept);
  if (sequence->keys.size() > kept_units * sequence->key_bytes)
    sequence->keys.resize(kept_units * sequence->key_bytes);
  if (sequence->chain.size() > kept_units) sequence->chain.resize(kept_units);
}

void Cache::CutSequence(Sequence* sequence, uint64_t tokens) {
  CutNames(sequence, tokens);
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) CutTable(sequence, g, tokens);
  RoomMayHaveGrown();
}

Status Cache::Truncate(ObjectId id, uint64_t tokens) {
  WriterLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindRunning(id, &sequence));
  if (tokens > sequence->tokens) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "tokens is %" PRIu64 ", but the sequence has %" PRIu64, tokens, sequence->tokens);
  }
  CutSequence(sequence, tokens);
  return Status();
}

void Cache::DropReserved(Sequence* sequence) {
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    std::vector<SlotId>& reserved = sequence->groups[g].reserved;
    if (!reserved.empty()) store_->tier(0)->Release(g, reserved);
    reserved.clear();
  }
}

void Cache::LetGo(Sequence* sequence) {
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) CutTable(sequence, g, 0);
  DropReserved(sequence);
}

void Cache::EndSequence(ObjectId id) {
  Sequence* const sequence = sequences_.Find(id);
  FERMATA_CHECK(sequence->pending_marks.empty() && sequence->quarantine.empty());
  LetGo(sequence);
  --sequence->space->users;
  sequences_.Remove(id);
  RoomMayHaveGrown();
}

Status Cache::Release(ObjectId id) {
  WriterLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  // A device may still write into its slots: it goes when its job has ended and its marks' events
  // have fired. What they declare written is published still.
  sequence->released = true;
  if (sequence->job != 0) {
    StopJob(jobs_.Find(sequence->job), Status(StatusCode::kCancelled, "the sequence was released"));
  } else {
    EndIfReleased(sequence);
  }
  return Status();
}

void Cache::EndIfReleased(Sequence* sequence) {
  if (sequence->released && sequence->job == 0 && sequence->pending_marks.empty())
    EndSequence(sequence->id);
}

void Cache::RoomMayHaveGrown() {
  if (config_.free_watermark_ppm != 0) {
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      mover_->KeepFree(g, device_->slots(g) * config_.free_watermark_ppm / 1'000'000);
    }
  }
  mover_->Pump();
}

// --- fork ---

Result<std::vector<ObjectId>> Cache::Fork(ObjectId id, size_t count) {
  WriterLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindRunning(id, &sequence));
  if (count > config_.max_sequences || sequences_.size() + count > config_.max_sequences) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                   "want %zu more sequences, %u of %u live", count, sequences_.size(),
                   config_.max_sequences);
  }
  std::vector<ObjectId> children;
  for (size_t i = 0; i < count; ++i) {
    auto child = std::make_unique<Sequence>(*sequence);
    child->quarantine.clear();
    for (GroupTable& table : child->groups) {
      table.reserved.clear();
      table.copy_sources.clear();  // The parent's, whose copies they are.
      table.remembered = 0;
      if (table.anchor != BlockId::kNone) store_->Ref(table.anchor);
      for (const OwnBlock& own : table.own) store_->Ref(own.block);
      for (const BlockId block : table.tail) store_->Ref(block);
    }
    pending_marks_.fetch_add(child->pending_marks.size(), std::memory_order_acq_rel);
    ++child->space->users;
    Sequence* const raw = child.get();
    raw->id = sequences_.Add(std::move(child));
    children.push_back(raw->id);
  }
  return children;
}

// --- asking ---

uint64_t Cache::PublishedTokens(const Sequence& sequence) const {
  uint64_t tokens = sequence.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    tokens = std::min(tokens, sequence.groups[g].published * config_.groups[g].block_tokens);
  }
  return tokens;
}

void Cache::VisitTable(const GroupTable& table, uint64_t first, BlockVisitor f) const {
  uint64_t index = first;
  if (first < table.published) {
    std::vector<PathPiece> path;
    store_->Path(table.anchor, static_cast<uint32_t>(first), &path);
    size_t own = 0;
    while (own < table.own.size() && table.own[own].index < first) ++own;
    for (const PathPiece& piece : path) {
      const Run& run = store_->run(piece.run);
      for (uint32_t i = piece.begin; i < piece.end; ++i, ++index) {
        if (own < table.own.size() && table.own[own].index == index) {
          if (!f(index, table.own[own++].block)) return;
        } else if (!f(index, store_->block_at(run, i))) {
          return;
        }
      }
    }
  }
  for (; index < table.blocks(); ++index) {
    if (!f(index, table.tail[index - table.published])) return;
  }
}

uint64_t Cache::TableTokens(const Sequence& sequence) const {
  uint64_t tokens = sequence.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    tokens = std::min(tokens, sequence.groups[g].blocks() * config_.groups[g].block_tokens);
  }
  return tokens;
}

uint64_t Cache::DeviceTokens(const Sequence& sequence) const {
  uint64_t tokens = sequence.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    uint64_t first = UINT64_MAX;
    VisitMissing(sequence.groups[g], [&](uint64_t index, BlockId) {
      first = index;
      return false;
    });
    const uint64_t blocks = std::min(first, sequence.groups[g].blocks());
    tokens = std::min(tokens, blocks * config_.groups[g].block_tokens);
  }
  return tokens;
}

void Cache::VisitMissing(const GroupTable& table, BlockVisitor f) const {
  if (table.published != 0 && !store_->PathResident(table.anchor, 0)) {
    std::vector<PathPiece> path;
    store_->Path(table.anchor, 0, &path);
    uint64_t index = 0;
    size_t own = 0;
    for (const PathPiece& piece : path) {
      const Run& run = store_->run(piece.run);
      if (store_->run_tier(piece.run, 0).resident == run.count) {
        index += piece.end - piece.begin;
        continue;
      }
      for (uint32_t i = piece.begin; i < piece.end; ++i, ++index) {
        while (own < table.own.size() && table.own[own].index < index) ++own;
        BlockId id = store_->block_at(run, i);
        if (own < table.own.size() && table.own[own].index == index) id = table.own[own].block;
        if (!store_->Resident(id, 0) && !f(index, id)) return;
      }
    }
  }
  for (uint64_t i = 0; i < table.tail.size(); ++i) {
    if (!store_->Resident(table.tail[i], 0) && !f(table.published + i, table.tail[i])) return;
  }
}

Result<SequenceInfo> Cache::Info(ObjectId id) {
  ReaderLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  SequenceInfo info;
  info.state = sequence->state;
  info.tokens = sequence->tokens;
  info.marked_tokens = sequence->marked;
  if (sequence->state == SequenceState::kParked) return info;
  info.published_tokens = PublishedTokens(*sequence);
  info.device_tokens = DeviceTokens(*sequence);
  info.reserved_tokens = kMaxTokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const GroupTable& table = sequence->groups[g];
    info.reserved_tokens =
        std::min<uint64_t>(info.reserved_tokens, (table.blocks() + table.reserved.size()) *
                                                     config_.groups[g].block_tokens);
  }
  return info;
}

Result<size_t> Cache::Slots(ObjectId id, GroupIndex group, uint64_t first,
                            std::span<uint32_t> out) {
  ReaderLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  const GroupTable& table = sequence->groups[group];
  if (first > table.blocks()) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "first is %" PRIu64 ", but the table has %" PRIu64 " blocks", first,
                  table.blocks());
  }
  size_t n = 0;
  if (!out.empty()) {
    VisitTable(table, first, [&](uint64_t, BlockId block) {
      mu_.AssertReaderHeld();
      out[n++] = store_->Resident(block, 0) ? Raw(store_->at(block, 0).slot) : Raw(SlotId::kNone);
      return n < out.size();
    });
  }
  return table.blocks() - first;
}

}  // namespace fermata
