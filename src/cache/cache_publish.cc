// SPDX-License-Identifier: Apache-2.0
//
// Cache: what of a sequence is written, and what of that others may find.
#include <algorithm>
#include <cinttypes>

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

}  // namespace fermata
