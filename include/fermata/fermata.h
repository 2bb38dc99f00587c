/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FERMATA_FERMATA_H_
#define FERMATA_FERMATA_H_
/*
 * Fermata: the KV-cache layer for engines whose users are agents. This header is the whole promised
 * C ABI.
 *
 * Handles
 *   64-bit ids, checked on every call and never dereferenced. A zero, stale, closed or foreign id
 * is FERMATA_INVALID_ARGUMENT (reason BAD_HANDLE); closing a zero handle is a no-op.
 *
 * Status
 *   The canonical code (the numbers of absl::StatusCode); `reason` tells apart what needs telling
 *   apart. Every call takes an optional caller-owned fermata_error last; NULL is fine. Nothing is
 * to be freed.
 *
 * Structs
 *   Start with `struct_size` (set it to sizeof the struct). Zero in any other field means its
 *   default. A larger struct than the library knows is accepted when the surplus is all zero; a
 *   smaller one is read as if its missing tail were zero. A size that is no multiple of the
 *   struct's alignment, and so cuts a field in two, is refused. `reserved` fields and unknown flag
 *   bits must be zero. In an array of such structs every element has the struct_size of the first.
 *
 * Memory
 *   Belongs to who allocated it. All arguments are copied before a call returns, except slot memory
 *   (arenas), which is borrowed until fermata_arena_unregister succeeds or fermata_cache_close
 *   returns FERMATA_OK.
 *
 * Batches
 *   Report through each item's status and reason; the call itself fails for arguments that concern
 *   all items. A batch of one answers as a plain call does: its item's status is the call's, error
 *   text included.
 *
 * Threads
 *   Any function may be called from any thread at any time. Calls on one sequence are serialised by
 *   the library; their order is the caller's business. No function waits for I/O, except
 *   fermata_cache_open, _close, fermata_arena_unregister and fermata_queue_poll, which take a
 *   deadline or a timeout (open excepted), and fermata_reset and fermata_erase, whose effect is
 *   durable when they return (30 s at most).
 *
 * Callbacks
 *   device_ops and the log sink are the only ones that come from the library's own thread; they are
 *   called with no lock held and must not call Fermata: what they call answers
 *   FAILED_PRECONDITION/STATE.
 *   fermata_stats_visit calls its visitor on the calling thread, with no lock held.
 *
 * Times
 *   Nanoseconds of the cache's monotonic clock (fermata_now); deadlines are absolute; 0 means the
 *   default.
 *
 * fork and exit
 *   After fork() the child may not use inherited caches: every call answers FORKED. It may end by
 *   exit() or _exit(), and does not keep a directory in use that the parent has closed. exec is
 *   unaffected. A process may end without closing its caches: an exit handler stops new work and
 *   waits at most 0.5 s for the piece that runs.
 *
 * since: every declaration here is since 0.1 unless it says otherwise. 0.x promises no ABI
 * stability between minors.
 */
#include <stddef.h>
#include <stdint.h>

#define FERMATA_VERSION_MAJOR 0
#define FERMATA_VERSION_MINOR 1
#define FERMATA_VERSION_PATCH 0

#if defined(FERMATA_STATIC)
#define FERMATA_API
#elif defined(__GNUC__)
#define FERMATA_API __attribute__((visibility("default")))
#else
#define FERMATA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------
 * status */
typedef int32_t fermata_status;
#define FERMATA_OK 0
#define FERMATA_CANCELLED 1
#define FERMATA_UNKNOWN 2
#define FERMATA_INVALID_ARGUMENT 3
#define FERMATA_DEADLINE_EXCEEDED 4
#define FERMATA_NOT_FOUND 5
#define FERMATA_ALREADY_EXISTS 6
#define FERMATA_PERMISSION_DENIED 7
#define FERMATA_RESOURCE_EXHAUSTED 8
#define FERMATA_FAILED_PRECONDITION 9
#define FERMATA_ABORTED 10
#define FERMATA_OUT_OF_RANGE 11
#define FERMATA_UNIMPLEMENTED 12
#define FERMATA_INTERNAL 13
#define FERMATA_UNAVAILABLE 14
#define FERMATA_DATA_LOSS 15

/* The second, stable half of an answer. The code in brackets is the only status it comes with. */
#define FERMATA_REASON_NONE 0u
#define FERMATA_REASON_NO_SPACE \
  1u /* [RESOURCE_EXHAUSTED] not even evicting all that may go would do */
#define FERMATA_REASON_QUEUE_FULL \
  2u /* [RESOURCE_EXHAUSTED] a bounded queue or table is full; poll first */
#define FERMATA_REASON_QUOTA 3u /* [RESOURCE_EXHAUSTED] a tenant's share is used up */
#define FERMATA_REASON_WOULD_BLOCK \
  10u /* [UNAVAILABLE] room is being made or held by others; nothing is held; retry */
#define FERMATA_REASON_TIER_SICK 11u     /* [UNAVAILABLE] the tier is switched off after errors */
#define FERMATA_REASON_LEASE_EXPIRED 20u /* [FAILED_PRECONDITION] */
#define FERMATA_REASON_CLOSED 21u        /* [FAILED_PRECONDITION] the cache is closing or closed */
#define FERMATA_REASON_FORKED 22u /* [FAILED_PRECONDITION] the handle was inherited over fork() */
#define FERMATA_REASON_STATE \
  23u /* [FAILED_PRECONDITION] the object is in another state than the call needs */
#define FERMATA_REASON_IN_USE 24u /* [FAILED_PRECONDITION] another process or object holds it */
#define FERMATA_REASON_CHECKSUM \
  30u /* [DATA_LOSS] bytes came back that are not those that were stored */
#define FERMATA_REASON_TORN 31u       /* [DATA_LOSS] fewer bytes came back than were stored */
#define FERMATA_REASON_BAD_HANDLE 40u /* [INVALID_ARGUMENT] zero, stale, closed or foreign id */
#define FERMATA_REASON_BAD_LAYOUT \
  41u /* [INVALID_ARGUMENT] regions or directory disagree with the group's geometry */

#define FERMATA_ERROR_MESSAGE_BYTES 240
typedef struct fermata_error {
  uint32_t struct_size;
  fermata_status status;
  uint32_t reason;
  uint32_t reserved;
  char message[FERMATA_ERROR_MESSAGE_BYTES]; /* NUL-terminated; names the field and the value */
} fermata_error;

FERMATA_API const char* fermata_status_name(
    fermata_status status);                                   /* "RESOURCE_EXHAUSTED"; never NULL */
FERMATA_API const char* fermata_reason_name(uint32_t reason); /* "NO_SPACE"; never NULL */
FERMATA_API const char* fermata_version(void);                /* "0.1.0" of the library in use */
FERMATA_API uint32_t
fermata_abi(void); /* major << 16 | minor of the library in use; compare with the header's */

/* ---------------------------------------------------------------------------------------------
 * handles */
typedef struct {
  uint64_t id;
} fermata_cache;
typedef struct {
  uint64_t id;
} fermata_space;
typedef struct {
  uint64_t id;
} fermata_arena;
typedef struct {
  uint64_t id;
} fermata_sequence;
typedef struct {
  uint64_t id;
} fermata_session;
typedef struct {
  uint64_t id;
} fermata_lease;
typedef struct {
  uint64_t id;
} fermata_job;
typedef struct {
  uint64_t id;
} fermata_queue;

/* ------------------------------------------------------------------------------------ device
 * operations */
/* One contiguous run of bytes of a batch. Exactly one side is device memory. */
typedef struct fermata_copy_run {
  const void* source;
  void* target;
  uint64_t bytes;
} fermata_copy_run;

#define FERMATA_COPY_DEVICE_TO_HOST 1u
#define FERMATA_COPY_HOST_TO_DEVICE 2u

/* How bytes get in and out of the engine's device memory. NULL in the config: plain memory and
 * memcpy. The table is copied at open; `user` must outlive the cache. Called from the library's
 * thread, no lock held; must not call back. */
typedef struct fermata_device_ops {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  /* Starts a batch. `ticket` is unique; `runs` is valid during the call only. Not FERMATA_OK:
   * nothing was started. */
  fermata_status (*copy_submit)(void* user, const fermata_copy_run* runs, size_t count,
                                uint32_t direction, uint64_t ticket);
  /* *out_done = 1 once every run of the ticket is complete (then asked no more). Not FERMATA_OK:
   * the batch failed. */
  fermata_status (*copy_poll)(void* user, uint64_t ticket, uint32_t* out_done);
  /* *out_done = 1 once the engine's event has fired. May be NULL when the engine never passes
   * events. */
  fermata_status (*event_query)(void* user, void* event, uint32_t* out_done);
} fermata_device_ops;

/* -----------------------------------------------------------------------------------------
 * configuration */
#define FERMATA_RULE_FULL 0u   /* full attention: a hit needs every block of the prefix */
#define FERMATA_RULE_WINDOW 1u /* UNIMPLEMENTED in 0.1 */
#define FERMATA_RULE_STATE 2u  /* UNIMPLEMENTED in 0.1 */

typedef struct fermata_group_config {
  uint32_t struct_size;
  uint32_t rule;         /* FERMATA_RULE_... */
  uint32_t block_tokens; /* multiple of chain_tokens, 1..65536; default chain_tokens */
  uint32_t reserved;
  uint64_t block_bytes; /* payload of one block, all its segments together, 1..1 GiB; required */
} fermata_group_config;

#define FERMATA_TIER_DEVICE 1u
#define FERMATA_TIER_HOST 2u
#define FERMATA_TIER_SSD 3u
#define FERMATA_TIER_REMOTE 4u /* UNIMPLEMENTED in 0.1 */
#define FERMATA_TIER_SIM 5u
#define FERMATA_TIERS_MAX 32u

#define FERMATA_TIER_NO_DIRECT_IO 1u  /* ssd: do not ask for O_DIRECT */
#define FERMATA_TIER_NO_IO_URING 2u   /* ssd: use the pread/pwrite fallback */
#define FERMATA_TIER_NO_HUGE_PAGES 4u /* host: do not ask for 2 MiB pages */

typedef struct fermata_tier_config {
  uint32_t struct_size;
  uint32_t
      kind; /* FERMATA_TIER_...; the first is the device, at most one of each of device and host */
  uint32_t ordinal; /* tells several of a kind apart */
  uint32_t flags;
  uint64_t capacity_bytes; /* host, ssd, sim: hard cap of block slots. Shared out over groups by
                              bytes per token. A slot is block_bytes rounded up to 4096. device:
                              ignored (arenas say) */
  uint64_t staging_bytes;  /* host: extra bytes for blocks in passage between tiers that are not
                              memory; default  min(64 MiB, max(8 slots, capacity/8)). Part of what is
                              allocated, on top of capacity_bytes */
  const char* directory;   /* ssd: created 0700 if missing; required */
  uint32_t io_depth;       /* ssd: requests in flight, 1..1024; default 32 */
  uint32_t reserved;
} fermata_tier_config;

typedef void (*fermata_log_fn)(void* user, uint32_t level, const char* line);
#define FERMATA_LOG_ERROR 0u
#define FERMATA_LOG_WARNING 1u
#define FERMATA_LOG_INFO 2u

typedef struct fermata_config {
  uint32_t struct_size;
  uint32_t flags;        /* none yet */
  uint32_t chain_tokens; /* base unit of the identity chain, tokens, 1..65536; default 16 */
  uint32_t group_count;  /* 1..16 */
  const fermata_group_config* groups;
  const fermata_tier_config* tiers;
  uint32_t tier_count;     /* 1..FERMATA_TIERS_MAX, in order: evicted blocks go to the next one */
  uint32_t event_capacity; /* events kept until fermata_events_poll; default 0 = none recorded */
  const char* policy;      /* "lru" or "lru-superseded"; default "lru-superseded" */
  const fermata_device_ops* device_ops;
  fermata_log_fn log; /* default: silent */
  void* log_user;
  uint64_t lease_ns;      /* default life of a lease; default 10 s */
  uint32_t max_sequences; /* default 65536, at most 1048576; the same bound holds for leases and
                             sessions */
  uint32_t max_jobs;      /* in flight; default 4096, at most 65536 */
  uint32_t free_watermark_ppm; /* park demotes until this share of the device slots is free; default
                                  0 = only on demand */
  uint32_t reserved;
} fermata_config;

FERMATA_API void fermata_config_init(fermata_config* config, size_t struct_size);

/* Opens a cache: validates everything, allocates, opens the SSD directory and rebuilds its index
 * (the only call here that does I/O at the caller's expense). On any error *out_cache is zero and
 * nothing was changed on disk, except that a missing directory may have been created. Errors:
 * INVALID_ARGUMENT (field named), FAILED_PRECONDITION/IN_USE (another process has the directory),
 * INVALID_ARGUMENT/BAD_LAYOUT (directory of another geometry), FAILED_PRECONDITION (the directory
 * was written by another version, holds data without a superblock, or a file of it is a link; it is
 * not touched), DATA_LOSS/CHECKSUM (both copies of the superblock are damaged), NOT_FOUND (the
 * directory's parent is missing), RESOURCE_EXHAUSTED (memory, file descriptors),
 * RESOURCE_EXHAUSTED/NO_SPACE (disk space), UNIMPLEMENTED (a kind or rule that this version lacks),
 * PERMISSION_DENIED, UNAVAILABLE (I/O error). */
FERMATA_API fermata_status fermata_cache_open(const fermata_config* config,
                                              fermata_cache* out_cache, fermata_error* error);

/* Stops new work, cancels, drains, and frees. At `deadline_ns` (0 = 5 s from now) it returns
 * DEADLINE_EXCEEDED and the cache stays closing: only close, stats and the queues answer; calling
 * it again goes on waiting. Live objects do not block it. */
FERMATA_API fermata_status fermata_cache_close(fermata_cache cache, uint64_t deadline_ns,
                                               fermata_error* error);

FERMATA_API fermata_status fermata_now(fermata_cache cache, uint64_t* out_ns, fermata_error* error);

/* ---------------------------------------------------------------------------------------------
 * identity */
typedef struct fermata_bytes {
  const void* data;
  uint64_t size;
} fermata_bytes; /* at most 65536 bytes wherever it is used */

#define FERMATA_KEYS_TOKENS 0u /* blocks are named by the library from token ids */
#define FERMATA_KEYS_BLOCKS \
  1u /* blocks are named by the engine's own chained keys, one per chain_tokens tokens */

/* Two spaces share blocks only if every field is equal, byte for byte, and the groups' geometry is
 * too. All of it is framed and typed; empty and absent are the same here, unlike in fermata_extra.
 */
typedef struct fermata_space_config {
  uint32_t struct_size;
  uint32_t key_mode;     /* FERMATA_KEYS_... */
  fermata_bytes weights; /* digest or revision of the weights; required, at least 1 byte */
  fermata_bytes model_config;
  fermata_bytes rope;
  fermata_bytes tenant_salt;
  fermata_bytes kv_dtype; /* dtype and scales */
  fermata_bytes codec;
  uint32_t layout_version;
  uint32_t rank;
  uint32_t ranks;      /* default 1; rank < ranks */
  uint32_t replicated; /* 1: every rank holds the same bytes */
} fermata_space_config;

/* Opening the same identity twice gives two handles of one space. */
FERMATA_API fermata_status fermata_space_open(fermata_cache cache,
                                              const fermata_space_config* config,
                                              fermata_space* out_space, fermata_error* error);
/* Closes the handle; cached blocks stay. FAILED_PRECONDITION/IN_USE while sequences or leases of it
 * live. */
FERMATA_API fermata_status fermata_space_close(fermata_space space, fermata_error* error);

#define FERMATA_EXTRA_ADAPTER 1u
#define FERMATA_EXTRA_SALT 2u
#define FERMATA_EXTRA_IMAGE 3u
#define FERMATA_EXTRA_EMBEDDING 4u
#define FERMATA_EXTRA_USER \
  1024u /* and above: the engine's own types; those between are INVALID_ARGUMENT */

/* A typed part of the identity beside the tokens. {ADAPTER:X}, {SALT:X} and {IMAGE:X} differ;
 * absent and empty differ. It covers tokens [token_begin, token_end); 0,0 means the whole sequence.
 * At most 64 per sequence. */
typedef struct fermata_extra {
  uint32_t struct_size;
  uint32_t type;
  uint64_t token_begin;
  uint64_t token_end;
  fermata_bytes data;
} fermata_extra;

/* ----------------------------------------------------------------------------------------------
 * arenas */
typedef struct fermata_region {
  void* base;
  uint64_t slot_bytes;
  uint64_t slot_stride; /* >= slot_bytes; default slot_bytes */
} fermata_region;

/* The engine's memory of one group: slot i of a block lies at base + i * slot_stride of every
 * region; the block's contiguous cold form is the regions' slots one after the other. The sum of
 * slot_bytes must equal the group's block_bytes. No two slots may share a byte, of one region or of
 * two, in this arena or another of the device (INVALID_ARGUMENT/BAD_LAYOUT); regions whose slots
 * lie in each other's gaps are fine. */
typedef struct fermata_arena_config {
  uint32_t struct_size;
  uint32_t group;
  uint32_t device; /* ordinal of the device tier */
  uint32_t slots;  /* 1..2^31-1, equal in all regions */
  const fermata_region* regions;
  uint32_t region_count; /* 1..4096 */
  uint32_t reserved;
} fermata_arena_config;

FERMATA_API fermata_status fermata_arena_register(fermata_cache cache,
                                                  const fermata_arena_config* config,
                                                  fermata_arena* out_arena, fermata_error* error);
/* Sleep: waits for copies in flight until `deadline_ns`, then forgets every device entry of the
 * arena (blocks with a copy in another tier stay). FAILED_PRECONDITION/IN_USE while a sequence
 * holds slots of it. */
FERMATA_API fermata_status fermata_arena_unregister(fermata_arena arena, uint64_t deadline_ns,
                                                    fermata_error* error);
/* The contents of the device memory are gone (reset, sleep without save). Before this returns no
 * device entry can be hit; sequences keep their slots but are unmarked to 0 tokens and publish
 * nothing any more. */
FERMATA_API fermata_status fermata_device_lost(fermata_cache cache, uint32_t device,
                                               fermata_error* error);

/* ----------------------------------------------------------------------------------- completions
 * and jobs */
typedef struct fermata_completion {
  uint32_t struct_size;
  fermata_status
      status; /* OK, CANCELLED, DATA_LOSS, UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED */
  uint64_t user_data;
  fermata_job job;
  uint32_t reason;
  uint32_t items_total; /* blocks that were to be moved */
  uint32_t items_ok;
  uint32_t reserved;
  uint64_t valid_tokens; /* leading tokens of the sequence whose KV is on the device now */
} fermata_completion;

/* Queues belong to no cache and outlive them. depth: undelivered completions plus jobs in
 * flight, 1..65536. */
FERMATA_API fermata_status fermata_queue_create(uint32_t depth, fermata_queue* out_queue,
                                                fermata_error* error);
/* Fails with FAILED_PRECONDITION/IN_USE while a job will still complete into it. A thread that
 * waits in fermata_queue_poll returns at once with FERMATA_OK and *out_count 0; later polls answer
 * INVALID_ARGUMENT/BAD_HANDLE. */
FERMATA_API fermata_status fermata_queue_destroy(fermata_queue queue, fermata_error* error);
/* An eventfd that is readable while completions wait. Owned by the queue; do not read or close it.
 */
FERMATA_API fermata_status fermata_queue_fd(fermata_queue queue, int32_t* out_fd,
                                            fermata_error* error);
/* Copies up to `capacity` completions out; waits at most `timeout_ns` (0 = not at all) for the
 * first one. *out_count may be 0 with FERMATA_OK. Every accepted job completes exactly once, also
 * when cancelled or at close. */
FERMATA_API fermata_status fermata_queue_poll(fermata_queue queue, fermata_completion* out,
                                              size_t capacity, uint64_t timeout_ns,
                                              size_t* out_count, fermata_error* error);
/* Asks a job to end. It still completes once (CANCELLED, or its own end if that came first).
 * NOT_FOUND: it has ended. */
FERMATA_API fermata_status fermata_job_cancel(fermata_job job, fermata_error* error);

/* ---------------------------------------------------------------------------------------------
 * sessions */
typedef struct fermata_session_options {
  uint32_t struct_size;
  uint32_t priority;      /* advisory */
  fermata_session parent; /* the session that spawned this one, or zero */
} fermata_session_options;

#define FERMATA_TURN_TOOL 1u
#define FERMATA_TURN_HUMAN 2u
#define FERMATA_TURN_FINAL 3u

typedef struct fermata_turn_end {
  uint32_t struct_size;
  uint32_t kind;        /* FERMATA_TURN_... or 0 = unknown */
  fermata_bytes tool;   /* name of the tool that runs now, at most 255 bytes */
  uint64_t expected_ns; /* how long the gap should be; 0 = unknown */
  uint64_t due_ns;      /* when the session should be back; 0 = unknown */
  uint32_t confidence_ppm;
  uint32_t priority;
} fermata_turn_end;

#define FERMATA_VERDICT_ACCEPTED 1u
#define FERMATA_VERDICT_CLIPPED 2u
#define FERMATA_VERDICT_IGNORED 3u /* the policy in use has no need of it */

FERMATA_API fermata_status fermata_session_open(fermata_cache cache,
                                                const fermata_session_options* options,
                                                fermata_session* out_session, fermata_error* error);
/* A turn begins: told to the policy. Lookups that name the session do the rest (its last path, what
 * it superseded). */
FERMATA_API fermata_status fermata_session_begin_turn(fermata_session session,
                                                      fermata_error* error);
FERMATA_API fermata_status fermata_session_end_turn(fermata_session session,
                                                    const fermata_turn_end* turn,
                                                    uint32_t* out_verdict, fermata_error* error);
/* The conversation is over; its handle ends. Blocks stay until the policy lets them go. */
FERMATA_API fermata_status fermata_session_end(fermata_session session, uint32_t* out_verdict,
                                               fermata_error* error);

/* ----------------------------------------------------------------------------------------------
 * lookup */
#define FERMATA_LOOKUP_NO_LEASE 1u /* count only: nothing is held, nobody's recency changes */

typedef struct fermata_lookup_item {
  uint32_t struct_size;
  uint32_t flags;
  fermata_session session; /* whose turn asks; zero = nobody's */
  const uint32_t* tokens;  /* FERMATA_KEYS_TOKENS */
  uint64_t token_count;    /* at most 2^24 */
  const void* keys; /* FERMATA_KEYS_BLOCKS: key_count keys of key_bytes (1..255) each, no padding */
  uint64_t key_count;
  uint32_t key_bytes;
  uint32_t extra_count;
  const fermata_extra* extras;
  uint64_t leave_tokens; /* leave at least so many of the tokens uncovered (an engine needs 1 to
                            compute logits) */
  uint64_t lease_deadline_ns; /* 0 = now + config.lease_ns */
  uint64_t* tier_tokens;      /* out, optional: tokens found per tier, in the config's order */
  uint32_t tier_capacity;     /* of tier_tokens */
  fermata_status status;      /* out, as is all that follows */
  uint32_t reason;
  uint32_t reserved;
  uint64_t hit_tokens;     /* the longest prefix that every group can give back whole */
  uint64_t pending_tokens; /* of those, on their way into the device by a job in flight */
  fermata_lease lease;     /* zero when nothing was found */
} fermata_lookup_item;

/* Finds the longest cached prefix of each item, all groups under one snapshot, and leases it: the
 * blocks found stay until the lease is taken, dropped or its deadline passes. Never waits, never
 * does I/O. Cost: O(blocks). The call fails as a whole only for arguments that concern all items;
 * otherwise look at each item's status. */
FERMATA_API fermata_status fermata_lookup(fermata_space space, fermata_lookup_item* items,
                                          size_t count, fermata_error* error);
/* Hands the leased blocks to an empty sequence of the same space. The lease ends in any case but
 * BAD_HANDLE and STATE. */
FERMATA_API fermata_status fermata_lease_take(fermata_lease lease, fermata_sequence sequence,
                                              fermata_error* error);
FERMATA_API fermata_status fermata_lease_drop(fermata_lease lease, fermata_error* error);
/* Shortens the lease to the length that all ranks agreed on (rounded down to whole blocks of every
 * group). */
FERMATA_API fermata_status fermata_lease_trim(fermata_lease lease, uint64_t tokens,
                                              uint64_t* out_tokens, fermata_error* error);

/* --------------------------------------------------------------------------------------------
 * sequences */
#define FERMATA_SEQUENCE_NO_STORE 1u /* nothing of it is ever published */

typedef struct fermata_sequence_options {
  uint32_t struct_size;
  uint32_t flags;
  fermata_session session; /* zero = none */
  const fermata_extra* extras;
  uint32_t extra_count;
  uint32_t reserved;
} fermata_sequence_options;

FERMATA_API fermata_status fermata_sequence_create(fermata_space space,
                                                   const fermata_sequence_options* options,
                                                   fermata_sequence* out_sequence,
                                                   fermata_error* error);

typedef struct fermata_load_options {
  uint32_t struct_size;
  uint32_t flags;      /* none yet */
  fermata_queue queue; /* required */
  uint64_t user_data;
  uint64_t reserve_tokens; /* also hold slots so that the sequence can grow to this length without
                              failing */
  uint64_t deadline_ns;    /* 0 = none */
} fermata_load_options;

/* Brings every block of the sequence to the device and reserves room for more, as one job that
 * states its whole need: it has it, or it holds nothing and answers UNAVAILABLE/WOULD_BLOCK (others
 * hold what it needs: retry when they let go) or RESOURCE_EXHAUSTED/NO_SPACE (it would not fit on
 * an empty device). Room is made by demoting what the policy yields. If block k cannot be read back
 * the job ends DATA_LOSS (or UNAVAILABLE) with valid_tokens = what precedes it, and the sequence is
 * cut to that length. Until it completes, append and truncate on the sequence answer STATE. */
FERMATA_API fermata_status fermata_sequence_load(fermata_sequence sequence,
                                                 const fermata_load_options* options,
                                                 fermata_job* out_job, fermata_error* error);

typedef struct fermata_block_copy {
  uint32_t group;
  uint32_t source_slot;
  uint32_t target_slot;
  uint32_t valid_tokens; /* of the source block */
} fermata_block_copy;

typedef struct fermata_append_item {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  fermata_sequence sequence;
  const uint32_t* tokens; /* FERMATA_KEYS_TOKENS: token_count ids. FERMATA_KEYS_BLOCKS: NULL */
  uint64_t token_count;   /* how far the sequence grows */
  const void* keys; /* FERMATA_KEYS_BLOCKS: names of the units that are full now and have none yet,
                       in order */
  uint64_t key_count;
  uint32_t key_bytes;
  uint32_t copy_capacity;     /* of copies; one per group suffices */
  fermata_block_copy* copies; /* out: copy-on-write, to be run before the new tokens are written, in
                                 the order given. The source stays what it is until tokens of this
                                 append are marked (with an event: until it has fired) */
  uint32_t copy_count;        /* out */
  fermata_status status;      /* out */
  uint32_t reason;            /* out */
  uint32_t reserved;
} fermata_append_item;

/* Grows sequences. Takes reserved slots first, then free ones, then slots of blocks that may be
 * dropped at once. An item that fails (NO_SPACE, WOULD_BLOCK, STATE, INVALID_ARGUMENT) changes
 * nothing of its sequence. Slots: fermata_sequence_slots. */
FERMATA_API fermata_status fermata_append(fermata_cache cache, fermata_append_item* items,
                                          size_t count, fermata_error* error);

typedef struct fermata_mark_item {
  uint32_t struct_size;
  uint32_t reserved0;
  fermata_sequence sequence;
  uint64_t tokens; /* the first so many tokens are physically written */
  void* event;     /* optional: they are, once this event of device_ops fires; only then are they
                      published. INVALID_ARGUMENT without device_ops.event_query */
  fermata_status status; /* out */
  uint32_t reason;       /* out */
} fermata_mark_item;

/* Declares tokens written. Full blocks with known names become findable and frozen. Marking less
 * than before is a no-op. Slots that the sequence gives up (truncate, park, release) go to others
 * when the events of all its marks so far have fired, and no earlier: work that the engine has in
 * flight on them has to be covered by such a mark. An event that event_query fails on counts
 * as one that has not fired, and is asked about again until fermata_device_lost, which ends all
 * waiting for events. */
FERMATA_API fermata_status fermata_mark(fermata_cache cache, fermata_mark_item* items, size_t count,
                                        fermata_error* error);

/* Copies the table, not the payload. The first of the relatives to write into a shared partial
 * block copies it. */
FERMATA_API fermata_status fermata_sequence_fork(fermata_sequence sequence,
                                                 fermata_sequence* out_children, size_t count,
                                                 fermata_error* error);
FERMATA_API fermata_status fermata_sequence_truncate(fermata_sequence sequence, uint64_t tokens,
                                                     fermata_error* error);

#define FERMATA_PARK_LAZY \
  0u /* let go of the slots; blocks move when room is needed or the watermark says so */
#define FERMATA_PARK_KEEP                                                                         \
  1u /* demote now; if it does not fit whole: NO_SPACE and the sequence is as before. What cannot \
        be written after all (UNAVAILABLE, RESOURCE_EXHAUSTED; items_ok lie below) stays on the   \
        device while nobody needs the room */
#define FERMATA_PARK_DROP \
  2u /* demote now; what does not fit is dropped, deepest first, and marked for recompute */

typedef struct fermata_park_options {
  uint32_t struct_size;
  uint32_t mode;       /* FERMATA_PARK_... */
  fermata_queue queue; /* required for KEEP and DROP: the demotion is a job */
  uint64_t user_data;
} fermata_park_options;

/* End of a turn: the sequence gives its device slots up but stays resumable. Unpublished tokens (a
 * partial tail) are let go. *out_job is zero with LAZY. While events of its marks have not fired it
 * is PARKING: nothing is read or given up yet, and resume answers UNAVAILABLE/WOULD_BLOCK. If a
 * KEEP no longer fits when they have, the job ends RESOURCE_EXHAUSTED and the sequence is RUNNING
 * as before. */
FERMATA_API fermata_status fermata_sequence_park(fermata_sequence sequence,
                                                 const fermata_park_options* options,
                                                 fermata_job* out_job, fermata_error* error);
/* The next turn: takes hold of what is still there and loads it, as fermata_sequence_load. The
 * sequence's length becomes the prefix that is still cached (fermata_sequence_info at once,
 * valid_tokens of the completion in the end). */
FERMATA_API fermata_status fermata_sequence_resume(fermata_sequence sequence,
                                                   const fermata_load_options* options,
                                                   fermata_job* out_job, fermata_error* error);
/* Ends sequences; deepest blocks come first in the order of victims. Batch; zero handles are
 * skipped; the first error is returned after all were tried. A load in flight on one is cancelled
 * and still completes; a park goes on. What its marks declare written is published still, when
 * their events fire. */
FERMATA_API fermata_status fermata_release(fermata_cache cache, const fermata_sequence* sequences,
                                           size_t count, fermata_error* error);

#define FERMATA_SEQUENCE_RUNNING 1u
#define FERMATA_SEQUENCE_LOADING 2u
#define FERMATA_SEQUENCE_PARKED 3u
#define FERMATA_SEQUENCE_PARKING 4u

typedef struct fermata_sequence_info {
  uint32_t struct_size;
  uint32_t state;
  uint64_t tokens;           /* length */
  uint64_t marked_tokens;    /* declared written */
  uint64_t published_tokens; /* findable, in every group */
  uint64_t device_tokens;    /* leading tokens whose blocks are all on the device */
  uint64_t reserved_tokens;  /* length that reserved slots allow without further room */
} fermata_sequence_info;

FERMATA_API fermata_status fermata_sequence_get_info(fermata_sequence sequence,
                                                     fermata_sequence_info* out,
                                                     fermata_error* error);
#define FERMATA_SLOT_NONE 0xffffffffu
/* The block table of one group from block `first`; a block that is not on the device reads
 * FERMATA_SLOT_NONE. *out_count is the number of blocks from `first` on, which may exceed
 * `capacity`: then only `capacity` were written. */
FERMATA_API fermata_status fermata_sequence_slots(fermata_sequence sequence, uint32_t group,
                                                  uint64_t first, uint32_t* out_slots,
                                                  size_t capacity, size_t* out_count,
                                                  fermata_error* error);

/* ------------------------------------------------------------------------------------- looking
 * inside */
typedef struct fermata_tier_stats {
  uint32_t kind;
  uint32_t ordinal;
  uint64_t slots; /* all groups together, as are the rest */
  uint64_t free_slots;
  uint64_t live_slots;   /* held by sequences or leases */
  uint64_t cached_slots; /* nobody's, findable */
  uint64_t in_flight_slots;
  uint64_t bytes_read;    /* payload bytes moved out of the tier */
  uint64_t bytes_written; /* payload bytes moved into it */
  uint64_t hit_tokens;    /* by taken leases */
  uint64_t evictions;
  uint64_t healthy; /* 0: switched off after errors */
} fermata_tier_stats;

typedef struct fermata_stats {
  uint32_t struct_size;
  uint32_t tier_count;
  uint64_t query_tokens; /* of taken leases and of lookups that found nothing */
  uint64_t hit_tokens;
  uint64_t blocks; /* known to the index or to sequences */
  uint64_t sequences;
  uint64_t sessions;
  uint64_t leases;
  uint64_t jobs;
  uint64_t dropped_blocks;    /* evicted from the last tier that had them */
  uint64_t lost_blocks;       /* given up because their bytes could not be had back right */
  uint64_t superseded_blocks; /* marked so far */
  fermata_tier_stats* tiers;  /* in: array of the caller's, or NULL */
  uint32_t tier_capacity;     /* in */
  uint32_t reserved;
} fermata_stats;

FERMATA_API fermata_status fermata_stats_get(fermata_cache cache, fermata_stats* out,
                                             fermata_error* error);
/* Every counter by name; `text` is not NULL for those that are words (the I/O mode in use, say). */
typedef void (*fermata_stats_visitor)(void* user, const char* name, uint64_t value,
                                      const char* text);
FERMATA_API fermata_status fermata_stats_visit(fermata_cache cache, fermata_stats_visitor visitor,
                                               void* user, fermata_error* error);

/* Room for blocks of one group on the device: free now, and how many more eviction could free. */
FERMATA_API fermata_status fermata_room(fermata_cache cache, uint32_t group, uint64_t* out_free,
                                        uint64_t* out_evictable, fermata_error* error);

#define FERMATA_EVENT_STORED 1u
#define FERMATA_EVENT_REMOVED 2u
typedef struct fermata_event {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t tier; /* index in the config's order */
  uint32_t group;
  uint64_t end_token; /* position of the block's end in its prefix */
  uint64_t key[2]; /* chain value at the block's end: stable over processes and builds, not a proof
                      of identity */
} fermata_event;
/* Oldest first. *out_lost: events that were overwritten since the last call. */
FERMATA_API fermata_status fermata_events_poll(fermata_cache cache, fermata_event* out,
                                               size_t capacity, size_t* out_count,
                                               uint64_t* out_lost, fermata_error* error);

/* Recounts everything from scratch and compares. OK, or INTERNAL with the first contradiction in
 * the message. */
typedef struct fermata_audit_report {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t blocks;
  uint64_t orphans; /* resident somewhere while their parent is resident nowhere */
} fermata_audit_report;
FERMATA_API fermata_status fermata_audit(fermata_cache cache, fermata_audit_report* out,
                                         fermata_error* error);
/* Writes a readable dump. *out_needed is the size including the NUL; with less capacity the text is
 * cut. */
FERMATA_API fermata_status fermata_state_dump(fermata_cache cache, char* out, size_t capacity,
                                              size_t* out_needed, fermata_error* error);

/* ------------------------------------------------------------------------------------------ life
 * cycle */
#define FERMATA_RESET_ALL 1u
#define FERMATA_RESET_SPACE 2u /* target = a space's id */
#define FERMATA_RESET_SESSION \
  3u /* target = a session's id: the blocks that only this session ever used */

/* Makes everything in scope unfindable in every tier before it returns, also what running sequences
 * hold (they may go on using it) and what jobs in flight would have published. The epoch is durable
 * on return. out_blocks[i]: blocks dropped from tier i. */
FERMATA_API fermata_status fermata_reset(fermata_cache cache, uint32_t scope, uint64_t target,
                                         uint64_t* out_blocks, uint32_t capacity,
                                         fermata_error* error);
/* Drops every unheld block of the prefix named by `item` (same fields as a lookup) from token
 * `from_token` on, and all that continues it. *out_blocks: how many. Held blocks become unfindable
 * and go when released. */
FERMATA_API fermata_status fermata_erase(fermata_space space, const fermata_lookup_item* item,
                                         uint64_t from_token, uint64_t* out_blocks,
                                         fermata_error* error);
FERMATA_API fermata_status fermata_tier_resize(fermata_cache cache, uint32_t tier,
                                               uint64_t capacity_bytes,
                                               fermata_error* error); /* UNIMPLEMENTED in 0.1 */
FERMATA_API fermata_status fermata_quota_set(fermata_cache cache, fermata_bytes tenant_salt,
                                             uint32_t tier, uint64_t bytes,
                                             fermata_error* error); /* UNIMPLEMENTED in 0.1 */

/* ----------------------------------------------------------------------------------------
 * initialisers */
#define FERMATA_ERROR_INIT                \
  {                                       \
    sizeof(fermata_error), 0, 0, 0, { 0 } \
  }

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* FERMATA_FERMATA_H_ */
