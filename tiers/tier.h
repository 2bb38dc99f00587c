// SPDX-License-Identifier: Apache-2.0
//
// Tier: where slots are. A tier instance holds one pool of equal slots per group and moves whole
// blocks between a slot and a buffer in host memory, in the block's contiguous cold form. It knows
// nothing of prefixes, policies, or other tiers.
//
// The contract, which tests/conformance holds every implementation to:
//  * A read that completes OK gave exactly the bytes of the last write to that slot that completed
//  OK under the same record
//    (uid and key). Anything else is an error: DATA_LOSS/CHECKSUM, DATA_LOSS/TORN, or UNAVAILABLE
//    for an I/O error. A tier whose bytes leave memory seeds a checksum with key and generation and
//    checks it (base/hash.h PayloadChecksum).
//  * Every request that Submit accepts completes exactly once through Poll, also after errors and
//  during Shutdown. Until then the
//    buffer and the record are borrowed. Submit takes a prefix of the batch and says how many; it
//    never waits.
//  * A write that fails leaves nothing readable in the slot.
//  * Acquire hands out each slot once; Release makes what was in it unreadable from then on, also
//  after a reopen (a tier that
//    persists queues that, and has it done before the slot's next write begins).
//  * No abort, no exception, no hang because of a device.
//
// Threads: Acquire, Release, free_slots, stats: any thread. Submit, Poll: the executor's thread
// only, no lock held. Cost: Acquire and Release O(slots moved), no I/O, no allocation beyond a
// queue entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"

namespace fermata {

enum class TierKind : uint8_t { kDevice = 1, kHost = 2, kSsd = 3, kRemote = 4, kSim = 5 };

enum TierCapability : uint32_t {
  kTierMapped = 1u << 0,  // Map() gives the slot's memory: no staging needed beside it
  kTierDurable =
      1u << 1,  // contents survive the process: Recover() has something to say, and residency is
                // kept closed under parents (a block is there only if its parent is)
  kTierNoBytes = 1u << 2,  // keeps books only (metadata-only mode): buffers may be null
};

// What the tier keeps beside a block's bytes. `identity` is compared in full after a reopen, never
// the key alone.
struct BlockRecord {
  uint64_t uid = 0;         // unique in the life of a store, never reused; > 0
  uint64_t parent_uid = 0;  // 0: first block of a prefix
  uint32_t space = 0;       // durable number of the space (SpaceRecord::number)
  GroupIndex group = 0;
  uint32_t depth = 0;                   // index of the block in its prefix
  Hash128 key;                          // chain value at the block's end
  std::span<const std::byte> identity;  // framed tokens or keys and extra parts of this block
};

struct SpaceRecord {
  uint32_t number =
      0;  // > 0, never reused: a reset gives the space a new number, which is its epoch
  std::string identity;  // canonical bytes of the space, compared in full
};

enum class IoClass : uint8_t { kDemand = 0, kPrefetch = 1, kWriteBack = 2, kCleaning = 3 };

struct TierIo {
  enum class Op : uint8_t { kRead, kWrite };
  Op op = Op::kRead;
  IoClass io_class = IoClass::kDemand;
  GroupIndex group = 0;
  SlotId slot = SlotId::kNone;
  std::byte* buffer = nullptr;  // block_bytes, aligned to 4096; borrowed until completion
  const BlockRecord* record =
      nullptr;          // write: what is stored; read: what is expected. Borrowed until completion
  uint64_t cookie = 0;  // comes back in the completion
};

struct TierCompletion {
  uint64_t cookie = 0;
  Status status;
};

struct TierInfo {
  TierKind kind = TierKind::kSim;
  uint32_t ordinal = 0;
  uint32_t capabilities = 0;
  std::string name;  // "host:0"
};

struct TierGroup {
  uint64_t block_bytes = 0;  // payload
  uint64_t slots = 0;
};

// Names a value for stats: `text` non-null for words.
using StatVisitor = std::function<void(const char* name, uint64_t value, const char* text)>;

class Tier {
 public:
  virtual ~Tier() = default;

  virtual const TierInfo& info() const = 0;
  bool has(uint32_t capability) const { return (info().capabilities & capability) != 0; }
  virtual uint64_t slots(GroupIndex group) const = 0;
  virtual uint64_t free_slots(GroupIndex group) const = 0;

  // Fills all of `out` or takes nothing and answers RESOURCE_EXHAUSTED/NO_SPACE.
  virtual Status Acquire(GroupIndex group, std::span<SlotId> out) = 0;
  virtual void Release(GroupIndex group, std::span<const SlotId> slots) = 0;

  // kTierMapped: the slot's memory, block_bytes long, aligned to 4096. Otherwise null.
  virtual std::byte* Map(GroupIndex, SlotId) { return nullptr; }

  // Accepts a prefix of `batch`; returns its length. 0 with a full queue: Poll first. Errors come
  // as completions.
  virtual size_t Submit(std::span<const TierIo> batch) = 0;
  // Takes up to out.size() completions; returns how many.
  virtual size_t Poll(std::span<TierCompletion> out) = 0;
  virtual uint64_t in_flight() const = 0;           // accepted and not yet returned by Poll
  virtual int completion_fd() const { return -1; }  // see Poller::fd

  // False after so many errors that reads and writes are refused (they then complete
  // UNAVAILABLE/TIER_SICK).
  virtual bool healthy() const { return true; }

  // --- kTierDurable only ---
  // How often this store was opened, this time included; durable before construction ends. Makes
  // uids unique for ever.
  virtual uint64_t incarnation() const { return 1; }
  // After construction: what survived. Spaces first, then blocks in no particular order; their
  // slots count as acquired. The caller Releases what it cannot use.
  virtual Status Recover(const std::function<void(const SpaceRecord&)>& /*space*/,
                         const std::function<void(const BlockRecord&, SlotId)>& /*block*/) {
    return Status();
  }
  // What lies in the slot, or is on its way there, is not to be found after a reopen. The slot
  // stays acquired, and what is in flight completes as it would have. Any thread; durable with the
  // next synced PutSpace.
  virtual void Forget(GroupIndex, SlotId) {}
  // Stores or replaces a space record. `sync`: durable against power loss before returning, and
  // with it every Release and Forget that came before. May do I/O; the executor's thread, no lock
  // held.
  virtual Status PutSpace(const SpaceRecord&, bool /*sync*/) { return Status(); }
  virtual Status DropSpace(uint32_t /*number*/, bool /*sync*/) { return Status(); }

  // Ends I/O and makes what is there durable. in_flight() must be 0. Executor's thread or after it
  // stopped.
  virtual Status Shutdown() { return Status(); }

  virtual void VisitStats(const StatVisitor&) const {}
};

}  // namespace fermata
