// SPDX-License-Identifier: Apache-2.0
//
// Cache: what of a sequence is written, and what of that others may find.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "cache/cache.h"

namespace fermata {

Status Cache::Mark(ObjectId id, uint64_t tokens, void* event) {
  WriterLock lock(&mu_);
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
    WriterLock lock(&mu_);
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
    WriterLock lock(&mu_);
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
  prefix.begin = sequence.named_from;
  return prefix;
}

Hash128 Cache::KeyAt(const Sequence& sequence, uint64_t unit) const {
  return unit == sequence.named_from ? sequence.key_before
                                     : sequence.chain[unit - sequence.named_from - 1];
}

void Cache::ExtendChain(Sequence* sequence) {
  const NamedPrefix prefix = PrefixOf(*sequence);
  const uint64_t units = std::min(prefix.units(), sequence->marked / config_.chain_tokens);
  std::vector<std::byte> scratch;
  for (uint64_t unit = sequence->named_from + sequence->chain.size(); unit < units; ++unit) {
    sequence->chain.push_back(ChainHash(KeyAt(*sequence, unit), prefix.Name(unit, 1, &scratch)));
  }
}

SessionId Cache::SerialOf(ObjectId id) const {
  const Session* const session = sessions_.Find(id);
  return session == nullptr ? kNoSession : session->serial;
}

void Cache::PublishMarked(Sequence* sequence) {
  if (sequence->no_store || sequence->frozen || sequence->state == SequenceState::kParked) return;
  ExtendChain(sequence);
  uint64_t before = 0;
  uint64_t after = 0;
  for (GroupIndex g = 0; g < config_.groups.size() && !sequence->frozen; ++g) {
    before += sequence->groups[g].published;
    PublishGroup(sequence, g, SerialOf(sequence->session));
    after += sequence->groups[g].published;
  }
  if (after == before) return;
  ForgetNames(sequence);
  RememberPath(sequence);
}

void Cache::MoveAnchor(Sequence* sequence, GroupIndex group, BlockId anchor) {
  GroupTable& table = sequence->groups[group];
  if (anchor == table.anchor) return;
  store_->Ref(anchor);
  if (table.anchor != BlockId::kNone) store_->Unref(table.anchor);
  table.anchor = anchor;
}

void Cache::PublishGroup(Sequence* sequence, GroupIndex group, SessionId serial) {
  GroupTable& table = sequence->groups[group];
  const uint64_t units = units_of(group);
  const uint64_t named = sequence->named_from + sequence->chain.size();
  if ((table.published + 1) * units > named) return;
  // What a reset or an erase took out of the index is not continued under its old name.
  if (table.anchor != BlockId::kNone && !store_->published(table.anchor)) {
    sequence->frozen = true;
    return;
  }
  const NamedPrefix prefix = PrefixOf(*sequence);
  std::vector<std::byte> scratch;
  const uint64_t touched_from = table.published;
  BlockId above = table.anchor;  // held only while it is the anchor
  size_t done = 0;               // blocks of the tail
  while ((table.published + 1) * units <= named) {
    const uint64_t first = table.published * units;
    BlockStore::Name name;
    name.space = sequence->space->number;
    name.seed = sequence->space->seed;
    name.parent = above;
    name.bytes = prefix.Name(first, units, &scratch);
    name.key = KeyAt(*sequence, first + units);
    name.plain = prefix.mode == KeyMode::kTokens &&
                 name.bytes.size() == units * config_.chain_tokens * sizeof(uint32_t);
    const BlockId block = table.tail[done];
    const BlockId existing = store_->FindChild(name.space, group, above, name.bytes);
    if (existing == BlockId::kNone) {
      if (store_->state(block) != BlockState::kPrivate) {
        sequence->frozen = true;
        break;
      }
      if (above != table.anchor) MoveAnchor(sequence, group, above);
      store_->Publish(block, name, serial, /*ours=*/above != BlockId::kNone);
      table.anchor = block;  // The tail's reference becomes the anchor's.
    } else if (existing == block) {
      // A relative that shares the block has published it.
      if (table.anchor != BlockId::kNone) store_->Unref(table.anchor);
      table.anchor = block;
    } else {
      const bool ours_alone =
          store_->state(block) == BlockState::kPrivate && store_->private_refs(block) == 1;
      const Residency& there = store_->at(existing, 0);
      const bool unheld = !store_->Held(existing) && there.presence == Presence::kResident &&
                          there.io_pins == 0 && !there.leaving;
      if (ours_alone && (unheld || (there.presence == Presence::kAbsent && there.io_pins == 0))) {
        // The same block lies on a lower tier only, or in a device slot that nobody holds: our slot
        // becomes its place on the device, and the other one is free.
        store_->AdoptDeviceSlot(existing, block);
        store_->Unref(block);
      } else {
        // A duplicate: the engine's table keeps its own slot, and the published one stays while we
        // rely on it.
        table.own.push_back(OwnBlock{table.published, block});
      }
    }
    above = existing == BlockId::kNone ? block : existing;
    ++table.published;
    ++done;
  }
  table.tail.erase(table.tail.begin(), table.tail.begin() + static_cast<std::ptrdiff_t>(done));
  if (above == BlockId::kNone) return;
  MoveAnchor(sequence, group, above);
  store_->TouchPath(above, static_cast<uint32_t>(touched_from), serial);
}

void Cache::ForgetNames(Sequence* sequence) {
  uint64_t tokens = UINT64_MAX;
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    tokens = std::min(tokens, sequence->groups[g].published * config_.groups[g].block_tokens);
  }
  const uint64_t unit = tokens / config_.chain_tokens;
  if (unit <= sequence->named_from) return;
  const auto units = static_cast<std::ptrdiff_t>(unit - sequence->named_from);
  sequence->key_before = KeyAt(*sequence, unit);
  sequence->chain.erase(sequence->chain.begin(), sequence->chain.begin() + units);
  if (sequence->space->key_mode == KeyMode::kTokens) {
    sequence->token_ids.erase(sequence->token_ids.begin(),
                              sequence->token_ids.begin() + units * config_.chain_tokens);
  } else {
    sequence->keys.erase(sequence->keys.begin(),
                         sequence->keys.begin() + units * sequence->key_bytes);
  }
  sequence->named_from = unit;
}

void Cache::RememberPath(Sequence* sequence) {
  Session* const session = sessions_.Find(sequence->session);
  if (session == nullptr) return;
  if (session->path_sequence != sequence->id) {
    session->path.assign(config_.groups.size(), {});
    session->path_sequence = sequence->id;
    for (GroupTable& table : sequence->groups) table.remembered = 0;
  }
  const auto length = [](const std::vector<RememberedPiece>& path) {
    return path.empty() ? 0 : path.back().depth + path.back().count;
  };
  for (GroupIndex g = 0; g < config_.groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    std::vector<RememberedPiece>& path = session->path[g];
    if (table.published == 0 || !store_->published(table.anchor)) continue;
    if (table.remembered < length(path)) {
      // The sequence was cut. If it went on differently, so did the session's prompt.
      const BlockId last = store_->DeepestAlive(path);
      const uint32_t same = store_->CommonDepth(last, table.anchor);
      if (same < table.published) {
        if (last != BlockId::kNone) store_->SupersedePath(last, same, session->serial);
        while (!path.empty() && path.back().depth >= same) path.pop_back();
        if (!path.empty())
          path.back().count = std::min(path.back().count, same - path.back().depth);
      }
    }
    const uint32_t from = length(path);
    if (table.published > from) {
      std::vector<PathPiece> pieces;
      store_->Path(table.anchor, from, &pieces);
      for (const PathPiece& piece : pieces) {
        const Run& run = store_->run(piece.run);
        const uint64_t uid = run.first_uid + piece.begin;
        const uint32_t count = piece.end - piece.begin;
        if (!path.empty() && path.back().uid + path.back().count == uid) {
          path.back().count += count;
          path.back().run = piece.run;
        } else {
          path.push_back(RememberedPiece{piece.run, store_->block_at(run, piece.begin), uid,
                                         run.depth + piece.begin, count});
        }
      }
    }
    table.remembered = table.published;
  }
}

}  // namespace fermata
