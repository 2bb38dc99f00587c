// SPDX-License-Identifier: Apache-2.0
//
// The one internal door: a policy that a program registers by name decides in a cache that it
// opens. The cache keeps books only and runs no thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "cache/cache.h"
#include "cache/policy.h"
#include "cache/policy_lru.h"

namespace fermata {
namespace {

// The opposite of LRU: of the candidates, the one let go last.
class NewestFirst final : public EvictionPolicy {
 public:
  void OnInserted(RunId) override {}
  void OnRemoved(RunId run) override {
    std::erase(leaves_, run);
    std::erase(unpinned_, run);
  }
  void OnBecameLeaf(RunId run) override { leaves_.push_back(run); }
  void OnNoLongerLeaf(RunId run) override { std::erase(leaves_, run); }
  void OnPinned(RunId run) override { std::erase(unpinned_, run); }
  void OnUnpinned(RunId run) override { unpinned_.push_back(run); }
  void OnTouched(RunId, SessionId) override {}
  void OnSplit(RunId, RunId) override {}
  Victim NextVictim() override {
    for (size_t i = unpinned_.size(); i-- > 0;) {
      if (std::find(leaves_.begin(), leaves_.end(), unpinned_[i]) != leaves_.end())
        return {unpinned_[i], VictimReason::kValue};
    }
    return {};
  }

 private:
  std::vector<RunId> leaves_;
  std::vector<RunId> unpinned_;  // in the order of unpinning
};

Result<std::unique_ptr<Cache>> OpenBooks(const std::string& policy) {
  CacheConfig config;
  config.groups = {GroupConfig{16, 4096}};
  config.tiers.resize(1);
  config.policy = policy;
  config.manual_clock = true;
  config.step_driven = true;
  config.metadata_only = true;
  return Cache::Open(
      std::move(config), nullptr, [](ObjectId id) { return id; }, 1);
}

std::vector<uint32_t> Prompt(uint32_t first) {
  std::vector<uint32_t> tokens(16);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Writes one block and lets it go.
void Run(Cache* cache, ObjectId space, uint32_t first_token) {
  const std::vector<uint32_t> tokens = Prompt(first_token);
  const Result<ObjectId> sequence = cache->CreateSequence(space, SequenceOptions{});
  ASSERT_TRUE(sequence.ok()) << sequence.status().ToString();
  AppendRequest append;
  append.sequence = sequence.value();
  append.tokens = tokens;
  append.token_count = tokens.size();
  std::vector<BlockCopy> copies;
  const Status appended = cache->Append(append, &copies, 0);
  ASSERT_TRUE(appended.ok()) << appended.ToString();
  ASSERT_TRUE(cache->Mark(sequence.value(), 16, nullptr).ok());
  ASSERT_TRUE(cache->Release(sequence.value()).ok());
}

uint64_t Hit(Cache* cache, ObjectId space, uint32_t first_token) {
  const std::vector<uint32_t> tokens = Prompt(first_token);
  LookupRequest request;
  request.lease = false;
  request.tokens = tokens;
  request.token_count = tokens.size();
  Result<LookupAnswer> answer = cache->Lookup(space, request);
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
  return answer->hit_tokens;
}

// Two slots, three prompts one after the other: which of the first two is left?
void Fill(const std::string& policy, uint64_t* first, uint64_t* second) {
  Result<std::unique_ptr<Cache>> cache = OpenBooks(policy);
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  Cache* const books = cache->get();
  const DeviceRegion region{nullptr, 4096, 4096};
  ASSERT_TRUE(books->RegisterArena(0, std::span(&region, 1), 2).ok());
  SpaceIdentity identity;
  identity.weights = "weights@1";
  const Result<ObjectId> space = books->OpenSpace(identity);
  ASSERT_TRUE(space.ok());
  for (const uint32_t first_token : {100u, 200u}) Run(books, space.value(), first_token);
  EXPECT_EQ(Hit(books, space.value(), 100), 16u);
  EXPECT_EQ(Hit(books, space.value(), 200), 16u);
  Run(books, space.value(), 300);
  *first = Hit(books, space.value(), 100);
  *second = Hit(books, space.value(), 200);
  EXPECT_EQ(Hit(books, space.value(), 300), 16u);
  EXPECT_EQ(books->Stats().dropped_blocks, 1u);
  uint64_t blocks = 0;
  uint64_t orphans = 0;
  const Status audit = books->Audit(&blocks, &orphans);
  EXPECT_TRUE(audit.ok()) << audit.ToString();
  EXPECT_EQ(blocks, 2u);
  EXPECT_TRUE(books->Close(0).ok());
}

TEST(PolicyRegistry, ARegisteredPolicyDecidesInACacheThatNamesIt) {
  int made = 0;
  RegisterPolicy("test-newest-first", [&made](const RunView* view) {
    EXPECT_NE(view, nullptr);
    ++made;
    return std::make_unique<NewestFirst>();
  });
  uint64_t first = 0;
  uint64_t second = 0;
  Fill("test-newest-first", &first, &second);
  EXPECT_EQ(made, 1);  // one instance per tier and group
  EXPECT_EQ(first, 16u);
  EXPECT_EQ(second, 0u);
  // The library's own does the opposite, so the difference is the policy's.
  Fill("lru", &first, &second);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 16u);
}

// Keeps everything off tier 1, and takes no more than a block that would have to be loaded.
class Picky final : public PlacementPolicy {
 public:
  bool Admit(BlockId, TierIndex from, TierIndex to) override {
    EXPECT_LT(from, to);
    return to != 1;
  }
  uint64_t WorthTaking(uint64_t device_tokens, uint64_t found_tokens) override {
    return std::min<uint64_t>(found_tokens, device_tokens + 16);
  }
};

TEST(PolicyRegistry, ARegisteredPlacementAdmitsAndCuts) {
  RegisterPolicy("test-picky",
                 [](const RunView*) { return MakeLruPolicy(/*superseded_first=*/false); });
  RegisterPlacement("test-picky", [] { return std::make_unique<Picky>(); });
  CacheConfig config;
  config.groups = {GroupConfig{16, 4096}};
  config.tiers.resize(3);
  config.tiers[1].kind = TierKind::kHost;
  config.tiers[2].kind = TierKind::kSim;
  config.tiers[1].capacity_bytes = config.tiers[2].capacity_bytes = 8 * 4096;
  config.policy = "test-picky";
  config.manual_clock = config.step_driven = config.metadata_only = true;
  Result<std::unique_ptr<Cache>> cache = Cache::Open(
      std::move(config), nullptr, [](ObjectId id) { return id; }, 1);
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  Cache* const books = cache->get();
  const DeviceRegion region{nullptr, 4096, 4096};
  ASSERT_TRUE(books->RegisterArena(0, std::span(&region, 1), 4).ok());
  SpaceIdentity identity;
  identity.weights = "weights@1";
  const Result<ObjectId> space = books->OpenSpace(identity);
  ASSERT_TRUE(space.ok());
  const Result<ObjectId> sequence = books->CreateSequence(space.value(), SequenceOptions{});
  ASSERT_TRUE(sequence.ok());
  std::vector<uint32_t> tokens(64);
  std::iota(tokens.begin(), tokens.end(), 1u);
  AppendRequest append;
  append.sequence = sequence.value();
  append.tokens = tokens;
  append.token_count = tokens.size();
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(books->Append(append, &copies, 0).ok());
  ASSERT_TRUE(books->Mark(sequence.value(), 64, nullptr).ok());
  Result<std::shared_ptr<JobQueue>> queue = JobQueue::Create(4);
  ASSERT_TRUE(queue.ok());
  ASSERT_TRUE(books->Park(sequence.value(), ParkMode::kKeep, *queue, 0).ok());
  ASSERT_TRUE(books->Step(1000).ok());
  const CacheStats stats = books->Stats();
  EXPECT_EQ(stats.tiers[1].cached_slots, 0u);  // not admitted
  EXPECT_EQ(stats.tiers[2].cached_slots, 4u);
  LookupRequest request;
  request.lease = false;
  request.tokens = tokens;
  request.token_count = tokens.size();
  Result<LookupAnswer> answer = books->Lookup(space.value(), request);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->hit_tokens, 16u);  // of 64 found, none of them on the device
  ASSERT_TRUE(books->Release(sequence.value()).ok());
  EXPECT_TRUE(books->Close(0).ok());
}

TEST(PolicyRegistry, KnowsTheLibrarysOwnAndNoOthers) {
  EXPECT_NE(FindPolicy("lru"), nullptr);
  EXPECT_NE(FindPolicy("lru-superseded"), nullptr);
  EXPECT_EQ(FindPolicy("LRU"), nullptr);
  EXPECT_EQ(FindPolicy(""), nullptr);
  const std::vector<std::string> names = PolicyNames();
  EXPECT_EQ(std::count(names.begin(), names.end(), "lru"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "lru-superseded"), 1);
}

TEST(PolicyRegistry, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Result<std::unique_ptr<Cache>> cache = OpenBooks("no-such-policy");
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(cache.status().message().find("config.policy is \"no-such-policy\""),
            std::string::npos);
  EXPECT_NE(cache.status().message().find("lru-superseded"), std::string::npos);
}

TEST(PolicyRegistry, TheLastRegistrationOfANameCounts) {
  int old_made = 0;
  int new_made = 0;
  RegisterPolicy("test-twice", [&old_made](const RunView*) {
    ++old_made;
    return MakeLruPolicy(false);
  });
  RegisterPolicy("test-twice", [&new_made](const RunView*) {
    ++new_made;
    return MakeLruPolicy(false);
  });
  Result<std::unique_ptr<Cache>> cache = OpenBooks("test-twice");
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  EXPECT_EQ(old_made, 0);
  EXPECT_EQ(new_made, 1);
  EXPECT_TRUE((*cache)->Close(0).ok());
}

}  // namespace
}  // namespace fermata
