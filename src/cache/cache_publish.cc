// SPDX-License-Identifier: Apache-2.0
//
// Cache: what of a sequence is written, and what of that others may find.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "cache/cache.h"

namespace fermata {

Status Cache::Mark(ObjectId id, uint64_t tokens, void* event) {
  MutexLock lock(&mu_);
  Sequence* sequence = nullptr;
  FERMATA_RETURN_IF_ERROR(FindRunning(id, &sequence));
  if (tokens > sequence->tokens) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "tokens is %" PRIu64 ", but the sequence has %" PRIu64, tokens, sequence->tokens);
  }
  if (event != nullptr && !device_->ops()->has_events()) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "event is given, but config.device_ops has no event_query to ask about it");
  }
  if (event != nullptr) {
    sequence->pending_marks.push_back(PendingMark{sequence->next_mark++, tokens, event});
    if (pending_marks_.fetch_add(1, std::memory_order_acq_rel) == 0)
      executor_->Post([] {});  // Wakes the poller.
    return Status();
  }
  sequence->marked = std::max(sequence->marked, tokens);
  DropCopiedSources(sequence);
  PublishMarked(sequence);
  return Status();
}

// Runs on the executor's thread: the events are the engine's, asked about with no lock held.
bool Cache::PollMarks() {
  std::vector<AskedMark> asked;
  {
    MutexLock lock(&mu_);
    sequences_.ForEach([&asked](ObjectId id, const Sequence& s) {
      for (const PendingMark& mark : s.pending_marks)
        asked.push_back(AskedMark{id, mark.serial, mark.event, false, Status()});
    });
  }
  bool progress = false;
  for (AskedMark& a : asked) {
    const Result<bool> fired = device_->ops()->EventQuery(a.event);
    a.fired = fired.ok() && fired.value();
    a.status = fired.status();
    progress |= a.fired;
  }
  std::vector<std::string> refusals;
  {
    MutexLock lock(&mu_);
    SettleMarks(asked, &refusals);
  }
  for (const std::string& refusal : refusals) {
    if (config_.log) config_.log(LogLevel::kWarning, "operation=event_query status=" + refusal);
  }
  return progress;
}

// An event that cannot be asked about says nothing of the kernels it stands for: it counts as one
// that has not fired, and is asked about again until the device is declared lost.
void Cache::SettleMarks(const std::vector<AskedMark>& asked, std::vector<std::string>* refusals) {
  for (const AskedMark& a : asked) {
    Sequence* const sequence = sequences_.Find(a.sequence);
    if (sequence == nullptr) continue;
    std::vector<PendingMark>& marks = sequence->pending_marks;
    const auto mark = std::find_if(marks.begin(), marks.end(),
                                   [&a](const PendingMark& m) { return m.serial == a.serial; });
    if (mark == marks.end()) continue;
    if (!a.status.ok() && !std::exchange(mark->refused, true))
      refusals->push_back(a.status.ToString());
    if (!a.fired) continue;
    sequence->marked = std::max(sequence->marked, std::min(mark->tokens, sequence->tokens));
    marks.erase(mark);
    pending_marks_.fetch_sub(1, std::memory_order_acq_rel);
    MarkSettled(sequence);
  }
}

void Cache::MarkSettled(Sequence* sequence) {
  DropCopiedSources(sequence);
  PublishMarked(sequence);
  const uint64_t settled_below = sequence->pending_marks.empty()
                                     ? sequence->next_mark
                                     : sequence->pending_marks.front().serial;
  const size_t held = sequence->quarantine.size();
  std::erase_if(sequence->quarantine, [&](const QuarantinedBlock& held_block) {
    mu_.AssertHeld();
    if (held_block.until >= settled_below) return false;
    store_->Unref(held_block.block);
    return true;
  });
  const bool freed = sequence->quarantine.size() != held;
  if (sequence->pending_marks.empty() && sequence->state == SequenceState::kParking)
    RunPendingPark(sequence);
  EndIfReleased(sequence);
  if (freed) RoomMayHaveGrown();
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
    for (GroupTable& table : sequence->groups) table.remembered = 0;
  }
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    std::vector<RememberedBlock>& path = session->path[g];
    for (; table.remembered < table.published; ++table.remembered) {
      const BlockId id = table.blocks[table.remembered].canonical;
      if (table.remembered < path.size()) {
        if (path[table.remembered].block == id &&
            path[table.remembered].uid == store_->block(id).uid)
          continue;
        // The sequence was cut and went on differently: so did the session's prompt.
        SupersedePath(*session, path, table.remembered);
        path.resize(table.remembered);
      }
      path.push_back(RememberedBlock{id, store_->block(id).uid});
    }
  }
}

}  // namespace fermata
