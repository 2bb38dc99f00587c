// SPDX-License-Identifier: Apache-2.0
//
// What a replay runs with. Validate() names the option and the value in every refusal.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "bench/trace.h"

namespace fermata::bench {

struct ReplayOptions {
  static constexpr uint64_t kMaxSlots = (uint64_t{1} << 31) - 1;  // of an arena
  static constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;
  static constexpr uint32_t kMaxThreads = 256;

  uint64_t device_blocks = 600;
  uint64_t host_blocks = 0;
  uint64_t ssd_blocks = 0;
  std::string policy = "lru-superseded";
  bool real_clock = false;       // false: virtual, no bytes
  std::string dir;               // of the SSD tier; real clock only
  uint64_t block_bytes = 65536;  // real clock only; the virtual clock counts blocks of 4096
  uint32_t block_split = 1;      // each id of a trace becomes so many blocks
  bool token_keys = false;       // name blocks by tokens instead of the trace's ids
  bool by_handle = false;        // a session's next turn resumes the last one's sequence
  uint64_t audit_every = 1000;   // requests; 0 = only at the end
  uint64_t sabotage = 0;         // flip a byte of every Nth written block; 0 = never
  uint64_t seed = 1;
  uint32_t threads = 2;     // that write and check blocks
  std::string per_request;  // CSV path or empty
  bool quiet = false;

  uint32_t block_tokens() const { return kBlockTokens / block_split; }
  uint64_t payload_bytes() const { return real_clock ? block_bytes : 4096; }
  // A slot below the device: payload rounded up to 4096.
  uint64_t slot_bytes() const { return (payload_bytes() + 4095) / 4096 * 4096; }

  Status Validate() const;
  // That the trace can be played with these options: sessions, ids.
  Status ValidateFor(const Trace& trace) const;
};

}  // namespace fermata::bench
