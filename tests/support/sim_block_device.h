// SPDX-License-Identifier: Apache-2.0
//
// SimBlockDevice: a BlockDevice whose results are scripted, over the real files. Requests wait
// until Poll; a script says for the next requests whether they move all, some, or nothing, and what
// they report. Seeded: completions come in shuffled order.
//
// Thread safety: none, as a BlockDevice.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/random.h"
#include "tiers/ssd_block_device.h"

namespace fermata {

struct SimFault {
  static constexpr int32_t kNone = INT32_MIN;
  int32_t result = kNone;    // reported in place of the truth; nothing moves when it is negative
  uint32_t bytes_max = ~0u;  // moves at most so many
  // For writes that lie: reports all of it, whatever was moved.
  bool report_all = false;
};

// Shared by a test and the devices it makes.
struct SimScript {
  std::deque<SimFault> next;  // for the next requests, in order of submission; then no faults
  SimFault always;            // for requests past `next`
  bool hold = false;          // Poll gives nothing
  uint64_t submitted = 0;
  uint64_t in_flight_max = 0;
  std::vector<BlockIo> log;
  std::vector<BlockDeviceKind> made;
  Random random{1};
};

class SimBlockDevice final : public BlockDevice {
 public:
  SimBlockDevice(BlockDeviceKind kind, const BlockDeviceOptions& options, SimScript* script)
      : kind_(kind), options_(options), script_(script) {}

  size_t Submit(std::span<const BlockIo> batch) override;
  size_t Poll(std::span<BlockCompletion> out) override;
  uint64_t in_flight() const override { return queue_.size(); }
  const char* mode() const override {
    return kind_ == BlockDeviceKind::kUring ? "io_uring" : "pread";
  }

 private:
  struct Pending {
    BlockIo io;
    SimFault fault;
  };
  BlockCompletion Run(const Pending& pending) const;

  const BlockDeviceKind kind_;
  const BlockDeviceOptions options_;
  SimScript* const script_;
  std::vector<Pending> queue_;
};

// A factory that makes SimBlockDevices of either kind.
BlockDeviceFactory SimDeviceFactory(SimScript* script);

}  // namespace fermata
