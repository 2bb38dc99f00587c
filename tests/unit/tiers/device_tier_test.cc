// SPDX-License-Identifier: Apache-2.0
//
// What is the device tier's own beyond the contract in tests/conformance: arenas, geometry, and how
// it talks to DeviceOps.
#include "tiers/device_tier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/random.h"

namespace fermata {
namespace {

std::unique_ptr<DeviceTier> Plain(std::vector<uint64_t> block_bytes) {
  return std::make_unique<DeviceTier>(0, std::move(block_bytes), std::make_unique<PlainMemoryOps>(),
                                      false);
}

SlotId AcquireOne(DeviceTier* tier, GroupIndex group) {
  SlotId slot = SlotId::kNone;
  EXPECT_TRUE(tier->Acquire(group, std::span<SlotId>(&slot, 1)).ok());
  return slot;
}

TEST(DeviceTier, GroupHasNoSlotsBeforeItsArena) {
  const auto tier = Plain({64, 64});
  EXPECT_EQ(tier->slots(0), 0u);
  EXPECT_EQ(tier->free_slots(0), 0u);
  SlotId slot = SlotId::kNone;
  EXPECT_EQ(tier->Acquire(0, std::span<SlotId>(&slot, 1)).reason(), Reason::kNoSpace);
  EXPECT_TRUE(tier->Acquire(0, {}).ok());
  std::vector<std::byte> memory(64 * 4);
  const DeviceRegion region = {memory.data(), 64, 64};
  ASSERT_TRUE(tier->RegisterArena(1, std::span<const DeviceRegion>(&region, 1), 4).ok());
  EXPECT_EQ(tier->slots(0), 0u);
  EXPECT_EQ(tier->slots(1), 4u);
  EXPECT_TRUE(tier->HasArena(1));
  EXPECT_FALSE(tier->HasArena(0));
}

TEST(DeviceTier, ColdFormIsTheRegionsOneAfterTheOther) {
  const auto tier = Plain({10});
  std::vector<std::byte> keys(3 * 8, std::byte{0xee});
  std::vector<std::byte> values(3 * 4, std::byte{0xee});
  const std::vector<DeviceRegion> regions = {{keys.data(), 6, 8}, {values.data(), 4, 4}};
  ASSERT_TRUE(tier->RegisterArena(0, regions, 3).ok());
  std::vector<SlotId> slots(3, SlotId::kNone);
  ASSERT_TRUE(tier->Acquire(0, slots).ok());
  ASSERT_EQ(slots[1], SlotId{1});

  std::byte cold[10];
  for (int i = 0; i < 10; ++i) cold[i] = std::byte{static_cast<uint8_t>(i + 1)};
  TierIo io;
  io.op = TierIo::Op::kWrite;
  io.slot = SlotId{1};
  io.buffer = cold;
  io.cookie = 77;
  TierCompletion done;
  ASSERT_EQ(tier->Submit(std::span<const TierIo>(&io, 1)), 1u);
  ASSERT_EQ(tier->Poll(std::span<TierCompletion>(&done, 1)), 1u);
  EXPECT_EQ(done.cookie, 77u);
  EXPECT_TRUE(done.status.ok());
  const auto value = [](const std::vector<std::byte>& memory) {
    std::vector<int> out;
    for (const std::byte byte : memory) out.push_back(std::to_integer<int>(byte));
    return out;
  };
  const int e = 0xee;
  // Nothing between the slots, and no other slot, was touched.
  EXPECT_EQ(value(keys), (std::vector<int>{e, e, e, e, e, e, e, e, 1, 2, 3, 4,
                                           5, 6, e, e, e, e, e, e, e, e, e, e}));
  EXPECT_EQ(value(values), (std::vector<int>{e, e, e, e, 7, 8, 9, 10, e, e, e, e}));
  tier->Release(0, slots);
}

TEST(DeviceTier, BadArenasAreNamed) {
  const auto tier = Plain({100});
  std::vector<std::byte> memory(4096);
  const auto answer = [&](std::vector<DeviceRegion> regions, uint32_t slots, GroupIndex group = 0) {
    return tier->RegisterArena(group, regions, slots);
  };
  std::byte* const base = memory.data();
  EXPECT_EQ(answer({{base, 100, 100}}, 4, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answer({}, 4).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answer({{nullptr, 100, 100}}, 4).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answer({{base, 100, 100}}, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answer({{base, 100, 100}}, Raw(SlotId::kNone)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(answer({{base, 100, 99}}, 4).reason(), Reason::kBadLayout);
  EXPECT_EQ(answer({{base, 100, 100}, {base, 0, 8}}, 4).reason(), Reason::kBadLayout);
  const Status sum = answer({{base, 60, 64}, {base + 2048, 50, 64}}, 4);
  EXPECT_EQ(sum.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sum.reason(), Reason::kBadLayout);
  EXPECT_NE(sum.message().find("110"), std::string::npos) << sum.message();
  EXPECT_NE(sum.message().find("100"), std::string::npos) << sum.message();
  // Sums of slot_bytes that come out right only modulo 2^64.
  EXPECT_FALSE(answer({{base, ~uint64_t{0}, ~uint64_t{0}}, {base, 101, 101}}, 1).ok());
  EXPECT_FALSE(tier->HasArena(0)) << "no failed call left anything behind";
  EXPECT_TRUE(answer({{base, 100, 100}}, 4).ok());
  EXPECT_EQ(answer({{base, 100, 100}}, 4).code(), StatusCode::kAlreadyExists);
}

// Two regions over the same bytes would let each block's values overwrite its keys.
TEST(DeviceTier, RegionsThatShareBytesAreRefusedByName) {
  std::vector<std::byte> memory(65536);
  std::byte* const base = memory.data();
  const auto answer = [](std::vector<DeviceRegion> regions, uint32_t slots) {
    uint64_t bytes = 0;
    for (const DeviceRegion& region : regions) bytes += region.slot_bytes;
    return Plain({bytes})->RegisterArena(0, regions, slots);
  };
  const Status same = answer({{base + 4096, 8, 8}, {base, 16, 16}, {base, 16, 16}}, 4);
  EXPECT_EQ(same.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(same.reason(), Reason::kBadLayout);
  EXPECT_NE(same.message().find("regions[1] and regions[2] overlap"), std::string::npos)
      << same.message();
  EXPECT_FALSE(answer({{base, 16, 16}, {base + 63, 16, 16}}, 4).ok()) << "the last byte";
  EXPECT_TRUE(answer({{base, 16, 16}, {base + 64, 16, 16}}, 4).ok());
  // K and V of each slot side by side, in either order, with or without a gap.
  EXPECT_TRUE(answer({{base, 16, 32}, {base + 16, 16, 32}}, 4).ok());
  EXPECT_TRUE(answer({{base + 20, 8, 32}, {base, 16, 32}}, 4).ok());
  EXPECT_FALSE(answer({{base, 17, 32}, {base + 16, 16, 32}}, 4).ok());
  EXPECT_FALSE(answer({{base, 16, 32}, {base + 16, 17, 32}}, 4).ok());
  EXPECT_TRUE(answer({{base, 16, 32}, {base + 16, 17, 32}}, 1).ok()) << "there is no next slot";
}

TEST(DeviceTier, ArenasOfTwoGroupsDoNotShareBytesEither) {
  std::vector<std::byte> memory(4096);
  const auto tier = Plain({16, 16});
  const DeviceRegion first = {memory.data(), 16, 32};
  ASSERT_TRUE(tier->RegisterArena(0, std::span<const DeviceRegion>(&first, 1), 8).ok());
  const DeviceRegion in_it = {memory.data() + 64, 16, 16};
  const Status status = tier->RegisterArena(1, std::span<const DeviceRegion>(&in_it, 1), 2);
  EXPECT_EQ(status.reason(), Reason::kBadLayout);
  EXPECT_NE(status.message().find("regions[0] overlaps regions[0] of the arena of group 0"),
            std::string::npos)
      << status.message();
  const DeviceRegion in_gaps = {memory.data() + 16, 16, 64};
  EXPECT_TRUE(tier->RegisterArena(1, std::span<const DeviceRegion>(&in_gaps, 1), 8).ok());
}

// Against marking every byte, with strides that differ and meet late or never.
TEST(DeviceTier, OverlapAgreesWithAModel) {
  Random random(5);
  constexpr size_t kBytes = 4096;
  const std::vector<std::byte> memory(2 * kBytes);
  size_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<DeviceRegion> regions[2];
    uint32_t slots[2];
    for (int g = 0; g < 2; ++g) {
      const uint64_t bytes = 1 + random.Below(6);
      slots[g] = static_cast<uint32_t>(1 + random.Below(30));
      regions[g] = {{const_cast<std::byte*>(memory.data()) + random.Below(200), bytes,
                     bytes + random.Below(60)}};
    }
    std::vector<bool> taken(kBytes);
    bool shared = false;
    for (int g = 0; g < 2; ++g) {
      const DeviceRegion& region = regions[g][0];
      for (uint64_t slot = 0; slot < slots[g]; ++slot) {
        for (uint64_t byte = 0; byte < region.slot_bytes; ++byte) {
          const size_t at =
              static_cast<size_t>(region.base - memory.data()) + slot * region.slot_stride + byte;
          shared = shared || taken[at];
          taken[at] = true;
        }
      }
    }
    const auto tier = Plain({regions[0][0].slot_bytes, regions[1][0].slot_bytes});
    ASSERT_TRUE(tier->RegisterArena(0, regions[0], slots[0]).ok());
    ASSERT_EQ(tier->RegisterArena(1, regions[1], slots[1]).ok(), !shared)
        << "seed 5, case " << i << ": " << shared;
    refused += shared ? 1 : 0;
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 19000u);
}

// B59: offsets of large pools are exact, and what passes 64 bits is refused.
TEST(DeviceTier, OffsetsAre64Bit) {
  constexpr uint64_t kMiB = 1'048'576;
  constexpr uint32_t kSlots = 5'000'000;
  const auto tier = Plain({kMiB});
  const DeviceRegion region = {reinterpret_cast<std::byte*>(uintptr_t{4096}), kMiB, kMiB};
  ASSERT_TRUE(tier->RegisterArena(0, std::span<const DeviceRegion>(&region, 1), kSlots).ok());
  EXPECT_EQ(tier->slots(0), kSlots);
  EXPECT_EQ(tier->OffsetOf(0, 0, SlotId{kSlots - 1}), uint64_t{4'999'999} * 1'048'576);
  EXPECT_EQ(tier->OffsetOf(0, 0, SlotId{0}), 0u);

  const auto other = Plain({kMiB});
  const DeviceRegion wide = {region.base, kMiB, uint64_t{1} << 42};
  const Status status = other->RegisterArena(0, std::span<const DeviceRegion>(&wide, 1), kSlots);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  const DeviceRegion high = {reinterpret_cast<std::byte*>(~uintptr_t{0} - kMiB), kMiB, kMiB};
  EXPECT_EQ(other->RegisterArena(0, std::span<const DeviceRegion>(&high, 1), 2).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(other->RegisterArena(0, std::span<const DeviceRegion>(&high, 1), 1).ok());
}

// Ops that finish when told, and keep what they were asked.
class HeldOps final : public DeviceOps {
 public:
  Status CopySubmit(std::span<const CopyRun> runs, CopyDirection the_direction,
                    uint64_t ticket) override {
    run_count = runs.size();
    direction = the_direction;
    EXPECT_TRUE(tickets.insert(ticket).second) << "a ticket came twice";
    return Status();
  }
  Result<bool> CopyPoll(uint64_t ticket) override {
    EXPECT_EQ(ended.count(ticket), 0u) << "asked again after its end";
    EXPECT_EQ(tickets.count(ticket), 1u);
    if (!finish) return false;
    ended.insert(ticket);
    return true;
  }
  Result<bool> EventQuery(void*) override { return true; }

  bool finish = false;
  size_t run_count = 0;
  CopyDirection direction = CopyDirection::kDeviceToHost;
  std::set<uint64_t> tickets;
  std::set<uint64_t> ended;
};

TEST(DeviceTier, ArenaStaysWhileInUse) {
  auto owned_ops = std::make_unique<HeldOps>();
  HeldOps* const ops = owned_ops.get();
  DeviceTier tier(3, {32}, std::move(owned_ops), false);
  EXPECT_EQ(tier.UnregisterArena(0).code(), StatusCode::kNotFound);
  std::vector<std::byte> memory(32 * 2);
  const std::vector<DeviceRegion> regions = {{memory.data(), 16, 16}, {memory.data() + 32, 16, 16}};
  ASSERT_TRUE(tier.RegisterArena(0, regions, 2).ok());
  const SlotId slot = AcquireOne(&tier, 0);
  EXPECT_EQ(tier.UnregisterArena(0).reason(), Reason::kInUse) << "a slot is held";

  std::byte cold[32];
  TierIo io;
  io.op = TierIo::Op::kRead;
  io.slot = slot;
  io.buffer = cold;
  ASSERT_EQ(tier.Submit(std::span<const TierIo>(&io, 1)), 1u);
  EXPECT_EQ(ops->run_count, 2u);
  EXPECT_EQ(ops->direction, CopyDirection::kDeviceToHost);
  tier.Release(0, std::span<const SlotId>(&slot, 1));
  EXPECT_EQ(tier.UnregisterArena(0).reason(), Reason::kInUse) << "a copy is in flight";
  TierCompletion done;
  EXPECT_EQ(tier.Poll(std::span<TierCompletion>(&done, 1)), 0u);
  EXPECT_EQ(tier.in_flight(), 1u);
  ops->finish = true;
  EXPECT_EQ(tier.Poll({}), 0u) << "no room for completions: none is taken";
  EXPECT_EQ(tier.Poll(std::span<TierCompletion>(&done, 1)), 1u);
  EXPECT_TRUE(tier.UnregisterArena(0).ok());
  EXPECT_EQ(tier.slots(0), 0u);
  EXPECT_TRUE(tier.RegisterArena(0, regions, 2).ok()) << "and it may come again";
}

TEST(DeviceTier, FailedCopyIsThatBlocksError) {
  class FailingOps final : public DeviceOps {
   public:
    Status CopySubmit(std::span<const CopyRun>, CopyDirection, uint64_t) override {
      return ++submits_ == 2 ? ErrorF(StatusCode::kUnavailable, "second") : Status();
    }
    Result<bool> CopyPoll(uint64_t) override {
      if (++polls_ == 2) return ErrorF(StatusCode::kDataLoss, "third");
      return true;
    }
    Result<bool> EventQuery(void*) override { return true; }

   private:
    int submits_ = 0;
    int polls_ = 0;
  };
  DeviceTier tier(0, {32}, std::make_unique<FailingOps>(), false);
  std::vector<std::byte> memory(32 * 4);
  const DeviceRegion region = {memory.data(), 32, 32};
  ASSERT_TRUE(tier.RegisterArena(0, std::span<const DeviceRegion>(&region, 1), 4).ok());
  std::vector<SlotId> slots(4, SlotId::kNone);
  ASSERT_TRUE(tier.Acquire(0, slots).ok());
  std::byte cold[4][32];
  std::vector<TierIo> batch(4);
  for (size_t i = 0; i < 4; ++i) {
    batch[i].slot = slots[i];
    batch[i].buffer = cold[i];
    batch[i].cookie = i;
  }
  ASSERT_EQ(tier.Submit(batch), 4u);
  std::vector<TierCompletion> done(8);
  ASSERT_EQ(tier.Poll(done), 4u);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_EQ(done[1].status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(done[2].status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(done[3].status.ok());
  EXPECT_EQ(tier.in_flight(), 0u);
  tier.Release(0, slots);
  EXPECT_TRUE(tier.UnregisterArena(0).ok()) << "failed copies do not hold the arena";
}

TEST(DeviceTier, MetadataOnlyNeedsNoMemory) {
  DeviceTier tier(0, {uint64_t{1} << 20}, nullptr, true);
  EXPECT_TRUE(tier.has(kTierNoBytes));
  const DeviceRegion region = {nullptr, uint64_t{1} << 20, uint64_t{1} << 20};
  ASSERT_TRUE(tier.RegisterArena(0, std::span<const DeviceRegion>(&region, 1), 1'000'000).ok());
  TierIo io;
  io.slot = AcquireOne(&tier, 0);
  TierCompletion done;
  ASSERT_EQ(tier.Submit(std::span<const TierIo>(&io, 1)), 1u);
  ASSERT_EQ(tier.Poll(std::span<TierCompletion>(&done, 1)), 1u);
  EXPECT_TRUE(done.status.ok());
}

TEST(DeviceTierDeathTest, CopyOfASlotThatIsNotHeldDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto tier = Plain({32});
  std::vector<std::byte> memory(64);
  const DeviceRegion region = {memory.data(), 32, 32};
  ASSERT_TRUE(tier->RegisterArena(0, std::span<const DeviceRegion>(&region, 1), 2).ok());
  std::byte cold[32] = {};
  TierIo io;
  io.slot = SlotId{1};
  io.buffer = cold;
  EXPECT_DEATH((void)tier->Submit(std::span<const TierIo>(&io, 1)), "IsHeld");
}

TEST(PlainMemoryOps, HasNoEvents) {
  PlainMemoryOps ops;
  int event = 0;
  EXPECT_EQ(ops.EventQuery(&event).status().code(), StatusCode::kInvalidArgument);
  Result<bool> fired = ops.EventQuery(nullptr);
  ASSERT_TRUE(fired.ok());
  EXPECT_TRUE(*fired);
}

}  // namespace
}  // namespace fermata
