/* SPDX-License-Identifier: Apache-2.0 */
/* Stats, events, audit, dump; reset, erase, device lost; handles, close, fork. */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

static fixture f;

typedef struct seen {
  int names;
  int unnamed;
} seen;

static void visit(void* user, const char* name, uint64_t value, const char* text) {
  seen* s = user;
  (void)value;
  (void)text;
  ++s->names;
  if (name == NULL || name[0] == '\0') ++s->unnamed;
}

static uint64_t hits(uint64_t tokens) {
  return lookup(&f, tokens, FERMATA_LOOKUP_NO_LEASE).hit_tokens;
}

static void test_events(void) {
  /* One event when block 0 is published, one for block 1, none for the partial block. */
  fermata_event events[8];
  memset(events, 0, sizeof events);
  for (int i = 0; i < 8; ++i) events[i].struct_size = (uint32_t)sizeof events[0];
  size_t count = 99;
  uint64_t lost = 99;
  EXPECT_OK(fermata_events_poll(f.cache, events, 8, &count, &lost, &g_error));
  CHECK(count == 2 && lost == 0);
  CHECK(events[0].kind == FERMATA_EVENT_STORED && events[0].end_token == 16 && events[0].tier == 0);
  CHECK(events[1].kind == FERMATA_EVENT_STORED && events[1].end_token == 32 &&
        events[1].group == 0);
  CHECK(memcmp(events[0].key, events[1].key, sizeof events[0].key) != 0);
  EXPECT_OK(fermata_events_poll(f.cache, events, 8, &count, &lost, &g_error));
  CHECK(count == 0 && lost == 0);
  EXPECT_INVALID(fermata_events_poll(f.cache, NULL, 8, &count, &lost, &g_error));
}

void test_looking_inside(void) {
  fixture_open(&f, 8, 16);
  publish(&f, 40);
  test_events();
  fermata_tier_stats tiers[2];
  memset(tiers, 0, sizeof tiers);
  fermata_stats stats;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = (uint32_t)sizeof stats;
  stats.tiers = tiers;
  stats.tier_capacity = 2;
  EXPECT_OK(fermata_stats_get(f.cache, &stats, &g_error));
  CHECK(stats.tier_count == 2 && stats.blocks == 2 && stats.sequences == 0 && stats.leases == 0 &&
        stats.jobs == 0);
  CHECK(tiers[0].kind == FERMATA_TIER_DEVICE && tiers[0].slots == 8 && tiers[0].cached_slots == 2);
  CHECK(tiers[0].free_slots == 6 && tiers[0].live_slots == 0 && tiers[0].healthy == 1);
  CHECK(tiers[1].kind == FERMATA_TIER_HOST && tiers[1].slots == 16 && tiers[1].free_slots == 16);
  stats.tiers = NULL;
  stats.tier_capacity = 0;
  EXPECT_OK(fermata_stats_get(f.cache, &stats, &g_error));
  EXPECT_INVALID(fermata_stats_get(f.cache, NULL, &g_error));
  seen s = {0, 0};
  EXPECT_OK(fermata_stats_visit(f.cache, visit, &s, &g_error));
  CHECK(s.names > 4 && s.unnamed == 0);
  EXPECT_INVALID(fermata_stats_visit(f.cache, NULL, &s, &g_error));

  uint64_t free_slots = 0;
  uint64_t evictable = 0;
  EXPECT_OK(fermata_room(f.cache, 0, &free_slots, &evictable, &g_error));
  CHECK(free_slots == 6 && evictable == 2);
  EXPECT_INVALID(fermata_room(f.cache, 1, &free_slots, &evictable, &g_error));

  char text[32];
  memset(text, 'x', sizeof text);
  size_t needed = 0;
  EXPECT_OK(fermata_state_dump(f.cache, NULL, 0, &needed, &g_error));
  CHECK(needed > 1);
  EXPECT_OK(fermata_state_dump(f.cache, text, 8, &needed, &g_error));
  CHECK(memchr(text, 0, 8) != NULL && text[8] == 'x'); /* cut, ended, not overrun */
  uint64_t now = 0;
  uint64_t later = 0;
  EXPECT_OK(fermata_now(f.cache, &now, &g_error));
  EXPECT_OK(fermata_now(f.cache, &later, &g_error));
  CHECK(now != 0 && later >= now);
  EXPECT_INVALID(fermata_now(f.cache, NULL, &g_error));
  fixture_close(&f);
}

void test_life_cycle(void) {
  fixture_open(&f, 16, 0);
  EXPECT(fermata_tier_resize(f.cache, 0, 1 << 20, &g_error), FERMATA_UNIMPLEMENTED,
         FERMATA_REASON_NONE);
  const fermata_bytes salt = {"tenant", 6};
  EXPECT(fermata_quota_set(f.cache, salt, 0, 1 << 20, &g_error), FERMATA_UNIMPLEMENTED,
         FERMATA_REASON_NONE);

  /* Erase from a token on: that block and what continues it. */
  publish(&f, 64);
  CHECK(hits(64) == 64);
  fermata_lookup_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.tokens = f.tokens;
  item.token_count = 64;
  uint64_t dropped = 99;
  EXPECT_INVALID(fermata_erase(f.space, NULL, 0, &dropped, &g_error));
  EXPECT_OK(fermata_erase(f.space, &item, 32, &dropped, &g_error));
  CHECK(dropped == 2 && hits(64) == 32);
  EXPECT_OK(fermata_erase(f.space, &item, 0, &dropped, &g_error));
  CHECK(dropped == 2 && hits(64) == 0);

  /* Reset: unfindable before it returns, also what a running sequence holds. */
  publish(&f, 48);
  uint64_t blocks[1] = {99};
  EXPECT_INVALID(fermata_reset(f.cache, 0, 0, blocks, 1, &g_error));
  EXPECT_INVALID(fermata_reset(f.cache, 4, 0, blocks, 1, &g_error));
  EXPECT_BAD_HANDLE(fermata_reset(f.cache, FERMATA_RESET_SPACE, 12345, blocks, 1, &g_error));
  EXPECT_OK(fermata_reset(f.cache, FERMATA_RESET_SPACE, f.space.id, blocks, 1, &g_error));
  CHECK(blocks[0] == 3 && hits(48) == 0);
  const fermata_sequence running = new_sequence(&f);
  CHECK(grow(&f, running, 0, 48) == FERMATA_OK);
  CHECK(mark(&f, running, 32) == FERMATA_OK);
  CHECK(hits(48) == 32);
  EXPECT_OK(fermata_reset(f.cache, FERMATA_RESET_ALL, 0, NULL, 0, &g_error));
  CHECK(hits(48) == 0);
  CHECK(mark(&f, running, 48) ==
        FERMATA_OK); /* it may go on, and publishes nothing of the old epoch */
  CHECK(hits(48) == 0);
  EXPECT_OK(fermata_release(f.cache, &running, 1, &g_error));
  publish(&f, 48); /* the new epoch works */
  CHECK(hits(48) == 48);

  /* Device lost: no device entry can be hit; running sequences are unmarked. */
  const fermata_sequence survivor = new_sequence(&f);
  CHECK(grow(&f, survivor, 300, 32) == FERMATA_OK);
  CHECK(mark(&f, survivor, 32) == FERMATA_OK);
  EXPECT_INVALID(fermata_device_lost(f.cache, 9, &g_error));
  EXPECT_OK(fermata_device_lost(f.cache, 0, &g_error));
  CHECK(hits(48) == 0);
  fermata_sequence_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = (uint32_t)sizeof info;
  EXPECT_OK(fermata_sequence_get_info(survivor, &info, &g_error));
  CHECK(info.tokens == 32 && info.marked_tokens == 0);
  EXPECT_OK(fermata_release(f.cache, &survivor, 1, &g_error));
  fixture_close(&f);
}

/* Every call that takes a handle, with one that never was. */
static void expect_all_bad(uint64_t id) {
  const fermata_cache cache = {id};
  const fermata_space space = {id};
  const fermata_sequence sequence = {id};
  uint64_t u64 = 0;
  size_t count = 0;
  uint32_t u32 = 0;
  fermata_sequence child = {0};
  fermata_job job = {0};
  fermata_session session = {0};
  fermata_arena arena = {0};
  fermata_sequence_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = (uint32_t)sizeof info;
  fermata_stats stats;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = (uint32_t)sizeof stats;
  fermata_audit_report report;
  memset(&report, 0, sizeof report);
  report.struct_size = (uint32_t)sizeof report;
  fermata_lookup_item look;
  memset(&look, 0, sizeof look);
  look.struct_size = (uint32_t)sizeof look;
  look.tokens = f.tokens;
  look.token_count = 16;
  fermata_load_options load;
  memset(&load, 0, sizeof load);
  load.struct_size = (uint32_t)sizeof load;
  load.queue = f.queue;
  fermata_park_options park;
  memset(&park, 0, sizeof park);
  park.struct_size = (uint32_t)sizeof park;
  fermata_session_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = (uint32_t)sizeof options;
  fermata_region region = {f.memory, BLOCK_BYTES, 0};
  fermata_arena_config arena_config;
  memset(&arena_config, 0, sizeof arena_config);
  arena_config.struct_size = (uint32_t)sizeof arena_config;
  arena_config.slots = 1;
  arena_config.regions = &region;
  arena_config.region_count = 1;
  const fermata_space_config space_config = basic_space();
  fermata_space opened = {0};
  fermata_append_item append;
  memset(&append, 0, sizeof append);
  append.struct_size = (uint32_t)sizeof append;

  EXPECT_BAD_HANDLE(fermata_now(cache, &u64, &g_error));
  EXPECT_BAD_HANDLE(fermata_space_open(cache, &space_config, &opened, &g_error));
  EXPECT_BAD_HANDLE(fermata_arena_register(cache, &arena_config, &arena, &g_error));
  EXPECT_BAD_HANDLE(fermata_device_lost(cache, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_session_open(cache, &options, &session, &g_error));
  EXPECT_BAD_HANDLE(fermata_append(cache, &append, 1, &g_error));
  EXPECT_BAD_HANDLE(fermata_stats_get(cache, &stats, &g_error));
  EXPECT_BAD_HANDLE(fermata_room(cache, 0, &u64, &u64, &g_error));
  EXPECT_BAD_HANDLE(fermata_audit(cache, &report, &g_error));
  EXPECT_BAD_HANDLE(fermata_state_dump(cache, NULL, 0, &count, &g_error));
  EXPECT_BAD_HANDLE(fermata_reset(cache, FERMATA_RESET_ALL, 0, NULL, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_lookup(space, &look, 1, &g_error));
  EXPECT_BAD_HANDLE(fermata_erase(space, &look, 0, &u64, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_create(space, NULL, &child, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_fork(sequence, &child, 1, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_truncate(sequence, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_load(sequence, &load, &job, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_park(sequence, &park, &job, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_resume(sequence, &load, &job, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_get_info(sequence, &info, &g_error));
  EXPECT_BAD_HANDLE(fermata_sequence_slots(sequence, 0, 0, &u32, 1, &count, &g_error));
  EXPECT_BAD_HANDLE(fermata_session_begin_turn((fermata_session){id}, &g_error));
  EXPECT_BAD_HANDLE(fermata_lease_take((fermata_lease){id}, sequence, &g_error));
  EXPECT_BAD_HANDLE(fermata_lease_trim((fermata_lease){id}, 0, &u64, &g_error));
  EXPECT_BAD_HANDLE(fermata_queue_poll((fermata_queue){id}, NULL, 0, 0, &count, &g_error));
  if (id == 0) return; /* closing a zero handle is a no-op, see below */
  EXPECT_BAD_HANDLE(fermata_cache_close(cache, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_space_close(space, &g_error));
  EXPECT_BAD_HANDLE(fermata_arena_unregister((fermata_arena){id}, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_lease_drop((fermata_lease){id}, &g_error));
  EXPECT_BAD_HANDLE(fermata_job_cancel((fermata_job){id}, &g_error));
  EXPECT_BAD_HANDLE(fermata_queue_destroy((fermata_queue){id}, &g_error));
  EXPECT_BAD_HANDLE(fermata_release(f.cache, &sequence, 1, &g_error));
}

void test_handles(void) {
  fixture_open(&f, 8, 0);
  expect_all_bad(0);
  expect_all_bad(1);
  expect_all_bad(UINT64_MAX);
  /* A handle of another kind is foreign. */
  EXPECT_BAD_HANDLE(fermata_sequence_truncate((fermata_sequence){f.space.id}, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_now((fermata_cache){f.queue.id}, NULL, &g_error));
  /* A stale one stays stale when its place is used again. */
  const fermata_sequence first = new_sequence(&f);
  EXPECT_OK(fermata_release(f.cache, &first, 1, &g_error));
  const fermata_sequence second = new_sequence(&f);
  CHECK(first.id != second.id);
  EXPECT_BAD_HANDLE(fermata_release(f.cache, &first, 1, &g_error));
  EXPECT_OK(fermata_release(f.cache, &second, 1, &g_error));
  EXPECT_OK(fermata_cache_close((fermata_cache){0}, 0, &g_error));
  EXPECT_OK(fermata_arena_unregister((fermata_arena){0}, 0, &g_error));
  /* A sequence of one cache is foreign to another. */
  static fixture g;
  fixture_open(&g, 8, 0);
  const fermata_sequence theirs = new_sequence(&g);
  EXPECT_BAD_HANDLE(fermata_release(f.cache, &theirs, 1, &g_error));
  CHECK(grow(&f, theirs, 0, 16) == FERMATA_INVALID_ARGUMENT);
  fixture_close(&g);
  fixture_close(&f);
}

/* Closed objects answer CLOSED or BAD_HANDLE, nothing else. */
static int is_closed(fermata_status status) {
  const int right =
      (status == FERMATA_FAILED_PRECONDITION && g_error.reason == FERMATA_REASON_CLOSED) ||
      (status == FERMATA_INVALID_ARGUMENT && g_error.reason == FERMATA_REASON_BAD_HANDLE);
  memset(&g_error, 0, sizeof g_error);
  g_error.struct_size = (uint32_t)sizeof g_error;
  return right;
}

void test_close(void) {
  fixture_open(&f, 8, 16);
  publish(&f, 32);
  const fermata_lookup_item item =
      lookup(&f, 32, 0); /* live leases and sequences do not block it */
  const fermata_sequence sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 0, 64) == FERMATA_OK);
  EXPECT_OK(fermata_cache_close(f.cache, 0, &g_error));
  CHECK(is_closed(fermata_cache_close(f.cache, 0, &g_error)));
  uint64_t now = 0;
  fermata_sequence child = {0};
  CHECK(is_closed(fermata_now(f.cache, &now, &g_error)));
  CHECK(is_closed(fermata_sequence_create(f.space, NULL, &child, &g_error)));
  CHECK(is_closed(fermata_sequence_truncate(sequence, 0, &g_error)));
  CHECK(is_closed(fermata_lease_drop(item.lease, &g_error)));
  CHECK(is_closed(fermata_space_close(f.space, &g_error)));
  CHECK(is_closed(fermata_arena_unregister(f.arena, 0, &g_error)));
  EXPECT_OK(fermata_queue_destroy(f.queue, &g_error));
}

/* In the child: every call on what was inherited answers FORKED. Returns how many do not. */
static int forked_answers(void) {
  int wrong = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  uint64_t now = 0;
  size_t count = 0;
  fermata_sequence sequence = {0};
  fermata_lookup_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.tokens = f.tokens;
  item.token_count = 16;
#define FORKED(call) \
  wrong += (call) != FERMATA_FAILED_PRECONDITION || error.reason != FERMATA_REASON_FORKED
  FORKED(fermata_now(f.cache, &now, &error));
  FORKED(fermata_lookup(f.space, &item, 1, &error));
  FORKED(fermata_sequence_create(f.space, NULL, &sequence, &error));
  FORKED(fermata_state_dump(f.cache, NULL, 0, &count, &error));
  FORKED(fermata_cache_close(f.cache, 0, &error));
#undef FORKED
  return wrong;
}

void test_fork(void) {
  fixture_open(&f, 8, 16);
  publish(&f, 32);
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(forked_answers());
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(hits(32) == 32); /* the parent is as it was */
  fixture_close(&f);
}
