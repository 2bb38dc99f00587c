/* SPDX-License-Identifier: Apache-2.0 */
/* The size of every public struct and the place of every field, against the committed table
 * layout.txt: a caller that was built against this header must find them there for as long as the
 * minor version stands. All fields are fixed-width or pointers, so one table serves every 64-bit
 * Linux. layout_test FILE          compares; non-zero on the first difference layout_test --print
 * prints the table, to be committed when it was meant to change
 */
#define FERMATA_ALLOW_EXPERIMENTAL
#include <fermata/fermata.h>
#include <fermata/fermata_experimental.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
  const char* name;
  size_t value;
} row;

#define SIZE(type) \
  { #type, sizeof(type) }
#define AT(type, field) \
  { #type "." #field, offsetof(type, field) }

static const row kRows[] = {
    SIZE(fermata_error),
    AT(fermata_error, struct_size),
    AT(fermata_error, status),
    AT(fermata_error, reason),
    AT(fermata_error, reserved),
    AT(fermata_error, message),
    SIZE(fermata_copy_run),
    AT(fermata_copy_run, source),
    AT(fermata_copy_run, target),
    AT(fermata_copy_run, bytes),
    SIZE(fermata_device_ops),
    AT(fermata_device_ops, struct_size),
    AT(fermata_device_ops, reserved),
    AT(fermata_device_ops, user),
    AT(fermata_device_ops, copy_submit),
    AT(fermata_device_ops, copy_poll),
    AT(fermata_device_ops, event_query),
    SIZE(fermata_group_config),
    AT(fermata_group_config, struct_size),
    AT(fermata_group_config, rule),
    AT(fermata_group_config, block_tokens),
    AT(fermata_group_config, reserved),
    AT(fermata_group_config, block_bytes),
    SIZE(fermata_tier_config),
    AT(fermata_tier_config, struct_size),
    AT(fermata_tier_config, kind),
    AT(fermata_tier_config, ordinal),
    AT(fermata_tier_config, flags),
    AT(fermata_tier_config, capacity_bytes),
    AT(fermata_tier_config, staging_bytes),
    AT(fermata_tier_config, directory),
    AT(fermata_tier_config, io_depth),
    AT(fermata_tier_config, reserved),
    SIZE(fermata_config),
    AT(fermata_config, struct_size),
    AT(fermata_config, flags),
    AT(fermata_config, chain_tokens),
    AT(fermata_config, group_count),
    AT(fermata_config, groups),
    AT(fermata_config, tiers),
    AT(fermata_config, tier_count),
    AT(fermata_config, event_capacity),
    AT(fermata_config, policy),
    AT(fermata_config, device_ops),
    AT(fermata_config, log),
    AT(fermata_config, log_user),
    AT(fermata_config, lease_ns),
    AT(fermata_config, max_sequences),
    AT(fermata_config, max_jobs),
    AT(fermata_config, free_watermark_ppm),
    AT(fermata_config, reserved),
    SIZE(fermata_bytes),
    AT(fermata_bytes, data),
    AT(fermata_bytes, size),
    SIZE(fermata_space_config),
    AT(fermata_space_config, struct_size),
    AT(fermata_space_config, key_mode),
    AT(fermata_space_config, weights),
    AT(fermata_space_config, model_config),
    AT(fermata_space_config, rope),
    AT(fermata_space_config, tenant_salt),
    AT(fermata_space_config, kv_dtype),
    AT(fermata_space_config, codec),
    AT(fermata_space_config, layout_version),
    AT(fermata_space_config, rank),
    AT(fermata_space_config, ranks),
    AT(fermata_space_config, replicated),
    SIZE(fermata_extra),
    AT(fermata_extra, struct_size),
    AT(fermata_extra, type),
    AT(fermata_extra, token_begin),
    AT(fermata_extra, token_end),
    AT(fermata_extra, data),
    SIZE(fermata_region),
    AT(fermata_region, base),
    AT(fermata_region, slot_bytes),
    AT(fermata_region, slot_stride),
    SIZE(fermata_arena_config),
    AT(fermata_arena_config, struct_size),
    AT(fermata_arena_config, group),
    AT(fermata_arena_config, device),
    AT(fermata_arena_config, slots),
    AT(fermata_arena_config, regions),
    AT(fermata_arena_config, region_count),
    AT(fermata_arena_config, reserved),
    SIZE(fermata_completion),
    AT(fermata_completion, struct_size),
    AT(fermata_completion, status),
    AT(fermata_completion, user_data),
    AT(fermata_completion, job),
    AT(fermata_completion, reason),
    AT(fermata_completion, items_total),
    AT(fermata_completion, items_ok),
    AT(fermata_completion, reserved),
    AT(fermata_completion, valid_tokens),
    SIZE(fermata_session_options),
    AT(fermata_session_options, struct_size),
    AT(fermata_session_options, priority),
    AT(fermata_session_options, parent),
    SIZE(fermata_turn_end),
    AT(fermata_turn_end, struct_size),
    AT(fermata_turn_end, kind),
    AT(fermata_turn_end, tool),
    AT(fermata_turn_end, expected_ns),
    AT(fermata_turn_end, due_ns),
    AT(fermata_turn_end, confidence_ppm),
    AT(fermata_turn_end, priority),
    SIZE(fermata_lookup_item),
    AT(fermata_lookup_item, struct_size),
    AT(fermata_lookup_item, flags),
    AT(fermata_lookup_item, session),
    AT(fermata_lookup_item, tokens),
    AT(fermata_lookup_item, token_count),
    AT(fermata_lookup_item, keys),
    AT(fermata_lookup_item, key_count),
    AT(fermata_lookup_item, key_bytes),
    AT(fermata_lookup_item, extra_count),
    AT(fermata_lookup_item, extras),
    AT(fermata_lookup_item, leave_tokens),
    AT(fermata_lookup_item, lease_deadline_ns),
    AT(fermata_lookup_item, tier_tokens),
    AT(fermata_lookup_item, tier_capacity),
    AT(fermata_lookup_item, status),
    AT(fermata_lookup_item, reason),
    AT(fermata_lookup_item, reserved),
    AT(fermata_lookup_item, hit_tokens),
    AT(fermata_lookup_item, pending_tokens),
    AT(fermata_lookup_item, lease),
    SIZE(fermata_sequence_options),
    AT(fermata_sequence_options, struct_size),
    AT(fermata_sequence_options, flags),
    AT(fermata_sequence_options, session),
    AT(fermata_sequence_options, extras),
    AT(fermata_sequence_options, extra_count),
    AT(fermata_sequence_options, reserved),
    SIZE(fermata_load_options),
    AT(fermata_load_options, struct_size),
    AT(fermata_load_options, flags),
    AT(fermata_load_options, queue),
    AT(fermata_load_options, user_data),
    AT(fermata_load_options, reserve_tokens),
    AT(fermata_load_options, deadline_ns),
    SIZE(fermata_block_copy),
    AT(fermata_block_copy, group),
    AT(fermata_block_copy, source_slot),
    AT(fermata_block_copy, target_slot),
    AT(fermata_block_copy, valid_tokens),
    SIZE(fermata_append_item),
    AT(fermata_append_item, struct_size),
    AT(fermata_append_item, flags),
    AT(fermata_append_item, sequence),
    AT(fermata_append_item, tokens),
    AT(fermata_append_item, token_count),
    AT(fermata_append_item, keys),
    AT(fermata_append_item, key_count),
    AT(fermata_append_item, key_bytes),
    AT(fermata_append_item, copy_capacity),
    AT(fermata_append_item, copies),
    AT(fermata_append_item, copy_count),
    AT(fermata_append_item, status),
    AT(fermata_append_item, reason),
    AT(fermata_append_item, reserved),
    SIZE(fermata_mark_item),
    AT(fermata_mark_item, struct_size),
    AT(fermata_mark_item, reserved0),
    AT(fermata_mark_item, sequence),
    AT(fermata_mark_item, tokens),
    AT(fermata_mark_item, event),
    AT(fermata_mark_item, status),
    AT(fermata_mark_item, reason),
    SIZE(fermata_park_options),
    AT(fermata_park_options, struct_size),
    AT(fermata_park_options, mode),
    AT(fermata_park_options, queue),
    AT(fermata_park_options, user_data),
    SIZE(fermata_sequence_info),
    AT(fermata_sequence_info, struct_size),
    AT(fermata_sequence_info, state),
    AT(fermata_sequence_info, tokens),
    AT(fermata_sequence_info, marked_tokens),
    AT(fermata_sequence_info, published_tokens),
    AT(fermata_sequence_info, device_tokens),
    AT(fermata_sequence_info, reserved_tokens),
    SIZE(fermata_tier_stats),
    AT(fermata_tier_stats, kind),
    AT(fermata_tier_stats, ordinal),
    AT(fermata_tier_stats, slots),
    AT(fermata_tier_stats, free_slots),
    AT(fermata_tier_stats, live_slots),
    AT(fermata_tier_stats, cached_slots),
    AT(fermata_tier_stats, in_flight_slots),
    AT(fermata_tier_stats, bytes_read),
    AT(fermata_tier_stats, bytes_written),
    AT(fermata_tier_stats, hit_tokens),
    AT(fermata_tier_stats, evictions),
    AT(fermata_tier_stats, healthy),
    SIZE(fermata_stats),
    AT(fermata_stats, struct_size),
    AT(fermata_stats, tier_count),
    AT(fermata_stats, query_tokens),
    AT(fermata_stats, hit_tokens),
    AT(fermata_stats, blocks),
    AT(fermata_stats, sequences),
    AT(fermata_stats, sessions),
    AT(fermata_stats, leases),
    AT(fermata_stats, jobs),
    AT(fermata_stats, dropped_blocks),
    AT(fermata_stats, lost_blocks),
    AT(fermata_stats, superseded_blocks),
    AT(fermata_stats, tiers),
    AT(fermata_stats, tier_capacity),
    AT(fermata_stats, reserved),
    SIZE(fermata_event),
    AT(fermata_event, struct_size),
    AT(fermata_event, kind),
    AT(fermata_event, tier),
    AT(fermata_event, group),
    AT(fermata_event, end_token),
    AT(fermata_event, key),
    SIZE(fermata_audit_report),
    AT(fermata_audit_report, struct_size),
    AT(fermata_audit_report, reserved),
    AT(fermata_audit_report, blocks),
    AT(fermata_audit_report, orphans),
    SIZE(fermata_cache),
    AT(fermata_cache, id),
    SIZE(fermata_space),
    AT(fermata_space, id),
    SIZE(fermata_arena),
    AT(fermata_arena, id),
    SIZE(fermata_sequence),
    AT(fermata_sequence, id),
    SIZE(fermata_session),
    AT(fermata_session, id),
    SIZE(fermata_lease),
    AT(fermata_lease, id),
    SIZE(fermata_job),
    AT(fermata_job, id),
    SIZE(fermata_queue),
    AT(fermata_queue, id),
    SIZE(fermata_x_sim_faults),
    AT(fermata_x_sim_faults, struct_size),
    AT(fermata_x_sim_faults, read_error_ppm),
    AT(fermata_x_sim_faults, write_error_ppm),
    AT(fermata_x_sim_faults, short_read_ppm),
    AT(fermata_x_sim_faults, torn_write_ppm),
    AT(fermata_x_sim_faults, misdirected_write_ppm),
    AT(fermata_x_sim_faults, bit_flip_ppm),
    AT(fermata_x_sim_faults, lost_write_ppm),
    AT(fermata_x_sim_faults, latency_min_ns),
    AT(fermata_x_sim_faults, latency_max_ns),
    SIZE(fermata_x_options),
    AT(fermata_x_options, struct_size),
    AT(fermata_x_options, flags),
    AT(fermata_x_options, seed),
    AT(fermata_x_options, sim_faults),
    AT(fermata_x_options, hash_bits),
    AT(fermata_x_options, reserved),
};

int main(int argc, char** argv) {
  const size_t count = sizeof kRows / sizeof kRows[0];
  if (argc != 2) {
    fprintf(stderr, "usage: layout_test FILE | --print\n");
    return 2;
  }
  if (strcmp(argv[1], "--print") == 0) {
    for (size_t i = 0; i < count; ++i) printf("%s %zu\n", kRows[i].name, kRows[i].value);
    return 0;
  }
  FILE* table = fopen(argv[1], "r");
  if (table == NULL) {
    fprintf(stderr, "cannot open %s\n", argv[1]);
    return 2;
  }
  size_t line = 0;
  int failures = 0;
  char name[128];
  size_t value = 0;
  while (fscanf(table, "%127s %zu", name, &value) == 2) {
    if (line >= count) {
      fprintf(stderr, "%s: row %s is not in the header\n", argv[1], name);
      ++failures;
      break;
    }
    if (strcmp(name, kRows[line].name) != 0 || value != kRows[line].value) {
      fprintf(stderr, "%s: the table has %s %zu, the header %s %zu\n", argv[1], name, value,
              kRows[line].name, kRows[line].value);
      ++failures;
    }
    ++line;
  }
  fclose(table);
  if (line != count) {
    fprintf(stderr, "%s has %zu rows, the header %zu\n", argv[1], line, count);
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}
