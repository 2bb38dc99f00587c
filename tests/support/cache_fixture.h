// SPDX-License-Identifier: Apache-2.0
//
// TestCache plays an engine on one cache through the C ABI: it owns the device memory, writes the
// oracle's bytes into slots, runs copy lists, drives jobs to their end and audits. It knows nothing
// of the library's insides. Its default is the setup most tests want: 16 tokens a block, 8 device
// blocks of 64 KiB in two planes, no other tier, a clock that stands still, work that runs only
// when stepped.
//
// Thread safety: calls on different sequences from different threads, except Open, Close, Reopen,
// and AddSpace. Invariants: the destructor audits (OK, 0 orphans) and closes, so that every test
// ends with a recount.
#pragma once

#ifndef FERMATA_ALLOW_EXPERIMENTAL
#define FERMATA_ALLOW_EXPERIMENTAL
#endif
#include <fermata/fermata.h>
#include <fermata/fermata_experimental.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "tests/support/content_oracle.h"
#include "tests/support/status_matchers.h"

namespace fermata_test {

struct GroupSetup {
  uint32_t block_tokens = 16;
  std::vector<uint64_t> planes = {32768, 32768};  // bytes of a slot in each region
  uint64_t stride_pad = 0;                        // bytes between slots
  uint32_t slots = 0;  // 0: as many tokens as device_blocks blocks of group 0 hold
  uint64_t block_bytes() const {
    uint64_t sum = 0;
    for (const uint64_t bytes : planes) sum += bytes;
    return sum;
  }
};

struct CacheSetup {
  uint32_t chain_tokens = 16;
  std::vector<GroupSetup> groups = {GroupSetup()};
  uint32_t device_blocks = 8;
  uint64_t host_blocks = 0;  // of group 0; the other groups get as many tokens; 0: no such tier
  uint64_t ssd_blocks = 0;
  uint64_t sim_blocks = 0;
  uint32_t staging_blocks = 0;  // of group 0, in the host tier; 0: the default
  uint32_t ssd_flags = 0;
  uint32_t io_depth = 0;
  std::string directory;  // empty: a temporary one, removed with the object
  fermata_x_sim_faults sim_faults = {};
  uint64_t seed = 1;
  bool metadata_only = false;
  bool real_time = false;  // the library's own thread and the machine's clock
  std::string policy = "lru";
  uint32_t event_capacity = 0;
  uint32_t max_sequences = 0;
  uint64_t lease_ns = 0;
  const fermata_device_ops* device_ops = nullptr;
  bool register_arenas = true;
};

// CacheSetup S with every tier on.
CacheSetup AllTiers();
// Blocks of 4 KiB, for tests that do many rounds.
GroupSetup SmallBlocks();

struct Seq {
  fermata_sequence id = {0};
  size_t space = 0;
  Extras extras;
  Tokens tokens;
};

struct CreateOptions {
  Extras extras = {};
  size_t space = 0;
  fermata_session session = {0};
  uint32_t flags = 0;
};

struct LookupOptions {
  Extras extras = {};
  uint64_t leave = 0;
  size_t space = 0;
  fermata_session session = {0};
  uint64_t deadline_ns = 0;
  uint32_t flags = 0;
};

struct Hit {
  Outcome outcome;
  uint64_t tokens = 0;
  uint64_t pending = 0;
  std::vector<uint64_t> tiers;  // tokens per tier, in the config's order
  fermata_lease lease = {0};
  Tokens asked;
  Extras extras;
};

struct Job {
  Outcome outcome;  // of the call that was to start it
  fermata_job id = {0};
};

struct LoadOptions {
  uint64_t reserve_tokens = 0;
  uint64_t deadline_ns = 0;
};

struct Stats {
  fermata_stats total = {};
  std::vector<fermata_tier_stats> tiers;
};

class TestCache {
 public:
  explicit TestCache(CacheSetup setup = CacheSetup());
  ~TestCache();
  TestCache(const TestCache&) = delete;
  TestCache& operator=(const TestCache&) = delete;

  // --- life ---
  Outcome Open();  // of a closed one; the constructor has done it
  void Close();
  void Reopen();
  Outcome TryClose(uint64_t deadline_ns);
  bool is_open() const { return cache_.id != 0; }
  // For tests that end with a broken cache on purpose.
  void Abandon();
  size_t AddSpace(
      const Fingerprint& fingerprint);  // index for the options' `space`; 0 is the default one
  fermata_space space(size_t index) const { return spaces_[index].id; }
  fermata_cache id() const { return cache_; }
  const CacheSetup& setup() const { return setup_; }
  CacheSetup& mutable_setup() { return setup_; }  // before a Reopen
  const std::string& directory() const { return setup_.directory; }
  int TierOf(uint32_t kind) const;  // index, or -1

  // --- sequences ---
  Seq Create(const CreateOptions& options = {});
  Outcome TryCreate(const CreateOptions& options, Seq* out);
  // One attempt; runs the copy list on success and reports how many copies it had.
  Outcome TryAppend(Seq* seq, const Tokens& tokens,
                    std::vector<fermata_block_copy>* copies = nullptr);
  // Steps while room is being made.
  void Append(Seq* seq, const Tokens& tokens, std::vector<fermata_block_copy>* copies = nullptr);
  void Write(const Seq& seq, uint64_t from, uint64_t to);
  // As Write, into slots that the sequence had when a kernel was given them.
  void WriteInto(const Seq& seq, uint64_t from, uint64_t to,
                 const std::vector<std::vector<uint32_t>>& all_slots);
  Outcome TryMark(const Seq& seq, uint64_t tokens, void* event = nullptr);
  void Mark(const Seq& seq, uint64_t tokens);
  void Store(Seq* seq, const Tokens& tokens);  // append, write, mark
  Seq Stored(const Tokens& tokens, const CreateOptions& options = {});
  void Truncate(Seq* seq, uint64_t tokens);
  std::vector<Seq> Fork(const Seq& seq, size_t count);
  void Release(Seq* seq);
  fermata_sequence_info Info(const Seq& seq);
  std::vector<uint32_t> Slots(const Seq& seq, uint32_t group = 0);
  std::vector<std::vector<uint32_t>> AllSlots(const Seq& seq);  // per group

  // --- lookups ---
  Hit Lookup(const Tokens& tokens, const LookupOptions& options = {});
  uint64_t HitTokens(const Tokens& tokens,
                     const LookupOptions& options = {});  // no lease, no trace
  Outcome Take(const Hit& hit, Seq* seq);
  Outcome Drop(const Hit& hit);
  // Lookup, take, load, check: the tokens that came back right.
  Seq Fetch(const Tokens& tokens, const LookupOptions& options = {});

  // --- jobs ---
  Job StartLoad(const Seq& seq, const LoadOptions& options = {});
  Job StartPark(const Seq& seq, uint32_t mode);
  Job StartResume(const Seq& seq, const LoadOptions& options = {});
  Outcome Cancel(const Job& job);
  // Drives the cache until the job's completion is there, and takes it.
  fermata_completion Finish(const Job& job);
  bool TakeCompletion(const Job& job, fermata_completion* out);  // what is there now, no driving
  fermata_completion Load(Seq* seq, const LoadOptions& options = {});
  fermata_completion Park(Seq* seq, uint32_t mode);  // KEEP and DROP; must be accepted
  void ParkLazy(Seq* seq);
  fermata_completion Resume(Seq* seq, const LoadOptions& options = {});
  uint64_t Step(uint64_t max_steps);  // pieces of work that ran
  void Pump();                        // some work, or a moment's wait for it where others do it
  void Settle();                      // until nothing is left to do
  void Advance(uint64_t ns);
  uint64_t Now();

  // --- looking inside ---
  Stats GetStats();
  fermata_tier_stats TierStats(uint32_t kind);
  std::map<std::string, std::string> VisitStats();
  std::string AuditError();  // empty when the books are right and nothing is orphaned
  void Audit();
  // What is wrong with the bytes of the first `tokens` tokens on the device; empty when nothing is.
  std::string BytesError(const Seq& seq, uint64_t tokens);
  void CheckBytes(const Seq& seq);  // all of the sequence
  void CheckBytes(const Seq& seq, uint64_t tokens);
  std::vector<fermata_event> PollEvents();
  uint64_t Room(uint32_t group, uint64_t* evictable);

  // --- device memory ---
  std::byte* SlotBytes(uint32_t group, uint32_t plane, uint32_t slot);
  void DeviceLost();          // the memory is overwritten, then declared lost
  void ScribbleFreeMemory();  // overwrites all device memory; only while no block of it matters
  Outcome RegisterArena(uint32_t group);
  Outcome UnregisterArena(uint32_t group);

 private:
  struct SpaceState {
    fermata_space id = {0};
    Fingerprint fingerprint;
  };
  struct ArenaState {
    fermata_arena id = {0};
    std::vector<std::vector<std::byte>> planes;
  };

  uint32_t SlotsOf(uint32_t group) const;
  uint64_t CapacityBytes(uint64_t blocks) const;
  Outcome OpenSpace(SpaceState* state);
  void RunCopies(const std::vector<fermata_block_copy>& copies);
  void DrainQueue();

  CacheSetup setup_;
  bool owns_directory_ = false;
  fermata_cache cache_ = {0};
  fermata_queue queue_ = {0};
  fermata_queue wait_queue_ = {0};  // nothing ever completes into it: a wait without a sleep
  std::vector<uint32_t> tier_kinds_;
  std::deque<SpaceState> spaces_;
  std::vector<ArenaState> arenas_;
  std::atomic<uint64_t> next_user_data_{1};
  fermata::Mutex mu_;
  std::map<uint64_t, fermata_completion> completions_ FERMATA_GUARDED_BY(mu_);  // by job id
};

// Distinct tokens: `count` of them, of prompt `prompt`, from position `from`.
Tokens Prompt(uint32_t prompt, uint64_t count, uint64_t from = 0);
Tokens Concat(const Tokens& a, const Tokens& b);
Tokens Prefix(const Tokens& tokens, uint64_t count);

// Device memory whose copies and events are under the test's hand: held copies are accepted and
// stay unfinished.
class HeldDevice {
 public:
  HeldDevice();
  const fermata_device_ops* ops() const { return &ops_; }
  void Hold() { held_.store(true); }
  void LetGo() { held_.store(false); }
  void RefuseQueries(bool refuse) { refuse_.store(refuse); }  // event_query fails
  uint64_t submitted() const { return submitted_.load(); }
  uint64_t outstanding();
  // Sources and targets of all runs submitted so far.
  std::vector<fermata_copy_run> runs();

 private:
  struct Batch {
    std::vector<fermata_copy_run> runs;
  };
  static fermata_status Submit(void* user, const fermata_copy_run* runs, size_t count,
                               uint32_t direction, uint64_t ticket);
  static fermata_status Poll(void* user, uint64_t ticket, uint32_t* out_done);
  static fermata_status Query(void* user, void* event, uint32_t* out_done);

  fermata_device_ops ops_ = {};
  std::atomic<bool> held_{false};
  std::atomic<bool> refuse_{false};
  std::atomic<uint64_t> submitted_{0};
  fermata::Mutex mu_;
  std::map<uint64_t, Batch> batches_ FERMATA_GUARDED_BY(mu_);
  std::vector<fermata_copy_run> log_ FERMATA_GUARDED_BY(mu_);
};

}  // namespace fermata_test
