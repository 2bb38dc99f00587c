// SPDX-License-Identifier: Apache-2.0
//
// SIGKILL while blocks are being written at depth 8, then reopen: every record gives its own bytes
// or DATA_LOSS, never another's.
#include <signal.h>
#include <sys/wait.h>

#include "base/random.h"
#include "tests/unit/tiers/ssd_test_util.h"

namespace fermata {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kSlots = 24;
constexpr uint64_t kDepth = 8;

// Writes blocks for ever, each with a new uid, over slots that it releases; tells the parent of
// each that completed.
[[noreturn]] void WriteUntilKilled(const std::string& directory, int progress) {
  Result<std::unique_ptr<SsdTier>> opened =
      SsdTier::Create(TestOptions(directory, kSlots, kBlockBytes));
  if (!opened.ok()) _exit(2);
  SsdTier* const tier = opened->get();
  const Status recovered =
      tier->Recover([](const SpaceRecord&) {}, [](const BlockRecord&, SlotId) {});
  if (!recovered.ok()) _exit(3);
  // Take over what survived, so that slots get recycled; keep half a tier of the newest readable.
  std::vector<SlotId> all;
  for (uint32_t i = 0; i < kSlots; ++i) all.push_back(SlotId{i});
  std::vector<SlotId> more(tier->free_slots(0), SlotId::kNone);
  if (!tier->Acquire(0, more).ok()) _exit(4);
  const AlignedBuffer buffers(kDepth * kBlockBytes);
  uint64_t uid = tier->incarnation() << 32;
  size_t next = 0;
  for (;;) {
    std::vector<std::unique_ptr<TestRecord>> records;
    std::vector<TierIo> batch;
    for (uint64_t i = 0; i < kDepth; ++i) {
      const SlotId slot = all[next++ % all.size()];
      tier->Release(0, std::span(&slot, 1));
      SlotId again = SlotId::kNone;
      if (!tier->Acquire(0, std::span(&again, 1)).ok()) _exit(5);
      records.push_back(std::make_unique<TestRecord>(++uid));
      FillBlock(uid, buffers.span().subspan(i * kBlockBytes, kBlockBytes));
      batch.push_back({TierIo::Op::kWrite, IoClass::kWriteBack, 0, again,
                       buffers.data() + i * kBlockBytes, &records.back()->record, i});
    }
    if (tier->Submit(batch) != kDepth) _exit(6);
    for (const auto& [cookie, status] : Drain(tier)) {
      if (!status.ok()) _exit(7);
      const char byte = 'w';
      if (write(progress, &byte, 1) != 1) _exit(8);
    }
  }
}

TEST(SsdKill, EveryRecordGivesItsOwnBytesOrNone) {
  SsdTempDir dir;
  Random random(testing::UnitTest::GetInstance()->random_seed() != 0
                    ? static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed())
                    : 1);
  uint64_t found_all = 0;
  uint64_t lost = 0;
  uint64_t incarnation = 0;
  for (int kill_number = 0; kill_number < 10; ++kill_number) {
    int progress[2];
    ASSERT_EQ(pipe2(progress, O_CLOEXEC), 0);
    const pid_t child = StartSelf("--write-until-killed", dir.store(), progress[1]);
    ASSERT_GT(child, 0);
    close(progress[1]);
    // Killed after a random number of completed writes, at a random place in the next ones.
    const uint64_t writes = 5 + random.Below(60);
    uint64_t completed = 0;
    char byte = 0;
    while (completed < writes && read(progress[0], &byte, 1) == 1) ++completed;
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    close(progress[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself with " << WEXITSTATUS(status);
    ASSERT_EQ(completed, writes);

    const auto tier = OpenTier(TestOptions(dir.store(), kSlots, kBlockBytes));
    ASSERT_NE(tier, nullptr);
    EXPECT_GT(tier->incarnation(), incarnation);
    incarnation = tier->incarnation();
    const std::map<uint64_t, SlotId> found = RecoverAll(tier.get());
    // At most one batch was on its way; everything that completed before it is there.
    EXPECT_GE(found.size() + 2 * kDepth, std::min(kSlots, completed));
    found_all += found.size();
    for (const auto& [uid, slot] : found) {
      const Status read =
          ReadBlock(tier.get(), slot, uid, kBlockBytes);  // compares the bytes when OK
      if (read.ok()) continue;
      EXPECT_EQ(read.code(), StatusCode::kDataLoss) << read.ToString();
      ++lost;
    }
    EXPECT_TRUE(tier->Shutdown().ok());
  }
  EXPECT_GT(found_all, 0u);
  // A record is written after its data, and deleted before it is overwritten: a kill alone, without
  // power loss, damages none.
  EXPECT_EQ(lost, 0u);
  RecordProperty("records_found", static_cast<int>(found_all));
}

}  // namespace
}  // namespace fermata

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--write-until-killed") {
    fermata::WriteUntilKilled(argv[2], std::atoi(argv[3]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
