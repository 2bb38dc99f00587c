/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FERMATA_FERMATA_EXPERIMENTAL_H_
#define FERMATA_FERMATA_EXPERIMENTAL_H_
/*
 * Calls that are not promised yet: they may change or go in any release. Define
 * FERMATA_ALLOW_EXPERIMENTAL to use them. They open the library's seams: time that stands still,
 * work that runs only when stepped, tiers without bytes, tiers that fail under a seed.
 */
#ifndef FERMATA_ALLOW_EXPERIMENTAL
#error "define FERMATA_ALLOW_EXPERIMENTAL to use calls that may change or go in any release"
#endif
#include <fermata/fermata.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FERMATA_X_MANUAL_CLOCK 1u /* time moves only by fermata_x_clock_advance; starts at 1 */
#define FERMATA_X_STEP_DRIVEN 2u  /* no library thread: work runs inside fermata_x_step */
#define FERMATA_X_METADATA_ONLY \
  4u /* no bytes anywhere: arenas may have base NULL, lower tiers keep only the books */

/* Faults of FERMATA_TIER_SIM, in parts per million of the requests it serves. All zero: a perfect
 * memory tier. */
typedef struct fermata_x_sim_faults {
  uint32_t struct_size;
  uint32_t read_error_ppm;
  uint32_t write_error_ppm;
  uint32_t short_read_ppm;
  uint32_t torn_write_ppm;        /* reports success, stores a prefix */
  uint32_t misdirected_write_ppm; /* reports success, stores elsewhere */
  uint32_t bit_flip_ppm;          /* one bit of what is read */
  uint32_t lost_write_ppm;        /* reports success, stores nothing */
  uint64_t latency_min_ns;
  uint64_t latency_max_ns;
} fermata_x_sim_faults;

typedef struct fermata_x_options {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t seed;
  const fermata_x_sim_faults* sim_faults; /* for every sim tier */
  uint32_t hash_bits; /* bits of the hash that the index finds blocks by, 1..128; 0 = all. Few make
                         candidates many, and must not make one wrong hit */
  uint32_t reserved;
} fermata_x_options;

FERMATA_API fermata_status fermata_x_cache_open(const fermata_config* config,
                                                const fermata_x_options* options,
                                                fermata_cache* out_cache, fermata_error* error);
/* Manual clock only. Timers that fall due run in the next step. */
FERMATA_API fermata_status fermata_x_clock_advance(fermata_cache cache, uint64_t ns,
                                                   fermata_error* error);
/* Step-driven only: runs up to `max_steps` pieces of work on the calling thread. *out_ran <
 * max_steps: nothing is left to do until time moves or a call is made. One thread at a time. */
FERMATA_API fermata_status fermata_x_step(fermata_cache cache, uint64_t max_steps,
                                          uint64_t* out_ran, fermata_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* FERMATA_FERMATA_EXPERIMENTAL_H_ */
