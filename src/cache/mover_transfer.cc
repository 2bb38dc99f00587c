// SPDX-License-Identifier: Apache-2.0
//
// One block's way from a slot of one tier to a slot of another: read, write, or both over a staging
// buffer.
#include <algorithm>

#include "cache/mover.h"

namespace fermata {

void Mover::StartTransfer(Transfer transfer) {
  uint64_t index = 0;
  if (free_transfers_.empty()) {
    index = transfers_.size();
    transfers_.emplace_back();
  } else {
    index = free_transfers_.back();
    free_transfers_.pop_back();
  }
  Transfer& t = transfers_[index];
  t = std::move(transfer);
  t.active = true;
  t.group = store_->group(t.block);
  t.source = store_->at(t.block, t.from).slot;
  t.target = store_->at(t.block, t.to).slot;
  t.record = store_->RecordOf(t.block);
  t.name.assign(t.record.identity.begin(), t.record.identity.end());
  t.record.identity = t.name;
  ++transfers_in_flight_;
  Tier* const from = store_->tier(t.from);
  Tier* const to = store_->tier(t.to);
  if (from->has(kTierNoBytes) || to->has(kTierNoBytes)) {
    Enqueue(index, TierIo::Op::kWrite, t.to);
  } else if (from->has(kTierMapped)) {
    t.buffer = from->Map(t.group, t.source);
    Enqueue(index, TierIo::Op::kWrite, t.to);
  } else if (to->has(kTierMapped)) {
    t.buffer = to->Map(t.group, t.target);
    t.reading = true;
    Enqueue(index, TierIo::Op::kRead, t.from);
  } else {
    t.staged = true;
    want_staging_.push_back(index);
    BeginStaged(index);
  }
}

// Gives staging buffers to those who wait longest. The argument only says that something changed.
void Mover::BeginStaged(uint64_t) {
  while (!want_staging_.empty()) {
    FERMATA_CHECK(staging_ != nullptr);
    std::byte* const buffer = staging_->Acquire();
    if (buffer == nullptr) return;
    const uint64_t index = want_staging_.front();
    want_staging_.pop_front();
    transfers_[index].buffer = buffer;
    transfers_[index].reading = true;
    Enqueue(index, TierIo::Op::kRead, transfers_[index].from);
  }
}

void Mover::Enqueue(uint64_t index, TierIo::Op op, TierIndex tier) {
  const Transfer& t = transfers_[index];
  TierIo io;
  io.op = op;
  io.io_class = t.io_class;
  io.group = t.group;
  io.slot = op == TierIo::Op::kRead ? t.source : t.target;
  io.buffer = t.buffer;
  io.record = &t.record;
  io.cookie = index;
  outbox_[tier].push_back(io);
  kick_();
}

bool Mover::outbox_empty() const {
  return std::all_of(outbox_.begin(), outbox_.end(),
                     [](const std::deque<TierIo>& box) { return box.empty(); });
}

bool Mover::TakeOutbox(TierIndex tier, size_t capacity, std::vector<TierIo>* out) {
  std::deque<TierIo>& box = outbox_[tier];
  const size_t n = std::min(capacity, box.size());
  out->assign(box.begin(), box.begin() + static_cast<std::ptrdiff_t>(n));
  box.erase(box.begin(), box.begin() + static_cast<std::ptrdiff_t>(n));
  return n != 0;
}

void Mover::PutBack(TierIndex tier, std::span<const TierIo> rest) {
  outbox_[tier].insert(outbox_[tier].begin(), rest.begin(), rest.end());
}

void Mover::Complete(TierIndex tier, const TierCompletion& completion) {
  const uint64_t index = completion.cookie;
  Transfer& t = transfers_[index];
  FERMATA_CHECK(t.active);
  if (completion.status.ok() && t.reading && t.staged) {
    t.reading = false;
    store_->counters(tier).bytes_read += store_->block_bytes(t.group);
    Enqueue(index, TierIo::Op::kWrite, t.to);
    return;
  }
  EndTransfer(index, completion.status);
}

void Mover::EndTransfer(uint64_t index, Status status) {
  Transfer& t = transfers_[index];
  if (status.ok()) {
    if (!t.staged) store_->counters(t.from).bytes_read += store_->block_bytes(t.group);
    store_->counters(t.to).bytes_written += store_->block_bytes(t.group);
  }
  if (t.staged) {
    staging_->Release(t.buffer);
    BeginStaged(index);
  }
  const std::function<void(Status)> done = std::move(t.done);
  t = Transfer{};
  free_transfers_.push_back(index);
  --transfers_in_flight_;
  done(std::move(status));
}

}  // namespace fermata
