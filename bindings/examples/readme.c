/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
#include <fermata/fermata.h>
#include <stdio.h>
static char kv[64 * 4096]; /* the engine's KV memory: 64 slots of one 16-token block each */
int main(void) {
  fermata_group_config group = {.struct_size = sizeof group, .block_bytes = 4096};
  fermata_tier_config tier = {.struct_size = sizeof tier, .kind = FERMATA_TIER_DEVICE};
  fermata_config config = {.struct_size = sizeof config, .group_count = 1, .groups = &group, .tiers = &tier, .tier_count = 1};
  fermata_space_config model = {.struct_size = sizeof model, .weights = {"my-model@1", 10}};
  fermata_region region = {kv, 4096, 0};
  fermata_arena_config memory = {.struct_size = sizeof memory, .slots = 64, .regions = &region, .region_count = 1};
  fermata_cache cache; fermata_arena arena; fermata_space space; fermata_sequence turn; uint32_t tokens[48] = {11, 22, 33};
  if (fermata_cache_open(&config, &cache, NULL) || fermata_arena_register(cache, &memory, &arena, NULL)) return 1;
  if (fermata_space_open(cache, &model, &space, NULL) || fermata_sequence_create(space, NULL, &turn, NULL)) return 1;
  fermata_append_item append = {.struct_size = sizeof append, .sequence = turn, .tokens = tokens, .token_count = 48};
  fermata_mark_item mark = {.struct_size = sizeof mark, .sequence = turn, .tokens = 48};
  if (fermata_append(cache, &append, 1, NULL) || fermata_mark(cache, &mark, 1, NULL)) return 1; /* KV is computed between */
  fermata_lookup_item next = {.struct_size = sizeof next, .tokens = tokens, .token_count = 48, .leave_tokens = 1};
  if (fermata_release(cache, &turn, 1, NULL) || fermata_lookup(space, &next, 1, NULL)) return 1;
  return printf("%d of 48 tokens need no prefill\n", (int)next.hit_tokens) < 0 || fermata_cache_close(cache, 0, NULL);
}
