/* SPDX-License-Identifier: Apache-2.0 */
/* Names, numbers, opening, and the rules of struct_size. */
#include <limits.h>

#include "conformance.h"

void test_names(void) {
  static const char* const kStatus[] = {"OK",
                                        "CANCELLED",
                                        "UNKNOWN",
                                        "INVALID_ARGUMENT",
                                        "DEADLINE_EXCEEDED",
                                        "NOT_FOUND",
                                        "ALREADY_EXISTS",
                                        "PERMISSION_DENIED",
                                        "RESOURCE_EXHAUSTED",
                                        "FAILED_PRECONDITION",
                                        "ABORTED",
                                        "OUT_OF_RANGE",
                                        "UNIMPLEMENTED",
                                        "INTERNAL",
                                        "UNAVAILABLE",
                                        "DATA_LOSS"};
  /* The canonical numbers, in the canonical order. */
  for (fermata_status status = 0; status <= 15; ++status) {
    CHECK(strcmp(fermata_status_name(status), kStatus[status]) == 0);
  }
  CHECK(FERMATA_INVALID_ARGUMENT == 3 && FERMATA_NOT_FOUND == 5 && FERMATA_RESOURCE_EXHAUSTED == 8);
  CHECK(FERMATA_FAILED_PRECONDITION == 9 && FERMATA_UNIMPLEMENTED == 12 && FERMATA_DATA_LOSS == 15);
  CHECK(fermata_status_name(-1) != NULL && fermata_status_name(16) != NULL);
  CHECK(fermata_status_name(INT32_MAX) != NULL && fermata_status_name(INT32_MIN) != NULL);
  CHECK(strcmp(fermata_reason_name(FERMATA_REASON_NO_SPACE), "NO_SPACE") == 0);
  CHECK(strcmp(fermata_reason_name(FERMATA_REASON_WOULD_BLOCK), "WOULD_BLOCK") == 0);
  CHECK(strcmp(fermata_reason_name(FERMATA_REASON_BAD_HANDLE), "BAD_HANDLE") == 0);
  CHECK(strcmp(fermata_reason_name(FERMATA_REASON_FORKED), "FORKED") == 0);
  CHECK(fermata_reason_name(UINT32_MAX) != NULL);
  CHECK(strcmp(fermata_version(), "0.1.0") == 0);
  CHECK(fermata_abi() == (((uint32_t)FERMATA_VERSION_MAJOR << 16) | FERMATA_VERSION_MINOR));
}

/* A refused open: `field` is named in the message, *out_cache is zero. */
static void expect_refused(const fermata_config* config, fermata_status status, const char* field,
                           int line) {
  fermata_cache cache = {77};
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status answer = fermata_cache_open(config, &cache, &error);
  CHECK(answer == status);
  CHECK(cache.id == 0);
  CHECK(strstr(error.message, field) != NULL);
  if (answer != status || cache.id != 0 || strstr(error.message, field) == NULL) {
    fprintf(stderr, "  called from line %d: %s \"%s\", field %s\n", line,
            fermata_status_name(answer), error.message, field);
  }
  if (answer == FERMATA_OK) fermata_cache_close(cache, 0, NULL);
}
#define REFUSED(field) expect_refused(&config, FERMATA_INVALID_ARGUMENT, field, __LINE__)

void test_config(void) {
  fermata_cache cache = {77};
  fermata_config config = *basic_config(0);
  fermata_config filled;
  memset(&filled, 0xff, sizeof filled);
  fermata_config_init(&filled, sizeof filled);
  CHECK(filled.struct_size == sizeof filled);
  fermata_config zero;
  memset(&zero, 0, sizeof zero);
  zero.struct_size = (uint32_t)sizeof zero;
  CHECK(memcmp(&filled, &zero, sizeof zero) == 0); /* zero means default, so init is zero */
  fermata_config_init(NULL, sizeof filled);        /* nothing to write: no crash */

  EXPECT_INVALID(fermata_cache_open(NULL, &cache, &g_error));
  CHECK(cache.id == 0);
  EXPECT_INVALID(fermata_cache_open(&config, NULL, &g_error));
  CHECK(fermata_cache_open(NULL, NULL, NULL) == FERMATA_INVALID_ARGUMENT); /* error is optional */

  config.flags = 1;
  REFUSED("flags");
  config = *basic_config(0);
  config.reserved = 1;
  REFUSED("reserved");
  config = *basic_config(0);
  config.group_count = 0;
  REFUSED("group_count");
  config.group_count = 17;
  REFUSED("group_count");
  config = *basic_config(0);
  config.groups = NULL;
  REFUSED("groups");
  config = *basic_config(0);
  config.tiers = NULL;
  REFUSED("tiers");
  config = *basic_config(0);
  config.tier_count = 0;
  REFUSED("tier_count");
  config.tier_count = UINT32_MAX;
  REFUSED("tier_count");
  config = *basic_config(0);
  config.chain_tokens = 65537;
  REFUSED("chain_tokens");
  config = *basic_config(0);
  config.policy = "no-such-policy";
  REFUSED("policy");
  config = *basic_config(0);
  config.max_sequences = 1048577;
  REFUSED("max_sequences");
  config = *basic_config(0);
  config.max_jobs = 65537;
  REFUSED("max_jobs");

  /* Groups. */
  fermata_group_config group = *basic_config(0)->groups;
  config = *basic_config(0);
  config.groups = &group;
  group.block_bytes = 0;
  REFUSED("block_bytes");
  group.block_bytes = (1ull << 30) + 1;
  REFUSED("block_bytes");
  group.block_bytes = BLOCK_BYTES;
  group.block_tokens = 24; /* not a multiple of chain_tokens */
  REFUSED("block_tokens");
  group.block_tokens = 65552;
  REFUSED("block_tokens");
  group.block_tokens = 16;
  group.reserved = 1;
  REFUSED("reserved");
  group.reserved = 0;
  group.rule = 3;
  REFUSED("rule");
  group.rule = FERMATA_RULE_WINDOW;
  expect_refused(&config, FERMATA_UNIMPLEMENTED, "rule", __LINE__);
  group.rule = FERMATA_RULE_STATE;
  expect_refused(&config, FERMATA_UNIMPLEMENTED, "rule", __LINE__);

  /* Tiers. */
  fermata_tier_config tiers[2];
  config = *basic_config(8);
  memcpy(tiers, config.tiers, sizeof tiers);
  config.tiers = tiers;
  tiers[1].capacity_bytes = 0;
  REFUSED("capacity_bytes");
  tiers[1].capacity_bytes = UINT64_MAX;
  {
    /* Absurd, but a number: refused before or at allocation. */
    const fermata_status status = fermata_cache_open(&config, &cache, NULL);
    CHECK(status == FERMATA_INVALID_ARGUMENT || status == FERMATA_RESOURCE_EXHAUSTED);
    CHECK(cache.id == 0);
  }
  tiers[1].capacity_bytes = 8 * BLOCK_BYTES;
  tiers[1].flags = 1u << 31;
  REFUSED("flags");
  tiers[1].flags = 0;
  tiers[1].kind = 0;
  REFUSED("kind");
  tiers[1].kind = 99;
  REFUSED("kind");
  tiers[1].kind = FERMATA_TIER_DEVICE; /* at most one */
  REFUSED("kind");
  tiers[1].kind = FERMATA_TIER_REMOTE;
  expect_refused(&config, FERMATA_UNIMPLEMENTED, "kind", __LINE__);
  tiers[1].kind = FERMATA_TIER_SSD; /* and no directory */
  REFUSED("directory");
  tiers[0].kind = FERMATA_TIER_HOST; /* the first is the device */
  tiers[1].kind = FERMATA_TIER_DEVICE;
  REFUSED("kind");
}

/* A caller from the future, whose struct is longer, and one from the past, whose struct is shorter.
 */
void test_struct_sizes(void) {
  union {
    fermata_config config;
    unsigned char bytes[sizeof(fermata_config) + 64];
  } longer;
  memset(&longer, 0, sizeof longer);
  longer.config = *basic_config(0);
  longer.config.struct_size = (uint32_t)sizeof longer;
  fermata_cache cache = {0};
  EXPECT_OK(fermata_cache_open(&longer.config, &cache, &g_error));
  EXPECT_OK(fermata_cache_close(cache, 0, &g_error));
  longer.bytes[sizeof longer - 1] = 1;
  EXPECT_INVALID(fermata_cache_open(&longer.config, &cache, &g_error));
  CHECK(cache.id == 0);
  longer.config.struct_size = UINT32_MAX;
  longer.bytes[sizeof longer - 1] = 0;
  longer.bytes[sizeof(fermata_config)] = 1; /* found before the end of the buffer is passed */
  EXPECT_INVALID(fermata_cache_open(&longer.config, &cache, &g_error));

  fermata_config shorter = *basic_config(0);
  shorter.lease_ns = 12345;
  shorter.max_sequences = UINT32_MAX; /* beyond what this caller knows of: not read */
  shorter.max_jobs = UINT32_MAX;
  shorter.reserved = UINT32_MAX;
  shorter.struct_size = (uint32_t)offsetof(fermata_config, max_sequences);
  EXPECT_OK(fermata_cache_open(&shorter, &cache, &g_error));

  /* A size that cuts a field in two is of no version: half a pointer would be followed. */
  for (uint32_t size = 0; size < (uint32_t)sizeof(fermata_config); ++size) {
    fermata_config cut = *basic_config(0);
    fermata_cache opened = {0};
    cut.policy = "lru";
    cut.struct_size = size;
    if (size % 8 != 0) {
      fermata_error why;
      why.struct_size = (uint32_t)sizeof why;
      CHECK(fermata_cache_open(&cut, &opened, &why) == FERMATA_INVALID_ARGUMENT);
      CHECK(strstr(why.message, "config.struct_size is ") != NULL);
    } else if (size <= (uint32_t)offsetof(fermata_config, tier_count)) {
      EXPECT_INVALID(fermata_cache_open(&cut, &opened, &g_error)); /* no tiers */
    } else {
      EXPECT_OK(fermata_cache_open(&cut, &opened, &g_error));
      EXPECT_OK(fermata_cache_close(opened, 0, &g_error));
    }
  }

  /* Out-structs: what lies behind the caller's size is not touched. */
  fermata_stats stats;
  memset(&stats, 0x5a, sizeof stats);
  stats.struct_size = (uint32_t)offsetof(fermata_stats, hit_tokens);
  EXPECT_OK(fermata_stats_get(cache, &stats, &g_error));
  CHECK(stats.query_tokens == 0);
  CHECK(stats.struct_size == offsetof(fermata_stats, hit_tokens));
  CHECK(stats.hit_tokens == 0x5a5a5a5a5a5a5a5aull &&
        stats.superseded_blocks == 0x5a5a5a5a5a5a5a5aull);

  /* The error struct too. */
  fermata_error error;
  memset(&error, 0x5a, sizeof error);
  error.struct_size = (uint32_t)offsetof(fermata_error, message) + 16;
  fermata_cache none = {0};
  CHECK(fermata_cache_open(NULL, &none, &error) == FERMATA_INVALID_ARGUMENT);
  CHECK(error.status == FERMATA_INVALID_ARGUMENT);
  CHECK(memchr(error.message, 0, 16) != NULL);
  CHECK(error.message[16] == 0x5a && error.message[FERMATA_ERROR_MESSAGE_BYTES - 1] == 0x5a);
  memset(&error, 0x5a, sizeof error);
  error.struct_size =
      (uint32_t)offsetof(fermata_error, message) + 8; /* the text is cut, and ends */
  CHECK(fermata_cache_open(NULL, &none, &error) == FERMATA_INVALID_ARGUMENT);
  CHECK(strcmp(error.message, "config ") == 0);
  CHECK(error.message[8] == 0x5a);
  EXPECT_OK(fermata_cache_close(cache, 0, &g_error));
}
