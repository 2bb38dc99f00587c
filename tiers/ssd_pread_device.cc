// SPDX-License-Identifier: Apache-2.0
//
// BlockDevice where io_uring is refused: requests queue in Submit and run inside Poll, on the
// caller's thread. Simple, and slow on purpose only in that one request is on the device at a time.
#include <unistd.h>

#include <cerrno>
#include <deque>

#include "tiers/ssd_block_device.h"

namespace fermata {
namespace {

constexpr uint64_t kBytesPerPoll = 1 << 20;  // bounds how long one Poll keeps its thread

class PreadDevice final : public BlockDevice {
 public:
  explicit PreadDevice(const BlockDeviceOptions& options) : options_(options) {}

  size_t Submit(std::span<const BlockIo> batch) override {
    size_t taken = 0;
    while (taken < batch.size() && queue_.size() < options_.depth) queue_.push_back(batch[taken++]);
    return taken;
  }

  size_t Poll(std::span<BlockCompletion> out) override {
    size_t count = 0;
    for (uint64_t moved = 0; count < out.size() && !queue_.empty() && moved < kBytesPerPoll;
         ++count) {
      const BlockIo io = queue_.front();
      queue_.pop_front();
      moved += io.bytes;
      const int file = options_.files[io.file];
      const ssize_t got = io.write ? pwrite(file, io.data, io.bytes, static_cast<off_t>(io.offset))
                                   : pread(file, io.data, io.bytes, static_cast<off_t>(io.offset));
      out[count] = {io.cookie, got < 0 ? -errno : static_cast<int32_t>(got)};
    }
    return count;
  }

  uint64_t in_flight() const override { return queue_.size(); }
  const char* mode() const override { return "pread"; }

 private:
  const BlockDeviceOptions options_;
  std::deque<BlockIo> queue_;
};

}  // namespace

std::unique_ptr<BlockDevice> OpenPreadDevice(const BlockDeviceOptions& options) {
  return std::make_unique<PreadDevice>(options);
}

}  // namespace fermata
