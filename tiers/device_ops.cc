// SPDX-License-Identifier: Apache-2.0
#include "tiers/device_ops.h"

#include <cstring>

namespace fermata {

Status PlainMemoryOps::CopySubmit(std::span<const CopyRun> runs, CopyDirection /*direction*/,
                                  uint64_t /*ticket*/) {
  for (const CopyRun& run : runs) {
    if (run.bytes > 0) std::memcpy(run.target, run.source, run.bytes);
  }
  return Status();
}

Result<bool> PlainMemoryOps::CopyPoll(uint64_t /*ticket*/) { return true; }

Result<bool> PlainMemoryOps::EventQuery(void* event) {
  if (event == nullptr) return true;
  return ErrorF(StatusCode::kInvalidArgument,
                "event: %p given, but plain memory has no events (set device_ops)", event);
}

}  // namespace fermata
