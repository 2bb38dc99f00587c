// SPDX-License-Identifier: Apache-2.0
//
// Callers that do everything wrong at once: stale, foreign and invented handles, double releases,
// absurd sizes, reset and close in the middle. Every call must answer an error or do its work; the
// books must be right afterwards and no byte wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

CacheSetup Small() {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.device_blocks = 16;
  setup.host_blocks = 8;
  setup.sim_blocks = 16;
  setup.real_time = true;
  return setup;
}

// Calls with ids that are not sequences, leases, jobs; all of them must be refused.
void InventHandles(fermata_cache cache, Stream* random, const std::vector<uint64_t>& known) {
  // A number out of the air, or a live handle of another kind.
  const uint64_t id = random->Chance(50) ? random->Next() | 1 : known[random->Below(known.size())];
  fermata_sequence_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_EQ(fermata_sequence_get_info({id}, &info, nullptr), FERMATA_INVALID_ARGUMENT);
  EXPECT_EQ(fermata_sequence_truncate({id}, 0, nullptr), FERMATA_INVALID_ARGUMENT);
  EXPECT_EQ(fermata_lease_drop({id}, nullptr), FERMATA_INVALID_ARGUMENT);
  EXPECT_EQ(fermata_arena_unregister({id}, 0, nullptr), FERMATA_INVALID_ARGUMENT);
  const fermata_sequence list[] = {{id}, {id}};
  EXPECT_EQ(fermata_release(cache, list, 2, nullptr), FERMATA_INVALID_ARGUMENT);
}

TEST(Hostile, InventedHandlesAreRefusedWhileOthersWork) {
  TestCache cache(Small());
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    for (uint32_t round = 0; round < 200; ++round) {
      Seq a = cache.Create();
      cache.Store(&a, Prompt(round % 10, 40));
      EXPECT_EQ(cache.BytesError(a, 40), "");
      cache.Release(&a);
      Seq b = cache.Fetch(Prompt(round % 10, 40));
      cache.Release(&b);
    }
    stop = true;
  });
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Stream random(t);
      const std::vector<uint64_t> known = {cache.id().id, cache.space(0).id};
      while (!stop) InventHandles(cache.id(), &random, known);
    });
  }
  worker.join();
  for (std::thread& thread : threads) thread.join();
}

TEST(Hostile, ManyThreadsReleaseTheSameSequences) {
  TestCache cache(Small());
  for (int round = 0; round < 50; ++round) {
    std::vector<fermata_sequence> ids;
    for (uint32_t i = 0; i < 8; ++i) {
      Seq seq = cache.Stored(Prompt(i, 20));
      ids.push_back(seq.id);
    }
    std::atomic<int> succeeded{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (const fermata_sequence& id : ids) {
          const fermata_status status = fermata_release(cache.id(), &id, 1, nullptr);
          EXPECT_TRUE(status == FERMATA_OK || status == FERMATA_INVALID_ARGUMENT);
          succeeded += status == FERMATA_OK;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(succeeded.load(), 8);
    EXPECT_EQ(cache.GetStats().total.sequences, 0u);
  }
}

TEST(Hostile, ResetsAndEvictionsInTheMiddleGiveMissesNotWrongBytes) {
  TestCache cache(Small());
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Stream random(t);
      for (uint32_t round = 0; round < 150; ++round) {
        const Tokens prompt = Prompt(static_cast<uint32_t>(random.Below(6)), 48);
        Seq seq = cache.Create();
        const Hit hit = cache.Lookup(prompt);
        if (hit.tokens > 0 && cache.Take(hit, &seq).ok()) {
          const Job job = cache.StartLoad(seq);
          if (!job.outcome.ok()) {
            cache.Release(&seq);
            continue;
          }
          const fermata_completion end = cache.Finish(job);
          EXPECT_EQ(cache.BytesError(seq, end.valid_tokens), "");
          cache.Release(&seq);
          continue;
        }
        if (cache.TryAppend(&seq, prompt).ok()) {
          cache.Write(seq, 0, 48);
          cache.Mark(seq, 48);
        }
        cache.Release(&seq);
      }
      running.fetch_sub(1);
    });
  }
  uint64_t resets = 0;
  while (running.load() > 0) {
    uint64_t blocks[3] = {};
    EXPECT_EQ(fermata_reset(cache.id(), FERMATA_RESET_ALL, 0, blocks, 3, nullptr), FERMATA_OK);
    ++resets;
    for (int i = 0; i < 20; ++i) cache.Pump();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(resets, 0u);
  cache.Settle();
}

TEST(Hostile, CloseInTheMiddleOfEverything) {
  for (int round = 0; round < 10; ++round) {
    TestCache cache(Small());
    const fermata_cache id = cache.id();
    const fermata_space space = cache.space(0);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uint32_t i = 0; !stop; ++i) {
          const Tokens prompt = Prompt(t * 1000 + i % 50, 32);
          fermata_sequence seq = {0};
          if (fermata_sequence_create(space, nullptr, &seq, nullptr) != FERMATA_OK) continue;
          fermata_append_item item = {};
          item.struct_size = sizeof(item);
          item.sequence = seq;
          item.tokens = prompt.data();
          item.token_count = prompt.size();
          fermata_append(id, &item, 1, nullptr);
          fermata_mark_item mark = {};
          mark.struct_size = sizeof(mark);
          mark.sequence = seq;
          mark.tokens = 32;
          fermata_mark(id, &mark, 1, nullptr);
          fermata_release(id, &seq, 1, nullptr);
        }
      });
    }
    for (int i = 0; i < 5; ++i) cache.Pump();
    cache.Close();
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Hostile, AnyNumberOfThreadsMayCloseBesideAReset) {
  for (int round = 0; round < 40; ++round) {
    CacheSetup setup;
    setup.real_time = true;
    setup.host_blocks = 8;
    TestCache cache(setup);
    const fermata_cache id = cache.id();
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    std::atomic<int> closed{0};
    std::atomic<int> refused{0};
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        ready.fetch_add(1);
        while (ready.load() < 4) {
        }
        fermata_error error = FERMATA_ERROR_INIT;
        const fermata_status status =
            i == 3 ? fermata_reset(id, FERMATA_RESET_ALL, 0, nullptr, 0, &error)
                   : fermata_cache_close(id, 0, &error);
        if (status == FERMATA_OK) {
          closed.fetch_add(1);
        } else if (error.reason == FERMATA_REASON_BAD_HANDLE ||
                   error.reason == FERMATA_REASON_CLOSED) {
          refused.fetch_add(1);
        } else {
          ADD_FAILURE() << error.message;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(closed.load() + refused.load(), 4);
    cache.Abandon();  // the threads have closed it
  }
}

// A device whose copies call the library from within.
struct Meddler {
  TestCache* cache = nullptr;
  uint32_t calls = 0;
  fermata_device_ops ops = {};
  Meddler() {
    ops.struct_size = sizeof(ops);
    ops.user = this;
    ops.copy_submit = [](void* user, const fermata_copy_run* runs, size_t count, uint32_t,
                         uint64_t) -> fermata_status {
      auto* self = static_cast<Meddler*>(user);
      ++self->calls;
      fermata_error error = FERMATA_ERROR_INIT;
      EXPECT_EQ(fermata_reset(self->cache->id(), FERMATA_RESET_ALL, 0, nullptr, 0, &error),
                FERMATA_FAILED_PRECONDITION);
      EXPECT_EQ(error.reason, FERMATA_REASON_STATE);
      EXPECT_EQ(fermata_cache_close(self->cache->id(), 0, &error), FERMATA_FAILED_PRECONDITION);
      for (size_t i = 0; i < count; ++i) std::memcpy(runs[i].target, runs[i].source, runs[i].bytes);
      return FERMATA_OK;
    };
    ops.copy_poll = [](void*, uint64_t, uint32_t* out_done) -> fermata_status {
      *out_done = 1;
      return FERMATA_OK;
    };
  }
};

TEST(Hostile, ACallbackThatCallsTheLibraryIsRefused) {
  Meddler meddler;
  CacheSetup setup = Small();
  setup.device_ops = &meddler.ops;
  TestCache cache(setup);
  meddler.cache = &cache;
  Seq a = cache.Stored(Prompt(1, 32));
  EXPECT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  EXPECT_GT(meddler.calls, 0u);
  EXPECT_EQ(cache.Resume(&a).valid_tokens, 32u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Hostile, AnEventThatNobodyCanAskAboutIsRefused) {
  int event = 0;
  Meddler meddler;  // has no event_query
  for (const fermata_device_ops* ops : {static_cast<const fermata_device_ops*>(nullptr),
                                        const_cast<const fermata_device_ops*>(&meddler.ops)}) {
    CacheSetup setup;
    setup.device_ops = ops;
    TestCache cache(setup);
    meddler.cache = &cache;
    Seq a = cache.Create();
    cache.Append(&a, Prompt(1, 16));
    const Outcome outcome = cache.TryMark(a, 16, &event);
    EXPECT_EQ(outcome.status, FERMATA_INVALID_ARGUMENT);
    EXPECT_NE(outcome.message.find("event_query"), std::string::npos) << outcome.message;
    cache.Release(&a);
  }
}

}  // namespace
}  // namespace fermata_test
