// SPDX-License-Identifier: Apache-2.0
//
// The LRU order of one pool, event by event: no store, no tiers. The last test compares it with a
// reference that looks at every block each time.
#include "cache/policy_lru.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/random.h"

namespace fermata {
namespace {

constexpr RunId Id(uint32_t raw) { return RunId{raw}; }

void Insert(EvictionPolicy* policy, std::initializer_list<uint32_t> blocks) {
  for (const uint32_t raw : blocks) policy->OnInserted(Id(raw));
}
void Unpin(EvictionPolicy* policy, std::initializer_list<uint32_t> blocks) {
  for (const uint32_t raw : blocks) {
    policy->OnTouched(Id(raw), kNoSession);
    policy->OnUnpinned(Id(raw));
  }
}
void MakeLeaves(EvictionPolicy* policy, std::initializer_list<uint32_t> blocks) {
  for (const uint32_t raw : blocks) policy->OnBecameLeaf(Id(raw));
}

// Takes all candidates in order; no block becomes a leaf meanwhile.
std::vector<uint32_t> Drain(EvictionPolicy* policy) {
  std::vector<uint32_t> order;
  for (;;) {
    const Victim victim = policy->NextVictim();
    if (victim.run == RunId::kNone) return order;
    order.push_back(Raw(victim.run));
    policy->OnRemoved(victim.run);
  }
}

TEST(LruPolicy, AnEmptyPoolHasNoVictim) {
  const auto policy = MakeLruPolicy(true);
  EXPECT_EQ(policy->NextVictim().run, RunId::kNone);
}

TEST(LruPolicy, LeavesGoInTheOrderInWhichTheyWereLetGo) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1, 2});
  MakeLeaves(policy.get(), {0, 1, 2});
  EXPECT_EQ(policy->NextVictim().run, RunId::kNone);  // All are pinned still.
  Unpin(policy.get(), {2, 0, 1});
  EXPECT_EQ(policy->NextVictim().reason, VictimReason::kRecency);
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{2, 0, 1}));
}

TEST(LruPolicy, NextVictimDoesNotTakeTheBlockOut) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1});
  MakeLeaves(policy.get(), {0, 1});
  Unpin(policy.get(), {1, 0});
  EXPECT_EQ(policy->NextVictim().run, Id(1));
  EXPECT_EQ(policy->NextVictim().run, Id(1));
}

TEST(LruPolicy, APathGoesDeepestFirst) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1, 2});  // 0 is the parent of 1, 1 of 2
  MakeLeaves(policy.get(), {2});
  Unpin(policy.get(), {2, 1, 0});
  EXPECT_EQ(policy->NextVictim().run, Id(2));
  policy->OnRemoved(Id(2));
  EXPECT_EQ(policy->NextVictim().run, RunId::kNone);  // 1 has not been reported a leaf yet.
  policy->OnBecameLeaf(Id(1));
  EXPECT_EQ(policy->NextVictim().run, Id(1));
  policy->OnRemoved(Id(1));
  policy->OnBecameLeaf(Id(0));
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{0}));
}

TEST(LruPolicy, ABlockThatBecomesALeafTakesThePlaceOfItsOwnTime) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1, 2, 3, 4, 5, 6});
  MakeLeaves(policy.get(), {1, 3, 5, 6});
  // Times: 0 is the oldest, then the leaf 1, then 2, leaf 3, 4, leaf 5, leaf 6.
  Unpin(policy.get(), {0, 1, 2, 3, 4, 5, 6});
  policy->OnBecameLeaf(Id(4));  // between 3 and 5
  policy->OnBecameLeaf(Id(0));  // before all
  policy->OnBecameLeaf(Id(2));  // between 1 and 3
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(LruPolicy, AnOlderPathGoesWholeBeforeANewerOne) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1, 2, 3});  // paths 0-1 and 2-3
  MakeLeaves(policy.get(), {1, 3});
  Unpin(policy.get(), {1, 0});
  Unpin(policy.get(), {3, 2});
  policy->OnRemoved(Id(1));
  policy->OnBecameLeaf(Id(0));
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{0, 3}));
}

TEST(LruPolicy, APinnedBlockAndOneWithAChildAreNoCandidates) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1, 2});
  MakeLeaves(policy.get(), {0, 1, 2});
  Unpin(policy.get(), {0, 1, 2});
  policy->OnPinned(Id(0));
  policy->OnNoLongerLeaf(Id(1));
  EXPECT_EQ(policy->NextVictim().run, Id(2));
  policy->OnTouched(Id(0), 7);  // Used again: the newest now.
  policy->OnUnpinned(Id(0));    // Being let go of by a transfer is no use.
  policy->OnBecameLeaf(Id(1));  // Not used: where it was, before 2.
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{1, 2, 0}));
}

TEST(LruPolicy, ATouchedBlockIsTheNewest) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1, 2});
  MakeLeaves(policy.get(), {0, 1, 2});
  Unpin(policy.get(), {0, 1, 2});
  policy->OnTouched(Id(0), 7);
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{1, 2, 0}));
}

TEST(LruPolicy, TouchingABlockThatIsNoCandidateDoesNotMakeItOne) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1});
  MakeLeaves(policy.get(), {0});
  Unpin(policy.get(), {1});
  policy->OnTouched(Id(0), 7);  // pinned
  policy->OnTouched(Id(1), 7);  // no leaf
  EXPECT_EQ(policy->NextVictim().run, RunId::kNone);
}

TEST(LruPolicy, SupersededBlocksGoFirstInTheirOwnOrder) {
  const auto policy = MakeLruPolicy(true);
  Insert(policy.get(), {0, 1, 2, 3});
  MakeLeaves(policy.get(), {0, 1, 2, 3});
  Unpin(policy.get(), {0, 1, 2, 3});
  policy->OnSuperseded(Id(3));
  policy->OnSuperseded(Id(1));
  EXPECT_EQ(policy->NextVictim().run, Id(1));
  EXPECT_EQ(policy->NextVictim().reason, VictimReason::kSuperseded);
  policy->OnRemoved(Id(1));
  EXPECT_EQ(policy->NextVictim().run, Id(3));
  policy->OnRemoved(Id(3));
  EXPECT_EQ(policy->NextVictim().reason, VictimReason::kRecency);
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{0, 2}));
}

TEST(LruPolicy, ABlockSupersededWhileInUseGoesFirstOnceItIsLetGo) {
  const auto policy = MakeLruPolicy(true);
  Insert(policy.get(), {0, 1});
  MakeLeaves(policy.get(), {0, 1});
  policy->OnSuperseded(Id(1));
  Unpin(policy.get(), {0});
  EXPECT_EQ(policy->NextVictim().run, Id(0));
  Unpin(policy.get(), {1});
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{1, 0}));
}

TEST(LruPolicy, ARevivedBlockIsAsOrdinaryAsBefore) {
  const auto policy = MakeLruPolicy(true);
  Insert(policy.get(), {0, 1, 2});
  MakeLeaves(policy.get(), {0, 1, 2});
  Unpin(policy.get(), {0, 1, 2});
  policy->OnSuperseded(Id(1));
  policy->OnRevived(Id(1));
  EXPECT_EQ(policy->NextVictim().reason, VictimReason::kRecency);
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{0, 1, 2}));
}

TEST(LruPolicy, PlainLruDoesNotCareWhatIsSuperseded) {
  const auto policy = MakeLruPolicy(false);
  Insert(policy.get(), {0, 1});
  MakeLeaves(policy.get(), {0, 1});
  Unpin(policy.get(), {0, 1});
  policy->OnSuperseded(Id(1));
  EXPECT_EQ(policy->NextVictim().reason, VictimReason::kRecency);
  EXPECT_EQ(Drain(policy.get()), (std::vector<uint32_t>{0, 1}));
}

TEST(LruPolicy, AnIdThatComesBackStartsAfresh) {
  const auto policy = MakeLruPolicy(true);
  Insert(policy.get(), {0});
  MakeLeaves(policy.get(), {0});
  policy->OnSuperseded(Id(0));
  Unpin(policy.get(), {0});
  policy->OnRemoved(Id(0));
  Insert(policy.get(), {0});
  EXPECT_EQ(policy->NextVictim().run, RunId::kNone);
  MakeLeaves(policy.get(), {0});
  Unpin(policy.get(), {0});
  EXPECT_EQ(policy->NextVictim().run, Id(0));
  EXPECT_EQ(policy->NextVictim().reason, VictimReason::kRecency);
}

// A search for the place would take hours: 10^11 steps.
TEST(LruPolicy, ManyBlocksThatBecomeLeavesInTheMiddleFindTheirPlaces) {
  constexpr uint32_t kPaths = 400'000;
  const auto policy = MakeLruPolicy(false);
  for (uint32_t i = 0; i < kPaths; ++i) {
    const RunId child = Id(2 * i);
    const RunId parent = Id(2 * i + 1);
    policy->OnInserted(child);
    policy->OnInserted(parent);
    policy->OnBecameLeaf(child);
    policy->OnTouched(child, kNoSession);
    policy->OnUnpinned(child);
    policy->OnTouched(parent, kNoSession);
    policy->OnUnpinned(parent);
  }
  // Every second child goes, from the middle outwards.
  for (uint32_t i = 0; i < kPaths; i += 2) {
    const uint32_t path = i < kPaths / 2 ? kPaths / 2 + i : kPaths - i;
    policy->OnRemoved(Id(2 * path));
    policy->OnBecameLeaf(Id(2 * path + 1));
  }
  for (uint32_t i = 0; i < kPaths; ++i) {
    const RunId expected = i % 2 == 0 && i != 0 ? Id(2 * i + 1) : Id(2 * i);
    ASSERT_EQ(policy->NextVictim().run, expected) << "path " << i;
    policy->OnRemoved(expected);
  }
}

// What LruPolicy keeps in two lists, looked up by scanning.
struct Reference {
  struct Entry {
    bool here = false, leaf = false, unpinned = false, superseded = false;
    uint64_t time = 0;
  };
  std::array<Entry, 24> entries;
  uint64_t now = 0;

  RunId Best() const {
    RunId best = RunId::kNone;
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const Entry& e = entries[i];
      if (!e.here || !e.leaf || !e.unpinned) continue;
      if (best == RunId::kNone) {
        best = Id(i);
        continue;
      }
      const Entry& b = entries[Raw(best)];
      if (e.superseded != b.superseded ? e.superseded : e.time < b.time) best = Id(i);
    }
    return best;
  }
};

TEST(LruPolicy, AgreesWithAScanOverRandomEvents) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto policy = MakeLruPolicy(true);
    Reference reference;
    uint64_t victims = 0;
    for (int step = 0; step < 2000; ++step) {
      const uint32_t i = static_cast<uint32_t>(random.Below(reference.entries.size()));
      Reference::Entry& e = reference.entries[i];
      const uint64_t event = random.Below(8);
      if (!e.here) {
        policy->OnInserted(Id(i));
        e = Reference::Entry{};
        e.here = true;
        e.time = ++reference.now;
      } else if (event == 0) {
        policy->OnRemoved(Id(i));
        e.here = false;
      } else if (event == 1 && e.leaf) {
        policy->OnNoLongerLeaf(Id(i));
        e.leaf = false;
      } else if (event <= 2 && !e.leaf) {
        policy->OnBecameLeaf(Id(i));
        e.leaf = true;
      } else if (event == 3 && e.unpinned) {
        policy->OnPinned(Id(i));
        e.unpinned = false;
      } else if (event <= 4 && !e.unpinned) {
        policy->OnUnpinned(Id(i));
        e.unpinned = true;
      } else if (event == 5) {
        policy->OnTouched(Id(i), 1);
        e.time = ++reference.now;
      } else if (event == 6) {
        policy->OnSuperseded(Id(i));
        e.superseded = true;
      } else if (event == 7) {
        policy->OnRevived(Id(i));
        e.superseded = false;
      }
      const RunId expected = reference.Best();
      ASSERT_EQ(policy->NextVictim().run, expected) << "step " << step;
      victims += expected == RunId::kNone ? 0 : 1;
    }
    EXPECT_GT(victims, 500u);  // else the events were too tame to say anything
  }
}

}  // namespace
}  // namespace fermata
