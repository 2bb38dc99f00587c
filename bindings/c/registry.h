// SPDX-License-Identifier: Apache-2.0
//
// Registry: from the 64-bit ids of the C ABI to objects, and back. An id is never dereferenced: it
// holds a kind, the number of its cache, and the object's own id in that cache (index and
// generation). Caches are kept alive by whoever is inside a call.
//
// Threads: any. One mutex (rank 0, held for a table look-up only); it is held over fork() so that a
// child finds it free.
#pragma once

#include <fermata/fermata.h>

#include <memory>

#include "base/status.h"
#include "cache/cache.h"

namespace fermata::c {

enum class Kind : uint8_t { kCache = 1, kSpace, kArena, kSequence, kSession, kLease, kJob, kQueue };

// A cache that a call is using.
class CacheRef {
 public:
  CacheRef() = default;
  explicit CacheRef(std::shared_ptr<Cache> cache, uint32_t number)
      : cache_(std::move(cache)), number_(number) {}
  Cache* operator->() const { return cache_.get(); }
  Cache* get() const { return cache_.get(); }
  uint64_t HandleOf(Kind kind, ObjectId id) const;

 private:
  std::shared_ptr<Cache> cache_;
  uint32_t number_ = 0;
};

// The cache of a handle of `kind`, and the object's id in it. INVALID_ARGUMENT/BAD_HANDLE,
// FAILED_PRECONDITION/FORKED.
Status Resolve(uint64_t handle, Kind kind, const char* name, CacheRef* cache, ObjectId* id);
// As Resolve, for a second handle that must be of the same cache; a zero handle gives 0 where
// `optional`.
Status ResolveIn(const CacheRef& cache, uint64_t handle, Kind kind, const char* name, bool optional,
                 ObjectId* id);

inline Status FindCache(fermata_cache handle, CacheRef* cache) {
  ObjectId unused = 0;
  return Resolve(handle.id, Kind::kCache, "cache", cache, &unused);
}

Status RegisterCache(CacheConfig config, std::unique_ptr<DeviceOps> ops, uint64_t* handle);
void ForgetCache(uint64_t handle);

Status RegisterQueue(std::shared_ptr<JobQueue> queue, uint64_t* handle);
Status ResolveQueue(uint64_t handle, const char* name, std::shared_ptr<JobQueue>* queue);
void ForgetQueue(uint64_t handle);

// Fills the caller's error, if there is one, and returns the code.
fermata_status Report(const Status& status, fermata_error* error);

// While one lives on a thread, that thread is inside a function of the engine's that the library
// called, and may not call the library.
class CallbackScope {
 public:
  CallbackScope() { ++depth_; }
  ~CallbackScope() { --depth_; }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
  static bool Inside() { return depth_ != 0; }

 private:
  static inline thread_local uint32_t depth_ = 0;
};

Status ReentryError();

// Runs `body` and reports; nothing that is thrown (out of memory, say) crosses the ABI.
template <typename F>
fermata_status Call(fermata_error* error, F&& body) noexcept {
  if (CallbackScope::Inside()) return Report(ReentryError(), error);
  try {
    return Report(body(), error);
  } catch (const std::bad_alloc&) {
    return Report(Status(StatusCode::kResourceExhausted, "out of memory"), error);
  } catch (...) {
    return Report(Status(StatusCode::kInternal, "an exception was thrown inside the library"),
                  error);
  }
}

}  // namespace fermata::c
