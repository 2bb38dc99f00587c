// SPDX-License-Identifier: Apache-2.0
//
// FakeHostPool: a HostPool over the C++ heap that fails when told, for tests. Nothing of the
// library includes it. A piece lives in a block of its own, so that AddressSanitizer sees what runs
// past its end.
//
// Thread safety: any thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "allocators/host_pool.h"
#include "base/mutex.h"

namespace fermata {

class FakeHostPool final : public HostPool {
 public:
  // `fail_nth`: that call of Allocate, counted from 1, fails; 0: none does.
  explicit FakeHostPool(uint64_t cap_bytes, uint64_t fail_nth = 0)
      : cap_bytes_(cap_bytes), fail_nth_(fail_nth) {}
  ~FakeHostPool() override { FERMATA_CHECK(allocated() == 0); }  // a test's leak report

  Result<std::span<std::byte>> Allocate(uint64_t bytes) override FERMATA_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (bytes == 0) return ErrorF(StatusCode::kInvalidArgument, "host memory of 0 bytes");
    if (++calls_ == fail_nth_) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace, "call %llu fails on request",
                     static_cast<unsigned long long>(calls_));
    }
    if (bytes > cap_bytes_ || bytes > kHeapMaxBytes ||
        RoundUpToPage(bytes) > cap_bytes_ - allocated_) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                     "host memory: want %llu bytes, %llu of %llu are in use",
                     static_cast<unsigned long long>(bytes),
                     static_cast<unsigned long long>(allocated_),
                     static_cast<unsigned long long>(cap_bytes_));
    }
    void* const memory = ::operator new (bytes, std::align_val_t{kHostPoolAlignment}, std::nothrow);
    if (memory == nullptr) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace, "heap: no %llu bytes",
                     static_cast<unsigned long long>(bytes));
    }
    std::memset(memory, 0, bytes);
    allocated_ += RoundUpToPage(bytes);
    pieces_[memory] = bytes;
    return std::span<std::byte>(static_cast<std::byte*>(memory), bytes);
  }

  void Free(std::span<std::byte> piece) override FERMATA_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    const auto it = pieces_.find(piece.data());
    FERMATA_CHECK(it != pieces_.end() && it->second == piece.size());
    pieces_.erase(it);
    allocated_ -= RoundUpToPage(piece.size());
    ::operator delete (piece.data(), std::align_val_t{kHostPoolAlignment});
  }

  uint64_t allocated() const override FERMATA_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return allocated_;
  }
  const char* mode() const override { return "fake"; }

 private:
  // AddressSanitizer stops the process on more, in place of answering null.
  static constexpr uint64_t kHeapMaxBytes = uint64_t{1} << 39;

  const uint64_t cap_bytes_;
  const uint64_t fail_nth_;
  mutable Mutex mu_;
  uint64_t calls_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t allocated_ FERMATA_GUARDED_BY(mu_) = 0;
  std::map<void*, uint64_t> pieces_ FERMATA_GUARDED_BY(mu_);
};

}  // namespace fermata
