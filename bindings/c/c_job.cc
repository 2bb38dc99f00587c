// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: queues of completions, and the jobs that complete into them. Check, unwrap, call,
// report; no logic.
#include <fermata/fermata.h>

#include "bindings/c/registry.h"
#include "bindings/c/structs.h"

using namespace fermata;     // STYLE_OK(using-namespace): C functions have no namespace to be in
using namespace fermata::c;  // STYLE_OK(using-namespace): as above

namespace {

Status ReadLoad(const fermata_load_options* in, LoadOptions* out) {
  fermata_load_options options;
  FERMATA_RETURN_IF_ERROR(ReadStruct(in, "options", &options));
  if (options.flags != 0)
    return ErrorF(StatusCode::kInvalidArgument, "options.flags is 0x%x: unknown bits",
                  options.flags);
  FERMATA_RETURN_IF_ERROR(ResolveQueue(options.queue.id, "options.queue", &out->queue));
  out->user_data = options.user_data;
  out->reserve_tokens = options.reserve_tokens;
  out->deadline_ns = options.deadline_ns;
  return Status();
}

template <typename F>
Result<ObjectId> WithLoad(const fermata_load_options* options, F&& start) {
  LoadOptions load;
  FERMATA_RETURN_IF_ERROR(ReadLoad(options, &load));
  return start(load);
}

// Starts a job on a sequence by `start` and hands out its handle; zero when none was started.
template <typename F>
fermata_status StartJob(fermata_sequence sequence, fermata_job* out_job, fermata_error* error,
                        F&& start) {
  return Call(error, [&]() -> Status {
    if (out_job != nullptr) out_job->id = 0;
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(sequence.id, Kind::kSequence, "sequence", &cache, &id));
    Result<ObjectId> job = start(cache, id);
    if (job.ok() && out_job != nullptr) out_job->id = cache.HandleOf(Kind::kJob, *job);
    return job.status();
  });
}

}  // namespace

// --- queues ---

fermata_status fermata_queue_create(uint32_t depth, fermata_queue* out_queue,
                                    fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_queue == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_queue is NULL");
    out_queue->id = 0;
    Result<std::shared_ptr<JobQueue>> queue = JobQueue::Create(depth);
    if (!queue.ok()) return queue.status();
    return RegisterQueue(*queue, &out_queue->id);
  });
}

fermata_status fermata_queue_destroy(fermata_queue handle, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (handle.id == 0) return Status();
    std::shared_ptr<JobQueue> queue;
    FERMATA_RETURN_IF_ERROR(ResolveQueue(handle.id, "queue", &queue));
    if (!queue->CloseIfIdle())
      return ReasonF(StatusCode::kFailedPrecondition, Reason::kInUse,
                     "jobs will still complete into the queue");
    ForgetQueue(handle.id);
    return Status();
  });
}

fermata_status fermata_queue_fd(fermata_queue handle, int32_t* out_fd, fermata_error* error) {
  return Call(error, [&]() -> Status {
    std::shared_ptr<JobQueue> queue;
    FERMATA_RETURN_IF_ERROR(ResolveQueue(handle.id, "queue", &queue));
    if (out_fd == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_fd is NULL");
    *out_fd = queue->fd();
    return Status();
  });
}

fermata_status fermata_queue_poll(fermata_queue handle, fermata_completion* out, size_t capacity,
                                  uint64_t timeout_ns, size_t* out_count, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_count == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_count is NULL");
    *out_count = 0;
    std::shared_ptr<JobQueue> queue;
    FERMATA_RETURN_IF_ERROR(ResolveQueue(handle.id, "queue", &queue));
    if (capacity == 0) return Status();
    FERMATA_RETURN_IF_ERROR(CheckArray(out, capacity, 1u << 20, "out"));
    std::vector<Completion> taken(capacity < 256 ? capacity : 256);
    const size_t n = queue->Poll(taken, timeout_ns);
    for (size_t i = 0; i < n; ++i) {
      fermata_completion completion = {};
      completion.status = static_cast<fermata_status>(taken[i].status);
      completion.user_data = taken[i].user_data;
      completion.job.id = taken[i].job;
      completion.reason = static_cast<uint32_t>(taken[i].reason);
      completion.items_total = taken[i].items_total;
      completion.items_ok = taken[i].items_ok;
      completion.valid_tokens = taken[i].valid_tokens;
      WriteElement(completion, out, i);
    }
    *out_count = n;
    return Status();
  });
}

// --- jobs ---

fermata_status fermata_sequence_load(fermata_sequence sequence, const fermata_load_options* options,
                                     fermata_job* out_job, fermata_error* error) {
  return StartJob(sequence, out_job, error, [&](const CacheRef& cache, ObjectId id) {
    return WithLoad(options, [&](const LoadOptions& load) { return cache->Load(id, load); });
  });
}

fermata_status fermata_sequence_resume(fermata_sequence sequence,
                                       const fermata_load_options* options, fermata_job* out_job,
                                       fermata_error* error) {
  return StartJob(sequence, out_job, error, [&](const CacheRef& cache, ObjectId id) {
    return WithLoad(options, [&](const LoadOptions& load) { return cache->Resume(id, load); });
  });
}

fermata_status fermata_sequence_park(fermata_sequence sequence, const fermata_park_options* options,
                                     fermata_job* out_job, fermata_error* error) {
  return StartJob(
      sequence, out_job, error, [&](const CacheRef& cache, ObjectId id) -> Result<ObjectId> {
        fermata_park_options in = {};
        if (options != nullptr) FERMATA_RETURN_IF_ERROR(ReadStruct(options, "options", &in));
        if (in.mode > FERMATA_PARK_DROP)
          return ErrorF(StatusCode::kInvalidArgument, "options.mode is %u, want 0..2", in.mode);
        std::shared_ptr<JobQueue> queue;
        if (in.mode != FERMATA_PARK_LAZY)
          FERMATA_RETURN_IF_ERROR(ResolveQueue(in.queue.id, "options.queue", &queue));
        return cache->Park(id, static_cast<ParkMode>(in.mode), std::move(queue), in.user_data);
      });
}

fermata_status fermata_job_cancel(fermata_job job, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(job.id, Kind::kJob, "job", &cache, &id));
    return cache->CancelJob(id);
  });
}
