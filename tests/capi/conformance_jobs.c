/* SPDX-License-Identifier: Apache-2.0 */
/* Park, resume, load, completions, queues, sessions: what needs a second tier or a second object.
 */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>

#include "conformance.h"

static fixture f;

static fermata_sequence_info info(fermata_sequence sequence) {
  fermata_sequence_info out;
  memset(&out, 0, sizeof out);
  out.struct_size = (uint32_t)sizeof out;
  EXPECT_OK(fermata_sequence_get_info(sequence, &out, &g_error));
  return out;
}

static void fill(uint32_t slot, int value) {
  if (slot >= MAX_SLOTS) return; /* told by a CHECK on the count or the slot */
  memset(f.memory + (size_t)slot * BLOCK_BYTES, value, BLOCK_BYTES);
}

static int holds(uint32_t slot, int value) {
  for (size_t i = 0; i < BLOCK_BYTES; ++i) {
    if (f.memory[(size_t)slot * BLOCK_BYTES + i] != value) return 0;
  }
  return 1;
}

/* A parked sequence of four written blocks whose device slots were all overwritten since. */
static fermata_sequence park_four(void) {
  uint32_t slots[MAX_SLOTS];
  memset(slots, 0xff, sizeof slots);
  size_t count = 0;
  const fermata_sequence sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 0, 70) == FERMATA_OK);
  EXPECT_OK(fermata_sequence_slots(sequence, 0, 0, slots, MAX_SLOTS, &count, &g_error));
  CHECK(count == 5);
  for (int i = 0; i < 4; ++i) fill(slots[i], i + 1);
  CHECK(mark(&f, sequence, 70) == FERMATA_OK);
  fermata_park_options park;
  memset(&park, 0, sizeof park);
  park.struct_size = (uint32_t)sizeof park;
  park.mode = FERMATA_PARK_KEEP;
  park.queue = f.queue;
  park.user_data = 4711;
  fermata_job job = {0};
  EXPECT_OK(fermata_sequence_park(sequence, &park, &job, &g_error));
  CHECK(job.id != 0);
  const fermata_completion done = finish(&f, job);
  CHECK(done.status == FERMATA_OK && done.user_data == 4711);
  CHECK(info(sequence).state == FERMATA_SEQUENCE_PARKED);
  EXPECT(fermata_job_cancel(job, &g_error), FERMATA_NOT_FOUND, FERMATA_REASON_NONE);

  const fermata_sequence other = new_sequence(&f);
  CHECK(grow(&f, other, 600, 8 * BLOCK_TOKENS) == FERMATA_OK);
  memset(f.memory, 0xee, sizeof f.memory);
  EXPECT_OK(fermata_release(f.cache, &other, 1, &g_error));
  return sequence;
}

static fermata_load_options load_options(void) {
  fermata_load_options load;
  memset(&load, 0, sizeof load);
  load.struct_size = (uint32_t)sizeof load;
  load.queue = f.queue;
  load.user_data = 42;
  return load;
}

static void test_resume(void) {
  uint32_t slots[MAX_SLOTS];
  memset(slots, 0xff, sizeof slots);
  size_t count = 0;
  fermata_job job = {0};
  const fermata_sequence sequence = park_four();
  CHECK(grow(&f, sequence, 70, 1) == FERMATA_FAILED_PRECONDITION); /* parked: STATE */
  fermata_load_options load = load_options();
  EXPECT_OK(fermata_sequence_resume(sequence, &load, &job, &g_error));
  CHECK(info(sequence).tokens == 64); /* the partial tail was let go */
  const fermata_completion done = finish(&f, job);
  CHECK(done.status == FERMATA_OK && done.valid_tokens == 64 && done.user_data == 42);
  CHECK(done.items_total == 4 && done.items_ok == 4);
  EXPECT_OK(fermata_sequence_slots(sequence, 0, 0, slots, MAX_SLOTS, &count, &g_error));
  CHECK(count == 4);
  for (size_t i = 0; i < count && i < 4; ++i) CHECK(slots[i] < 8 && holds(slots[i], (int)i + 1));
  CHECK(info(sequence).state == FERMATA_SEQUENCE_RUNNING && info(sequence).device_tokens == 64);
  /* Resuming what runs is a state error. */
  EXPECT(fermata_sequence_resume(sequence, &load, &job, &g_error), FERMATA_FAILED_PRECONDITION,
         FERMATA_REASON_STATE);

  /* A load of what is there reserves room; too much is refused whole. */
  load.reserve_tokens = 8 * BLOCK_TOKENS;
  EXPECT_OK(fermata_sequence_load(sequence, &load, &job, &g_error));
  CHECK(finish(&f, job).status == FERMATA_OK);
  CHECK(info(sequence).reserved_tokens >= 8 * BLOCK_TOKENS);
  load.reserve_tokens = 9 * BLOCK_TOKENS; /* more than the device has */
  job.id = 77;
  EXPECT(fermata_sequence_load(sequence, &load, &job, &g_error), FERMATA_RESOURCE_EXHAUSTED,
         FERMATA_REASON_NO_SPACE);
  CHECK(job.id == 0);
  CHECK(info(sequence).tokens == 64);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
}

static void test_job_arguments(void) {
  fermata_job job = {77};
  const fermata_sequence sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 0, 32) == FERMATA_OK);
  CHECK(mark(&f, sequence, 32) == FERMATA_OK);
  fermata_load_options load = load_options();
  EXPECT_INVALID(fermata_sequence_load(sequence, NULL, &job, &g_error));
  load.queue.id = 0;
  EXPECT_BAD_HANDLE(fermata_sequence_load(sequence, &load, &job, &g_error));
  load = load_options();
  load.flags = 1;
  EXPECT_INVALID(fermata_sequence_load(sequence, &load, &job, &g_error));
  load = load_options();
  load.reserve_tokens = UINT64_MAX;
  CHECK(fermata_sequence_load(sequence, &load, &job, NULL) != FERMATA_OK);
  fermata_park_options park;
  memset(&park, 0, sizeof park);
  park.struct_size = (uint32_t)sizeof park;
  park.mode = 9;
  EXPECT_INVALID(fermata_sequence_park(sequence, &park, &job, &g_error));
  park.mode = FERMATA_PARK_KEEP; /* the queue is required */
  EXPECT_BAD_HANDLE(fermata_sequence_park(sequence, &park, &job, &g_error));
  CHECK(info(sequence).state == FERMATA_SEQUENCE_RUNNING && info(sequence).tokens == 32);

  /* Lazy: no job, and what is still on the device is found by resume. */
  park.mode = FERMATA_PARK_LAZY;
  job.id = 77;
  EXPECT_OK(fermata_sequence_park(sequence, &park, &job, &g_error));
  CHECK(job.id == 0 && info(sequence).state == FERMATA_SEQUENCE_PARKED);
  EXPECT(fermata_sequence_park(sequence, &park, &job, &g_error), FERMATA_FAILED_PRECONDITION,
         FERMATA_REASON_STATE);
  load = load_options();
  EXPECT_OK(fermata_sequence_resume(sequence, &load, &job, &g_error));
  const fermata_completion done = finish(&f, job);
  CHECK(done.status == FERMATA_OK && done.valid_tokens == 32);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  EXPECT_BAD_HANDLE(fermata_job_cancel((fermata_job){0}, &g_error));
}

void test_jobs(void) {
  fixture_open(&f, 8, 32);
  test_resume();
  test_job_arguments();
  /* Release while a job is in flight: it still completes, once. */
  const fermata_sequence sequence = park_four();
  fermata_job job = {0};
  fermata_load_options load = load_options();
  EXPECT_OK(fermata_sequence_resume(sequence, &load, &job, &g_error));
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  const fermata_completion done = finish(&f, job);
  CHECK(done.status == FERMATA_CANCELLED || done.status == FERMATA_OK);
  fermata_completion none;
  memset(&none, 0, sizeof none);
  none.struct_size = (uint32_t)sizeof none;
  size_t count = 99;
  EXPECT_OK(fermata_queue_poll(f.queue, &none, 1, 0, &count, &g_error));
  CHECK(count == 0);
  fixture_close(&f);
}

void test_queues(void) {
  fermata_queue queue = {77};
  EXPECT_INVALID(fermata_queue_create(0, &queue, &g_error));
  CHECK(queue.id == 0);
  EXPECT_INVALID(fermata_queue_create(65537, &queue, &g_error));
  EXPECT_INVALID(fermata_queue_create(1, NULL, &g_error));
  EXPECT_OK(fermata_queue_create(1, &queue, &g_error));
  int32_t fd = -1;
  EXPECT_INVALID(fermata_queue_fd(queue, NULL, &g_error));
  EXPECT_OK(fermata_queue_fd(queue, &fd, &g_error));
  struct pollfd ready = {fd, POLLIN, 0};
  CHECK(fd >= 0 && poll(&ready, 1, 0) == 0);

  /* Each job completes exactly once, in a queue that outlives the cache. */
  fixture_open(&f, 8, 32);
  fermata_completion done[4];
  memset(done, 0, sizeof done);
  for (int i = 0; i < 4; ++i) done[i].struct_size = (uint32_t)sizeof done[0];
  size_t count = 99;
  EXPECT_OK(fermata_queue_poll(queue, done, 4, 0, &count, &g_error));
  CHECK(count == 0);
  EXPECT_INVALID(fermata_queue_poll(queue, NULL, 1, 0, &count, &g_error));
  EXPECT_INVALID(fermata_queue_poll(queue, done, 4, 0, NULL, &g_error));
  const fermata_sequence sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 0, 32) == FERMATA_OK);
  CHECK(mark(&f, sequence, 32) == FERMATA_OK);
  fermata_load_options load = load_options();
  load.queue = queue;
  fermata_job job = {0};
  fermata_job second = {0};
  EXPECT_OK(fermata_sequence_load(sequence, &load, &job, &g_error));
  ready.revents = 0;
  CHECK(poll(&ready, 1, 30000) == 1 && (ready.revents & POLLIN) != 0);
  /* Its only place is taken until it is polled. */
  EXPECT(fermata_sequence_load(sequence, &load, &second, &g_error), FERMATA_RESOURCE_EXHAUSTED,
         FERMATA_REASON_QUEUE_FULL);
  CHECK(second.id == 0);
  fermata_queue own = f.queue;
  EXPECT_OK(fermata_cache_close(f.cache, 0, &g_error));
  EXPECT_OK(fermata_queue_destroy(own, &g_error));
  EXPECT_OK(fermata_queue_poll(queue, done, 4, 0, &count, &g_error));
  CHECK(count == 1 && done[0].job.id == job.id && done[0].user_data == 42 &&
        done[0].status == FERMATA_OK);
  CHECK(done[0].valid_tokens == 32);
  EXPECT_OK(fermata_queue_poll(queue, done, 4, 0, &count, &g_error));
  CHECK(count == 0);
  ready.revents = 0;
  CHECK(poll(&ready, 1, 0) == 0);
  EXPECT_OK(fermata_queue_destroy(queue, &g_error));
  EXPECT_BAD_HANDLE(fermata_queue_destroy(queue, &g_error));
  EXPECT_BAD_HANDLE(fermata_queue_fd(queue, &fd, &g_error));
  EXPECT_BAD_HANDLE(fermata_queue_poll(queue, done, 4, 0, &count, &g_error));
  EXPECT_OK(fermata_queue_destroy((fermata_queue){0}, &g_error));
}

void test_sessions(void) {
  fixture_open(&f, 8, 0);
  fermata_session_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = (uint32_t)sizeof options;
  fermata_session session = {0};
  fermata_session child = {0};
  EXPECT_INVALID(fermata_session_open(f.cache, &options, NULL, &g_error));
  EXPECT_OK(fermata_session_open(f.cache, &options, &session, &g_error));
  options.parent = session;
  EXPECT_OK(fermata_session_open(f.cache, &options, &child, &g_error));
  options.parent.id = 12345;
  fermata_session orphan = {77};
  EXPECT_BAD_HANDLE(fermata_session_open(f.cache, &options, &orphan, &g_error));
  CHECK(orphan.id == 0);
  EXPECT_OK(fermata_session_begin_turn(session, &g_error));
  fermata_turn_end turn;
  memset(&turn, 0, sizeof turn);
  turn.struct_size = (uint32_t)sizeof turn;
  turn.kind = FERMATA_TURN_TOOL;
  turn.tool.data = "bash";
  turn.tool.size = 4;
  turn.expected_ns = 3 * SECOND;
  turn.confidence_ppm = 900000;
  uint32_t verdict = 99;
  EXPECT_OK(fermata_session_end_turn(session, &turn, &verdict, &g_error));
  CHECK(verdict >= FERMATA_VERDICT_ACCEPTED && verdict <= FERMATA_VERDICT_IGNORED);
  turn.kind = 4;
  EXPECT_INVALID(fermata_session_end_turn(session, &turn, &verdict, &g_error));
  turn.kind = FERMATA_TURN_TOOL;
  turn.tool.size = 256;
  EXPECT_INVALID(fermata_session_end_turn(session, &turn, &verdict, &g_error));
  turn.tool.data = NULL;
  turn.tool.size = 4;
  EXPECT_INVALID(fermata_session_end_turn(session, &turn, &verdict, &g_error));

  memset(&turn, 0, sizeof turn);
  turn.struct_size = (uint32_t)sizeof turn;

  /* A lookup and a sequence may name a session, and only a living one. */
  fermata_sequence_options in_session;
  memset(&in_session, 0, sizeof in_session);
  in_session.struct_size = (uint32_t)sizeof in_session;
  in_session.session = session;
  fermata_sequence sequence = {0};
  EXPECT_OK(fermata_sequence_create(f.space, &in_session, &sequence, &g_error));
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  EXPECT_OK(fermata_session_end(child, &verdict, &g_error));
  EXPECT_BAD_HANDLE(fermata_session_end(child, &verdict, &g_error));
  EXPECT_OK(fermata_session_end(session, NULL, &g_error)); /* the verdict is optional */
  EXPECT_BAD_HANDLE(fermata_session_begin_turn(session, &g_error));
  EXPECT_BAD_HANDLE(fermata_session_end_turn(session, &turn, &verdict, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_create(f.space, &in_session, &sequence, &g_error));
  fixture_close(&f);
}
