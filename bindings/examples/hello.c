/* SPDX-License-Identifier: Apache-2.0 */
/* Hello: one sequence is computed, released, and found again by the next request with the same
 * prefix. Build against an installed library: gcc hello.c $(pkg-config --cflags --libs fermata) */
#include <fermata/fermata.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define BLOCK_BYTES 4096
#define SLOTS 64
#define TOKENS 100 /* six full blocks and a partial one */

static unsigned char kv_memory[SLOTS * BLOCK_BYTES]; /* stands for the engine's device memory */
static fermata_error error = FERMATA_ERROR_INIT;

static int fail(const char* what) {
  fprintf(stderr, "%s: %s/%s: %s\n", what, fermata_status_name(error.status),
          fermata_reason_name(error.reason), error.message);
  return 1;
}

int main(void) {
  fermata_group_config group = {
      .struct_size = sizeof group, .block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_BYTES};
  fermata_tier_config tier = {.struct_size = sizeof tier, .kind = FERMATA_TIER_DEVICE};
  fermata_config config;
  fermata_config_init(&config, sizeof config);
  config.group_count = 1;
  config.groups = &group;
  config.tiers = &tier;
  config.tier_count = 1;
  fermata_cache cache;
  if (fermata_cache_open(&config, &cache, &error)) return fail("cache_open");

  fermata_region region = {.base = kv_memory, .slot_bytes = BLOCK_BYTES};
  fermata_arena_config arena_config = {
      .struct_size = sizeof arena_config, .slots = SLOTS, .regions = &region, .region_count = 1};
  fermata_arena arena;
  if (fermata_arena_register(cache, &arena_config, &arena, &error)) return fail("arena_register");

  /* What may share blocks: the same weights, rope, dtype, tenant, ... */
  fermata_space_config space_config = {.struct_size = sizeof space_config,
                                       .weights = {"my-model@rev1", 13}};
  fermata_space space;
  if (fermata_space_open(cache, &space_config, &space, &error)) return fail("space_open");

  uint32_t tokens[TOKENS];
  for (uint32_t i = 0; i < TOKENS; ++i) tokens[i] = 1000 + i;

  /* A request: slots are handed out, the engine writes them, then says so. */
  fermata_sequence sequence;
  if (fermata_sequence_create(space, NULL, &sequence, &error)) return fail("sequence_create");
  fermata_block_copy copy;
  fermata_append_item append = {.struct_size = sizeof append,
                                .sequence = sequence,
                                .tokens = tokens,
                                .token_count = TOKENS,
                                .copies = &copy,
                                .copy_capacity = 1};
  if (fermata_append(cache, &append, 1, &error) || append.status) return fail("append");
  uint32_t slots[SLOTS];
  size_t slot_count = 0;
  if (fermata_sequence_slots(sequence, 0, 0, slots, SLOTS, &slot_count, &error))
    return fail("sequence_slots");
  for (size_t i = 0; i < slot_count; ++i)
    memset(kv_memory + (size_t)slots[i] * BLOCK_BYTES, (int)i, BLOCK_BYTES);
  fermata_mark_item mark = {.struct_size = sizeof mark, .sequence = sequence, .tokens = TOKENS};
  if (fermata_mark(cache, &mark, 1, &error) || mark.status) return fail("mark");
  if (fermata_release(cache, &sequence, 1, &error)) return fail("release");

  /* The next request with the same beginning. */
  fermata_lookup_item lookup = {
      .struct_size = sizeof lookup, .tokens = tokens, .token_count = TOKENS, .leave_tokens = 1};
  if (fermata_lookup(space, &lookup, 1, &error) || lookup.status) return fail("lookup");
  printf("%zu slots used; %d of %d tokens found again\n", slot_count, (int)lookup.hit_tokens,
         TOKENS);
  if (slot_count != 7 || lookup.hit_tokens != 96) return 1;
  if (fermata_lease_drop(lookup.lease, &error)) return fail("lease_drop");
  if (fermata_space_close(space, &error)) return fail("space_close");
  if (fermata_cache_close(cache, 0, &error)) return fail("cache_close");
  return 0;
}
