// SPDX-License-Identifier: Apache-2.0
//
// alloc and free: what one slot id costs from the hot pool of an arena, its lock included, with a
// second thread alive so that the C library takes no shortcut of single-threaded programs. The
// reference is a pool of the standard library behind its own lock.
//
// The one file of `index` that sees an internal header: slots are handed out inside the library.
#include <algorithm>
#include <memory_resource>
#include <thread>
#include <vector>

#include "allocators/slot_pool.h"
#include "base/mutex.h"
#include "bench/index.h"
#include "bench/index_measure.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kIdsAtOnce = 64;
constexpr size_t kReferenceBytes = 64;  // what stands for an id there: one cache line
constexpr uint64_t kWarmUpRounds = 3;

// A thread that does nothing until it is told to end.
class IdleThread {
 public:
  IdleThread() : thread_([this] { Wait(); }) {}
  ~IdleThread() {
    {
      MutexLock lock(&mu_);
      end_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

 private:
  void Wait() {
    MutexLock lock(&mu_);
    while (!end_) changed_.Wait(&mu_);
  }
  Mutex mu_;
  CondVar changed_;
  bool end_ FERMATA_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the rest
};

struct PoolCost {
  Samples alloc_batched, alloc_single, free_batched, free_single;
};

// ns an id of one phase.
template <typename F>
double PerId(uint64_t ids, F&& phase) {
  return TimedNs(std::forward<F>(phase)) / static_cast<double>(ids);
}

Status OurRound(SlotPool* pool, std::vector<SlotId>* ids, PoolCost* cost) {
  const uint64_t count = ids->size();
  bool ok = true;
  const double batched = PerId(count, [&] {
    for (uint64_t i = 0; i < count; i += kIdsAtOnce) {
      ok &= pool->Acquire({ids->data() + i, kIdsAtOnce}).ok();
    }
  });
  const double freed = PerId(count, [&] {
    for (uint64_t i = 0; i < count; i += kIdsAtOnce) pool->Release({ids->data() + i, kIdsAtOnce});
  });
  const double single = PerId(count, [&] {
    for (SlotId& id : *ids) ok &= pool->Acquire({&id, 1}).ok();
  });
  const double freed_single = PerId(count, [&] {
    for (const SlotId& id : *ids) pool->Release({&id, 1});
  });
  if (!ok) return ErrorF(StatusCode::kInternal, "the slot pool is full");
  cost->alloc_batched.Add(batched);
  cost->free_batched.Add(freed);
  cost->alloc_single.Add(single);
  cost->free_single.Add(freed_single);
  return Status();
}

// The standard pool has no calls for many at once.
void ReferenceRound(std::pmr::memory_resource* pool, std::vector<void*>* ids, PoolCost* cost) {
  cost->alloc_single.Add(PerId(ids->size(), [&] {
    for (void*& id : *ids) id = pool->allocate(kReferenceBytes, kReferenceBytes);
  }));
  cost->free_single.Add(PerId(ids->size(), [&] {
    for (void* const id : *ids) pool->deallocate(id, kReferenceBytes, kReferenceBytes);
  }));
}

}  // namespace

Status MeasureSlotPool(const IndexSizes& sizes, IndexFigures* out) {
  const uint64_t count = std::max(kIdsAtOnce, sizes.pool_ids / kIdsAtOnce * kIdsAtOnce);
  const IdleThread second;
  SlotPool pool(static_cast<uint32_t>(count));
  std::pmr::synchronized_pool_resource reference_pool;
  std::vector<SlotId> ids(count);
  std::vector<void*> reference_ids(count);
  PoolCost warm_up;
  PoolCost cost;
  PoolCost reference;
  for (uint64_t round = 0; round < sizes.rounds + kWarmUpRounds; ++round) {
    const bool counts = round >= kWarmUpRounds;
    FERMATA_RETURN_IF_ERROR(OurRound(&pool, &ids, counts ? &cost : &warm_up));
    ReferenceRound(&reference_pool, &reference_ids, counts ? &reference : &warm_up);
  }
  out->Set("alloc_ns_batched", cost.alloc_batched.Median());
  out->Set("alloc_ns_single", cost.alloc_single.Median());
  out->Set("free_ns_batched", cost.free_batched.Median());
  out->Set("free_ns_single", cost.free_single.Median());
  out->Set("ref_alloc_ns_batched", reference.alloc_single.Median());
  out->Set("ref_alloc_ns_single", reference.alloc_single.Median());
  out->Set("ref_free_ns_batched", reference.free_single.Median());
  out->Set("ref_free_ns_single", reference.free_single.Median());
  return Status();
}

}  // namespace fermata::bench
