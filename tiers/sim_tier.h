// SPDX-License-Identifier: Apache-2.0
//
// SimTier: a disk-like tier in memory that errs under a seed: I/O errors, short reads, torn,
// misdirected and lost writes, flipped bits, latency, a crash. It protects itself as a real one
// must: an index in memory says which record and generation a slot should hold, the medium says
// what it does hold, and every payload has a checksum seeded with key and generation. So a fault
// comes out as DATA_LOSS or UNAVAILABLE, never as wrong bytes.
//
//   write accepted: the slot becomes unreadable -> due: medium changes (or not, by fault) ->
//   completion OK: readable read: index has the record? -> medium has the index's generation? ->
//   checksum? -> OK
//
// Latency is the clock's: a request completes once the clock has reached its due time, in the order
// of due times. All faults of a request are drawn when it is accepted, so that equal seeds and
// equal calls give equal runs.
//
// The breaker: after kSickAfter device errors in a row the tier is sick, and requests complete
// UNAVAILABLE/TIER_SICK at once. One request in kProbeNs is let through; if it succeeds, or after
// Heal(), the tier is healthy again. healthy() is true while a probe may pass, so that a caller who
// asks first comes to send one.
//
// Threads: as tiers/tier.h says; the test hooks: any thread. One mutex, held while bytes are copied
// (it simulates; nobody waits for it in earnest). Cost: a copy and a checksum a request; Poll
// O(queue depth) a completion; memory grows with use.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "tiers/slot_books.h"
#include "tiers/tier.h"

namespace fermata {

struct SimTierOptions {
  uint32_t ordinal = 0;
  std::vector<TierGroup> groups;
  uint64_t seed = 1;
  const Clock* clock = nullptr;  // required; outlives the tier
  // In parts per million of the requests of that kind. All zero: a perfect tier.
  uint32_t read_error_ppm = 0;
  uint32_t write_error_ppm = 0;
  uint32_t short_read_ppm = 0;
  uint32_t torn_write_ppm = 0;         // reports success, stores a prefix
  uint32_t misdirected_write_ppm = 0;  // reports success, stores in another slot
  uint32_t bit_flip_ppm = 0;           // one bit of what is read
  uint32_t lost_write_ppm = 0;         // reports success, stores nothing
  uint64_t latency_min_ns = 0;
  uint64_t latency_max_ns = 0;
  uint32_t queue_depth = 64;
};

class SimTier final : public Tier {
 public:
  static constexpr uint32_t kSickAfter = 16;
  static constexpr uint64_t kProbeNs = 1'000'000'000;

  // REQUIRES: a clock, SlotBooks::CheckGroups(options.groups).ok(), latency_min_ns <=
  // latency_max_ns, queue_depth > 0.
  explicit SimTier(SimTierOptions options);

  // --- hooks for tests ---
  // While held, Poll returns nothing; requests stay in flight.
  void HoldCompletions(bool hold) FERMATA_EXCLUDES(mu_);
  // The next `count` requests of that kind complete with `status` and store or give nothing.
  void FailNext(TierIo::Op op, Status status, int count) FERMATA_EXCLUDES(mu_);
  // As if the device lost power: what is in flight completes UNAVAILABLE, and writes among it are
  // torn on the medium.
  void Crash() FERMATA_EXCLUDES(mu_);
  void Heal() FERMATA_EXCLUDES(mu_);
  // When the next request is due; 0 when none is in flight. To move a manual clock there.
  uint64_t NextDueNs() const FERMATA_EXCLUDES(mu_);

  const TierInfo& info() const override { return info_; }
  uint64_t slots(GroupIndex group) const override { return books_.slots(group); }
  uint64_t free_slots(GroupIndex group) const override { return books_.free_slots(group); }
  Status Acquire(GroupIndex group, std::span<SlotId> out) override {
    return books_.Acquire(group, out);
  }
  void Release(GroupIndex group, std::span<const SlotId> slots) override FERMATA_EXCLUDES(mu_);
  size_t Submit(std::span<const TierIo> batch) override FERMATA_EXCLUDES(mu_);
  size_t Poll(std::span<TierCompletion> out) override FERMATA_EXCLUDES(mu_);
  uint64_t in_flight() const override FERMATA_EXCLUDES(mu_);
  bool healthy() const override FERMATA_EXCLUDES(mu_);
  void VisitStats(const StatVisitor& visit) const override FERMATA_EXCLUDES(mu_);

 private:
  enum class Fault : uint8_t { kNone, kError, kShortRead, kTorn, kMisdirected, kBitFlip, kLost };
  static constexpr size_t kFaults = 7;

  // What the medium holds: payload and the metadata written with it.
  struct Stored {
    std::vector<std::byte> bytes;  // empty: never written
    uint64_t uid = 0;
    Hash128 key;
    uint64_t generation = 0;
    uint64_t checksum = 0;
    SlotId slot = SlotId::kNone;  // where the write was meant to go
  };
  // What the index in memory says of a slot.
  struct Entry {
    bool readable = false;
    uint64_t uid = 0;
    Hash128 key;
    uint64_t generation = 0;  // raised by each write and release
    Stored stored;
  };
  struct Request {
    TierIo io;
    uint64_t due_ns = 0;
    uint64_t order = 0;       // ties in due_ns
    uint64_t generation = 0;  // write: of the slot, when accepted
    uint64_t dice = 0;        // where a fault strikes
    Fault fault = Fault::kNone;
    bool refused = false;  // `verdict` is the answer, nothing is done
    bool is_probe = false;
    Status verdict;
  };

  Fault Draw(TierIo::Op op) FERMATA_REQUIRES(mu_);
  void Accept(const TierIo& io) FERMATA_REQUIRES(mu_);
  Status Perform(const Request& request) FERMATA_REQUIRES(mu_);
  Status Write(const Request& request) FERMATA_REQUIRES(mu_);
  Status Read(const Request& request) FERMATA_REQUIRES(mu_);
  void Store(Entry* target, const Request& request, uint64_t stored_bytes) FERMATA_REQUIRES(mu_);
  // Feeds the breaker.
  void NoteResult(const Request& request, const Status& status) FERMATA_REQUIRES(mu_);

  const SimTierOptions options_;
  const TierInfo info_;
  SlotBooks books_;

  mutable Mutex mu_;  // before the mutex of a SlotPool
  Random random_ FERMATA_GUARDED_BY(mu_);
  std::vector<std::vector<Entry>> entries_ FERMATA_GUARDED_BY(mu_);  // by group, by slot
  std::vector<Request> requests_ FERMATA_GUARDED_BY(mu_);            // in flight, in no order
  uint64_t next_order_ FERMATA_GUARDED_BY(mu_) = 1;
  bool hold_ FERMATA_GUARDED_BY(mu_) = false;
  std::array<Status, 2> fail_status_ FERMATA_GUARDED_BY(mu_);  // by Op
  std::array<int, 2> fail_count_ FERMATA_GUARDED_BY(mu_){};
  uint32_t errors_in_row_ FERMATA_GUARDED_BY(mu_) = 0;
  bool sick_ FERMATA_GUARDED_BY(mu_) = false;
  bool probing_ FERMATA_GUARDED_BY(mu_) = false;
  uint64_t next_probe_ns_ FERMATA_GUARDED_BY(mu_) = 0;
  std::array<uint64_t, kFaults> injected_ FERMATA_GUARDED_BY(mu_){};  // by Fault
  uint64_t reads_ FERMATA_GUARDED_BY(mu_) = 0;                        // completed OK
  uint64_t writes_ FERMATA_GUARDED_BY(mu_) = 0;                       // completed OK
  uint64_t errors_ FERMATA_GUARDED_BY(mu_) = 0;
  uint64_t checksum_errors_ FERMATA_GUARDED_BY(mu_) = 0;
};

}  // namespace fermata
