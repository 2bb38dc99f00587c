// SPDX-License-Identifier: Apache-2.0
#include "bench/replay_options.h"

#include <unistd.h>

#include "bench/policy_names.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kMaxSsdBytes = uint64_t{1} << 50;  // 1 PiB

Status Bad(const char* option, uint64_t value, const char* why) {
  return ErrorF(StatusCode::kInvalidArgument, "%s %llu: %s", option,
                static_cast<unsigned long long>(value), why);
}

uint64_t MachineMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Status ReplayOptions::Validate() const {
  if (device_blocks == 0) return Bad("--device-blocks", 0, "a cache needs device blocks");
  if (device_blocks > kMaxSlots) return Bad("--device-blocks", device_blocks, "more than 2^31-1");
  if (host_blocks > kMaxSlots) return Bad("--host-blocks", host_blocks, "more than 2^31-1");
  if (ssd_blocks > kMaxSlots) return Bad("--ssd-blocks", ssd_blocks, "more than 2^31-1");
  if (block_split == 0 || kBlockTokens % block_split != 0) {
    return Bad("--block-split", block_split, "does not divide 512");
  }
  if (block_bytes == 0 || block_bytes % 64 != 0) {
    return Bad("--block-bytes", block_bytes, "want a multiple of 64 above 0");
  }
  if (block_bytes > kMaxBlockBytes) return Bad("--block-bytes", block_bytes, "more than 1 GiB");
  if (threads == 0 || threads > kMaxThreads) return Bad("--threads", threads, "want 1 to 256");
  if (!IsPolicyName(policy)) {
    return ErrorF(StatusCode::kInvalidArgument, "--policy '%s': want %s",
                  policy.substr(0, 40).c_str(), KnownPolicies().c_str());
  }
  if (by_handle && host_blocks + ssd_blocks > 0) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "--by handles: counts hits of the device alone; leave out --host-blocks and "
                  "--ssd-blocks");
  }
  if (!real_clock) {
    if (sabotage != 0) {
      return Bad("--sabotage", sabotage, "the virtual clock moves no bytes; use --clock real");
    }
    if (!dir.empty()) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "--dir %s: the virtual clock writes no files; use --clock real", dir.c_str());
    }
    return Status();
  }
  if (ssd_blocks > 0 && dir.empty()) {
    return Bad("--ssd-blocks", ssd_blocks, "needs --dir on the real clock");
  }
  if (ssd_blocks == 0 && !dir.empty()) {
    return ErrorF(StatusCode::kInvalidArgument, "--dir %s: without --ssd-blocks nothing goes there",
                  dir.c_str());
  }
  if (ssd_blocks > kMaxSsdBytes / slot_bytes()) {
    return Bad("--ssd-blocks", ssd_blocks, "more than 1 PiB with this --block-bytes");
  }
  const uint64_t memory = MachineMemoryBytes();
  if (device_blocks > memory / block_bytes) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "--device-blocks %llu: of --block-bytes %llu are more than this machine's memory "
                  "of %llu bytes",
                  static_cast<unsigned long long>(device_blocks),
                  static_cast<unsigned long long>(block_bytes),
                  static_cast<unsigned long long>(memory));
  }
  if (host_blocks > (memory - device_blocks * block_bytes) / slot_bytes()) {
    return ErrorF(
        StatusCode::kInvalidArgument,
        "--host-blocks %llu: of --block-bytes %llu beside %llu device blocks are more "
        "than this machine's memory of %llu bytes",
        static_cast<unsigned long long>(host_blocks), static_cast<unsigned long long>(block_bytes),
        static_cast<unsigned long long>(device_blocks), static_cast<unsigned long long>(memory));
  }
  return Status();
}

Status ReplayOptions::ValidateFor(const Trace& trace) const {
  if (token_keys && block_tokens() == 1 && trace.max_block() >= (uint64_t{1} << 32) / block_split) {
    return Bad("--block-split", block_split,
               "blocks of one token cannot spell the trace's ids with --keys tokens");
  }
  return Status();
}

}  // namespace fermata::bench
