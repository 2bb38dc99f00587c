// SPDX-License-Identifier: Apache-2.0
//
// What the measurements of `fermata-bench index` share: samples, big arrays on 2 MiB pages, caches
// flushed, tokens made on the fly. Thread safety: none; one owner.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace fermata::bench {

constexpr uint64_t kIndexBlockTokens = 16;

uint64_t IndexNowNs();
// CPU time of the calling thread.
uint64_t ThreadCpuNs();

// Runs `body` and returns how long it took, in ns, with what reading the clock costs (about 25 ns).
template <typename F>
double TimedNs(F&& body) {
  const uint64_t start = IndexNowNs();
  std::forward<F>(body)();
  return static_cast<double>(IndexNowNs() - start);
}

// Keeps the compiler from leaving out what computed `value`.
template <typename T>
void KeepResult(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  size_t size() const { return values_.size(); }
  double Median() const { return Percentile(0.5); }
  double P99() const { return Percentile(0.99); }
  // The nearest rank; 0 without samples.
  double Percentile(double share) const;
  double Least() const;

 private:
  std::vector<double> values_;
};

// `size` zeroed elements in memory of its own, on 2 MiB pages where they are to be had: a lookup
// that misses the TLB on the caller's tokens would be timed as ours.
template <typename T>
class HugeArray {
 public:
  explicit HugeArray(size_t size) : size_(size), bytes_(RoundUp(size * sizeof(T))) {
    void* const base =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FERMATA_CHECK(base != MAP_FAILED);
    madvise(base, bytes_, MADV_HUGEPAGE);  // a wish
    data_ = static_cast<T*>(base);
  }
  ~HugeArray() { munmap(data_, bytes_); }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<T> all() const { return {data_, size_}; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  static size_t RoundUp(size_t bytes) {
    constexpr size_t kPage = size_t{2} << 20;
    return bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage;
  }
  const size_t size_;
  const size_t bytes_;
  T* data_;
};

// Pushes everything else out of the CPU's caches by writing `bytes` of its own.
class CacheFlusher {
 public:
  explicit CacheFlusher(uint64_t bytes) : lines_(bytes / sizeof(uint64_t)) {}
  void Flush();

 private:
  HugeArray<uint64_t> lines_;
};

// Token ids that depend on `stream` alone: equal streams give equal tokens, others differ within
// the first two.
void FillTokens(uint64_t stream, std::span<uint32_t> out);

}  // namespace fermata::bench
