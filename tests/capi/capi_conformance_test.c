/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of fermata.h from plain C: what its comment promises, and each error it documents.
 * Built by gcc and by clang. This file is the runner and the fixture; the parts are
 * conformance_*.c. */
#include <stdlib.h>

#include "conformance.h"

int g_failures = 0;
int g_checks = 0;
fermata_error g_error = FERMATA_ERROR_INIT;

void expect_answer(const char* file, int line, const char* text, fermata_status status,
                   fermata_status want_status, uint32_t want_reason, const fermata_error* error) {
  ++g_checks;
  /* After success the error struct is nobody's promise; after failure it repeats the answer and
   * explains it. */
  const int right =
      status == want_status &&
      (status == FERMATA_OK ||
       (error->status == status && error->reason == want_reason && error->message[0] != '\0' &&
        memchr(error->message, 0, sizeof error->message) != NULL));
  if (!right) {
    ++g_failures;
    fprintf(stderr, "%s:%d: %s\n  want %s/%s\n  got  %s, error struct %s/%s \"%.*s\"\n", file, line,
            text, fermata_status_name(want_status), fermata_reason_name(want_reason),
            fermata_status_name(status), fermata_status_name(error->status),
            fermata_reason_name(error->reason), FERMATA_ERROR_MESSAGE_BYTES, error->message);
  }
  memset(&g_error, 0, sizeof g_error);
  g_error.struct_size = (uint32_t)sizeof g_error;
}

fermata_config* basic_config(uint64_t host_slots) {
  static fermata_group_config group;
  static fermata_tier_config tiers[2];
  static fermata_config config;
  memset(&group, 0, sizeof group);
  memset(tiers, 0, sizeof tiers);
  group.struct_size = (uint32_t)sizeof group;
  group.block_tokens = BLOCK_TOKENS;
  group.block_bytes = BLOCK_BYTES;
  tiers[0].struct_size = tiers[1].struct_size = (uint32_t)sizeof tiers[0];
  tiers[0].kind = FERMATA_TIER_DEVICE;
  tiers[1].kind = FERMATA_TIER_HOST;
  tiers[1].flags = FERMATA_TIER_NO_HUGE_PAGES;
  tiers[1].capacity_bytes = host_slots * BLOCK_BYTES;
  fermata_config_init(&config, sizeof config);
  config.group_count = 1;
  config.groups = &group;
  config.tiers = tiers;
  config.tier_count = host_slots == 0 ? 1 : 2;
  config.event_capacity = 1024;
  return &config;
}

fermata_space_config basic_space(void) {
  fermata_space_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = (uint32_t)sizeof config;
  config.weights.data = "weights";
  config.weights.size = 7;
  return config;
}

void fixture_open_with(fixture* f, uint32_t device_slots, const fermata_config* config) {
  memset(f, 0, sizeof *f);
  for (uint32_t i = 0; i < MAX_TOKENS; ++i) f->tokens[i] = i * 2654435761u;
  EXPECT_OK(fermata_cache_open(config, &f->cache, &g_error));
  CHECK(f->cache.id != 0);
  fermata_region region = {f->memory, BLOCK_BYTES, 0};
  fermata_arena_config arena;
  memset(&arena, 0, sizeof arena);
  arena.struct_size = (uint32_t)sizeof arena;
  arena.slots = device_slots;
  arena.regions = &region;
  arena.region_count = 1;
  EXPECT_OK(fermata_arena_register(f->cache, &arena, &f->arena, &g_error));
  const fermata_space_config space = basic_space();
  EXPECT_OK(fermata_space_open(f->cache, &space, &f->space, &g_error));
  EXPECT_OK(fermata_queue_create(64, &f->queue, &g_error));
}

void fixture_open(fixture* f, uint32_t device_slots, uint64_t host_slots) {
  fixture_open_with(f, device_slots, basic_config(host_slots));
}

void fixture_close(fixture* f) {
  fermata_audit_report report;
  memset(&report, 0, sizeof report);
  report.struct_size = (uint32_t)sizeof report;
  EXPECT_OK(fermata_audit(f->cache, &report, &g_error));
  CHECK(report.orphans == 0);
  EXPECT_OK(fermata_cache_close(f->cache, 0, &g_error));
  EXPECT_OK(fermata_queue_destroy(f->queue, &g_error));
}

fermata_sequence new_sequence(fixture* f) {
  fermata_sequence sequence = {0};
  EXPECT_OK(fermata_sequence_create(f->space, NULL, &sequence, &g_error));
  CHECK(sequence.id != 0);
  return sequence;
}

fermata_status grow(fixture* f, fermata_sequence sequence, uint64_t begin, uint64_t count) {
  fermata_block_copy copies[4];
  fermata_append_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.sequence = sequence;
  item.tokens = f->tokens + begin;
  item.token_count = count;
  item.copies = copies;
  item.copy_capacity = 4;
  /* WOULD_BLOCK: room is being made by demoting what has no copy yet; the documented answer to it
   * is to try again. */
  uint64_t now = 0;
  uint64_t give_up = 0;
  fermata_status status;
  if (fermata_now(f->cache, &now, NULL) == FERMATA_OK) give_up = now + 30 * SECOND;
  do {
    status = fermata_append(f->cache, &item, 1, &g_error);
    if (status == FERMATA_OK) status = item.status;
  } while (status == FERMATA_UNAVAILABLE && item.reason == FERMATA_REASON_WOULD_BLOCK &&
           fermata_now(f->cache, &now, NULL) == FERMATA_OK && now < give_up);
  return status;
}

fermata_status mark(fixture* f, fermata_sequence sequence, uint64_t tokens) {
  fermata_mark_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.sequence = sequence;
  item.tokens = tokens;
  const fermata_status status = fermata_mark(f->cache, &item, 1, &g_error);
  return status != FERMATA_OK ? status : item.status;
}

void publish(fixture* f, uint64_t tokens) {
  const fermata_sequence sequence = new_sequence(f);
  CHECK(grow(f, sequence, 0, tokens) == FERMATA_OK);
  CHECK(mark(f, sequence, tokens) == FERMATA_OK);
  EXPECT_OK(fermata_release(f->cache, &sequence, 1, &g_error));
}

fermata_lookup_item lookup(fixture* f, uint64_t tokens, uint32_t flags) {
  fermata_lookup_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.flags = flags;
  item.tokens = f->tokens;
  item.token_count = tokens;
  EXPECT_OK(fermata_lookup(f->space, &item, 1, &g_error));
  CHECK(item.status == FERMATA_OK);
  return item;
}

fermata_completion finish(fixture* f, fermata_job job) {
  fermata_completion done;
  memset(&done, 0, sizeof done);
  done.struct_size = (uint32_t)sizeof done;
  size_t count = 0;
  EXPECT_OK(fermata_queue_poll(f->queue, &done, 1, 30 * SECOND, &count, &g_error));
  CHECK(count == 1);
  CHECK(done.job.id == job.id);
  return done;
}

int main(void) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kParts[] = {
      {"names", test_names},
      {"config", test_config},
      {"struct sizes", test_struct_sizes},
      {"spaces and arenas", test_spaces_and_arenas},
      {"sequences", test_sequences},
      {"lookup", test_lookup},
      {"identity", test_identity},
      {"jobs", test_jobs},
      {"queues", test_queues},
      {"sessions", test_sessions},
      {"looking inside", test_looking_inside},
      {"life cycle", test_life_cycle},
      {"handles", test_handles},
      {"close", test_close},
      {"fork", test_fork},
  };
  for (size_t i = 0; i < sizeof kParts / sizeof kParts[0]; ++i) {
    const int checks = g_checks;
    const int failures = g_failures;
    kParts[i].run();
    printf("%-18s %4d checks, %d failed\n", kParts[i].name, g_checks - checks,
           g_failures - failures);
    fflush(stdout);
  }
  return g_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
