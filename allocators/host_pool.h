// SPDX-License-Identifier: Apache-2.0
//
// HostPool: where large pieces of host memory come from (arenas, staging), a few of them in a
// cache's life. HugePagePool is the real one, fake_host_pool.h the simulated one. It does not know
// slots or what the bytes are for.
//
// Thread safety: any thread. The pool outlives everything allocated from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "base/mutex.h"
#include "base/status.h"

namespace fermata {

// Every piece begins at a multiple of this, so that whole 2 MiB pages can back it and O_DIRECT
// takes any 4096th of it.
constexpr uint64_t kHostPoolAlignment = uint64_t{2} << 20;
constexpr uint64_t kPageBytes = 4096;  // of memory and of direct I/O

// So that sums with alignments stay in 64 bits.
constexpr uint64_t kMaxPieceBytes = uint64_t{1} << 62;

// The multiple of kPageBytes at or above `bytes`. REQUIRES: bytes <= 2^64 - 4096.
constexpr uint64_t RoundUpToPage(uint64_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

class HostPool {
 public:
  virtual ~HostPool() = default;

  // `bytes` zeroed bytes, backed by memory already: using them later cannot fail.
  // RESOURCE_EXHAUSTED/NO_SPACE beyond the cap or when the system has no more; then nothing is
  // held. INVALID_ARGUMENT for 0.
  virtual Result<std::span<std::byte>> Allocate(uint64_t bytes) = 0;
  virtual void Free(std::span<std::byte> piece) = 0;  // Exactly what Allocate returned.
  virtual uint64_t allocated() const = 0;  // Bytes held now, each piece rounded up to 4096.
  virtual const char* mode() const = 0;    // A word for the stats: what kind of memory it is.
};

// HugePagePool: anonymous memory under a hard cap, with 2 MiB pages where the system grants them. 2
// MiB pages make direct disk I/O into the memory 1.5-2.6 times as fast, since far fewer pages are
// pinned per request. Memory is not mlocked.
//
// Thread safety: any thread; one mutex, not held while memory is mapped or populated.
// Cost: Allocate touches every page, in chunks, so that no single system
// call is long.
// Invariants: allocated() <= cap at every moment, also while several threads allocate: the cap is
// charged before memory is mapped. A piece ends at its last 4096-byte page, so that no 2 MiB page
// holds more than was charged.
class HugePagePool final : public HostPool {
 public:
  HugePagePool(uint64_t cap_bytes, bool want_huge_pages);
  // Unmaps what was not freed.
  ~HugePagePool() override;
  HugePagePool(const HugePagePool&) = delete;
  HugePagePool& operator=(const HugePagePool&) = delete;

  Result<std::span<std::byte>> Allocate(uint64_t bytes) override FERMATA_EXCLUDES(mu_);
  void Free(std::span<std::byte> piece) override FERMATA_EXCLUDES(mu_);
  uint64_t allocated() const override FERMATA_EXCLUDES(mu_);
  // "huge_pages" once madvise granted them, "small_pages" when not wanted or when it refused. A
  // grant is a request that the kernel may still not honour: HugePageBytes says what came of it.
  const char* mode() const override FERMATA_EXCLUDES(mu_);

  uint64_t cap() const { return cap_bytes_; }
  uint64_t peak() const FERMATA_EXCLUDES(mu_);
  // Bytes of our pieces that 2 MiB pages back now, from /proc/self/smaps (its entries'
  // AnonHugePages). Reads that file: for stats that a person asks for. 0 when it cannot be read.
  uint64_t HugePageBytes() const FERMATA_EXCLUDES(mu_);

 private:
  const uint64_t cap_bytes_;
  const bool want_huge_pages_;
  mutable Mutex mu_;
  uint64_t charged_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t peak_ FERMATA_GUARDED_BY(mu_) = 0;
  bool refused_ FERMATA_GUARDED_BY(mu_) = false;
  std::map<std::byte*, uint64_t> pieces_ FERMATA_GUARDED_BY(mu_);  // start -> bytes asked for
};

}  // namespace fermata
