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

TEST(Faults, B27_ADiskThatIsBehindTheHostGetsWhatItLacks) {
  CacheSetup setup;
  setup.host_blocks = 8;
  setup.ssd_blocks = 32;
  TestCache cache(setup);
  const Tokens chain = Prompt(27, 5 * 16);
  // Blocks written to the disk since the start, and those that lie there: nothing is evicted from
  // it, so they differ only by what was written twice.
  const uint64_t block_bytes = cache.setup().groups[0].block_bytes();
  const auto written = [&] {
    return cache.TierStats(FERMATA_TIER_SSD).bytes_written / block_bytes;
  };
  const auto there = [&] {
    const fermata_tier_stats disk = cache.TierStats(FERMATA_TIER_SSD);
    return disk.slots - disk.free_slots;
  };
  const auto park_others = [&cache](uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; ++i) {
      Seq other = cache.Stored(Prompt(i, 16));
      EXPECT_EQ(cache.Park(&other, FERMATA_PARK_KEEP).status, FERMATA_OK);
      cache.Release(&other);
      cache.Settle();
    }
  };
  // Blocks 0-2 go to host memory, and on to the disk as others take their room.
  Seq head = cache.Stored(Prefix(chain, 3 * 16));
  ASSERT_EQ(cache.Park(&head, FERMATA_PARK_KEEP).status, FERMATA_OK);
  park_others(200, 16);
  ASSERT_EQ(cache.Resume(&head).valid_tokens, 3u * 16);
  EXPECT_EQ(there(), 3u + 8);
  EXPECT_EQ(written(), there());
  // The chain goes on, and host memory is ahead of the disk by 3 and 4: all five are there, where
  // five others made room.
  cache.Store(&head, Tokens(chain.begin() + 3 * 16, chain.end()));
  ASSERT_EQ(cache.Park(&head, FERMATA_PARK_KEEP).status, FERMATA_OK);
  cache.Settle();
  EXPECT_EQ(there(), 3u + 8 + 5);
  EXPECT_EQ(written(), there());
  // They follow as others take that room, and they alone.
  park_others(300, 16);
  EXPECT_EQ(there(), 5u + 24);
  EXPECT_EQ(written(), there());
  cache.Release(&head);
  // The other way round: the disk has all five, the device what was computed again.
  Seq again = cache.Stored(Prefix(chain, 2 * 16));
  cache.Release(&again);
  const uint64_t read = cache.TierStats(FERMATA_TIER_SSD).bytes_read;
  Seq whole = cache.Fetch(chain);
  EXPECT_EQ(whole.tokens.size(), 5u * 16);
  EXPECT_EQ(cache.TierStats(FERMATA_TIER_SSD).bytes_read - read, 3 * block_bytes);
  cache.CheckBytes(whole);
  cache.Release(&whole);
}

TEST(Faults, B29_LoadsThatWaitForABufferWaitWithoutSpinningAndAllEnd) {
  HeldDevice device;
  CacheSetup setup;
  setup.host_blocks = 1;
  setup.staging_blocks = 2;
  setup.ssd_blocks = 16;
  setup.device_ops = device.ops();
  TestCache cache(setup);
  std::vector<Seq> parked;
  for (uint32_t i = 0; i < 5; ++i) {
    parked.push_back(cache.Stored(Prompt(100 + i, 16)));
    ASSERT_EQ(cache.Park(&parked.back(), FERMATA_PARK_KEEP).status, FERMATA_OK);
  }
  cache.Settle();
  device.Hold();  // buffers are given back when the device has copied them, so two are taken
  std::vector<Job> jobs;
  for (uint32_t i = 0; i < 4; ++i) {
    jobs.push_back(cache.StartResume(parked[i]));
    ASSERT_THAT(jobs.back().outcome, IsOk());
  }
  EXPECT_LT(cache.Step(100'000), 100'000u) << "work that has no end is work that spins";
  EXPECT_LE(device.outstanding(), 3u);  // two of the buffers, one of host memory
  EXPECT_EQ(cache.GetStats().total.jobs, 4u);
  device.LetGo();
  for (uint32_t i = 0; i < 4; ++i) {
    const fermata_completion end = cache.Finish(jobs[i]);
    EXPECT_EQ(end.status, FERMATA_OK);
    EXPECT_EQ(end.valid_tokens, 16u);
    cache.CheckBytes(parked[i]);
  }
  for (Seq& seq : parked) cache.Release(&seq);
}

TEST(Faults, B41_ACopyThatTheDiskGaveUpIsNoBackingForTheOneAbove) {
  CacheSetup setup;
  setup.host_blocks = 4;
  setup.ssd_blocks = 4;
  TestCache cache(setup);
  // Two blocks that lie on the disk come back, and go to host memory the next time.
  const Tokens kept = Prompt(41, 2 * 16);
  Seq a = cache.Stored(kept);
  ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  for (uint32_t i = 0; i < 12; ++i) {
    // Whatever of them the disk has now, it gives up for others while these turns go on.
    Seq other = cache.Stored(Prompt(200 + i, 2 * 16));
    cache.Park(&other, FERMATA_PARK_DROP);
    cache.Release(&other);
    cache.Settle();
    cache.Audit();
    const uint64_t hit = cache.HitTokens(kept);
    const fermata_completion end = cache.Resume(&a);
    EXPECT_EQ(end.status, FERMATA_OK);
    EXPECT_EQ(end.valid_tokens, hit) << "a hit that did not load, turn " << i;
    if (end.valid_tokens < kept.size())
      cache.Store(&a,
                  Tokens(kept.begin() + static_cast<std::ptrdiff_t>(end.valid_tokens), kept.end()));
    cache.CheckBytes(a);
    ASSERT_EQ(cache.Park(&a, FERMATA_PARK_KEEP).status, FERMATA_OK);
  }
  cache.Release(&a);
}

}  // namespace
}  // namespace fermata_test
