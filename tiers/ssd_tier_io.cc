// SPDX-License-Identifier: Apache-2.0
//
// SsdTier's I/O path, all of it on the executor's thread:
//
//   Submit -> BeginWrites (catalog forgets) -> Start (checks, checksum) -> to_submit_ -> device
//   device -> OnResult -> retry into to_submit_ | FinishRead (verify) | written_ -> PublishWrites
//   (catalog) -> ready_ -> Poll
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "tiers/ssd_catalog.h"
#include "tiers/ssd_store.h"
#include "tiers/ssd_tier.h"

namespace fermata {
namespace {

constexpr uint32_t kRetriesMax = 8;    // per request, of all kinds together
constexpr size_t kScrubsPerPoll = 16;  // each is a 4 KiB write that the executor waits for

unsigned long long Print(uint64_t value) { return value; }

}  // namespace

size_t SsdTier::Submit(std::span<const TierIo> batch) {
  // Completions that nobody polled count too, or their queue would have no bound.
  batch = batch.first(std::min<uint64_t>(batch.size(), options_.io_depth - in_flight()));
  if (batch.empty()) return 0;
  BeginWrites(batch);
  for (const TierIo& io : batch) {
    const uint32_t index = free_requests_.back();
    free_requests_.pop_back();
    Request& request = requests_[index];
    request.io = io;
    request.done = 0;
    request.retries = 0;
    ++request.sequence;
    request.active = true;
    request.on_device = false;
    in_flight_.fetch_add(1, std::memory_order_acq_rel);
    const Status status = Start(&request);
    if (status.ok()) {
      to_submit_.push_back(index);
    } else {
      FinishIo(index, status);
    }
  }
  PumpDevice();
  return batch.size();
}

// Whatever becomes of the writes, what was in their slots is gone, in RAM and in the catalog,
// before the first byte moves.
void SsdTier::BeginWrites(std::span<const TierIo> batch) {
  std::vector<SlotRef> overwritten;
  bool any = false;
  {
    MutexLock lock(&mu_);
    for (const TierIo& io : batch) {
      if (io.op != TierIo::Op::kWrite || io.group >= groups_.size() ||
          Raw(io.slot) >= slots_[io.group].size())
        continue;
      any = true;
      SlotState& state = slots_[io.group][Raw(io.slot)];
      if (state.catalogued) overwritten.push_back({io.group, io.slot});
      const bool forgotten = state.forgotten;
      state = SlotState();
      state.catalogued = false;
      state.writing = true;
      state.forgotten = forgotten;
    }
  }
  if (any && !shut_down_) ApplyDeletes(overwritten);
}

Status SsdTier::Start(Request* request) {
  const TierIo& io = request->io;
  if (shut_down_)
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kClosed, "%s is shut down",
                   info_.name.c_str());
  if (io.group >= groups_.size() || Raw(io.slot) >= groups_[io.group].geometry.slots) {
    return ErrorF(StatusCode::kInvalidArgument, "group %u slot %u does not exist in %s", io.group,
                  Raw(io.slot), info_.name.c_str());
  }
  if (io.buffer == nullptr || io.record == nullptr || io.record->uid == 0) {
    return ErrorF(StatusCode::kInvalidArgument, "request without %s",
                  io.buffer == nullptr   ? "buffer"
                  : io.record == nullptr ? "record"
                                         : "uid");
  }
  const bool read = io.op == TierIo::Op::kRead;
  if (read) FERMATA_RETURN_IF_ERROR(StartRead(request));
  if (!breaker_.Admit(clock_->NowNs())) {
    Count(kRefused);
    return ReasonF(StatusCode::kUnavailable, Reason::kTierSick,
                   "%s is switched off after %u I/O errors in a row", info_.name.c_str(),
                   SsdBreaker::kTripAfter);
  }
  FERMATA_RETURN_IF_ERROR(TakeBounce(request));
  return read ? Status() : StartWrite(request);
}

Status SsdTier::StartRead(Request* request) {
  const TierIo& io = request->io;
  MutexLock lock(&mu_);
  const SlotState& state = slots_[io.group][Raw(io.slot)];
  if (state.uid != io.record->uid || state.key != io.record->key) {
    Count(kStaleReads);
    return ReasonF(StatusCode::kDataLoss, Reason::kChecksum,
                   "slot %u of group %u holds block %llu, asked for %llu", Raw(io.slot), io.group,
                   Print(state.uid), Print(io.record->uid));
  }
  request->generation = state.generation;
  request->checksum = state.checksum;
  return Status();
}

Status SsdTier::StartWrite(Request* request) {
  const TierIo& io = request->io;
  if (io.record->identity.size() > kSsdIdentityBytesMax) {
    return ErrorF(StatusCode::kInvalidArgument, "block identity: %zu bytes, at most %llu",
                  io.record->identity.size(), Print(kSsdIdentityBytesMax));
  }
  const SsdGroupGeometry& geometry = groups_[io.group].geometry;
  const std::byte* payload = io.buffer;
  if (request->bounce != nullptr) {
    std::memcpy(request->bounce.get(), io.buffer, geometry.block_bytes);
    // Padding must be nobody's bytes.
    std::memset(request->bounce.get() + geometry.block_bytes, 0,
                geometry.slot_bytes - geometry.block_bytes);
    payload = request->bounce.get();
  }
  request->generation = ++next_generation_;
  request->checksum = PayloadChecksum(std::span(payload, geometry.block_bytes), io.record->key,
                                      request->generation);
  MutexLock lock(&mu_);
  slots_[io.group][Raw(io.slot)].generation = request->generation;
  return Status();
}

Status SsdTier::TakeBounce(Request* request) {
  Group& group = groups_[request->io.group];
  const bool aligned = reinterpret_cast<uintptr_t>(request->io.buffer) % kSsdIoAlignment == 0;
  if (aligned && group.geometry.slot_bytes == group.geometry.block_bytes) return Status();
  if (!group.bounce.empty()) {
    request->bounce = std::move(group.bounce.back());
    group.bounce.pop_back();
    return Status();
  }
  request->bounce.reset(new (std::align_val_t{kSsdIoAlignment}, std::nothrow)
                            std::byte[group.geometry.slot_bytes]);
  if (request->bounce != nullptr) return Status();
  return ErrorF(StatusCode::kResourceExhausted, "no memory for a bounce buffer of %llu bytes",
                Print(group.geometry.slot_bytes));
}

void SsdTier::PumpDevice() {
  while (!to_submit_.empty()) {
    batch_.clear();
    for (const uint32_t index : to_submit_) {
      const Request& request = requests_[index];
      const SsdGroupGeometry& geometry = groups_[request.io.group].geometry;
      std::byte* const base = request.bounce != nullptr ? request.bounce.get() : request.io.buffer;
      batch_.push_back({request.io.op == TierIo::Op::kWrite, request.io.group,
                        geometry.slot_bytes * Raw(request.io.slot) + request.done,
                        base + request.done,
                        static_cast<uint32_t>(geometry.slot_bytes - request.done),
                        uint64_t{request.sequence} << 32 | index});
    }
    const size_t taken = device_->Submit(batch_);
    for (size_t i = 0; i < taken; ++i) requests_[to_submit_[i]].on_device = true;
    to_submit_.erase(to_submit_.begin(), to_submit_.begin() + static_cast<ptrdiff_t>(taken));
    if (to_submit_.empty() || taken != 0 || device_->in_flight() != 0) return;
    // An idle device that takes nothing never will.
    if (device_kind_ == BlockDeviceKind::kPread) return;
    SwitchToPread("io_uring takes no requests");
  }
}

void SsdTier::SwitchToPread(const std::string& why) {
  if (device_kind_ == BlockDeviceKind::kPread) return;
  device_kind_ = BlockDeviceKind::kPread;
  retired_ = std::move(device_);
  const BlockDeviceOptions device_options{store_->data_fds(), options_.io_depth, {}};
  Result<std::unique_ptr<BlockDevice>> device =
      options_.make_device(BlockDeviceKind::kPread, device_options);
  device_ = device.ok() ? std::move(*device) : OpenPreadDevice(device_options);
  NoteMode(why);
}

int SsdTier::completion_fd() const { return retired_ != nullptr ? -1 : device_->fd(); }

size_t SsdTier::Poll(std::span<TierCompletion> out) {
  Reap(device_.get());
  if (retired_ != nullptr) {
    Reap(retired_.get());
    if (retired_->in_flight() == 0) retired_.reset();
  }
  PublishWrites();
  PumpDevice();
  if (!shut_down_) {
    ApplyDeletes({});
    Scrub(std::min(kScrubsPerPoll, scrub_.size()));
  }
  const size_t count = std::min(out.size(), ready_.size());
  std::move(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(count), out.begin());
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(count));
  in_flight_.fetch_sub(count, std::memory_order_acq_rel);
  return count;
}

void SsdTier::Reap(BlockDevice* device) {
  BlockCompletion done[64];
  size_t count = 0;
  do {
    count = device->Poll(done);
    for (size_t i = 0; i < count; ++i) OnResult(done[i]);
  } while (count == std::size(done));
}

void SsdTier::OnResult(const BlockCompletion& completion) {
  const uint32_t index = static_cast<uint32_t>(completion.cookie);
  const uint32_t sequence = static_cast<uint32_t>(completion.cookie >> 32);
  if (index >= requests_.size() || !requests_[index].active || !requests_[index].on_device ||
      requests_[index].sequence != sequence) {
    Count(kStrayCompletions);  // never taken for somebody else's
    return;
  }
  Request& request = requests_[index];
  request.on_device = false;
  const bool write = request.io.op == TierIo::Op::kWrite;
  const int32_t result = completion.result;
  switch (result < 0 ? -result : 0) {
    case 0:
      break;
    case EOPNOTSUPP:
      SwitchToPread("io_uring request: Operation not supported");
      return RetryOr(index, ErrorF(StatusCode::kUnavailable, "%s: Operation not supported",
                                   info_.name.c_str()));
    case EINVAL:
      if (store_->direct()) {
        store_->SetBuffered();
        NoteMode("O_DIRECT request: Invalid argument");
      }
      [[fallthrough]];  // others in flight were sent with O_DIRECT and deserve another try too
    case EINTR:
    case EAGAIN:
      return RetryOr(index, ErrorF(StatusCode::kUnavailable, "%s: %s after %u tries",
                                   info_.name.c_str(), strerrordesc_np(-result), kRetriesMax + 1));
    default:
      return FailIo(index, -result);
  }
  const SsdGroupGeometry& geometry = groups_[request.io.group].geometry;
  const uint32_t left = static_cast<uint32_t>(geometry.slot_bytes) - request.done;
  const uint32_t moved = static_cast<uint32_t>(result);
  if (moved > left) return FailIo(index, EIO);
  if (moved == left) {
    breaker_.OnSuccess();
    request.done += moved;
    if (!write) return FinishRead(index);
    written_.push_back(index);
    return;
  }
  const Status torn =
      ReasonF(StatusCode::kDataLoss, Reason::kTorn, "slot %u of group %u: %s %u of %llu bytes",
              Raw(request.io.slot), request.io.group, write ? "wrote" : "read",
              request.done + moved, Print(geometry.slot_bytes));
  if (moved == 0) {  // the end of the file; asking again gives the same
    if (write) return FailIo(index, EIO);
    Count(kTornReads);
    return FinishIo(index, torn);
  }
  Count(kShortTransfers);
  // Go on from an aligned place, for O_DIRECT's sake.
  request.done = (request.done + moved) & ~static_cast<uint32_t>(kSsdIoAlignment - 1);
  RetryOr(index, torn);
}

void SsdTier::RetryOr(uint32_t index, Status failure) {
  Request& request = requests_[index];
  if (request.retries++ < kRetriesMax) {
    Count(kRetries);
    to_submit_.push_back(index);
    return;
  }
  if (failure.code() == StatusCode::kDataLoss) {
    Count(kTornReads);
  } else {
    Count(kIoErrors);
    breaker_.OnError(clock_->NowNs());
  }
  FinishIo(index, std::move(failure));
}

void SsdTier::FailIo(uint32_t index, int error) {
  Count(kIoErrors);
  const TierIo& io = requests_[index].io;
  const bool opened = breaker_.OnError(clock_->NowNs());
  FinishIo(index, ErrorF(StatusCode::kUnavailable, "%s: %s slot %u of group %u: %s",
                         info_.name.c_str(), io.op == TierIo::Op::kWrite ? "write" : "read",
                         Raw(io.slot), io.group, strerrordesc_np(error)));
  if (opened && options_.log) {
    options_.log(LogLevel::kError, "operation=ssd_io status=switched_off tier=" + info_.name +
                                       " errno=" + std::to_string(error));
  }
}

void SsdTier::FinishRead(uint32_t index) {
  Request& request = requests_[index];
  const uint64_t block_bytes = groups_[request.io.group].geometry.block_bytes;
  const std::byte* const payload =
      request.bounce != nullptr ? request.bounce.get() : request.io.buffer;
  if (PayloadChecksum(std::span(payload, block_bytes), request.io.record->key,
                      request.generation) != request.checksum) {
    Count(kChecksumFailures);
    return FinishIo(
        index, ReasonF(StatusCode::kDataLoss, Reason::kChecksum,
                       "slot %u of group %u: checksum of block %llu differs", Raw(request.io.slot),
                       request.io.group, Print(request.io.record->uid)));
  }
  if (request.bounce != nullptr) std::memcpy(request.io.buffer, request.bounce.get(), block_bytes);
  Count(kReads);
  Count(kBytesRead, block_bytes);
  FinishIo(index, Status());
}

void SsdTier::PublishWrites() {
  if (written_.empty()) return;
  std::vector<MetaOp> puts;
  const bool attached = catalog_->attached();
  std::vector<bool> put(written_.size());
  if (attached) {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < written_.size(); ++i) {
      const Request& request = requests_[written_[i]];
      const SlotState& state = slots_[request.io.group][Raw(request.io.slot)];
      // Not what was forgotten, released, or written again while this was under way.
      put[i] = state.writing && !state.forgotten && state.generation == request.generation;
    }
  }
  for (size_t i = 0; i < written_.size(); ++i) {
    if (!put[i]) continue;
    const Request& request = requests_[written_[i]];
    SsdSlotRecord found{*request.io.record, request.io.slot, request.generation, request.checksum};
    found.record.group = request.io.group;
    puts.push_back({MetaOp::Kind::kPut, EncodeBlockKey(request.io.group, request.io.slot),
                    EncodeBlockValue(found)});
  }
  const bool catalogued = catalog_->Apply(puts, /*sync=*/false).ok() && !puts.empty();
  if (catalogued) Count(kCatalogPuts, puts.size());
  for (size_t i = 0; i < written_.size(); ++i) {
    const Request& request = requests_[written_[i]];
    const bool recorded = catalogued && put[i];
    {
      MutexLock lock(&mu_);
      SlotState& state = slots_[request.io.group][Raw(request.io.slot)];
      if (state.writing && state.generation == request.generation) {
        state = {request.io.record->uid, request.io.record->key,       request.generation,
                 request.checksum,       recorded && !state.forgotten, false,
                 state.forgotten};
        // Forgotten since it was put: the record goes.
        if (recorded && state.forgotten) released_.push_back({request.io.group, request.io.slot});
      } else if (recorded) {
        // Released, or written again, since: its record must not come back after a restart.
        released_.push_back({request.io.group, request.io.slot});
      }
    }
    Count(kWrites);
    Count(kBytesWritten, groups_[request.io.group].geometry.block_bytes);
    FinishIo(written_[i], Status());
  }
  written_.clear();
}

void SsdTier::FinishIo(uint32_t index, Status status) {
  Request& request = requests_[index];
  const TierIo& io = request.io;
  if (io.op == TierIo::Op::kWrite && !status.ok() && io.group < groups_.size()) {
    MutexLock lock(&mu_);
    if (Raw(io.slot) < slots_[io.group].size()) slots_[io.group][Raw(io.slot)].writing = false;
  }
  if (request.bounce != nullptr) groups_[io.group].bounce.push_back(std::move(request.bounce));
  ready_.push_back({io.cookie, std::move(status)});
  request.active = false;
  free_requests_.push_back(index);
}

}  // namespace fermata
