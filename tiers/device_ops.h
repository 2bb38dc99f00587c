// SPDX-License-Identifier: Apache-2.0
//
// DeviceOps: how bytes get in and out of the engine's device memory; the C++ form of
// fermata_device_ops. PlainMemoryOps is the default: device memory is plain memory. Neither knows
// blocks or slots.
//
// Threads: called from the executor's thread, with no lock held; must not call back.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace fermata {

enum class CopyDirection : uint32_t { kDeviceToHost = 1, kHostToDevice = 2 };

struct CopyRun {
  const void* source;
  void* target;
  uint64_t bytes;
};

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;
  // Starts a batch; `runs` is valid during the call only, the memory behind it until the ticket is
  // done. Not OK: nothing was started, and the ticket is never asked about.
  virtual Status CopySubmit(std::span<const CopyRun> runs, CopyDirection direction,
                            uint64_t ticket) = 0;
  // True once every run of the ticket is complete; then it is asked no more. Not OK: the batch
  // failed and has ended.
  virtual Result<bool> CopyPoll(uint64_t ticket) = 0;
  // True once the engine's event has fired.
  virtual Result<bool> EventQuery(void* event) = 0;
  // Whether there are events to ask about at all.
  virtual bool has_events() const { return true; }
};

// memcpy, done when CopySubmit returns.
class PlainMemoryOps final : public DeviceOps {
 public:
  Status CopySubmit(std::span<const CopyRun> runs, CopyDirection direction,
                    uint64_t ticket) override;
  Result<bool> CopyPoll(uint64_t ticket) override;
  // INVALID_ARGUMENT for any event but null: plain memory has none.
  Result<bool> EventQuery(void* event) override;
  bool has_events() const override { return false; }
};

}  // namespace fermata
