/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences, lookups and leases on the device alone. */
#include <limits.h>

#include "conformance.h"

static fixture f;

static fermata_sequence_info info(fermata_sequence sequence) {
  fermata_sequence_info out;
  memset(&out, 0, sizeof out);
  out.struct_size = (uint32_t)sizeof out;
  EXPECT_OK(fermata_sequence_get_info(sequence, &out, &g_error));
  return out;
}

static size_t slots_of(fermata_sequence sequence, uint32_t* slots) {
  size_t count = 0;
  EXPECT_OK(fermata_sequence_slots(sequence, 0, 0, slots, MAX_SLOTS, &count, &g_error));
  return count;
}

static void test_fork_and_copy_on_write(void) {
  uint32_t parent_slots[MAX_SLOTS];
  uint32_t child_slots[MAX_SLOTS];
  const fermata_sequence parent = new_sequence(&f);
  CHECK(grow(&f, parent, 0, 24) == FERMATA_OK);
  CHECK(mark(&f, parent, 24) == FERMATA_OK);
  fermata_sequence children[2] = {{0}, {0}};
  EXPECT_INVALID(fermata_sequence_fork(parent, NULL, 1, &g_error));
  EXPECT_OK(fermata_sequence_fork(parent, children, 2, &g_error));
  CHECK(children[0].id != 0 && children[1].id != 0 && children[0].id != children[1].id);
  CHECK(slots_of(parent, parent_slots) == 2 && slots_of(children[0], child_slots) == 2);
  CHECK(parent_slots[0] == child_slots[0] && parent_slots[1] == child_slots[1]);

  /* The first to write into the shared partial block copies it; the copy is told before the write.
   */
  fermata_block_copy copies[2];
  fermata_append_item item;
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.sequence = children[0];
  item.tokens = f.tokens + 500;
  item.token_count = 4;
  item.copies = copies;
  item.copy_capacity = 2;
  EXPECT_OK(fermata_append(f.cache, &item, 1, &g_error));
  CHECK(item.status == FERMATA_OK && item.copy_count == 1);
  CHECK(copies[0].group == 0 && copies[0].source_slot == parent_slots[1] &&
        copies[0].valid_tokens == 8);
  CHECK(slots_of(children[0], child_slots) == 2);
  CHECK(child_slots[0] == parent_slots[0] && child_slots[1] == copies[0].target_slot);
  CHECK(copies[0].target_slot != copies[0].source_slot);
  /* No room for the copy list: refused, nothing changed. */
  item.sequence = children[1];
  item.copy_capacity = 0;
  item.copies = NULL;
  const fermata_status refused = fermata_append(f.cache, &item, 1, NULL);
  CHECK(refused != FERMATA_OK || item.status != FERMATA_OK);
  CHECK(info(children[1]).tokens == 24);
  EXPECT_OK(fermata_release(f.cache, children, 2, &g_error));
  EXPECT_OK(fermata_release(f.cache, &parent, 1, &g_error));
}

static void test_batches(void) {
  fermata_append_item items[3];
  fermata_sequence sequences[3];
  memset(items, 0, sizeof items);
  for (int i = 0; i < 3; ++i) {
    sequences[i] = new_sequence(&f);
    items[i].struct_size = (uint32_t)sizeof items[i];
    items[i].sequence = sequences[i];
    items[i].tokens = f.tokens;
    items[i].token_count = 8;
  }
  items[1].sequence.id = 12345; /* one bad item does not spoil the others */
  (void)fermata_append(f.cache, items, 3, NULL);
  CHECK(items[0].status == FERMATA_OK && items[2].status == FERMATA_OK);
  CHECK(items[1].status == FERMATA_INVALID_ARGUMENT &&
        items[1].reason == FERMATA_REASON_BAD_HANDLE);
  CHECK(info(sequences[0]).tokens == 8 && info(sequences[1]).tokens == 0 &&
        info(sequences[2]).tokens == 8);
  EXPECT_OK(fermata_append(f.cache, items, 0, &g_error));
  EXPECT_OK(fermata_append(f.cache, NULL, 0, &g_error));
  EXPECT_INVALID(fermata_append(f.cache, NULL, 1, &g_error));
  EXPECT_INVALID(fermata_mark(f.cache, NULL, 1, &g_error));
  EXPECT_INVALID(fermata_release(f.cache, NULL, 1, &g_error));
  /* Zero handles are skipped; the first error is told after all were tried. */
  fermata_sequence mixed[4] = {{0}, {12345}, {0}, {0}};
  mixed[2] = sequences[0];
  EXPECT_BAD_HANDLE(fermata_release(f.cache, mixed, 4, &g_error));
  EXPECT_BAD_HANDLE(
      fermata_release(f.cache, sequences, 1, &g_error)); /* it was released all the same */
  EXPECT_OK(fermata_release(f.cache, sequences + 1, 2, &g_error));
}

void test_sequences(void) {
  uint32_t slots[MAX_SLOTS];
  fixture_open(&f, 16, 0);
  fermata_sequence_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = (uint32_t)sizeof options;
  options.flags = 1u << 30;
  fermata_sequence sequence = {77};
  EXPECT_INVALID(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  CHECK(sequence.id == 0);
  EXPECT_INVALID(fermata_sequence_create(f.space, NULL, NULL, &g_error));

  sequence = new_sequence(&f);
  CHECK(info(sequence).state == FERMATA_SEQUENCE_RUNNING && info(sequence).tokens == 0);
  CHECK(grow(&f, sequence, 0, 40) == FERMATA_OK);
  CHECK(info(sequence).tokens == 40 && info(sequence).marked_tokens == 0 &&
        info(sequence).published_tokens == 0);
  CHECK(slots_of(sequence, slots) == 3);
  CHECK(slots[0] < 16 && slots[1] < 16 && slots[2] < 16);
  CHECK(slots[0] != slots[1] && slots[1] != slots[2] && slots[0] != slots[2]);
  CHECK(lookup(&f, 40, FERMATA_LOOKUP_NO_LEASE).hit_tokens == 0); /* not written, not findable */
  CHECK(mark(&f, sequence, 20) == FERMATA_OK);
  CHECK(info(sequence).marked_tokens == 20 && info(sequence).published_tokens == 16);
  CHECK(mark(&f, sequence, 10) == FERMATA_OK); /* less than before: a no-op */
  CHECK(info(sequence).marked_tokens == 20);
  CHECK(mark(&f, sequence, 41) == FERMATA_INVALID_ARGUMENT);
  CHECK(mark(&f, sequence, 40) == FERMATA_OK);
  CHECK(info(sequence).published_tokens == 32 && info(sequence).device_tokens == 40);
  CHECK(lookup(&f, 40, FERMATA_LOOKUP_NO_LEASE).hit_tokens ==
        32); /* partial blocks are never published */

  /* The table in pieces, and its errors. */
  size_t count = 99;
  uint32_t one = 0;
  EXPECT_OK(fermata_sequence_slots(sequence, 0, 1, &one, 1, &count, &g_error));
  CHECK(one == slots[1] && count == 2);
  EXPECT_OK(fermata_sequence_slots(sequence, 0, 0, NULL, 0, &count, &g_error));
  CHECK(count == 3);
  EXPECT_INVALID(fermata_sequence_slots(sequence, 7, 0, slots, MAX_SLOTS, &count, &g_error));
  EXPECT_INVALID(fermata_sequence_slots(sequence, 0, 0, NULL, 1, &count, &g_error));
  EXPECT_INVALID(fermata_sequence_slots(sequence, 0, 0, slots, MAX_SLOTS, NULL, &g_error));
  EXPECT_INVALID(fermata_sequence_get_info(sequence, NULL, &g_error));

  /* Truncate: into the unpublished tail, then into published blocks; not upwards. */
  CHECK(fermata_sequence_truncate(sequence, 41, NULL) == FERMATA_INVALID_ARGUMENT ||
        fermata_sequence_truncate(sequence, 41, NULL) == FERMATA_OUT_OF_RANGE);
  EXPECT_OK(fermata_sequence_truncate(sequence, 34, &g_error));
  CHECK(info(sequence).tokens == 34 && info(sequence).marked_tokens == 34 &&
        slots_of(sequence, slots) == 3);
  EXPECT_OK(fermata_sequence_truncate(sequence, 8, &g_error));
  CHECK(info(sequence).tokens == 8);
  CHECK(lookup(&f, 40, FERMATA_LOOKUP_NO_LEASE).hit_tokens ==
        32); /* what was published stays findable */
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));

  /* Out of room: refused, nothing of the sequence changed, and room comes back. */
  sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 100, 14 * BLOCK_TOKENS) == FERMATA_OK);
  const fermata_sequence late = new_sequence(&f);
  CHECK(grow(&f, late, 600, 3 * BLOCK_TOKENS) == FERMATA_RESOURCE_EXHAUSTED);
  CHECK(info(late).tokens == 0);
  uint64_t free_slots = 99;
  uint64_t evictable = 99;
  EXPECT_OK(fermata_room(f.cache, 0, &free_slots, &evictable, &g_error));
  CHECK(free_slots + evictable == 2);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  CHECK(grow(&f, late, 600, 16 * BLOCK_TOKENS) == FERMATA_OK);
  EXPECT_OK(fermata_release(f.cache, &late, 1, &g_error));

  /* No-store is never published. */
  options.flags = FERMATA_SEQUENCE_NO_STORE;
  EXPECT_OK(fermata_sequence_create(f.space, &options, &sequence, &g_error));
  CHECK(grow(&f, sequence, 0, 32) == FERMATA_OK);
  CHECK(mark(&f, sequence, 32) == FERMATA_OK);
  CHECK(lookup(&f, 32, FERMATA_LOOKUP_NO_LEASE).hit_tokens == 0);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  /* Absurd growth is refused and harmless. */
  sequence = new_sequence(&f);
  CHECK(grow(&f, sequence, 0, UINT64_MAX) != FERMATA_OK);
  CHECK(grow(&f, sequence, 0, 1ull << 40) != FERMATA_OK);
  CHECK(info(sequence).tokens == 0);
  EXPECT_OK(fermata_release(f.cache, &sequence, 1, &g_error));
  test_fork_and_copy_on_write();
  test_batches();
  fixture_close(&f);
}

void test_lookup(void) {
  fixture_open(&f, 16, 0);
  CHECK(lookup(&f, 64, 0).lease.id == 0); /* nothing found, nothing leased */
  publish(&f, 64);
  fermata_lookup_item item = lookup(&f, 64, 0);
  CHECK(item.hit_tokens == 64 && item.lease.id != 0 && item.pending_tokens == 0);

  /* A lease holds: no growth may take its four blocks. */
  const fermata_sequence big = new_sequence(&f);
  CHECK(grow(&f, big, 600, 13 * BLOCK_TOKENS) == FERMATA_RESOURCE_EXHAUSTED);
  EXPECT_OK(fermata_release(f.cache, &big, 1, &g_error));

  /* Trim rounds down to whole blocks; take gives the rest to an empty sequence. */
  uint64_t kept = 0;
  EXPECT_OK(fermata_lease_trim(item.lease, 50, &kept, &g_error));
  CHECK(kept == 48);
  const fermata_sequence busy = new_sequence(&f);
  CHECK(grow(&f, busy, 900, 1) == FERMATA_OK);
  EXPECT(fermata_lease_take(item.lease, busy, &g_error), FERMATA_FAILED_PRECONDITION,
         FERMATA_REASON_STATE);
  const fermata_sequence heir = new_sequence(&f);
  EXPECT_OK(
      fermata_lease_take(item.lease, heir, &g_error)); /* the lease outlived the STATE answer */
  CHECK(info(heir).tokens == 48 && info(heir).published_tokens == 48);
  EXPECT_BAD_HANDLE(fermata_lease_take(item.lease, heir, &g_error));
  EXPECT_BAD_HANDLE(fermata_lease_drop(item.lease, &g_error));
  EXPECT_OK(fermata_lease_drop((fermata_lease){0}, &g_error));
  EXPECT_OK(fermata_release(f.cache, &busy, 1, &g_error));
  EXPECT_OK(fermata_release(f.cache, &heir, 1, &g_error));

  /* leave_tokens, tier_tokens, no lease. */
  uint64_t tier_tokens[1] = {99};
  memset(&item, 0, sizeof item);
  item.struct_size = (uint32_t)sizeof item;
  item.tokens = f.tokens;
  item.token_count = 64;
  item.leave_tokens = 1;
  item.tier_tokens = tier_tokens;
  item.tier_capacity = 1;
  item.flags = FERMATA_LOOKUP_NO_LEASE;
  EXPECT_OK(fermata_lookup(f.space, &item, 1, &g_error));
  CHECK(item.hit_tokens == 48 && item.lease.id == 0 && tier_tokens[0] == 48);
  item.leave_tokens = UINT64_MAX;
  EXPECT_OK(fermata_lookup(f.space, &item, 1, &g_error));
  CHECK(item.hit_tokens == 0);

  /* An expired lease says so once, then is gone. */
  uint64_t now = 0;
  EXPECT_OK(fermata_now(f.cache, &now, &g_error));
  item.leave_tokens = 0;
  item.flags = 0;
  item.lease_deadline_ns = now + 1000;
  EXPECT_OK(fermata_lookup(f.space, &item, 1, &g_error));
  const uint64_t deadline = item.lease_deadline_ns;
  for (int i = 0; i < 100000000 && now <= deadline; ++i) (void)fermata_now(f.cache, &now, NULL);
  CHECK(now > deadline);
  const fermata_sequence late = new_sequence(&f);
  if (item.lease.id != 0) {
    EXPECT(fermata_lease_take(item.lease, late, &g_error), FERMATA_FAILED_PRECONDITION,
           FERMATA_REASON_LEASE_EXPIRED);
    EXPECT_BAD_HANDLE(fermata_lease_take(item.lease, late, &g_error));
  }
  CHECK(info(late).tokens == 0);
  EXPECT_OK(fermata_release(f.cache, &late, 1, &g_error));

  /* Arguments. */
  item.lease_deadline_ns = 0;
  EXPECT_OK(fermata_lookup(f.space, &item, 0, &g_error));
  EXPECT_INVALID(fermata_lookup(f.space, NULL, 1, &g_error));
  fermata_lookup_item bad = item;
  bad.tokens = NULL;
  CHECK(fermata_lookup(f.space, &bad, 1, NULL) != FERMATA_OK ||
        bad.status == FERMATA_INVALID_ARGUMENT);
  bad = item;
  bad.token_count = (1u << 24) + 1;
  CHECK(fermata_lookup(f.space, &bad, 1, NULL) != FERMATA_OK ||
        bad.status == FERMATA_INVALID_ARGUMENT);
  bad = item;
  bad.flags = 1u << 31;
  CHECK(fermata_lookup(f.space, &bad, 1, NULL) != FERMATA_OK ||
        bad.status == FERMATA_INVALID_ARGUMENT);
  /* In a batch each item has its own answer, and all have the size of the first. */
  fermata_lookup_item pair[2];
  pair[0] = pair[1] = item;
  pair[0].flags = pair[1].flags = FERMATA_LOOKUP_NO_LEASE;
  pair[1].token_count = 32;
  EXPECT_OK(fermata_lookup(f.space, pair, 2, &g_error));
  CHECK(pair[0].hit_tokens == 64 && pair[1].hit_tokens == 32);
  pair[1].struct_size = 8;
  CHECK(fermata_lookup(f.space, pair, 2, NULL) == FERMATA_INVALID_ARGUMENT ||
        pair[1].status == FERMATA_INVALID_ARGUMENT);
  fixture_close(&f);
}
