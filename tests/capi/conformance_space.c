/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces, arenas, and what makes two prefixes the same. */
#include "conformance.h"

static fixture f;

static void expect_space_refused(const fermata_space_config* config) {
  fermata_space space = {77};
  EXPECT_INVALID(fermata_space_open(f.cache, config, &space, &g_error));
  CHECK(space.id == 0);
}

static void test_arenas(void) {
  fixture_open(&f, 8, 0);
  fermata_region regions[2] = {{f.memory + 32 * BLOCK_BYTES, BLOCK_BYTES, 0},
                               {f.memory + 48 * BLOCK_BYTES, 64, 0}};
  fermata_arena_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = (uint32_t)sizeof config;
  config.slots = 8;
  config.regions = regions;
  config.region_count = 1;
  fermata_arena arena = {77};
  EXPECT_INVALID(fermata_arena_register(f.cache, NULL, &arena, &g_error));
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, NULL, &g_error));
  config.region_count = 2; /* 4096 + 64 is not block_bytes */
  EXPECT(fermata_arena_register(f.cache, &config, &arena, &g_error), FERMATA_INVALID_ARGUMENT,
         FERMATA_REASON_BAD_LAYOUT);
  config.region_count = 0;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.region_count = 1;
  config.regions = NULL;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.regions = regions;
  config.slots = 0;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.slots = UINT32_MAX;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.slots = 8;
  config.group = 1;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.group = 0;
  config.device = 5;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.device = 0;
  config.reserved = 1;
  EXPECT_INVALID(fermata_arena_register(f.cache, &config, &arena, &g_error));
  config.reserved = 0;
  regions[0].slot_stride = BLOCK_BYTES - 1;
  EXPECT(fermata_arena_register(f.cache, &config, &arena, &g_error), FERMATA_INVALID_ARGUMENT,
         FERMATA_REASON_BAD_LAYOUT);
  regions[0].slot_stride = 0;
  regions[0].base = NULL; /* only metadata-only caches have arenas without memory */
  CHECK(fermata_arena_register(f.cache, &config, &arena, NULL) == FERMATA_INVALID_ARGUMENT);

  /* Unregister: not while a sequence holds slots of it; afterwards nothing has room. */
  const fermata_sequence sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 0, 32) == FERMATA_OK);
  EXPECT(fermata_arena_unregister(f.arena, 0, &g_error), FERMATA_FAILED_PRECONDITION,
         FERMATA_REASON_IN_USE);
  CHECK(mark(&f, sequence, 32) == FERMATA_OK);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  CHECK(lookup(&f, 32, FERMATA_LOOKUP_NO_LEASE).hit_tokens == 32);
  EXPECT_OK(fermata_arena_unregister(f.arena, 0, &g_error));
  EXPECT_BAD_HANDLE(fermata_arena_unregister(f.arena, 0, &g_error));
  CHECK(lookup(&f, 32, FERMATA_LOOKUP_NO_LEASE).hit_tokens == 0);
  const fermata_sequence homeless = new_sequence(&f);
  CHECK(grow(&f, homeless, 0, 16) != FERMATA_OK);
  EXPECT_OK(fermata_release(f.cache, &homeless, 1, &g_error));
  fixture_close(&f);
}

void test_spaces_and_arenas(void) {
  fixture_open(&f, 8, 0);
  fermata_space space = {0};
  fermata_space_config config = basic_space();
  EXPECT_INVALID(fermata_space_open(f.cache, NULL, &space, &g_error));
  EXPECT_INVALID(fermata_space_open(f.cache, &config, NULL, &g_error));
  config.weights.size = 0; /* required */
  expect_space_refused(&config);
  config = basic_space();
  config.weights.data = NULL;
  expect_space_refused(&config);
  config = basic_space();
  config.weights.size = 65537;
  expect_space_refused(&config);
  config = basic_space();
  config.key_mode = 2;
  expect_space_refused(&config);
  config = basic_space();
  config.ranks = 2;
  config.rank = 2;
  expect_space_refused(&config);
  config = basic_space();
  config.replicated = 2;
  expect_space_refused(&config);

  /* One space, two handles; each is closed on its own, and blocks are shared. */
  config = basic_space();
  EXPECT_OK(fermata_space_open(f.cache, &config, &space, &g_error));
  CHECK(space.id != 0);
  publish(&f, 32);
  fermata_lookup_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.flags = FERMATA_LOOKUP_NO_LEASE;
  item.tokens = f.tokens;
  item.token_count = 32;
  EXPECT_OK(fermata_lookup(space, &item, 1, &g_error));
  CHECK(item.hit_tokens == 32);

  fermata_sequence held = {0};
  EXPECT_OK(fermata_sequence_create(space, NULL, &held, &g_error));
  EXPECT_OK(fermata_release(f.cache, &held, 1, &g_error));
  EXPECT_OK(fermata_space_close(space, &g_error));
  EXPECT_BAD_HANDLE(fermata_space_close(space, &g_error));
  EXPECT_OK(
      fermata_space_close((fermata_space){0}, &g_error)); /* closing a zero handle is a no-op */

  /* Each identity field tells spaces apart. */
  for (int field = 0; field < 9; ++field) {
    fermata_bytes other = {"other", 5};
    config = basic_space();
    switch (field) {
      case 0:
        config.weights = other;
        break;
      case 1:
        config.model_config = other;
        break;
      case 2:
        config.rope = other;
        break;
      case 3:
        config.tenant_salt = other;
        break;
      case 4:
        config.kv_dtype = other;
        break;
      case 5:
        config.codec = other;
        break;
      case 6:
        config.layout_version = 1;
        break;
      case 7:
        config.ranks = 2;
        break;
      default:
        config.replicated = 1;
        break;
    }
    EXPECT_OK(fermata_space_open(f.cache, &config, &space, &g_error));
    EXPECT_OK(fermata_lookup(space, &item, 1, &g_error));
    CHECK(item.hit_tokens == 0);
    EXPECT_OK(fermata_space_close(space, &g_error));
  }
  /* Blocks outlive the handles of their space. */
  EXPECT_OK(fermata_space_close(f.space, &g_error));
  config = basic_space();
  EXPECT_OK(fermata_space_open(f.cache, &config, &f.space, &g_error));
  CHECK(lookup(&f, 32, FERMATA_LOOKUP_NO_LEASE).hit_tokens == 32);

  const fermata_sequence sequence = new_sequence(&f);
  EXPECT(fermata_space_close(f.space, &g_error), FERMATA_FAILED_PRECONDITION,
         FERMATA_REASON_IN_USE);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  fixture_close(&f);
  test_arenas();
}

/* Publishes 32 tokens under one extra part (or none). */
static void publish_extra(const fermata_extra* extra) {
  fermata_sequence_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = (uint32_t)sizeof options;
  options.extras = extra;
  options.extra_count = extra == NULL ? 0 : 1;
  fermata_sequence sequence = {0};
  EXPECT_OK(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  CHECK(grow(&f, sequence, 0, 32) == FERMATA_OK);
  CHECK(mark(&f, sequence, 32) == FERMATA_OK);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
}

static uint64_t hits_extra(const fermata_extra* extra) {
  fermata_lookup_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.flags = FERMATA_LOOKUP_NO_LEASE;
  item.tokens = f.tokens;
  item.token_count = 32;
  item.extras = extra;
  item.extra_count = extra == NULL ? 0 : 1;
  EXPECT_OK(fermata_lookup(f.space, &item, 1, &g_error));
  CHECK(item.status == FERMATA_OK);
  return item.hit_tokens;
}

static void test_block_keys(void) {
  const char keys[] = "aaaabbbbccccdddd"; /* four keys of four bytes */
  fermata_space_config config = basic_space();
  config.key_mode = FERMATA_KEYS_BLOCKS;
  fermata_space space = {0};
  EXPECT_OK(fermata_space_open(f.cache, &config, &space, &g_error));
  fermata_sequence sequence = {0};
  EXPECT_OK(fermata_sequence_create(space, NULL, &sequence, &g_error));
  fermata_append_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.sequence = sequence;
  item.token_count = 40;
  item.keys = keys;
  item.key_count = 2; /* two units are full; the third is not and has no name yet */
  item.key_bytes = 4;
  EXPECT_OK(fermata_append(f.cache, &item, 1, &g_error));
  CHECK(item.status == FERMATA_OK);
  CHECK(mark(&f, sequence, 40) == FERMATA_OK);
  fermata_lookup_item look;
  memset(&look, 0, sizeof look);
  look.struct_size = (uint32_t)sizeof look;
  look.flags = FERMATA_LOOKUP_NO_LEASE;
  look.keys = keys;
  look.key_count = 4;
  look.key_bytes = 4;
  EXPECT_OK(fermata_lookup(space, &look, 1, &g_error));
  CHECK(look.status == FERMATA_OK && look.hit_tokens == 32);
  look.keys = keys + 4; /* the second key alone is not a prefix */
  look.key_count = 1;
  EXPECT_OK(fermata_lookup(space, &look, 1, &g_error));
  CHECK(look.hit_tokens == 0);
  look.keys = keys;
  look.key_count = 4;
  look.key_bytes = 0;
  CHECK(fermata_lookup(space, &look, 1, NULL) != FERMATA_OK ||
        look.status == FERMATA_INVALID_ARGUMENT);
  look.key_bytes = 256;
  CHECK(fermata_lookup(space, &look, 1, NULL) != FERMATA_OK ||
        look.status == FERMATA_INVALID_ARGUMENT);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
}

void test_identity(void) {
  fixture_open(&f, 64, 0);
  fermata_extra adapter;
  memset(&adapter, 0, sizeof adapter);
  adapter.struct_size = (uint32_t)sizeof adapter;
  adapter.type = FERMATA_EXTRA_ADAPTER;
  adapter.data.data = "X";
  adapter.data.size = 1;
  fermata_extra salt = adapter;
  salt.type = FERMATA_EXTRA_SALT;
  fermata_extra image = adapter;
  image.type = FERMATA_EXTRA_IMAGE;
  fermata_extra empty = adapter;
  empty.data.size = 0;
  fermata_extra tail = adapter; /* covers the second block only */
  tail.token_begin = 16;
  tail.token_end = 32;

  publish_extra(&adapter);
  CHECK(hits_extra(&adapter) == 32);
  CHECK(hits_extra(&salt) == 0);
  CHECK(hits_extra(&image) == 0);
  CHECK(hits_extra(&empty) == 0);
  CHECK(hits_extra(NULL) == 0);
  publish_extra(NULL);
  CHECK(hits_extra(NULL) == 32);
  CHECK(hits_extra(&empty) == 0); /* absent and empty differ */
  CHECK(hits_extra(&tail) == 16); /* the first block has nothing of it */
  publish_extra(&tail);
  CHECK(hits_extra(&tail) == 32);

  fermata_sequence_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = (uint32_t)sizeof options;
  fermata_extra many[65];
  for (size_t i = 0; i < 65; ++i) many[i] = adapter;
  options.extras = many;
  options.extra_count = 65;
  fermata_sequence sequence = {77};
  EXPECT_INVALID(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  CHECK(sequence.id == 0);
  options.extra_count = 1;
  many[0].token_begin = 32;
  many[0].token_end = 16;
  EXPECT_INVALID(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  many[0] = adapter;
  many[0].data.size = 65537;
  EXPECT_INVALID(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  many[0] = adapter;
  many[0].type = 5; /* neither ours nor the engine's */
  EXPECT_INVALID(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  options.extras = NULL;
  EXPECT_INVALID(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  test_block_keys();
  fixture_close(&f);
}
