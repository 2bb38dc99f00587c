// SPDX-License-Identifier: Apache-2.0
//
// MetaStore over RocksDB, tuned for a small catalog that must open fast after a kill: 8 MiB
// memtables and a WAL capped at twice that (1M records: 0.3-0.4 s to open instead of 3.1 s with the
// default). RocksDB gets no thread of its own making: see CatalogEnv and WithoutTimer.
#include <pthread.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "tiers/ssd_meta_store.h"

// A hook that builds of RocksDB with assertions have (Debian's is one); in others these are null.
namespace rocksdb {
class SyncPoint {
 public:
  [[gnu::weak]] static SyncPoint* GetInstance();
  [[gnu::weak]] void SetCallBack(const std::string& point,
                                 const std::function<void(void*)>& callback);
  [[gnu::weak]] void EnableProcessing();
  [[gnu::weak]] void DisableProcessing();
};
}  // namespace rocksdb

namespace fermata {
namespace {

// RocksDB's own text log must never touch the disk: Debian's build has assertions on, and a log
// line that meets a full disk aborts the process (8 of 8 runs; with this logger 0 of 4).
class SilentLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

Status FromRocks(const char* operation, const rocksdb::Status& status) {
  if (status.ok()) return Status();
  StatusCode code = StatusCode::kUnavailable;
  if (status.IsCorruption() || status.IsInvalidArgument() || status.IsNotFound() ||
      status.IsNotSupported() || status.IsPathNotFound()) {
    code = StatusCode::kDataLoss;
  } else if (status.IsNoSpace()) {
    code = StatusCode::kResourceExhausted;
  }
  return ErrorF(code, "catalog %s: %s", operation, status.ToString().c_str());
}

rocksdb::Slice AsSlice(std::string_view text) { return {text.data(), text.size()}; }
std::string_view AsView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// Runs `body`; whatever it throws is an answer like any other.
template <typename Body>
Status Guard(const char* operation, Body body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return ErrorF(StatusCode::kUnavailable, "catalog %s: %s", operation, e.what());
  } catch (...) {
    return ErrorF(StatusCode::kUnavailable, "catalog %s: unknown exception", operation);
  }
}

// What the stores of this process share. Never destroyed: a process may end with stores open.
struct Shared {
  struct Live {
    pid_t process;  // a child of fork() has the entry and not the thread
    std::shared_ptr<ThreadExecutor> executor;
  };
  SystemClock clock;
  std::atomic<bool> ending{false};  // of the process: RocksDB's statics go, or are gone
  Mutex mu;
  std::vector<Live> live FERMATA_GUARDED_BY(mu);
  uint32_t opening FERMATA_GUARDED_BY(mu) = 0;
};

Shared& GetShared();
void BeforeFork() FERMATA_NO_TSA { GetShared().mu.Lock(); }
void AfterFork() FERMATA_NO_TSA { GetShared().mu.Unlock(); }

Shared& GetShared() {
  static Shared* const shared = new Shared;
  static const int hooked = pthread_atfork(BeforeFork, AfterFork, AfterFork);
  (void)hooked;
  return *shared;
}

// RocksDB's statics are about to be destroyed: no job of it may run from here on.
void BeforeExit() {
  Shared& shared = GetShared();
  shared.ending.store(true);
  std::vector<Shared::Live> live;
  {
    MutexLock lock(&shared.mu);
    live = shared.live;
  }
  for (const Shared::Live& one : live) {
    if (one.process == getpid()) one.executor->Freeze(500'000'000);
  }
}

// Runs what RocksDB does in the background (flush, compaction, removal of files) on one thread per
// store, of our own making. RocksDB's pools
// - are statics whose destructors wait for their threads, which a forked child does not have: its
//   exit() would hang;
// - end the process when a thread cannot be had;
// - have the opening thread's signal mask, so that SIGXFSZ may come to them.
// One thread is enough: it is what RocksDB does itself when it has no pool for flushes.
class CatalogEnv final : public rocksdb::EnvWrapper {
 public:
  static Result<std::unique_ptr<CatalogEnv>> Create() {
    Shared& shared = GetShared();
    Result<std::unique_ptr<ThreadExecutor>> executor = ThreadExecutor::Create(&shared.clock);
    if (!executor.ok()) return executor.status();
    std::unique_ptr<CatalogEnv> env(new CatalogEnv(std::move(*executor)));
    MutexLock lock(&shared.mu);
    shared.live.push_back({getpid(), env->executor_});
    return env;
  }
  ~CatalogEnv() override {
    executor_->Stop();
    Shared& shared = GetShared();
    MutexLock lock(&shared.mu);
    std::erase_if(shared.live,
                  [this](const Shared::Live& one) { return one.executor == executor_; });
  }

  const char* Name() const override { return "FermataCatalogEnv"; }
  void Schedule(void (*function)(void*), void* arg, Priority /*priority*/, void* /*tag*/,
                void (* /*unscheduled*/)(void*)) override {
    executor_->Post([function, arg] { function(arg); });
  }
  // None: who closes then waits for them, and they see that it closes.
  int UnSchedule(void* /*tag*/, Priority /*priority*/) override { return 0; }
  void StartThread(void (*function)(void*), void* arg) override {
    executor_->Post([function, arg] { function(arg); });
  }
  void WaitForJoin() override {}
  unsigned int GetThreadPoolQueueLen(Priority /*priority*/) const override { return 0; }
  void SetBackgroundThreads(int /*number*/, Priority /*priority*/) override {}
  void IncBackgroundThreadsIfNeeded(int /*number*/, Priority /*priority*/) override {}
  int GetBackgroundThreads(Priority priority) override {
    return priority == LOW || priority == HIGH ? 1 : 0;
  }
  int ReserveThreads(int /*number*/, Priority /*priority*/) override { return 0; }
  int ReleaseThreads(int /*number*/, Priority /*priority*/) override { return 0; }

 private:
  explicit CatalogEnv(std::shared_ptr<ThreadExecutor> executor)
      : EnvWrapper(rocksdb::Env::Default()), executor_(std::move(executor)) {}

  const std::shared_ptr<ThreadExecutor> executor_;
};

// Each open store has RocksDB flush its text log every ten seconds, from a thread of a static
// `Timer`: not configurable, for a log that we do not have, and it hangs a forked child's exit() as
// the pools would. While one of these lives, a store that this thread opens does without. Where
// RocksDB lacks the hook nothing changes.
class WithoutTimer {
 public:
  WithoutTimer() {
    if (&rocksdb::SyncPoint::GetInstance == nullptr) return;
    Shared& shared = GetShared();
    MutexLock lock(&shared.mu);
    static const bool set = [] {
      rocksdb::SyncPoint::GetInstance()->SetCallBack(
          "DBImpl::StartPeriodicTaskScheduler:DisableScheduler", [](void* disable) {
            if (opening_here_) *static_cast<bool*>(disable) = true;  // not another user's store
          });
      return true;
    }();
    (void)set;
    if (shared.opening++ == 0) rocksdb::SyncPoint::GetInstance()->EnableProcessing();
    opening_here_ = true;
  }
  ~WithoutTimer() {
    if (!std::exchange(opening_here_, false)) return;
    Shared& shared = GetShared();
    MutexLock lock(&shared.mu);
    if (--shared.opening == 0) rocksdb::SyncPoint::GetInstance()->DisableProcessing();
  }
  WithoutTimer(const WithoutTimer&) = delete;
  WithoutTimer& operator=(const WithoutTimer&) = delete;

 private:
  static inline thread_local bool opening_here_ = false;
};

class RocksMetaStore final : public MetaStore {
 public:
  RocksMetaStore(std::unique_ptr<CatalogEnv> env, rocksdb::DB* db)
      : env_(std::move(env)), db_(db) {}
  ~RocksMetaStore() override { (void)Abandon(); }

  Status Apply(std::span<const MetaOp> ops, bool sync) override {
    return Guard("write", [&] {
      rocksdb::WriteBatch batch;
      for (const MetaOp& op : ops) {
        const rocksdb::Status status = op.kind == MetaOp::Kind::kPut
                                           ? batch.Put(AsSlice(op.key), AsSlice(op.value))
                                           : batch.Delete(AsSlice(op.key));
        if (!status.ok()) return FromRocks("batch", status);
      }
      rocksdb::WriteOptions options;
      options.sync = sync;
      return FromRocks("write", db_->Write(options, &batch));
    });
  }

  Status ForEach(std::string_view prefix, const Visitor& visit) override {
    return Guard("scan", [&] {
      rocksdb::ReadOptions options;
      options.fill_cache = false;
      options.readahead_size = 1 << 20;
      const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
      for (it->Seek(AsSlice(prefix)); it->Valid() && it->key().starts_with(AsSlice(prefix));
           it->Next()) {
        visit(AsView(it->key()), AsView(it->value()));
      }
      return FromRocks("scan", it->status());
    });
  }

  Status Close() override {
    if (Abandon()) return Status();
    return Guard("close", [&] {
      const rocksdb::Status status = db_->Close();
      db_.reset();
      return FromRocks("close", status);
    });
  }

 private:
  // Closed by a static of the engine that goes after BeforeExit: what was written is with the
  // kernel, and RocksDB must not be touched any more.
  bool Abandon() {
    if (!GetShared().ending.load()) return false;
    (void)db_.release();
    (void)env_.release();
    return true;
  }

  std::unique_ptr<CatalogEnv> env_;  // outlives db_
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

Result<std::unique_ptr<MetaStore>> OpenRocksMetaStore(const std::string& directory) {
  Result<std::unique_ptr<CatalogEnv>> env = CatalogEnv::Create();
  if (!env.ok()) return env.status();
  std::unique_ptr<MetaStore> store;
  bool answered = false;
  const Status status = Guard("open", [&] {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.env = env->get();
    options.info_log = std::make_shared<SilentLogger>();
    options.write_buffer_size = 8 << 20;
    options.max_write_buffer_number = 2;
    options.max_total_wal_size = 16 << 20;
    options.max_open_files = 64;  // of the engine's descriptors
    // 1 is the opening thread. More are threads that RocksDB makes; one that cannot be had ends the
    // process, because those before it are not joined.
    options.max_file_opening_threads = 1;
    options.stats_dump_period_sec = 0;
    options.stats_persist_period_sec = 0;
    options.compression = rocksdb::kNoCompression;
    options.skip_stats_update_on_db_open = true;
    options.max_manifest_file_size = 4 << 20;
    rocksdb::DB* db = nullptr;
    const WithoutTimer without_timer;
    const rocksdb::Status opened = rocksdb::DB::Open(options, directory, &db);
    answered = !opened.ok();
    if (opened.ok()) {
      store = std::make_unique<RocksMetaStore>(std::move(*env), db);
      answered = true;
      // After RocksDB's statics were made, so that it runs before they go.
      static const int registered = std::atexit(BeforeExit);
      (void)registered;
    }
    return FromRocks("open", opened);
  });
  // An exception left a half-made store behind, which may still use it.
  if (!answered) (void)env->release();
  if (!status.ok()) return status;
  return store;
}

}  // namespace fermata
