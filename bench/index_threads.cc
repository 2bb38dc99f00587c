// SPDX-License-Identifier: Apache-2.0
//
// lookup_scaling and lookup_under_writes: what lookups cost each other, and what a writer costs
// them. Both are ratios of throughput measured by turns in short rounds, so that a busy machine
// slows both sides of the ratio.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "bench/index.h"
#include "bench/index_cache.h"
#include "bench/index_reference.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kLookupBlocks = 512;
constexpr uint64_t kLookupTokens = kLookupBlocks * kIndexBlockTokens;
constexpr uint64_t kRun = 128;                             // blocks between two branches
constexpr uint64_t kWriterSlots = 8192;                    // of the cache, beside what is looked up
constexpr uint64_t kWriterTokens = 2 * kIndexBlockTokens;  // of a short sequence
constexpr uint64_t kReleaseEvery = 8;                      // changes; the others truncate
constexpr uint64_t kWriterStream = uint64_t{3} << 60;
constexpr uint64_t kPaceAbove = 110;      // per cent of the rate that is asked for
constexpr uint64_t kBurstNs = 1'000'000;  // at most
constexpr uint64_t kPauseNs = 1'000'000;  // between two bursts
constexpr uint64_t kChangesAtOnce = 16;   // between two looks at the clock
constexpr uint64_t kMsNs = 1'000'000;

using Work = std::function<bool()>;  // one lookup, or one change; false when it went wrong

// What runs at a time for a fixed while: readers as fast as they can, writers at a pace.
class Round {
 public:
  explicit Round(uint64_t ms) : ms_(ms) {}
  void AddReader(const Work* lookup) {
    readers_.emplace_back([this, lookup] { Read(*lookup); });
  }
  void AddWriter(const Work* change, uint64_t per_s) {
    writers_.emplace_back([this, change, per_s] { Write(*change, per_s); });
  }
  // Lookups a second of all readers; *changes a second of the writers.
  Status Run(double* lookups_per_s, double* changes_per_s);

 private:
  void WaitForStart() {
    MutexLock lock(&mu_);
    while (!started_) changed_.Wait(&mu_);
  }
  void Read(const Work& lookup);
  void Write(const Work& change, uint64_t per_s);
  // Ends early when the round does.
  void Pause(uint64_t ns) {
    MutexLock lock(&mu_);
    if (!over_) (void)changed_.WaitFor(&mu_, ns);
  }

  const uint64_t ms_;
  Mutex mu_;
  CondVar changed_;
  bool started_ FERMATA_GUARDED_BY(mu_) = false;
  bool over_ FERMATA_GUARDED_BY(mu_) = false;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> lookups_{0};
  std::atomic<uint64_t> changes_{0};
  std::vector<std::thread> readers_;
  std::vector<std::thread> writers_;
};

void Round::Read(const Work& lookup) {
  WaitForStart();
  uint64_t done = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!lookup()) failed_.store(true, std::memory_order_relaxed);
    ++done;
  }
  lookups_.fetch_add(done);
}

// Keeps to a schedule: what a burst could not do, the next one makes up for.
void Round::Write(const Work& change, uint64_t per_s) {
  WaitForStart();
  uint64_t done = 0;
  const uint64_t start = IndexNowNs();
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t burst = IndexNowNs();
    uint64_t now = burst;
    const auto due = [&] {
      return static_cast<double>(now - start) * 1e-9 * static_cast<double>(per_s);
    };
    while (now - burst < kBurstNs && static_cast<double>(done) < due() &&
           !stop_.load(std::memory_order_relaxed)) {
      for (uint64_t i = 0; i < kChangesAtOnce; ++i) {
        if (!change()) failed_.store(true, std::memory_order_relaxed);
      }
      done += kChangesAtOnce;
      now = IndexNowNs();
    }
    Pause(kPauseNs);
  }
  changes_.fetch_add(done);
}

Status Round::Run(double* lookups_per_s, double* changes_per_s) {
  const uint64_t start = IndexNowNs();
  {
    MutexLock lock(&mu_);
    started_ = true;
    changed_.NotifyAll();
    const uint64_t end = start + ms_ * kMsNs;
    for (uint64_t now = start; now < end; now = IndexNowNs())
      (void)changed_.WaitFor(&mu_, end - now);
    stop_.store(true);
    over_ = true;
    changed_.NotifyAll();
  }
  const double seconds = static_cast<double>(IndexNowNs() - start) * 1e-9;
  for (std::thread& thread : readers_) thread.join();
  for (std::thread& thread : writers_) thread.join();
  *lookups_per_s = static_cast<double>(lookups_.load()) / seconds;
  *changes_per_s = static_cast<double>(changes_.load()) / seconds;
  if (failed_.load()) return ErrorF(StatusCode::kInternal, "a lookup or a change went wrong");
  return Status();
}

// A cache with a context for each of two readers, and what its threads do.
class ReadCache {
 public:
  ReadCache() : tokens_(2 * kLookupTokens), fresh_(kWriterTokens) {}
  Status Build() {
    family_.run = kRun;
    family_.pieces = kLookupBlocks / kRun;
    IndexCacheOptions options;
    options.slots = 2 * family_.blocks() + kWriterSlots;
    Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
    if (!opened.ok()) return opened.status();
    cache_ = std::move(*opened);
    for (uint64_t i = 0; i < 2; ++i) {
      // Held, so that the writer's blocks push nothing out that is looked up.
      fermata_sequence kept{0};
      FERMATA_RETURN_IF_ERROR(family_.Build(cache_.get(), i, &kept));
      family_.TrunkTokens(i, Context(i));
    }
    return cache_->Create(&writer_);
  }

  Work Lookup(uint64_t context, bool lease) {
    return [this, context, lease] {
      fermata_lookup_item item = LookupItem(Context(context), lease);
      if (fermata_lookup(cache_->space(), &item, 1, nullptr) != FERMATA_OK) return false;
      if (item.lease.id != 0) (void)fermata_lease_drop(item.lease, nullptr);
      return item.hit_tokens == kLookupTokens;
    };
  }

  // A change is a call that changes the cache, which it has alone meanwhile: in turn a short
  // sequence is appended, marked, and truncated to nothing or released.
  Work Change() {
    return [this] {
      switch (changes_++ % 3) {
        case 0: {
          FillTokens(kWriterStream | changes_, fresh_);
          fermata_append_item append = AppendItem(writer_, fresh_);
          return fermata_append(cache_->cache(), &append, 1, nullptr) == FERMATA_OK;
        }
        case 1: {
          fermata_mark_item mark = MarkItem(writer_, fresh_.size());
          return fermata_mark(cache_->cache(), &mark, 1, nullptr) == FERMATA_OK;
        }
        default:
          break;
      }
      if (changes_ % kReleaseEvery != 0)
        return fermata_sequence_truncate(writer_, 0, nullptr) == FERMATA_OK;
      return fermata_release(cache_->cache(), &writer_, 1, nullptr) == FERMATA_OK &&
             fermata_sequence_create(cache_->space(), nullptr, &writer_, nullptr) == FERMATA_OK;
    };
  }

  Status Step() { return cache_->Step(); }

 private:
  std::span<uint32_t> Context(uint64_t i) const {
    return tokens_.all().subspan(i * kLookupTokens, kLookupTokens);
  }
  ContextFamily family_;
  HugeArray<uint32_t> tokens_;
  std::vector<uint32_t> fresh_;
  std::unique_ptr<IndexCache> cache_;
  fermata_sequence writer_{0};
  uint64_t changes_ = 0;
};

// The usual design: names known, a map, a lock around each lookup and each change.
class LockedPool {
 public:
  LockedPool() : pool_(2 * kLookupBlocks + kWriterSlots) {
    MutexLock lock(&mu_);
    for (uint64_t i = 0; i < 2 * kLookupBlocks; ++i) {
      names_.push_back(Hash128{MixU64(i), i});
      pool_.Publish(pool_.Take(), names_.back());  // held: never evicted
    }
  }
  Work Lookup(uint64_t context) {
    return [this, context] {
      MutexLock lock(&mu_);
      return RefFindPrefix(pool_, {names_.data() + context * kLookupBlocks, kLookupBlocks}) ==
             kLookupBlocks;
    };
  }
  Work Change() {
    return [this] {
      for (uint64_t i = 0; i < kWriterTokens / kIndexBlockTokens; ++i) {
        MutexLock lock(&mu_);
        const uint64_t name = kWriterStream | changes_++;
        RefBlockPool::Block* const block = pool_.Take();
        pool_.Publish(block, Hash128{MixU64(name), name});
        pool_.Release(block);
      }
      return true;
    };
  }

 private:
  Mutex mu_;
  RefBlockPool pool_ FERMATA_GUARDED_BY(mu_);
  std::vector<Hash128> names_;  // not changed once made
  uint64_t changes_ = 0;        // the writer's
};

// Lookups a second of so many readers at a time.
Status Readers(std::initializer_list<const Work*> lookups, uint64_t ms, double* per_s) {
  Round round(ms);
  for (const Work* lookup : lookups) round.AddReader(lookup);
  double changes = 0;
  return round.Run(per_s, &changes);
}

struct ScalingCost {
  double ratio = 0;
  double apart_speedup = 0;  // two readers that share nothing against one: the machine's share
};

Status ScalingRatio(const IndexSizes& sizes, const Work& shared_a, const Work& shared_b,
                    const Work& own_a, const Work& own_b, const std::function<Status()>& between,
                    ScalingCost* out) {
  Samples ratios;
  Samples speedups;
  for (uint64_t i = 0; i < sizes.scaling_rounds; ++i) {
    double together = 0;
    double apart = 0;
    double alone = 0;
    const auto shared = [&] {
      return Readers({&shared_a, &shared_b}, sizes.scaling_ms, &together);
    };
    // Who goes first takes turns: what warms up, or starts to disturb, favours neither.
    if (i % 2 == 0) FERMATA_RETURN_IF_ERROR(shared());
    FERMATA_RETURN_IF_ERROR(Readers({&own_a, &own_b}, sizes.scaling_ms, &apart));
    if (i % 2 != 0) FERMATA_RETURN_IF_ERROR(shared());
    FERMATA_RETURN_IF_ERROR(Readers({&own_a}, sizes.scaling_ms, &alone));
    FERMATA_RETURN_IF_ERROR(between());
    ratios.Add(together / std::max(apart, 1.0));
    speedups.Add(apart / std::max(alone, 1.0));
  }
  *out = ScalingCost{ratios.Median(), speedups.Median()};
  return Status();
}

struct WriteCost {
  double ratio = 0;
  double changes_per_s = 0;  // in the windows that count, the fewest; without such, in all
  uint64_t counted = 0;      // windows in which the writer kept its rate
  uint64_t starved = 0;      // and in which it did not: they say nothing of what a writer costs
};

// Goes on until enough windows count, or as many again do not: then the writer starves.
Status UnderWrites(const IndexSizes& sizes, const Work& lookup, const Work& change,
                   const std::function<Status()>& between, WriteCost* out) {
  *out = WriteCost();
  Samples ratios;
  Samples changes;
  Samples starved_changes;
  const uint64_t pace = std::max<uint64_t>(sizes.writes_per_s, 1000) * kPaceAbove / 100;
  for (uint64_t i = 0; out->counted < sizes.write_windows && out->starved < sizes.write_windows;
       ++i) {
    double alone = 0;
    double beside = 0;
    double made = 0;
    for (const bool with_writer : {i % 2 == 0, i % 2 != 0}) {
      Round window(sizes.write_ms);
      window.AddReader(&lookup);
      double none = 0;
      if (with_writer) window.AddWriter(&change, pace);
      FERMATA_RETURN_IF_ERROR(
          window.Run(with_writer ? &beside : &alone, with_writer ? &made : &none));
      FERMATA_RETURN_IF_ERROR(between());
    }
    if (made < static_cast<double>(sizes.writes_per_s)) {
      ++out->starved;
      starved_changes.Add(made);
      continue;
    }
    ++out->counted;
    ratios.Add(beside / std::max(alone, 1.0));
    changes.Add(made);
  }
  out->ratio = ratios.Median();
  out->changes_per_s = out->counted != 0 ? changes.Least() : starved_changes.Median();
  return Status();
}

}  // namespace

Status MeasureIndexScaling(const IndexSizes& sizes, IndexFigures* out) {
  ReadCache one;
  ReadCache other;
  FERMATA_RETURN_IF_ERROR(one.Build());
  FERMATA_RETURN_IF_ERROR(other.Build());
  const auto step = [&] {
    FERMATA_RETURN_IF_ERROR(one.Step());
    return other.Step();
  };
  ScalingCost cost;
  for (const bool lease : {false, true}) {
    FERMATA_RETURN_IF_ERROR(ScalingRatio(sizes, one.Lookup(0, lease), one.Lookup(1, lease),
                                         one.Lookup(0, lease), other.Lookup(1, lease), step,
                                         &cost));
    const std::string stem = lease ? "lookup_leased_" : "lookup_";
    out->Set(stem + "scaling_2t", cost.ratio);
    out->Set(stem + "apart_speedup_2t", cost.apart_speedup);
  }
  LockedPool pool;
  LockedPool other_pool;
  FERMATA_RETURN_IF_ERROR(ScalingRatio(
      sizes, pool.Lookup(0), pool.Lookup(1), pool.Lookup(0), other_pool.Lookup(1),
      [] { return Status(); }, &cost));
  out->Set("ref_lookup_scaling_2t", cost.ratio);
  out->Set("ref_lookup_apart_speedup_2t", cost.apart_speedup);
  return Status();
}

Status MeasureIndexUnderWrites(const IndexSizes& sizes, IndexFigures* out) {
  ReadCache cache;
  FERMATA_RETURN_IF_ERROR(cache.Build());
  LockedPool pool;
  Status starved;
  // A starved writer disturbs nobody: the ratio is no figure then.
  const auto set = [&](const std::string& key, const WriteCost& cost) {
    const bool enough = cost.counted >= sizes.write_windows;
    out->Set(key, enough ? std::optional<double>(cost.ratio) : std::nullopt);
    out->Set(key + "_changes_per_s", cost.changes_per_s);
    out->Set(key + "_starved_windows", static_cast<double>(cost.starved));
    if (enough || !starved.ok()) return;
    starved = ErrorF(StatusCode::kUnavailable,
                     "%s: the writer made fewer than %" PRIu64 " changes a second in %" PRIu64
                     " windows, as many as it should have kept that rate in",
                     key.c_str(), sizes.writes_per_s, cost.starved);
  };
  WriteCost cost;
  const auto step = [&] { return cache.Step(); };
  FERMATA_RETURN_IF_ERROR(UnderWrites(sizes, cache.Lookup(0, false), cache.Change(), step, &cost));
  set("lookup_under_writes", cost);
  FERMATA_RETURN_IF_ERROR(UnderWrites(sizes, cache.Lookup(0, true), cache.Change(), step, &cost));
  set("lookup_leased_under_writes", cost);
  FERMATA_RETURN_IF_ERROR(UnderWrites(
      sizes, pool.Lookup(0), pool.Change(), [] { return Status(); }, &cost));
  const bool kept = cost.counted >= sizes.write_windows;
  out->Set("ref_lookup_under_writes", kept ? std::optional<double>(cost.ratio) : std::nullopt);
  out->Set("ref_lookup_under_writes_changes_per_s", cost.changes_per_s);
  return starved;
}

}  // namespace fermata::bench
