// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sim_block_device.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace fermata {

size_t SimBlockDevice::Submit(std::span<const BlockIo> batch) {
  size_t taken = 0;
  for (; taken < batch.size() && queue_.size() < options_.depth; ++taken) {
    SimFault fault = script_->always;
    if (!script_->next.empty()) {
      fault = script_->next.front();
      script_->next.pop_front();
    }
    queue_.push_back({batch[taken], fault});
    script_->log.push_back(batch[taken]);
    ++script_->submitted;
  }
  script_->in_flight_max = std::max<uint64_t>(script_->in_flight_max, queue_.size());
  return taken;
}

size_t SimBlockDevice::Poll(std::span<BlockCompletion> out) {
  size_t count = 0;
  while (!script_->hold && count < out.size() && !queue_.empty()) {
    std::swap(queue_[script_->random.Below(queue_.size())], queue_.back());
    out[count++] = Run(queue_.back());
    queue_.pop_back();
  }
  return count;
}

BlockCompletion SimBlockDevice::Run(const Pending& pending) const {
  const BlockIo& io = pending.io;
  if (pending.fault.result != SimFault::kNone && pending.fault.result <= 0)
    return {io.cookie, pending.fault.result};
  const uint32_t bytes = std::min(io.bytes, pending.fault.bytes_max);
  const int file = options_.files[io.file];
  // O_DIRECT takes whole pages only; what is reported is what was asked for.
  const uint32_t whole = std::min(io.bytes, (bytes + 4095) / 4096 * 4096);
  ssize_t moved = 0;
  if (bytes > 0) {
    moved = io.write ? pwrite(file, io.data, whole, static_cast<off_t>(io.offset))
                     : pread(file, io.data, whole, static_cast<off_t>(io.offset));
    moved = std::min<ssize_t>(moved, bytes);
  }
  if (moved < 0) return {io.cookie, -errno};
  return {io.cookie, static_cast<int32_t>(pending.fault.report_all ? io.bytes : moved)};
}

BlockDeviceFactory SimDeviceFactory(SimScript* script) {
  return [script](BlockDeviceKind kind,
                  const BlockDeviceOptions& options) -> Result<std::unique_ptr<BlockDevice>> {
    script->made.push_back(kind);
    return std::unique_ptr<BlockDevice>(std::make_unique<SimBlockDevice>(kind, options, script));
  };
}

}  // namespace fermata
