// SPDX-License-Identifier: Apache-2.0
//
// Reports about the disk tier: modes that were refused and not named, odd block sizes, restarts
// that kept or lost the wrong things, corruption. The injection of single I/O errors lives below
// the C ABI, with the tier's own tests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

CacheSetup OnDisk() {
  CacheSetup setup;
  setup.ssd_blocks = 64;
  return setup;
}

void ExpectRoundTrip(TestCache* cache) {
  const Tokens prompt = Prompt(64, 64);
  Seq a = cache->Stored(prompt);
  ASSERT_EQ(cache->Park(&a, FERMATA_PARK_KEEP).items_ok, 4u);
  cache->Release(&a);
  cache->DeviceLost();
  Seq b = cache->Fetch(prompt);
  EXPECT_EQ(b.tokens.size(), 64u);
  cache->Release(&b);
  cache->Reopen();
  Seq c = cache->Fetch(prompt);
  EXPECT_EQ(c.tokens.size(), 64u);
  cache->Release(&c);
}

TEST(Faults, B64_AnOddBlockSizeRoundTrips) {
  CacheSetup setup = OnDisk();
  setup.ssd_blocks = 8;
  setup.groups[0].planes = {3'098'112};
  TestCache cache(setup);
  ExpectRoundTrip(&cache);
}

TEST(Faults, B64_ABlockOfOneByteLessThanAPageRoundTrips) {
  CacheSetup setup = OnDisk();
  setup.groups[0].planes = {4095};
  TestCache cache(setup);
  ExpectRoundTrip(&cache);
}

std::string AllWords(TestCache* cache) {
  std::string words;
  for (const auto& [name, value] : cache->VisitStats()) words += name + "=" + value + "\n";
  return words;
}

TEST(Faults, B64_FallbackModesWorkAndAreNamed) {
  std::vector<std::string> words;
  for (const uint32_t flags : {FERMATA_TIER_NO_DIRECT_IO, FERMATA_TIER_NO_IO_URING,
                               FERMATA_TIER_NO_DIRECT_IO | FERMATA_TIER_NO_IO_URING}) {
    CacheSetup setup = OnDisk();
    setup.ssd_flags = flags;
    TestCache cache(setup);
    ExpectRoundTrip(&cache);
    words.push_back(AllWords(&cache));
    if ((flags & FERMATA_TIER_NO_DIRECT_IO) != 0) {
      EXPECT_NE(words.back().find("buffered"), std::string::npos) << words.back();
    }
    if ((flags & FERMATA_TIER_NO_IO_URING) != 0) {
      EXPECT_NE(words.back().find("pread"), std::string::npos) << words.back();
      EXPECT_EQ(words.back().find("io_mode=io_uring"), std::string::npos) << words.back();
    }
  }
}

TEST(Faults, B47_AParkedSequenceComesBackByContentAfterARestart) {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.device_blocks = 72;
  setup.ssd_blocks = 128;
  TestCache cache(setup);
  const Tokens prompt = Prompt(47, 1101);
  Seq a = cache.Stored(prompt);
  EXPECT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).items_ok, 68u);
  cache.Release(&a);
  cache.Reopen();
  EXPECT_EQ(cache.HitTokens(prompt), 1088u);
  Seq b = cache.Fetch(prompt);
  EXPECT_EQ(b.tokens.size(), 1088u);
  cache.Release(&b);
}

TEST(Faults, B47_AnEmptySequenceParksAndResumesAsNothing) {
  TestCache cache(AllTiers());
  Seq a = cache.Create();
  const fermata_completion parked = cache.Finish(cache.StartPark(a, FERMATA_PARK_KEEP));
  EXPECT_EQ(parked.status, FERMATA_OK);
  EXPECT_EQ(parked.items_total, 0u);
  const fermata_completion resumed = cache.Resume(&a);
  EXPECT_EQ(resumed.status, FERMATA_OK);
  EXPECT_EQ(resumed.valid_tokens, 0u);
  cache.Store(&a, Prompt(47, 32));
  cache.CheckBytes(a);
  cache.Release(&a);
}

// Looks the bytes of one block up in the directory's files and turns one bit.
bool FlipABitOnDisk(const std::string& directory, const std::byte* wanted, size_t bytes) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    const size_t at = content.find(reinterpret_cast<const char*>(wanted), 0, bytes);
    if (at == std::string::npos) continue;
    const int fd = open(entry.path().c_str(), O_WRONLY | O_CLOEXEC);
    const char flipped = static_cast<char>(content[at + 5] ^ 1);
    const bool ok = fd >= 0 && pwrite(fd, &flipped, 1, static_cast<off_t>(at + 5)) == 1;
    if (fd >= 0) close(fd);
    return ok;
  }
  return false;
}

TEST(Faults, B66_ACorruptBlockOnDiskEndsThePrefixBeforeIt) {
  for (const bool restart : {false, true}) {
    TestCache cache(OnDisk());
    const Tokens prompt = Prompt(66, 64);
    Seq a = cache.Stored(prompt);
    std::byte wanted[512];
    std::memcpy(wanted, cache.SlotBytes(0, 1, cache.Slots(a)[2]) + 4096, sizeof(wanted));
    ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).items_ok, 4u);
    cache.Release(&a);
    cache.DeviceLost();
    if (restart) cache.Close();
    ASSERT_TRUE(FlipABitOnDisk(cache.directory(), wanted, sizeof(wanted)));
    if (restart) {
      ASSERT_THAT(cache.Open(), IsOk());
    }
    Seq b = cache.Create();
    ASSERT_THAT(cache.Take(cache.Lookup(prompt), &b), IsOk());
    const fermata_completion end = cache.Load(&b);
    EXPECT_EQ(end.status, FERMATA_DATA_LOSS);
    EXPECT_EQ(end.reason, FERMATA_REASON_CHECKSUM);
    EXPECT_EQ(end.valid_tokens, 32u);
    EXPECT_EQ(cache.Info(b).tokens, 32u);
    cache.CheckBytes(b);
    cache.Audit();
    EXPECT_EQ(cache.HitTokens(prompt), 32u);  // a retry does not return it
    cache.Store(&b, Tokens(prompt.begin() + 32, prompt.end()));
    cache.CheckBytes(b);
    cache.Release(&b);
    EXPECT_EQ(cache.HitTokens(prompt), 64u);
  }
}

TEST(Faults, B67_ABurstDeeperThanTheRingCompletes) {
  CacheSetup setup = OnDisk();
  setup.device_blocks = 64;
  setup.io_depth = 4;
  TestCache cache(setup);
  const Tokens prompt = Prompt(67, 1024);
  Seq a = cache.Stored(prompt);
  EXPECT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).items_ok, 64u);
  cache.DeviceLost();
  const fermata_completion end = cache.Resume(&a);
  EXPECT_EQ(end.status, FERMATA_OK);
  EXPECT_EQ(end.items_ok, 64u);
  cache.CheckBytes(a);
  cache.Release(&a);
}

TEST(Faults, ASecondCacheOnTheDirectoryIsRefused) {
  TestCache cache(OnDisk());
  CacheSetup second = OnDisk();
  second.directory = cache.directory();
  fermata_group_config group = {};
  group.struct_size = sizeof(group);
  group.block_bytes = 65536;
  fermata_tier_config tiers[2] = {};
  for (fermata_tier_config& tier : tiers) tier.struct_size = sizeof(tier);
  tiers[0].kind = FERMATA_TIER_DEVICE;
  tiers[1].kind = FERMATA_TIER_SSD;
  tiers[1].capacity_bytes = 64 * 65536;
  tiers[1].directory = second.directory.c_str();
  fermata_config config = {};
  fermata_config_init(&config, sizeof(config));
  config.group_count = 1;
  config.groups = &group;
  config.tiers = tiers;
  config.tier_count = 2;
  fermata_cache other = {1};
  fermata_error error = FERMATA_ERROR_INIT;
  EXPECT_EQ(fermata_cache_open(&config, &other, &error), FERMATA_FAILED_PRECONDITION);
  EXPECT_EQ(error.reason, FERMATA_REASON_IN_USE) << error.message;
  EXPECT_EQ(other.id, 0u);
  ExpectRoundTrip(&cache);
}

}  // namespace
}  // namespace fermata_test
