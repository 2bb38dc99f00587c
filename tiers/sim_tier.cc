// SPDX-License-Identifier: Apache-2.0
#include "tiers/sim_tier.h"

#include <algorithm>
#include <cstring>

namespace fermata {
namespace {

using Ull = unsigned long long;

Status Lost(const TierIo& io, const char* what) {
  return ReasonF(StatusCode::kDataLoss, Reason::kChecksum, "group %u slot %u: %s",
                 unsigned{io.group}, Raw(io.slot), what);
}

constexpr size_t Index(TierIo::Op op) { return op == TierIo::Op::kRead ? 0 : 1; }

}  // namespace

SimTier::SimTier(SimTierOptions options)
    : options_(std::move(options)),
      info_{TierKind::kSim, options_.ordinal, 0, TierName(TierKind::kSim, options_.ordinal)},
      books_(options_.groups),
      random_(options_.seed) {
  FERMATA_CHECK(options_.clock != nullptr);
  FERMATA_CHECK(options_.latency_min_ns <= options_.latency_max_ns);
  FERMATA_CHECK(options_.queue_depth > 0);
  for (const TierGroup& group : options_.groups) entries_.emplace_back(group.slots);
  requests_.reserve(options_.queue_depth);
}

void SimTier::HoldCompletions(bool hold) {
  MutexLock lock(&mu_);
  hold_ = hold;
}

void SimTier::FailNext(TierIo::Op op, Status status, int count) {
  FERMATA_CHECK(!status.ok());
  MutexLock lock(&mu_);
  fail_status_[Index(op)] = std::move(status);
  fail_count_[Index(op)] = count;
}

void SimTier::Crash() {
  MutexLock lock(&mu_);
  for (Request& request : requests_) {
    if (request.refused) continue;
    if (request.io.op == TierIo::Op::kWrite) {
      const uint64_t block_bytes = options_.groups[request.io.group].block_bytes;
      Entry& entry = entries_[request.io.group][Raw(request.io.slot)];
      if (entry.generation == request.generation) {
        Store(&entry, request, request.dice % block_bytes);
      }
    }
    request.refused = true;
    request.verdict = ErrorF(StatusCode::kUnavailable, "group %u slot %u: the device crashed",
                             unsigned{request.io.group}, Raw(request.io.slot));
    request.due_ns = 0;
  }
}

void SimTier::Heal() {
  MutexLock lock(&mu_);
  sick_ = false;
  errors_in_row_ = 0;
}

uint64_t SimTier::NextDueNs() const {
  MutexLock lock(&mu_);
  uint64_t next = 0;
  for (const Request& request : requests_) {
    const uint64_t due = std::max<uint64_t>(request.due_ns, 1);
    if (next == 0 || due < next) next = due;
  }
  return next;
}

void SimTier::Release(GroupIndex group, std::span<const SlotId> slots) {
  {
    MutexLock lock(&mu_);
    FERMATA_CHECK(group < entries_.size());
    for (const SlotId slot : slots) {
      FERMATA_CHECK(Raw(slot) < entries_[group].size());
      Entry& entry = entries_[group][Raw(slot)];
      entry.readable = false;
      ++entry.generation;  // a write still in flight no longer makes it readable
    }
  }
  // Only now may another take them.
  books_.Release(group, slots);
}

SimTier::Fault SimTier::Draw(TierIo::Op op) {
  struct Chance {
    uint32_t ppm;
    Fault fault;
  };
  const std::array<Chance, 4> read_chances = {{{options_.read_error_ppm, Fault::kError},
                                               {options_.short_read_ppm, Fault::kShortRead},
                                               {options_.bit_flip_ppm, Fault::kBitFlip},
                                               {0, Fault::kNone}}};
  const std::array<Chance, 4> write_chances = {
      {{options_.write_error_ppm, Fault::kError},
       {options_.torn_write_ppm, Fault::kTorn},
       {options_.misdirected_write_ppm, Fault::kMisdirected},
       {options_.lost_write_ppm, Fault::kLost}}};
  Fault fault = Fault::kNone;
  for (const Chance& chance : op == TierIo::Op::kRead ? read_chances : write_chances) {
    // Every chance is drawn, so that one rate does not move the dice of the others.
    if (random_.Below(1'000'000) < chance.ppm && fault == Fault::kNone) fault = chance.fault;
  }
  return fault;
}

void SimTier::Accept(const TierIo& io) {
  FERMATA_CHECK(io.record != nullptr && io.buffer != nullptr);
  FERMATA_CHECK(books_.IsHeld(io.group, io.slot));
  const uint64_t now = options_.clock->NowNs();
  Request request;
  request.io = io;
  request.order = next_order_++;
  request.due_ns = now + options_.latency_min_ns +
                   random_.Below(options_.latency_max_ns - options_.latency_min_ns + 1);
  request.fault = Draw(io.op);
  request.dice = random_.Next();
  if (io.op == TierIo::Op::kWrite) {
    // From here to success the slot holds neither the old nor the new.
    Entry& entry = entries_[io.group][Raw(io.slot)];
    entry.readable = false;
    entry.uid = io.record->uid;
    entry.key = io.record->key;
    request.generation = ++entry.generation;
  }
  if (sick_) {
    if (!probing_ && now >= next_probe_ns_) {
      probing_ = true;
      request.is_probe = true;
    } else {
      request.refused = true;
      request.due_ns = now;
      request.verdict =
          ReasonF(StatusCode::kUnavailable, Reason::kTierSick,
                  "%s is switched off after %u errors in a row", info_.name.c_str(), kSickAfter);
    }
  }
  int& failures = fail_count_[Index(io.op)];
  if (!request.refused && failures > 0) {
    --failures;
    request.fault = Fault::kError;
    request.verdict = fail_status_[Index(io.op)];
  }
  if (!request.refused) ++injected_[static_cast<size_t>(request.fault)];
  requests_.push_back(std::move(request));
}

size_t SimTier::Submit(std::span<const TierIo> batch) {
  MutexLock lock(&mu_);
  const size_t accepted = std::min(batch.size(), size_t{options_.queue_depth} - requests_.size());
  for (const TierIo& io : batch.first(accepted)) Accept(io);
  return accepted;
}

void SimTier::Store(Entry* target, const Request& request, uint64_t stored_bytes) {
  const uint64_t block_bytes = options_.groups[request.io.group].block_bytes;
  const BlockRecord& record = *request.io.record;
  Stored& stored = target->stored;
  stored.bytes.resize(block_bytes);
  std::memcpy(stored.bytes.data(), request.io.buffer, stored_bytes);
  stored.uid = record.uid;
  stored.key = record.key;
  stored.generation = request.generation;
  stored.slot = request.io.slot;
  stored.checksum = PayloadChecksum(std::span<const std::byte>(request.io.buffer, block_bytes),
                                    record.key, request.generation);
}

Status SimTier::Write(const Request& request) {
  std::vector<Entry>& group = entries_[request.io.group];
  Entry& entry = group[Raw(request.io.slot)];
  const uint64_t block_bytes = options_.groups[request.io.group].block_bytes;
  if (entry.generation != request.generation) {
    // Released, or written again, before this write was done: whatever it left must not count.
    return ErrorF(StatusCode::kUnavailable, "group %u slot %u: given up during the write",
                  unsigned{request.io.group}, Raw(request.io.slot));
  }
  switch (request.fault) {
    case Fault::kTorn:
      Store(&entry, request, request.dice % block_bytes);
      break;
    case Fault::kMisdirected: {
      // Somewhere else; with a single slot there is no elsewhere and the write is lost.
      const uint64_t step = group.size() > 1 ? 1 + request.dice % (group.size() - 1) : 0;
      if (step > 0) {
        Store(&group[(Raw(request.io.slot) + step) % group.size()], request, block_bytes);
      }
      break;
    }
    case Fault::kLost:
      break;
    default:
      Store(&entry, request, block_bytes);
      break;
  }
  entry.readable = true;
  return Status();
}

Status SimTier::Read(const Request& request) {
  const TierIo& io = request.io;
  const Entry& entry = entries_[io.group][Raw(io.slot)];
  const Stored& stored = entry.stored;
  const uint64_t block_bytes = options_.groups[io.group].block_bytes;
  if (!entry.readable || entry.uid != io.record->uid || entry.key != io.record->key) {
    return Lost(io, "does not hold the record asked for");
  }
  if (request.fault == Fault::kShortRead) {
    const uint64_t given = stored.bytes.empty() ? 0 : request.dice % block_bytes;
    if (given > 0) std::memcpy(io.buffer, stored.bytes.data(), given);
    return ReasonF(StatusCode::kDataLoss, Reason::kTorn,
                   "group %u slot %u: read %llu of %llu bytes", unsigned{io.group}, Raw(io.slot),
                   Ull{given}, Ull{block_bytes});
  }
  if (stored.bytes.empty() || stored.uid != entry.uid || stored.key != entry.key ||
      stored.generation != entry.generation || stored.slot != io.slot) {
    ++checksum_errors_;
    return Lost(io, "the medium holds another record, generation or slot");
  }
  std::memcpy(io.buffer, stored.bytes.data(), block_bytes);
  if (request.fault == Fault::kBitFlip) {
    const uint64_t bit = request.dice % (block_bytes * 8);
    io.buffer[bit / 8] ^= std::byte{static_cast<uint8_t>(1u << (bit % 8))};
  }
  if (PayloadChecksum(std::span<const std::byte>(io.buffer, block_bytes), io.record->key,
                      entry.generation) != stored.checksum) {
    ++checksum_errors_;
    return Lost(io, "the payload's checksum does not match");
  }
  return Status();
}

Status SimTier::Perform(const Request& request) {
  if (request.refused) return request.verdict;
  if (request.fault == Fault::kError) {
    if (!request.verdict.ok()) return request.verdict;
    return ErrorF(StatusCode::kUnavailable, "group %u slot %u: simulated I/O error",
                  unsigned{request.io.group}, Raw(request.io.slot));
  }
  return request.io.op == TierIo::Op::kWrite ? Write(request) : Read(request);
}

void SimTier::NoteResult(const Request& request, const Status& status) {
  if (request.is_probe) probing_ = false;
  if (status.ok()) {
    ++(request.io.op == TierIo::Op::kRead ? reads_ : writes_);
    errors_in_row_ = 0;
    if (request.is_probe) sick_ = false;
    return;
  }
  ++errors_;
  if (status.reason() == Reason::kTierSick) return;
  if (!sick_ && ++errors_in_row_ < kSickAfter) return;
  if (!sick_ || request.is_probe) next_probe_ns_ = options_.clock->NowNs() + kProbeNs;
  sick_ = true;
}

size_t SimTier::Poll(std::span<TierCompletion> out) {
  MutexLock lock(&mu_);
  if (hold_) return 0;
  const uint64_t now = options_.clock->NowNs();
  size_t taken = 0;
  while (taken < out.size() && !requests_.empty()) {
    const auto next = std::min_element(
        requests_.begin(), requests_.end(), [](const Request& a, const Request& b) {
          return a.due_ns != b.due_ns ? a.due_ns < b.due_ns : a.order < b.order;
        });
    if (next->due_ns > now) break;
    Request request = std::move(*next);
    if (next != requests_.end() - 1) *next = std::move(requests_.back());
    requests_.pop_back();
    Status status = Perform(request);
    NoteResult(request, status);
    out[taken++] = TierCompletion{request.io.cookie, std::move(status)};
  }
  return taken;
}

uint64_t SimTier::in_flight() const {
  MutexLock lock(&mu_);
  return requests_.size();
}

bool SimTier::healthy() const {
  MutexLock lock(&mu_);
  return !sick_ || (!probing_ && options_.clock->NowNs() >= next_probe_ns_);
}

void SimTier::VisitStats(const StatVisitor& visit) const {
  std::array<uint64_t, kFaults> injected;
  uint64_t counts[5];
  {
    MutexLock lock(&mu_);
    injected = injected_;
    counts[0] = reads_;
    counts[1] = writes_;
    counts[2] = errors_;
    counts[3] = checksum_errors_;
    counts[4] = sick_ ? 1 : 0;
  }
  static constexpr const char* kCountNames[] = {"reads", "writes", "errors", "checksum_errors",
                                                "sick"};
  static constexpr const char* kFaultNames[] = {
      "injected_none",        "injected_errors",    "injected_short_reads", "injected_torn_writes",
      "injected_misdirected", "injected_bit_flips", "injected_lost_writes"};
  for (size_t i = 0; i < 5; ++i) visit(kCountNames[i], counts[i], nullptr);
  for (size_t i = 1; i < kFaults; ++i) visit(kFaultNames[i], injected[i], nullptr);
}

}  // namespace fermata
