// SPDX-License-Identifier: Apache-2.0
//
// Cache: sequences. Append, mark, publish, fork, truncate, release.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace fermata {

Status Cache::FindSequence(ObjectId id, Sequence** out) {
  Sequence* const sequence = sequences_.Find(id);
  if (sequence == nullptr || sequence->released) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                   "sequence is no live handle of this cache");
  }
  *out = sequence;
  return Status();
}

Result<ObjectId> Cache::CreateSequence(ObjectId space_id, SequenceOptions options) {
  MutexLock lock(&mu_);
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
  sequence->groups.resize(config_.groups.size());
  ++handle->space->users;
  Sequence* const raw = sequence.get();
  raw->id = sequences_.Add(std::move(sequence));
  return raw->id;
}

// ------------------------------------------------------------------------------------------------
// append

Status Cache::Append(const AppendRequest& request, std::vector<BlockCopy>* copies,
                     size_t copy_capacity) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(request.sequence, &sequence));
  if (sequence->state != SequenceState::kRunning) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                   "the sequence is %s, want running",
                   sequence->state == SequenceState::kLoading ? "loading" : "parked");
  }
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
    const uint64_t named = (sequence->keys.size() + request.keys.size()) / request.key_bytes;
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
    const Block& tail = store_->block(table.blocks.back().block);
    if (!store_->Resident(table.blocks.back().block, 0)) {
      return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                     "the sequence's last block is not on the device: load it first");
    }
    copy_tail[g] = tail.refs > 1 || tail.state == BlockState::kPublished;
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
    const uint64_t need = blocks - table.blocks.size() + (copy_tail[g] ? 1 : 0);
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
      const TableEntry old = table.blocks.back();
      copies->push_back(BlockCopy{g, store_->at(old.block, 0).slot, slots[g][0],
                                  static_cast<uint32_t>(sequence->tokens % block_tokens)});
      const BlockId fresh = store_->NewPrivate(g, slots[g][next++]);
      store_->Ref(fresh);
      table.blocks.back() = TableEntry{fresh, BlockId::kNone};
      DropEntry(old);
    } else if (request.token_count != 0 && sequence->tokens % block_tokens != 0 &&
               table.blocks.back().canonical != BlockId::kNone) {
      // A private duplicate that is written on stops being one.
      TableEntry& entry = table.blocks.back();
      if (entry.canonical != entry.block) store_->Unref(entry.canonical);
      entry.canonical = BlockId::kNone;
    }
    for (; next < slots[g].size(); ++next) {
      const BlockId fresh = store_->NewPrivate(g, slots[g][next]);
      store_->Ref(fresh);
      table.blocks.push_back(TableEntry{fresh, BlockId::kNone});
    }
    table.published = std::min<uint64_t>(table.published, sequence->tokens / block_tokens);
  }
  sequence->tokens = total;
  sequence->token_ids.insert(sequence->token_ids.end(), request.tokens.begin(),
                             request.tokens.end());
  sequence->keys.insert(sequence->keys.end(), request.keys.begin(), request.keys.end());
  if (!request.keys.empty()) sequence->key_bytes = request.key_bytes;
  if (!request.keys.empty()) PublishMarked(sequence);  // A name may come after the bytes.
  return Status();
}

// ------------------------------------------------------------------------------------- mark and
// publish

Status Cache::Mark(ObjectId id, uint64_t tokens, void* event) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  if (sequence->state != SequenceState::kRunning) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState, "the sequence is not running");
  }
  if (tokens > sequence->tokens) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "tokens is %" PRIu64 ", but the sequence has %" PRIu64, tokens, sequence->tokens);
  }
  if (event != nullptr) {
    sequence->pending_marks.push_back(PendingMark{tokens, event});
    if (pending_marks_.fetch_add(1, std::memory_order_acq_rel) == 0)
      executor_->Post([] {});  // Wakes the poller.
    return Status();
  }
  sequence->marked = std::max(sequence->marked, tokens);
  PublishMarked(sequence);
  return Status();
}

// Runs on the executor's thread: the events are the engine's, asked about with no lock held.
bool Cache::PollMarks() {
  struct Asked {
    ObjectId sequence;
    void* event;
    bool fired;
  };
  std::vector<Asked> asked;
  {
    MutexLock lock(&mu_);
    sequences_.ForEach([&asked](ObjectId id, const Sequence& s) {
      for (const PendingMark& mark : s.pending_marks) asked.push_back(Asked{id, mark.event, false});
    });
  }
  bool progress = false;
  for (Asked& a : asked) {
    const Result<bool> fired = device_->ops()->EventQuery(a.event);
    // An event that cannot be asked about never fires: its tokens stay unmarked, and the mark is
    // forgotten.
    a.fired = fired.ok() && fired.value();
    if (!fired.ok() && config_.log)
      config_.log(LogLevel::kWarning, "operation=event_query status=" + fired.status().ToString());
    progress |= a.fired || !fired.ok();
    if (fired.ok() && !a.fired) a.event = nullptr;  // still to come
  }
  MutexLock lock(&mu_);
  for (const Asked& a : asked) {
    if (a.event == nullptr) continue;
    Sequence* const sequence = sequences_.Find(a.sequence);
    if (sequence == nullptr) continue;
    const auto mark = std::find_if(sequence->pending_marks.begin(), sequence->pending_marks.end(),
                                   [&a](const PendingMark& m) { return m.event == a.event; });
    if (mark == sequence->pending_marks.end()) continue;
    if (a.fired)
      sequence->marked = std::max(sequence->marked, std::min(mark->tokens, sequence->tokens));
    sequence->pending_marks.erase(mark);
    pending_marks_.fetch_sub(1, std::memory_order_acq_rel);
    if (a.fired && !sequence->released) PublishMarked(sequence);
  }
  return progress;
}

NamedPrefix Cache::PrefixOf(const Sequence& sequence) const {
  NamedPrefix prefix;
  prefix.mode = sequence.space->key_mode;
  prefix.chain_tokens = config_.chain_tokens;
  prefix.tokens = sequence.token_ids;
  prefix.keys = sequence.keys;
  prefix.key_bytes = sequence.key_bytes;
  prefix.extras = sequence.extras;
  return prefix;
}

void Cache::ExtendChain(Sequence* sequence) {
  const NamedPrefix prefix = PrefixOf(*sequence);
  const uint64_t units = std::min(prefix.units(), sequence->marked / config_.chain_tokens);
  std::vector<std::byte> scratch;
  while (sequence->chain.size() < units) {
    const Hash128& before =
        sequence->chain.empty() ? sequence->space->seed : sequence->chain.back();
    sequence->chain.push_back(ChainHash(before, prefix.Name(sequence->chain.size(), 1, &scratch)));
  }
}

void Cache::PublishMarked(Sequence* sequence) {
  if (sequence->no_store || sequence->frozen || sequence->state == SequenceState::kParked) return;
  ExtendChain(sequence);
  bool any = false;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    while ((table.published + 1) * units_of(g) <= sequence->chain.size() && !sequence->frozen) {
      if (!PublishBlock(sequence, g, table.published)) break;
      ++table.published;
      any = true;
    }
  }
  if (any) RememberPath(sequence);
}

bool Cache::PublishBlock(Sequence* sequence, GroupIndex group, uint64_t index) {
  GroupTable& table = sequence->groups[group];
  TableEntry& entry = table.blocks[index];
  BlockId parent = BlockId::kNone;
  if (index > 0) {
    parent = table.blocks[index - 1].canonical;
    // What a reset or an erase took out of the index is not continued under its old name.
    if (parent == BlockId::kNone || store_->block(parent).state != BlockState::kPublished) {
      sequence->frozen = true;
      return false;
    }
  }
  const Session* const session = sessions_.Find(sequence->session);
  const SessionId serial = session == nullptr ? kNoSession : session->serial;
  std::vector<std::byte> scratch;
  const uint64_t units = units_of(group);
  const NamedPrefix prefix = PrefixOf(*sequence);
  const std::span<const std::byte> name = prefix.Name(index * units, units, &scratch);
  const Hash128 key = sequence->chain[(index + 1) * units - 1];
  const BlockId existing = store_->Find(sequence->space->number, group, parent, key, name);
  if (existing == entry.block) {  // A relative that shares the block has published it.
    entry.canonical = existing;
    store_->Touch(existing, serial);
    return true;
  }
  if (existing == BlockId::kNone) {
    if (store_->block(entry.block).state != BlockState::kPrivate) {
      sequence->frozen = true;
      return false;
    }
    store_->Publish(entry.block, sequence->space->number, parent, static_cast<uint32_t>(index), key,
                    name, serial);
    entry.canonical = entry.block;
    return true;
  }
  const bool ours_alone = store_->block(entry.block).refs == 1;
  const bool unheld = store_->block(existing).refs == 0 && store_->Resident(existing, 0) &&
                      store_->at(existing, 0).io_pins == 0 && !store_->at(existing, 0).leaving;
  store_->Ref(existing);
  store_->Touch(existing, serial);
  if (ours_alone && (unheld || store_->at(existing, 0).presence == Presence::kAbsent)) {
    // The same block lies on a lower tier only, or in a device slot that nobody holds: our slot
    // becomes its place on the device, and the other one is free.
    store_->AdoptDeviceSlot(existing, entry.block);
    store_->Unref(entry.block);
    entry.block = entry.canonical = existing;
    return true;
  }
  // A duplicate: the engine's table keeps its own slot, and the published one stays while we rely
  // on it.
  entry.canonical = existing;
  return true;
}

void Cache::RememberPath(Sequence* sequence) {
  Session* const session = sessions_.Find(sequence->session);
  if (session == nullptr) return;
  if (session->path_sequence != sequence->id) {
    session->path.assign(config_.groups.size(), {});
    session->path_sequence = sequence->id;
  }
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const GroupTable& table = sequence->groups[g];
    std::vector<RememberedBlock>& path = session->path[g];
    if (path.size() > table.published) path.resize(table.published);
    for (size_t i = path.size(); i < table.published; ++i) {
      const BlockId id = table.blocks[i].canonical;
      path.push_back(RememberedBlock{id, store_->block(id).uid});
    }
  }
}

// ------------------------------------------------------------------------------ cutting and
// letting go

void Cache::DropEntry(const TableEntry& entry) {
  if (entry.canonical != BlockId::kNone && entry.canonical != entry.block)
    store_->Unref(entry.canonical);
  store_->Unref(entry.block);
}

void Cache::CutTable(Sequence* sequence, GroupIndex group, uint64_t blocks) {
  GroupTable& table = sequence->groups[group];
  while (table.blocks.size() > blocks) {
    DropEntry(table.blocks.back());
    table.blocks.pop_back();
  }
}

void Cache::CutNames(Sequence* sequence, uint64_t tokens) {
  sequence->tokens = std::min(sequence->tokens, tokens);
  sequence->marked = std::min(sequence->marked, tokens);
  const uint64_t units = tokens / config_.chain_tokens;
  if (sequence->token_ids.size() > tokens) sequence->token_ids.resize(tokens);
  if (sequence->keys.size() > units * sequence->key_bytes)
    sequence->keys.resize(units * sequence->key_bytes);
  if (sequence->chain.size() > units) sequence->chain.resize(units);
  for (PendingMark& mark : sequence->pending_marks) mark.tokens = std::min(mark.tokens, tokens);
}

void Cache::CutSequence(Sequence* sequence, uint64_t tokens) {
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    const uint64_t block_tokens = config_.groups[g].block_tokens;
    CutTable(sequence, g, (tokens + block_tokens - 1) / block_tokens);
    sequence->groups[g].published = std::min(sequence->groups[g].published, tokens / block_tokens);
  }
  CutNames(sequence, tokens);
  RoomMayHaveGrown();
}

Status Cache::Truncate(ObjectId id, uint64_t tokens) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  if (sequence->state != SequenceState::kRunning) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState, "the sequence is not running");
  }
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
  LetGo(sequence);
  pending_marks_.fetch_sub(sequence->pending_marks.size(), std::memory_order_acq_rel);
  --sequence->space->users;
  sequences_.Remove(id);
  RoomMayHaveGrown();
}

Status Cache::Release(ObjectId id) {
  MutexLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  if (sequence->job == 0) {
    EndSequence(id);
    return Status();
  }
  // A device may still write into its slots: it goes when the job ends.
  sequence->released = true;
  StopJob(jobs_.Find(sequence->job), Status(StatusCode::kCancelled, "the sequence was released"));
  return Status();
}

void Cache::RoomMayHaveGrown() {
  if (config_.free_watermark_ppm != 0) {
    for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
      mover_->KeepFree(g, device_->slots(g) * config_.free_watermark_ppm / 1'000'000);
    }
  }
  mover_->Pump();
}

// --------------------------------------------------------------------------------------------------
// fork

Result<std::vector<ObjectId>> Cache::Fork(ObjectId id, size_t count) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  if (sequence->state != SequenceState::kRunning) {
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kState, "the sequence is not running");
  }
  if (count > config_.max_sequences || sequences_.size() + count > config_.max_sequences) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                   "want %zu more sequences, %u of %u live", count, sequences_.size(),
                   config_.max_sequences);
  }
  std::vector<ObjectId> children;
  for (size_t i = 0; i < count; ++i) {
    auto child = std::make_unique<Sequence>(*sequence);
    for (GroupTable& table : child->groups) {
      table.reserved.clear();
      for (const TableEntry& entry : table.blocks) {
        store_->Ref(entry.block);
        if (entry.canonical != BlockId::kNone && entry.canonical != entry.block)
          store_->Ref(entry.canonical);
      }
    }
    pending_marks_.fetch_add(child->pending_marks.size(), std::memory_order_acq_rel);
    ++child->space->users;
    Sequence* const raw = child.get();
    raw->id = sequences_.Add(std::move(child));
    children.push_back(raw->id);
  }
  return children;
}

// -------------------------------------------------------------------------------------------------
// asking

uint64_t Cache::PublishedTokens(const Sequence& sequence) const {
  uint64_t tokens = sequence.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    tokens = std::min(tokens, sequence.groups[g].published * config_.groups[g].block_tokens);
  }
  return tokens;
}

uint64_t Cache::DeviceTokens(const Sequence& sequence) const {
  uint64_t tokens = sequence.tokens;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    uint64_t blocks = 0;
    for (const TableEntry& entry : sequence.groups[g].blocks) {
      if (!store_->Resident(entry.block, 0)) break;
      ++blocks;
    }
    tokens = std::min(tokens, blocks * config_.groups[g].block_tokens);
  }
  return tokens;
}

Result<SequenceInfo> Cache::Info(ObjectId id) {
  MutexLock lock(&mu_);
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
        std::min<uint64_t>(info.reserved_tokens, (table.blocks.size() + table.reserved.size()) *
                                                     config_.groups[g].block_tokens);
  }
  return info;
}

Result<size_t> Cache::Slots(ObjectId id, GroupIndex group, uint64_t first,
                            std::span<uint32_t> out) {
  MutexLock lock(&mu_);
  FERMATA_RETURN_IF_ERROR(OpenCheck());
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindSequence(id, &sequence));
  const std::vector<TableEntry>& blocks = sequence->groups[group].blocks;
  if (first > blocks.size()) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "first is %" PRIu64 ", but the table has %zu blocks", first, blocks.size());
  }
  const size_t n = blocks.size() - first;
  for (size_t i = 0; i < std::min(n, out.size()); ++i) {
    const BlockId block = blocks[first + i].block;
    out[i] = store_->Resident(block, 0) ? Raw(store_->at(block, 0).slot) : Raw(SlotId::kNone);
  }
  return n;
}

}  // namespace fermata
