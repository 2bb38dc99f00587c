/* SPDX-License-Identifier: Apache-2.0 */
/* Park and resume: an agent waits for a tool. Its blocks leave the device for host memory, others
 * use and overwrite every device slot, and when the tool answers every byte is back. */
#include <fermata/fermata.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define BLOCK_BYTES 8192
#define HALF_BYTES (BLOCK_BYTES / 2) /* K in one region, V in another */
#define SLOTS 16
#define BLOCKS 8
#define SECOND 1000000000u

static unsigned char k_memory[SLOTS * HALF_BYTES];
static unsigned char v_memory[SLOTS * HALF_BYTES];
static uint32_t tokens[SLOTS * BLOCK_TOKENS];
static fermata_error error = FERMATA_ERROR_INIT;

static int fail(const char* what) {
  fprintf(stderr, "%s: %s/%s: %s\n", what, fermata_status_name(error.status),
          fermata_reason_name(error.reason), error.message);
  return 1;
}

/* Waits for the job's one completion. */
static int finish(fermata_queue queue, fermata_job job, uint64_t valid_tokens) {
  fermata_completion done = {.struct_size = sizeof done};
  size_t count = 0;
  if (fermata_queue_poll(queue, &done, 1, 30ull * SECOND, &count, &error))
    return fail("queue_poll");
  if (count != 1 || done.job.id != job.id || done.status || done.valid_tokens != valid_tokens) {
    fprintf(stderr, "job ended %s/%s with %d valid tokens, %d completions\n",
            fermata_status_name(done.status), fermata_reason_name(done.reason),
            (int)done.valid_tokens, (int)count);
    return 1;
  }
  return 0;
}

/* Grows the sequence to `blocks` blocks and gives their slots. */
static int grow(fermata_cache cache, fermata_sequence sequence, uint32_t blocks, uint32_t* slots) {
  fermata_block_copy copy;
  fermata_append_item append = {.struct_size = sizeof append,
                                .sequence = sequence,
                                .tokens = tokens,
                                .token_count = (uint64_t)blocks * BLOCK_TOKENS,
                                .copies = &copy,
                                .copy_capacity = 1};
  size_t count = 0;
  if (fermata_append(cache, &append, 1, &error) || append.status) return fail("append");
  if (fermata_sequence_slots(sequence, 0, 0, slots, SLOTS, &count, &error))
    return fail("sequence_slots");
  return count != blocks;
}

int main(void) {
  fermata_group_config group = {
      .struct_size = sizeof group, .block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_BYTES};
  fermata_tier_config tiers[2] = {{.struct_size = sizeof tiers[0], .kind = FERMATA_TIER_DEVICE},
                                  {.struct_size = sizeof tiers[0],
                                   .kind = FERMATA_TIER_HOST,
                                   .capacity_bytes = 64 * BLOCK_BYTES}};
  fermata_config config;
  fermata_config_init(&config, sizeof config);
  config.group_count = 1;
  config.groups = &group;
  config.tiers = tiers;
  config.tier_count = 2;
  fermata_cache cache;
  if (fermata_cache_open(&config, &cache, &error)) return fail("cache_open");
  fermata_region regions[2] = {{.base = k_memory, .slot_bytes = HALF_BYTES},
                               {.base = v_memory, .slot_bytes = HALF_BYTES}};
  fermata_arena_config arena_config = {
      .struct_size = sizeof arena_config, .slots = SLOTS, .regions = regions, .region_count = 2};
  fermata_arena arena;
  if (fermata_arena_register(cache, &arena_config, &arena, &error)) return fail("arena_register");
  fermata_space_config space_config = {.struct_size = sizeof space_config,
                                       .weights = {"my-model@rev1", 13}};
  fermata_space space;
  if (fermata_space_open(cache, &space_config, &space, &error)) return fail("space_open");
  fermata_queue queue;
  if (fermata_queue_create(16, &queue, &error)) return fail("queue_create");

  /* The agent's turn. */
  uint32_t slots[SLOTS];
  fermata_sequence agent;
  if (fermata_sequence_create(space, NULL, &agent, &error)) return fail("sequence_create");
  if (grow(cache, agent, BLOCKS, slots)) return 1;
  for (int i = 0; i < BLOCKS; ++i) {
    memset(k_memory + (size_t)slots[i] * HALF_BYTES, 2 * i + 1, HALF_BYTES);
    memset(v_memory + (size_t)slots[i] * HALF_BYTES, 2 * i + 2, HALF_BYTES);
  }
  fermata_mark_item mark = {
      .struct_size = sizeof mark, .sequence = agent, .tokens = BLOCKS * BLOCK_TOKENS};
  if (fermata_mark(cache, &mark, 1, &error) || mark.status) return fail("mark");

  /* It calls a tool. */
  fermata_job job;
  fermata_park_options park = {
      .struct_size = sizeof park, .mode = FERMATA_PARK_KEEP, .queue = queue};
  if (fermata_sequence_park(agent, &park, &job, &error)) return fail("park");
  fermata_completion parked = {.struct_size = sizeof parked};
  size_t count = 0;
  if (fermata_queue_poll(queue, &parked, 1, 30ull * SECOND, &count, &error))
    return fail("queue_poll");
  if (count != 1 || parked.job.id != job.id || parked.status) return fail("parking");

  /* Somebody else fills the whole device meanwhile. */
  fermata_sequence_options options = {.struct_size = sizeof options,
                                      .flags = FERMATA_SEQUENCE_NO_STORE};
  fermata_sequence other;
  if (fermata_sequence_create(space, &options, &other, &error)) return fail("sequence_create");
  if (grow(cache, other, SLOTS, slots)) return 1;
  memset(k_memory, 0xee, sizeof k_memory);
  memset(v_memory, 0xee, sizeof v_memory);
  if (fermata_release(cache, &other, 1, &error)) return fail("release");

  /* The tool has answered. */
  fermata_load_options load = {.struct_size = sizeof load, .queue = queue};
  if (fermata_sequence_resume(agent, &load, &job, &error)) return fail("resume");
  if (finish(queue, job, BLOCKS * BLOCK_TOKENS)) return 1;
  if (fermata_sequence_slots(agent, 0, 0, slots, SLOTS, &count, &error))
    return fail("sequence_slots");
  int wrong = count != BLOCKS;
  for (int i = 0; i < BLOCKS && !wrong; ++i) {
    for (int b = 0; b < HALF_BYTES; ++b) {
      wrong |= k_memory[(size_t)slots[i] * HALF_BYTES + (size_t)b] != 2 * i + 1;
      wrong |= v_memory[(size_t)slots[i] * HALF_BYTES + (size_t)b] != 2 * i + 2;
    }
  }
  printf("resumed %d blocks, %s\n", (int)count, wrong ? "WRONG BYTES" : "every byte as it was");
  if (fermata_release(cache, &agent, 1, &error)) return fail("release");
  if (fermata_cache_close(cache, 0, &error)) return fail("cache_close");
  if (fermata_queue_destroy(queue, &error)) return fail("queue_destroy");
  return wrong;
}
