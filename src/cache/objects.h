// SPDX-License-Identifier: Apache-2.0
//
// The objects a cache hands out by id: spaces, sequences, leases, sessions, jobs. Plain data,
// changed only by Cache's methods under its lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/block_store.h"
#include "cache/identity.h"
#include "cache/job_queue.h"
#include "cache/object_table.h"

namespace fermata {

// One identity. Lives while it is open, used, or has blocks (SpaceTable::Sweep).
struct SpaceState {
  uint32_t number = 0;  // durable; a reset gives a new one
  std::string identity;
  KeyMode key_mode = KeyMode::kTokens;
  Hash128 seed;          // where its chains begin
  uint32_t users = 0;    // sequences and leases
  uint32_t handles = 0;  // open ones
};

struct SpaceHandle {
  SpaceState* space = nullptr;
};

// A block of its own that a sequence uses where an equal one is published: the duplicate of
// somebody else's.
struct OwnBlock {
  uint64_t index = 0;  // in the table
  BlockId block = BlockId::kNone;
};

// The source of a copy-on-write. Its slot stays what it is until the engine has been seen to run
// the copy, which it has when tokens behind the copied ones are marked.
struct CopySource {
  BlockId block = BlockId::kNone;
  size_t target = 0;   // index of the table's block that the copy fills
  uint64_t after = 0;  // tokens of the sequence that the copied part ends at
};

// A sequence's blocks of one group. The leading ones are published, and one reference to the last
// of them holds them all, however many they are; what is behind them is listed.
struct GroupTable {
  BlockId anchor = BlockId::kNone;  // last published block; kNone when there is none
  uint64_t published = 0;           // blocks up to and with the anchor
  std::vector<OwnBlock> own;        // rising, of the published part
  std::vector<BlockId> tail;        // behind it: private, but that a cut may leave the part of a
                                    // published block first
  uint64_t remembered = 0;          // published blocks that the session's path has from this table
  std::vector<CopySource> copy_sources;
  std::vector<SlotId> reserved;
  std::vector<RememberedPiece> parked;

  uint64_t blocks() const { return published + tail.size(); }
};

enum class ParkMode : uint8_t { kLazy = 0, kKeep = 1, kDrop = 2 };
enum class SequenceState : uint8_t { kRunning = 1, kLoading = 2, kParked = 3, kParking = 4 };

struct PendingMark {
  uint64_t serial = 0;  // rising within a sequence
  uint64_t tokens = 0;
  void* event = nullptr;
  bool refused = false;  // event_query has failed on it, which was logged
};

// A block that a sequence let go of while the engine's kernels may still write it: held until every
// mark up to `until` has been settled.
struct QuarantinedBlock {
  BlockId block = BlockId::kNone;
  uint64_t until = 0;
};

// A park that waits for the events of the sequence's marks.
struct PendingPark {
  ParkMode mode = ParkMode::kLazy;
  ObjectId job = 0;
};

struct Sequence {
  ObjectId id = 0;
  SpaceState* space = nullptr;
  ObjectId session = 0;
  SequenceState state = SequenceState::kRunning;
  bool no_store = false;
  bool frozen = false;    // publishes nothing any more (reset, device lost)
  bool released = false;  // goes when its job has ended and its marks are settled
  std::vector<ExtraPart> extras;
  uint64_t tokens = 0;
  uint64_t marked = 0;
  // Names of what is not published in every group yet; the tree has the others.
  uint64_t named_from = 0;          // unit that they begin with
  Hash128 key_before;               // chain value there
  std::vector<uint32_t> token_ids;  // KeyMode::kTokens
  std::vector<std::byte> keys;      // KeyMode::kBlocks
  uint32_t key_bytes = 0;
  std::vector<Hash128> chain;  // values at the ends of units from there on
  std::vector<GroupTable> groups;
  std::vector<PendingMark> pending_marks;
  uint64_t next_mark = 1;
  std::vector<QuarantinedBlock> quarantine;
  PendingPark park;  // kParking
  ObjectId job = 0;
};

struct Lease {
  SpaceState* space = nullptr;
  ObjectId session = 0;
  std::vector<BlockId> anchors;  // per group: last block of the prefix, held
  uint64_t tokens = 0;
  uint64_t query_tokens = 0;
  uint64_t deadline_ns = 0;
  uint64_t timer = 0;
  bool expired = false;  // holds nothing any more
  uint32_t key_bytes = 0;
  std::vector<ExtraPart> extras;
};

struct Session {
  SessionId serial = 0;
  ObjectId parent = 0;
  uint32_t priority = 0;
  std::vector<std::vector<RememberedPiece>> path;  // per group: the blocks of its latest prompt
  ObjectId path_sequence = 0;
};

enum class JobKind : uint8_t { kLoad, kPark };

struct Job {
  ObjectId id = 0;
  JobKind kind = JobKind::kLoad;
  ObjectId sequence = 0;
  std::shared_ptr<JobQueue> queue;
  uint64_t user_data = 0;
  uint64_t timer = 0;
  Status status;      // the first thing that went wrong
  bool lost = false;  // a block did not come back, whatever came first
  // Load: all slots first, then all transfers at once.
  std::vector<uint64_t> requests;      // per group: the slot request that has not answered, or 0
  uint64_t unanswered = 0;             // of them, and one of the starter's own
  bool whole = false;                  // nothing was missing when it was planned
  std::vector<uint64_t> want_loads;    // per group: blocks to bring in
  std::vector<uint64_t> want_reserve;  // per group: slots to hold
  std::vector<std::vector<SlotId>> slots;
  uint64_t outstanding = 0;
  uint32_t items_total = 0;
  uint32_t items_ok = 0;
};

}  // namespace fermata
