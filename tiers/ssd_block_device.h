// SPDX-License-Identifier: Apache-2.0
//
// BlockDevice: the seam to asynchronous file I/O. It moves bytes between files and memory and
// reports what the kernel said, as it said it: short counts and errors included. It does not retry,
// verify, or know of slots (ssd_tier does). Real forms: io_uring (ssd_uring_device.cc),
// pread/pwrite (ssd_pread_device.cc). Simulated: tests/support/sim_block_device.h.
//
// Threads: construction on any thread; Submit and Poll on one thread from the first Submit on.
// Contract: every accepted request completes exactly once through Poll; memory is borrowed until
// then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace fermata {

struct BlockIo {
  bool write = false;
  uint32_t file = 0;  // index in BlockDeviceOptions::files
  uint64_t offset = 0;
  std::byte* data = nullptr;
  uint32_t bytes = 0;
  uint64_t cookie = 0;  // comes back in the completion
};

struct BlockCompletion {
  uint64_t cookie = 0;
  int32_t result = 0;  // bytes moved, or -errno
};

enum class BlockDeviceKind : uint8_t { kUring, kPread };

struct BlockDeviceOptions {
  std::vector<int> files;  // borrowed
  uint32_t depth = 32;     // requests in flight
  std::vector<std::span<std::byte>> fixed_buffers;
};

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;
  // Takes a prefix; returns its length. Fewer than given: the queue is full, Poll first.
  virtual size_t Submit(std::span<const BlockIo> batch) = 0;
  virtual size_t Poll(std::span<BlockCompletion> out) = 0;
  virtual uint64_t in_flight() const = 0;
  // Readable when Poll has something; -1: Poll makes progress itself whenever something is in
  // flight.
  virtual int fd() const { return -1; }
  virtual const char* mode() const = 0;  // "io_uring", "pread"
  // Whether all of fixed_buffers were registered, and why not.
  virtual bool fixed() const { return false; }
  virtual std::string fixed_refusal() const { return {}; }
};

using BlockDeviceFactory = std::function<Result<std::unique_ptr<BlockDevice>>(
    BlockDeviceKind kind, const BlockDeviceOptions& options)>;

// UNAVAILABLE with the reason where the kernel or a sandbox refuses io_uring.
Result<std::unique_ptr<BlockDevice>> OpenUringDevice(const BlockDeviceOptions& options);
std::unique_ptr<BlockDevice> OpenPreadDevice(const BlockDeviceOptions& options);

}  // namespace fermata
