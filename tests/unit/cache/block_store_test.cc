// SPDX-License-Identifier: Apache-2.0
//
// The prefix tree: how runs grow, split and go, what a reference holds, and what can be found. The
// last test compares it with a map of whole prefixes.
#include "cache/block_store.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "tiers/metadata_tier.h"

namespace fermata {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kSpace = 7;
constexpr Hash128 kSeed{1, 2};
using Ids = std::vector<uint32_t>;

// A store of two tiers without bytes, and what an owner of references does with it.
class Tree {
 public:
  explicit Tree(uint32_t slots = 4096) {
    config_.groups = {GroupConfig{kBlockTokens, 4096}};
    config_.tiers.resize(2);
    config_.policy = "lru-superseded";
    const std::vector<TierGroup> groups{TierGroup{4096, slots}};
    for (const TierKind kind : {TierKind::kHost, TierKind::kHost})
      tiers_.push_back(std::make_unique<MetadataTier>(kind, 0, groups));
    store_ = std::make_unique<BlockStore>(config_,
                                          std::vector<Tier*>{tiers_[0].get(), tiers_[1].get()}, 1);
  }
  BlockStore* operator->() { return store_.get(); }
  BlockStore* get() { return store_.get(); }

  // Publishes what of the prompt is not there yet, as one sequence does; returns its held end.
  BlockId Store(const Ids& tokens, SessionId session = kNoSession) {
    BlockId end = BlockId::kNone;
    const uint64_t have = Find(tokens, &end);
    if (end != BlockId::kNone) Hold(end);
    for (uint64_t i = have; i < tokens.size() / kBlockTokens; ++i)
      end = Extend(end, tokens, i, session);
    return end;
  }
  // One more block behind the held `end`, which is let go of.
  BlockId Extend(BlockId end, const Ids& tokens, uint64_t index, SessionId session) {
    SlotId slot = SlotId::kNone;
    EXPECT_TRUE(tiers_[0]->Acquire(0, std::span(&slot, 1)).ok());
    const BlockId block = store_->NewPrivate(0, slot);
    Hold(block);
    BlockStore::Name name;
    name.space = kSpace;
    name.seed = kSeed;
    name.parent = end;
    name.bytes = std::as_bytes(std::span(tokens).subspan(index * kBlockTokens, kBlockTokens));
    name.key = Key(tokens, index + 1);
    name.plain = true;
    store_->Publish(block, name, session, end != BlockId::kNone);
    if (end != BlockId::kNone) refs_.erase(refs_.find(Raw(end)));
    return block;
  }
  void Hold(BlockId block) {
    store_->Ref(block);
    refs_.insert(Raw(block));
  }
  void LetGo(BlockId block) {
    refs_.erase(refs_.find(Raw(block)));
    store_->Unref(block);
  }
  uint64_t Find(const Ids& tokens, BlockId* end) {
    NamedPrefix prefix;
    prefix.tokens = tokens;
    *end = BlockId::kNone;
    return store_->Match(kSpace, 0, prefix, 1, end);
  }
  uint64_t Find(const Ids& tokens) {
    BlockId end = BlockId::kNone;
    return Find(tokens, &end);
  }
  static Hash128 Key(const Ids& tokens, uint64_t blocks) {
    Hash128 key = kSeed;
    for (uint64_t i = 0; i < blocks; ++i)
      key =
          ChainHash(key, std::as_bytes(std::span(tokens).subspan(i * kBlockTokens, kBlockTokens)));
    return key;
  }
  BlockId Evict() {
    const BlockId victim = store_->NextVictim(0, 0);
    if (victim != BlockId::kNone) {
      EXPECT_EQ(store_->Kill(victim, nullptr), 1u);
    }
    return victim;
  }
  void Audit() {
    std::vector<uint32_t> refs(store_->block_capacity());
    for (const uint32_t raw : refs_) ++refs[raw];
    uint64_t orphans = 0;
    const Status audit = store_->Audit(refs, {0, 0}, &orphans);
    EXPECT_TRUE(audit.ok()) << audit.ToString();
    EXPECT_EQ(orphans, 0u);
  }

 private:
  CacheConfig config_;
  std::vector<std::unique_ptr<MetadataTier>> tiers_;
  std::unique_ptr<BlockStore> store_;
  std::multiset<uint32_t> refs_;
};

// Blocks first, first + 1, ... of distinct tokens.
Ids IdsOf(uint32_t first, uint32_t blocks) {
  Ids tokens(size_t{blocks} * kBlockTokens);
  std::iota(tokens.begin(), tokens.end(), first * kBlockTokens);
  return tokens;
}
Ids Join(Ids head, uint32_t blocks, const Ids& more) {
  head.resize(size_t{blocks} * kBlockTokens);
  head.insert(head.end(), more.begin(), more.end());
  return head;
}

TEST(BlockStore, OneSequencesBlocksAreOneRun) {
  Tree tree;
  const Ids prompt = IdsOf(0, 100);
  const BlockId end = tree.Store(prompt);
  EXPECT_EQ(tree->runs_in_use(), 1u);
  EXPECT_EQ(tree->run(tree->run_of(end)).count, 100u);
  EXPECT_EQ(tree.Find(prompt), 100u);
  EXPECT_EQ(tree->key(end), Tree::Key(prompt, 100));
  EXPECT_EQ(tree->key(tree->Ancestor(end, 41)), Tree::Key(prompt, 42));
  tree.Audit();
  tree.LetGo(end);
  tree.Audit();
  EXPECT_EQ(tree.Find(prompt), 100u);
}

TEST(BlockStore, ALongPathIsCutIntoRunsOfABoundedLength) {
  Tree tree;
  const Ids prompt = IdsOf(0, 2 * kMaxRun + 5);
  const BlockId end = tree.Store(prompt);
  EXPECT_EQ(tree->runs_in_use(), 3u);
  EXPECT_EQ(tree->run(tree->run_of(end)).depth, 2 * kMaxRun);
  EXPECT_EQ(tree.Find(prompt), 2 * kMaxRun + 5);
  EXPECT_EQ(tree->key(end), Tree::Key(prompt, 2 * kMaxRun + 5));
  tree.LetGo(end);
  tree.Audit();
}

TEST(BlockStore, AReferenceWithinARunSplitsItAndHoldsWhatIsBefore) {
  Tree tree;
  const Ids prompt = IdsOf(0, 10);
  const BlockId end = tree.Store(prompt);
  const BlockId middle = tree->Ancestor(end, 3);
  tree.Hold(middle);
  EXPECT_EQ(tree->runs_in_use(), 2u);
  EXPECT_EQ(tree->run(tree->run_of(middle)).count, 4u);
  EXPECT_EQ(tree->run(tree->run_of(end)).count, 6u);
  EXPECT_EQ(tree->block_depth(end), 9u);
  tree.Audit();
  tree.LetGo(end);  // Four are held still; the others go from their end on.
  for (int i = 0; i < 6; ++i) EXPECT_NE(tree.Evict(), BlockId::kNone);
  EXPECT_EQ(tree.Evict(), BlockId::kNone);
  EXPECT_EQ(tree.Find(prompt), 4u);
  tree.LetGo(middle);
  for (int i = 0; i < 4; ++i) EXPECT_NE(tree.Evict(), BlockId::kNone);
  EXPECT_EQ(tree->blocks_in_use(), 0u);
  EXPECT_EQ(tree->runs_in_use(), 0u);
  tree.Audit();
}

TEST(BlockStore, BranchesBeginTheirOwnRunsAndHoldTheirTrunk) {
  Tree tree;
  const Ids trunk = IdsOf(0, 8);
  const BlockId a = tree.Store(Join(trunk, 8, IdsOf(100, 4)));
  const BlockId b = tree.Store(Join(trunk, 6, IdsOf(200, 3)));
  // 0..5, 6..11, and 200..202.
  EXPECT_EQ(tree->runs_in_use(), 3u);
  EXPECT_EQ(tree->CommonDepth(a, b), 6u);
  EXPECT_EQ(tree->CommonDepth(a, a), 12u);
  EXPECT_EQ(tree->CommonDepth(a, BlockId::kNone), 0u);
  tree.LetGo(a);
  tree.Audit();
  // Only what is behind the branch goes while the other is held.
  for (int i = 0; i < 6; ++i) EXPECT_NE(tree.Evict(), BlockId::kNone);
  EXPECT_EQ(tree.Evict(), BlockId::kNone);
  EXPECT_EQ(tree.Find(Join(trunk, 6, IdsOf(200, 3))), 9u);
  tree.LetGo(b);
  tree.Audit();
}

TEST(BlockStore, FindsUpToTheFirstTokenThatDiffers) {
  Tree tree;
  const Ids prompt = IdsOf(0, 40);
  const BlockId end = tree.Store(prompt);
  tree.Hold(tree->Ancestor(end, 19));  // a border of runs
  for (const uint32_t token : {0u, 15u, 16u, 319u, 320u, 321u, 639u}) {
    Ids other = prompt;
    ++other[token];
    EXPECT_EQ(tree.Find(other), token / kBlockTokens) << token;
  }
  EXPECT_EQ(tree.Find(IdsOf(1, 39)), 0u);   // the same blocks under another parent
  EXPECT_EQ(tree.Find(IdsOf(20, 20)), 0u);  // a run's blocks from the root
  EXPECT_EQ(tree.Find(Ids(prompt.begin(), prompt.begin() + 20)), 1u);  // a block and a part
}

TEST(BlockStore, ARunThatLostItsEndDoesNotGiveItsUidsToOthers) {
  Tree tree;
  const Ids prompt = IdsOf(0, 6);
  const BlockId end = tree.Store(prompt);
  std::vector<RememberedPiece> pieces;
  tree->Remember(end, &pieces);
  EXPECT_EQ(tree->DeepestAlive(pieces), end);
  tree.LetGo(end);
  tree.Evict();
  tree.Evict();
  BlockId left = BlockId::kNone;
  EXPECT_EQ(tree.Find(prompt, &left), 4u);
  EXPECT_EQ(tree->DeepestAlive(pieces), left);
  // Others go on from there, with the same ids and other contents.
  const Ids other = Join(prompt, 4, IdsOf(50, 2));
  const BlockId others = tree.Store(other);
  EXPECT_EQ(tree->DeepestAlive(pieces), left);
  tree.LetGo(others);
  tree.Audit();
}

TEST(BlockStore, WhatWasRememberedIsFoundAfterSplits) {
  Tree tree;
  const Ids prompt = IdsOf(0, 12);
  const BlockId end = tree.Store(prompt);
  std::vector<RememberedPiece> pieces;
  tree->Remember(end, &pieces);
  EXPECT_EQ(pieces.size(), 1u);
  for (const uint32_t depth : {3u, 7u, 9u}) {
    const BlockId held = tree->Ancestor(end, depth);
    tree.Hold(held);
    tree.LetGo(held);
  }
  EXPECT_EQ(tree->runs_in_use(), 4u);
  EXPECT_EQ(tree->DeepestAlive(pieces), end);
  tree.LetGo(end);
  for (uint32_t left = 12; left-- > 0;) {
    EXPECT_NE(tree.Evict(), BlockId::kNone);
    BlockId deepest = BlockId::kNone;
    ASSERT_EQ(tree.Find(prompt, &deepest), left);
    EXPECT_EQ(tree->DeepestAlive(pieces), deepest) << left;
  }
  tree.Audit();
}

TEST(BlockStore, WhatASessionLeftGoesFirstUnlessAnotherUsedIt) {
  Tree tree;
  const BlockId a = tree.Store(IdsOf(0, 8), /*session=*/1);
  const BlockId b = tree.Store(Join(IdsOf(0, 8), 6, IdsOf(90, 1)), /*session=*/2);
  tree->TouchPath(b, 0, 2);  // 0..5 are both sessions' now
  const BlockId c = tree.Store(IdsOf(300, 2), /*session=*/3);
  tree.LetGo(b);
  tree.LetGo(c);
  tree.LetGo(a);
  tree->SupersedePath(a, 4, 1);
  EXPECT_EQ(tree->supersedings, 2u);  // 6 and 7; 4 and 5 are shared
  EXPECT_EQ(tree.Evict(), a);
  tree.Evict();
  EXPECT_EQ(tree.Find(IdsOf(0, 8)), 6u);
  EXPECT_EQ(tree.Find(IdsOf(300, 2)), 2u);
  tree.Evict();  // then by age: the other branch
  EXPECT_EQ(tree.Find(Join(IdsOf(0, 8), 6, IdsOf(90, 1))), 6u);
  tree.Audit();
}

TEST(BlockStore, AKilledPathStaysTheTableOfWhoHoldsIt) {
  Tree tree;
  const Ids prompt = IdsOf(0, 10);
  const BlockId end = tree.Store(prompt);
  EXPECT_EQ(tree->Kill(tree->Ancestor(end, 4), nullptr), 6u);
  EXPECT_EQ(tree.Find(prompt), 4u);
  EXPECT_EQ(tree->state(end), BlockState::kDead);
  std::vector<PathPiece> path;
  tree->Path(end, 0, &path);
  ASSERT_EQ(path.size(), 2u);
  EXPECT_TRUE(tree->Resident(end, 0));  // its slots are the holder's
  tree.Audit();
  EXPECT_EQ(tree.Evict(), BlockId::kNone);  // what is before it is held through it
  tree.LetGo(end);
  EXPECT_EQ(tree->blocks_in_use(), 4u);
  tree.Audit();
}

TEST(BlockStore, VictimsCostTheSameAmongManyIdlePaths) {
  for (const uint32_t paths : {10u, 1000u}) {
    Tree tree(8 * paths + 64);
    const Ids trunk = IdsOf(0, 4);
    std::vector<BlockId> ends;
    for (uint32_t i = 0; i < paths; ++i)
      ends.push_back(tree.Store(Join(trunk, 4, IdsOf(100 + 4 * i, 4))));
    for (const BlockId end : ends) tree.LetGo(end);
    for (uint32_t i = 0; i < 32; ++i) EXPECT_NE(tree.Evict(), BlockId::kNone);
    EXPECT_EQ(tree->victims, 32u);
    EXPECT_EQ(tree->victim_visits, 32u + 8u);  // and a parent for each of the eight paths that went
  }
}

// Everything that was stored and not evicted is found, nothing else is, and nothing held goes.
TEST(BlockStore, AgreesWithAMapOfPrefixesOverRandomEvents) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Tree tree;
    std::set<Ids> stored;  // whole prefixes of blocks
    std::map<uint32_t, Ids> of_block;
    std::vector<std::pair<BlockId, Ids>> held;
    const auto random_prompt = [&] {
      Ids tokens;
      const uint64_t blocks = 1 + random.Below(7);
      for (uint64_t i = 0; i < blocks; ++i)
        tokens.insert(tokens.end(), kBlockTokens, static_cast<uint32_t>(random.Below(2)));
      return tokens;
    };
    for (int step = 0; step < 600; ++step) {
      const uint64_t event = random.Below(10);
      if (event < 4) {
        const Ids prompt = random_prompt();
        const BlockId end = tree.Store(prompt, static_cast<SessionId>(random.Below(3)));
        held.emplace_back(end, prompt);
        for (size_t n = kBlockTokens; n <= prompt.size(); n += kBlockTokens) {
          const Ids prefix(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n));
          stored.insert(prefix);
          of_block[Raw(tree->Ancestor(end, static_cast<uint32_t>(n / kBlockTokens - 1)))] = prefix;
        }
      } else if (event < 7 && !held.empty()) {
        const size_t i = random.Below(held.size());
        tree.LetGo(held[i].first);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (event < 9) {
        const BlockId victim = tree.Evict();
        if (victim != BlockId::kNone) {
          const Ids gone = of_block[Raw(victim)];
          ASSERT_EQ(stored.erase(gone), 1u);
          for (const auto& [end, prompt] : held)
            ASSERT_FALSE(prompt.size() >= gone.size() &&
                         std::equal(gone.begin(), gone.end(), prompt.begin()));
        } else {
          for (const Ids& prefix : stored) {  // All of it is held.
            bool is_held = false;
            for (const auto& [end, prompt] : held)
              is_held |= prompt.size() >= prefix.size() &&
                         std::equal(prefix.begin(), prefix.end(), prompt.begin());
            ASSERT_TRUE(is_held);
          }
        }
      } else {
        BlockId end = BlockId::kNone;
        if (tree.Find(random_prompt(), &end) != 0)
          tree->SupersedePath(end, static_cast<uint32_t>(random.Below(4)),
                              static_cast<SessionId>(random.Below(3)));
      }
      tree.Audit();
      const Ids probe = random_prompt();
      uint64_t want = 0;
      while ((want + 1) * kBlockTokens <= probe.size() &&
             stored.contains(Ids(probe.begin(), probe.begin() + static_cast<std::ptrdiff_t>(
                                                                    (want + 1) * kBlockTokens))))
        ++want;
      ASSERT_EQ(tree.Find(probe), want) << "step " << step;
    }
    EXPECT_EQ(tree->blocks_in_use(), stored.size());
  }
}

}  // namespace
}  // namespace fermata
