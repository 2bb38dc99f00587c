/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the C conformance test share: CHECK, which reports and goes on, and a small
 * cache to work on. Pure C99 and libc: these files see the library only as any caller does. Not
 * thread-safe; one thread. */
#ifndef FERMATA_TESTS_CAPI_CONFORMANCE_H_
#define FERMATA_TESTS_CAPI_CONFORMANCE_H_
#include <fermata/fermata.h>
#include <stdio.h>
#include <string.h>

extern int g_failures;
extern int g_checks;

/* Reports file:line and goes on, so that one run names everything that is wrong. */
#define CHECK(condition)                                                            \
  do {                                                                              \
    ++g_checks;                                                                     \
    if (!(condition)) {                                                             \
      ++g_failures;                                                                 \
      fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                               \
  } while (0)

/* The answer is exactly `status` with `reason`; the error struct says the same, and says something.
 */
#define EXPECT(call, want_status, want_reason) \
  expect_answer(__FILE__, __LINE__, #call, (call), (want_status), (want_reason), &g_error)
#define EXPECT_OK(call) EXPECT(call, FERMATA_OK, FERMATA_REASON_NONE)
#define EXPECT_INVALID(call) EXPECT(call, FERMATA_INVALID_ARGUMENT, FERMATA_REASON_NONE)
#define EXPECT_BAD_HANDLE(call) EXPECT(call, FERMATA_INVALID_ARGUMENT, FERMATA_REASON_BAD_HANDLE)

extern fermata_error g_error;
void expect_answer(const char* file, int line, const char* text, fermata_status status,
                   fermata_status want_status, uint32_t want_reason, const fermata_error* error);

#define BLOCK_TOKENS 16u
#define BLOCK_BYTES 4096u
#define SECOND 1000000000ull
#define MAX_SLOTS 64u
#define MAX_TOKENS (2u * MAX_SLOTS * BLOCK_TOKENS)

/* One device arena of plain memory, an optional host tier, one space keyed by tokens. */
typedef struct fixture {
  fermata_cache cache;
  fermata_space space;
  fermata_arena arena;
  fermata_queue queue;
  unsigned char memory[MAX_SLOTS * BLOCK_BYTES];
  uint32_t tokens[MAX_TOKENS];
} fixture;

/* A configuration that opens; pointers go to static storage, rewritten by each call. */
fermata_config* basic_config(uint64_t host_slots);
fermata_space_config basic_space(void);
void fixture_open(fixture* f, uint32_t device_slots, uint64_t host_slots);
void fixture_open_with(fixture* f, uint32_t device_slots, const fermata_config* config);
void fixture_close(fixture* f);

fermata_sequence new_sequence(fixture* f);
/* Grows by `count` of the fixture's tokens from `begin`; returns the item's status. */
fermata_status grow(fixture* f, fermata_sequence sequence, uint64_t begin, uint64_t count);
fermata_status mark(fixture* f, fermata_sequence sequence, uint64_t tokens);
/* A released sequence of the fixture's first `tokens` tokens, published. */
void publish(fixture* f, uint64_t tokens);
fermata_lookup_item lookup(fixture* f, uint64_t tokens, uint32_t flags);
/* The one completion of a job, waited for. */
fermata_completion finish(fixture* f, fermata_job job);

/* The parts; each opens its own caches. */
void test_names(void);
void test_config(void);
void test_struct_sizes(void);
void test_spaces_and_arenas(void);
void test_sequences(void);
void test_lookup(void);
void test_identity(void);
void test_jobs(void);
void test_queues(void);
void test_sessions(void);
void test_looking_inside(void);
void test_life_cycle(void);
void test_handles(void);
void test_close(void);
void test_fork(void);

#endif /* FERMATA_TESTS_CAPI_CONFORMANCE_H_ */
