// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "bench/replay.h"
#include "bench/replay_options.h"

namespace fermata::bench {
namespace {

using ::testing::StartsWith;

ReplayOptions Real() {
  ReplayOptions options;
  options.real_clock = true;
  return options;
}

TEST(ReplayOptions, DefaultsAreGoodOnBothClocks) {
  EXPECT_TRUE(ReplayOptions().Validate().ok());
  EXPECT_TRUE(Real().Validate().ok());
}

TEST(ReplayOptions, RefusalsNameTheOptionAndTheValue) {
  const auto expect = [](ReplayOptions options, const char* start) {
    EXPECT_THAT(options.Validate().message(), StartsWith(start));
  };
  ReplayOptions o = ReplayOptions();
  o.device_blocks = 0;
  expect(o, "--device-blocks 0: ");
  o = ReplayOptions();
  o.device_blocks = uint64_t{1} << 40;
  expect(o, "--device-blocks 1099511627776: ");
  o = Real();
  o.device_blocks = 2000000000;
  expect(o, "--device-blocks 2000000000: ");
  o = Real();
  o.host_blocks = 2000000000;
  expect(o, "--host-blocks 2000000000: ");
  o = ReplayOptions();
  o.block_split = 3;
  expect(o, "--block-split 3: ");
  o.block_split = 0;
  expect(o, "--block-split 0: ");
  o = Real();
  o.block_bytes = 100;
  expect(o, "--block-bytes 100: ");
  o.block_bytes = 0;
  expect(o, "--block-bytes 0: ");
  o.block_bytes = uint64_t{1} << 31;
  expect(o, "--block-bytes 2147483648: ");
  o = Real();
  o.ssd_blocks = 10;
  expect(o, "--ssd-blocks 10: needs --dir");
  o = Real();
  o.dir = "somewhere";
  expect(o, "--dir somewhere: ");
  o = ReplayOptions();
  o.dir = "somewhere";
  expect(o, "--dir somewhere: ");
  o = ReplayOptions();
  o.sabotage = 5;
  expect(o, "--sabotage 5: ");
  o = ReplayOptions();
  o.threads = 0;
  expect(o, "--threads 0: ");
  o = ReplayOptions();
  o.policy = "mru";
  expect(o, "--policy 'mru': want lru or lru-superseded");
  o.policy = "";
  expect(o, "--policy '': want lru or lru-superseded");
}

TEST(ReplayOptions, SlotsBelowTheDeviceAreWholePages) {
  ReplayOptions o = Real();
  o.block_bytes = 4096 + 64;
  EXPECT_EQ(o.slot_bytes(), 8192u);
  o.block_bytes = 65536;
  EXPECT_EQ(o.slot_bytes(), 65536u);
}

TEST(ExpandTokens, DifferentBlocksAreSpeltDifferently) {
  std::set<std::vector<uint32_t>> seen;
  for (const uint64_t block : {0ull, 1ull, 2ull, 1ull << 32, (1ull << 32) + 1, 1ull << 47}) {
    std::vector<uint32_t> tokens(16), again(16);
    ExpandTokens(block, 16, tokens.data());
    ExpandTokens(block, 16, again.data());
    EXPECT_EQ(tokens, again);
    EXPECT_TRUE(seen.insert(tokens).second) << block;
  }
  uint32_t one = 0;
  ExpandTokens(77, 1, &one);
  EXPECT_EQ(one, 77u);
}

}  // namespace
}  // namespace fermata::bench
