// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/registry.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/mutex.h"
#include "bindings/c/structs.h"

namespace fermata::c {
namespace {

// handle = kind (4 bits) | cache number (12) | object id (48). Number 0 is for what belongs to no
// cache.
constexpr uint32_t kCaches = 4096;
constexpr uint64_t kIdMask = (uint64_t{1} << 48) - 1;

uint64_t Pack(Kind kind, uint32_t number, ObjectId id) {
  return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(number) << 48 | (id & kIdMask);
}

struct CacheEntry {
  std::shared_ptr<Cache> cache;
  uint64_t nonce = 0;
  uint32_t forks = 0;
  bool reserved = false;  // being opened
};
struct QueueEntry {
  std::shared_ptr<JobQueue> queue;
  uint32_t forks = 0;
};

struct Registry {
  Mutex mu;
  std::array<CacheEntry, kCaches> caches FERMATA_GUARDED_BY(mu);
  ObjectTable<QueueEntry> queues FERMATA_GUARDED_BY(mu){1u << 20};
  uint32_t last_number FERMATA_GUARDED_BY(mu) = 0;
  uint64_t opened FERMATA_GUARDED_BY(mu) = 0;
  std::atomic<uint32_t> forks{0};  // how many forks lie between the first process and this one
};

Registry& GetRegistry();

void BeforeFork() FERMATA_NO_TSA { GetRegistry().mu.Lock(); }
void AfterForkInParent() FERMATA_NO_TSA { GetRegistry().mu.Unlock(); }
void AfterForkInChild() FERMATA_NO_TSA {
  GetRegistry().forks.fetch_add(1, std::memory_order_relaxed);
  GetRegistry().mu.Unlock();
}

// Never destroyed: a process may end while its threads are inside the library.
Registry& GetRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;
    return made;
  }();
  static const int hooked = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  (void)hooked;
  return *registry;
}

// A process may end without closing its caches, while the library's thread is inside RocksDB, whose
// statics are about to be destroyed. Registered after they were made, this runs before they go.
void BeforeExit() {
  std::vector<std::shared_ptr<Cache>> open;
  {
    Registry& registry = GetRegistry();
    MutexLock lock(&registry.mu);
    for (const CacheEntry& entry : registry.caches) {
      const bool ours = entry.forks == registry.forks.load(std::memory_order_relaxed);
      if (entry.cache != nullptr && ours) open.push_back(entry.cache);
    }
  }
  for (const std::shared_ptr<Cache>& cache : open) cache->Freeze(500'000'000);
}

Status BadHandle(const char* name) {
  return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle,
                 "%s is zero, closed, stale, or of another kind", name);
}
Status Forked(const char* name) {
  return ReasonF(StatusCode::kFailedPrecondition, Reason::kForked,
                 "%s was inherited over fork(); open a cache of your own", name);
}

}  // namespace

uint64_t CacheRef::HandleOf(Kind kind, ObjectId id) const {
  return id == 0 ? 0 : Pack(kind, number_, id);
}

Status Resolve(uint64_t handle, Kind kind, const char* name, CacheRef* cache, ObjectId* id) {
  if (handle >> 60 != static_cast<uint64_t>(kind)) return BadHandle(name);
  const uint32_t number = static_cast<uint32_t>(handle >> 48) & (kCaches - 1);
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  const CacheEntry& entry = registry.caches[number];
  if (entry.cache == nullptr) return BadHandle(name);
  if (kind == Kind::kCache && (handle & kIdMask) != entry.nonce) return BadHandle(name);
  if (entry.forks != registry.forks.load(std::memory_order_relaxed)) return Forked(name);
  *cache = CacheRef(entry.cache, number);
  *id = handle & kIdMask;
  return Status();
}

Status ResolveIn(const CacheRef& cache, uint64_t handle, Kind kind, const char* name, bool optional,
                 ObjectId* id) {
  *id = 0;
  if (handle == 0 && optional) return Status();
  CacheRef other;
  FERMATA_RETURN_IF_ERROR(Resolve(handle, kind, name, &other, id));
  if (other.get() != cache.get()) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadHandle, "%s belongs to another cache",
                   name);
  }
  return Status();
}

Status RegisterCache(CacheConfig config, std::unique_ptr<DeviceOps> ops, uint64_t* handle) {
  Registry& registry = GetRegistry();
  uint32_t number = 0;
  uint64_t nonce = 0;
  {
    MutexLock lock(&registry.mu);
    for (uint32_t i = 1; i < kCaches && number == 0; ++i) {
      const uint32_t candidate = (registry.last_number + i - 1) % (kCaches - 1) + 1;
      const CacheEntry& entry = registry.caches[candidate];
      if (entry.cache == nullptr && !entry.reserved) number = candidate;
    }
    if (number == 0) {
      return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull,
                     "%u caches are open in this process", kCaches - 1);
    }
    registry.last_number = number;
    registry.caches[number].reserved = true;
    nonce = MixU64(++registry.opened) & kIdMask;
    if (nonce == 0) nonce = 1;
  }
  auto make_job_handle = [number](ObjectId id) { return Pack(Kind::kJob, number, id); };
  Result<std::unique_ptr<Cache>> opened = [&]() -> Result<std::unique_ptr<Cache>> {
    try {
      return Cache::Open(std::move(config), std::move(ops), make_job_handle,
                         static_cast<uint32_t>(nonce));
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kResourceExhausted, "out of memory");
    }
  }();
  MutexLock lock(&registry.mu);
  CacheEntry& entry = registry.caches[number];
  entry.reserved = false;
  if (!opened.ok()) return opened.status();
  entry.cache = std::move(*opened);
  entry.nonce = nonce;
  entry.forks = registry.forks.load(std::memory_order_relaxed);
  static const int registered = std::atexit(BeforeExit);
  (void)registered;
  *handle = Pack(Kind::kCache, number, nonce);
  return Status();
}

void ForgetCache(uint64_t handle) {
  std::shared_ptr<Cache> last;  // Destroyed after the lock is released.
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  last = std::move(registry.caches[static_cast<uint32_t>(handle >> 48) & (kCaches - 1)].cache);
}

Status RegisterQueue(std::shared_ptr<JobQueue> queue, uint64_t* handle) {
  Registry& registry = GetRegistry();
  auto entry = std::make_unique<QueueEntry>();
  entry->queue = std::move(queue);
  entry->forks = registry.forks.load(std::memory_order_relaxed);
  MutexLock lock(&registry.mu);
  if (registry.queues.full())
    return ReasonF(StatusCode::kResourceExhausted, Reason::kQueueFull, "too many queues are open");
  *handle = Pack(Kind::kQueue, 0, registry.queues.Add(std::move(entry)));
  return Status();
}

Status ResolveQueue(uint64_t handle, const char* name, std::shared_ptr<JobQueue>* queue) {
  if (handle >> 60 != static_cast<uint64_t>(Kind::kQueue)) return BadHandle(name);
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  const QueueEntry* const entry = registry.queues.Find(handle & ((uint64_t{1} << 60) - 1));
  if (entry == nullptr) return BadHandle(name);
  if (entry->forks != registry.forks.load(std::memory_order_relaxed)) return Forked(name);
  *queue = entry->queue;
  return Status();
}

void ForgetQueue(uint64_t handle) {
  std::unique_ptr<QueueEntry> last;
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  last = registry.queues.Remove(handle & ((uint64_t{1} << 60) - 1));
}

Status ReentryError() {
  return ReasonF(StatusCode::kFailedPrecondition, Reason::kState,
                 "called from a device_ops or log callback, which may not call Fermata");
}

fermata_status Report(const Status& status, fermata_error* error) {
  if (error != nullptr && error->struct_size >= sizeof(uint32_t)) {
    const uint32_t caller_size = error->struct_size;
    fermata_error filled = {};
    filled.status = static_cast<fermata_status>(status.code());
    filled.reason = static_cast<uint32_t>(status.reason());
    // A shorter struct's text ends within it.
    constexpr size_t kText = offsetof(fermata_error, message);
    const size_t room = std::min<size_t>(sizeof filled, caller_size);
    if (room > kText) std::snprintf(filled.message, room - kText, "%s", status.message().c_str());
    WriteStruct(filled, error, caller_size);
    // The caller goes on using the same struct: its size stays what the caller said.
    error->struct_size = caller_size;
  }
  return static_cast<fermata_status>(status.code());
}

}  // namespace fermata::c
