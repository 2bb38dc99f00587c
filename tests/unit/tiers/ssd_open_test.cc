// SPDX-License-Identifier: Apache-2.0
//
// Opening the SSD tier on what others left in the directory: locks, links, other geometries,
// damage, refusals.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <fstream>

#include "tests/unit/tiers/ssd_test_util.h"
#include "tiers/ssd_format.h"

namespace fermata {
namespace {

Status OpenStatus(SsdTierOptions options) { return SsdTier::Create(std::move(options)).status(); }

std::string FileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A store of 16 slots with blocks 1..16 in it; returns where they are.
std::map<uint64_t, SlotId> FillStore(const SsdTempDir& dir) {
  std::map<uint64_t, SlotId> slots;
  const auto tier = OpenTier(TestOptions(dir.store()));
  for (uint64_t uid = 1; uid <= 16; ++uid) {
    slots[uid] = AcquireSlot(tier.get());
    EXPECT_TRUE(WriteBlock(tier.get(), slots[uid], uid).ok());
  }
  EXPECT_TRUE(tier->Shutdown().ok());
  return slots;
}

TEST(SsdOpen, NamesTheOptionThatIsWrong) {
  SsdTempDir dir;
  SsdTierOptions options = TestOptions(dir.store());
  options.groups.clear();
  EXPECT_EQ(OpenStatus(options).code(), StatusCode::kInvalidArgument);
  options = TestOptions(dir.store(), 0);
  EXPECT_NE(OpenStatus(options).message().find("slots of group 0: 0"), std::string::npos);
  options = TestOptions(dir.store(), 1, 0);
  EXPECT_NE(OpenStatus(options).message().find("block_bytes of group 0: 0"), std::string::npos);
  options = TestOptions(dir.store(), uint64_t{1} << 32, uint64_t{1} << 62);
  EXPECT_EQ(OpenStatus(options).code(), StatusCode::kInvalidArgument);
  options = TestOptions(dir.store());
  options.io_depth = 0;
  EXPECT_NE(OpenStatus(options).message().find("io_depth: 0"), std::string::npos);
  options = TestOptions("");
  EXPECT_EQ(OpenStatus(options).code(), StatusCode::kInvalidArgument);
  options = TestOptions(dir.path() + "/no/such/parent");
  EXPECT_EQ(OpenStatus(options).code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(dir.store()));
}

TEST(SsdOpen, CreatesEverythingForItsUserOnly) {
  SsdTempDir dir;
  const mode_t before = umask(0);
  { const auto tier = OpenTier(TestOptions(dir.store())); }
  umask(before);
  for (const char* name : {"", "LOCK", "superblock", "data"}) {
    struct stat info {};
    ASSERT_EQ(stat(dir.file(name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 077, 0u) << name;
  }
}

TEST(SsdOpen, SecondOpenIsInUse) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store()));
  const Status same = OpenStatus(TestOptions(dir.store()));
  EXPECT_EQ(same.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(same.reason(), Reason::kInUse);
  EXPECT_NE(same.message().find("in use by process " + std::to_string(getpid())), std::string::npos)
      << same.message();
  EXPECT_EQ(ExitCode(StartSelf("--open-in-use", dir.store(), -1)), 0);
  // The one that has it is none the worse.
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), slot, 1).ok());
}

TEST(SsdOpen, LockGoesWithItsHolder) {
  SsdTempDir dir;
  EXPECT_EQ(ExitCode(StartSelf("--open-and-die", dir.store(), -1)), 0);
  EXPECT_NE(OpenTier(TestOptions(dir.store())), nullptr);
}

// A child shares the open file description that carries the lock, until it execs.
TEST(SsdOpen, LockGoesWithACloseThatAForkedChildOutlives) {
  SsdTempDir dir;
  auto tier = OpenTier(TestOptions(dir.store()));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(tier->Shutdown().ok());
  EXPECT_EQ(OpenStatus(TestOptions(dir.store())).reason(), Reason::kInUse) << "not closed yet";
  tier.reset();
  const Status again = OpenStatus(TestOptions(dir.store()));
  EXPECT_TRUE(again.ok()) << again.ToString();
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// A child that ends by exit() runs the destructors of statics, without the threads they may wait
// for.
int ForkedChildExits(const std::string& directory) {
  const auto tier = OpenTier(TestOptions(directory));
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      std::exit(0);  // NOLINT(concurrency-mt-unsafe): that is what is tested
    }
    if (ExitCode(child) != 0) return 1;
  }
  return tier->Shutdown().ok() ? 0 : 2;
}

TEST(SsdOpen, ForkedChildThatCallsExitEnds) {
  SsdTempDir dir;
  EXPECT_EQ(ExitCode(StartSelf("--fork-exit", dir.store(), -1)), 0);
}

// A static made before the store is opened goes after RocksDB's.
int StaticClosesAtExit(const std::string& directory) {
  static std::unique_ptr<SsdTier> tier;
  tier = OpenTier(TestOptions(directory));
  const SlotId slot = AcquireSlot(tier.get());
  if (!WriteBlock(tier.get(), slot, 1).ok()) return 1;
  alarm(10);
  return 0;  // from main
}

TEST(SsdOpen, StaticOfTheEngineMayCloseWhenTheProcessEnds) {
  SsdTempDir dir;
  EXPECT_EQ(ExitCode(StartSelf("--static-close", dir.store(), -1)), 0);
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_EQ(RecoverAll(tier.get()).size(), 1u);
}

// Address space for `threads` stacks and no more; a store opens on it or says why not.
int OpenWithFewThreads(const std::string& directory, uint64_t threads) {
  constexpr uint64_t kStack = uint64_t{1} << 30;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, kStack) != 0 ||
      pthread_setattr_default_np(&attributes) != 0) {
    return 3;
  }
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes =
      pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + threads * kStack + kStack / 2;
  const rlimit limit{bytes, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
  Result<std::unique_ptr<SsdTier>> tier = SsdTier::Create(TestOptions(directory));
  if (!tier.ok()) return 4;
  if ((StatText(**tier, "ssd.meta") == "ok") != (threads > 0)) return 5;
  return (*tier)->Shutdown().ok() ? 0 : 6;
}

TEST(SsdOpen, ThreadsThatCannotBeHadDoNotEndTheProcess) {
  for (int threads = 0; threads < 8; ++threads) {
    SsdTempDir dir;
    const std::string mode = "--few-threads=" + std::to_string(threads);
    EXPECT_EQ(ExitCode(StartSelf(mode.c_str(), dir.store(), -1)), 0) << threads;
  }
}

TEST(SsdOpen, OtherGeometryIsRefusedAndNothingTouched) {
  SsdTempDir dir;
  FillStore(dir);
  const std::string superblock = FileBytes(dir.file("superblock"));
  const Status bytes = OpenStatus(TestOptions(dir.store(), 16, 4096));
  EXPECT_EQ(bytes.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bytes.reason(), Reason::kBadLayout);
  EXPECT_NE(bytes.message().find("65536"), std::string::npos) << bytes.message();
  EXPECT_NE(bytes.message().find("4096"), std::string::npos);
  SsdTierOptions groups = TestOptions(dir.store());
  groups.groups.push_back({4096, 4});
  EXPECT_EQ(OpenStatus(groups).reason(), Reason::kBadLayout);
  EXPECT_FALSE(std::filesystem::exists(dir.file("data.1")));
  EXPECT_EQ(FileBytes(dir.file("superblock")), superblock);
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_EQ(RecoverAll(tier.get()).size(), 16u);
}

TEST(SsdOpen, MoreSlotsKeepAllAndFewerKeepWhatFits) {
  SsdTempDir dir;
  const std::map<uint64_t, SlotId> slots = FillStore(dir);
  {
    const auto tier = OpenTier(TestOptions(dir.store(), 32));
    EXPECT_EQ(RecoverAll(tier.get()), slots);
    EXPECT_EQ(tier->free_slots(0), 16u);
    EXPECT_TRUE(tier->Shutdown().ok());
  }
  const auto tier = OpenTier(TestOptions(dir.store(), 4));
  const std::map<uint64_t, SlotId> found = RecoverAll(tier.get());
  EXPECT_EQ(found.size(), 4u);
  EXPECT_EQ(StatValue(*tier, "ssd.dropped_records"), 12u);
  EXPECT_EQ(std::filesystem::file_size(dir.file("data")), 4u * 65536);
  for (const auto& [uid, slot] : found) EXPECT_TRUE(ReadBlock(tier.get(), slot, uid).ok());
}

TEST(SsdOpen, NewerVersionIsRefusedAndNothingTouched) {
  SsdTempDir dir;
  FillStore(dir);
  std::string bytes = FileBytes(dir.file("superblock"));
  bytes[8] = 2;
  const Hash128 checksum =
      ContentHash(std::as_bytes(std::span(bytes.data(), kSsdSuperblockBytes - 16)));
  std::memcpy(bytes.data() + kSsdSuperblockBytes - 16, &checksum, 16);
  std::ofstream(dir.file("superblock"), std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const Status status = OpenStatus(TestOptions(dir.store()));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("format version 2"), std::string::npos) << status.message();
  EXPECT_EQ(FileBytes(dir.file("superblock")), bytes);
}

TEST(SsdOpen, OneDamagedSuperblockCopyIsSurvivedAndTwoAreNot) {
  for (const off_t at : {off_t{100}, off_t{4096 + 100}}) {
    SsdTempDir dir;
    FillStore(dir);
    FlipByte(dir.file("superblock"), at);
    const auto tier = OpenTier(TestOptions(dir.store()));
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(RecoverAll(tier.get()).size(), 16u);
    EXPECT_EQ(tier->incarnation(), 2u);
  }
  SsdTempDir dir;
  FillStore(dir);
  FlipByte(dir.file("superblock"), 100);
  FlipByte(dir.file("superblock"), 4096 + 100);
  const std::string data = FileBytes(dir.file("data"));
  const Status status = OpenStatus(TestOptions(dir.store()));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("remove the directory"), std::string::npos) << status.message();
  EXPECT_EQ(FileBytes(dir.file("data")), data);
}

TEST(SsdOpen, EmptySuperblockIsAnUnfinishedCreation) {
  SsdTempDir dir;
  FillStore(dir);
  ASSERT_EQ(truncate(dir.file("superblock").c_str(), 0), 0);
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_TRUE(RecoverAll(tier.get()).empty());
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
}

TEST(SsdOpen, DataWithoutSuperblockIsNotOurs) {
  SsdTempDir dir;
  std::filesystem::create_directory(dir.store());
  std::ofstream(dir.file("data")) << "somebody's thesis";
  EXPECT_EQ(OpenStatus(TestOptions(dir.store())).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(FileBytes(dir.file("data")), "somebody's thesis");
}

TEST(SsdOpen, TruncatedDataFileLosesWhatWasCutOff) {
  SsdTempDir dir;
  const std::map<uint64_t, SlotId> slots = FillStore(dir);
  ASSERT_EQ(truncate(dir.file("data").c_str(), 5 * 65536 + 1000), 0);
  const auto tier = OpenTier(TestOptions(dir.store()));
  const std::map<uint64_t, SlotId> found = RecoverAll(tier.get());
  EXPECT_EQ(found.size(), 5u);
  EXPECT_EQ(StatValue(*tier, "ssd.dropped_records"), 11u);
  for (const auto& [uid, slot] : found) EXPECT_TRUE(ReadBlock(tier.get(), slot, uid).ok());
  EXPECT_EQ(std::filesystem::file_size(dir.file("data")), 16u * 65536);
}

TEST(SsdOpen, MissingDataFileIsMadeAgain) {
  SsdTempDir dir;
  FillStore(dir);
  std::filesystem::remove(dir.file("data"));
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_TRUE(RecoverAll(tier.get()).empty());
  EXPECT_EQ(tier->free_slots(0), 16u);
}

TEST(SsdOpen, DataFileCutUnderARunningTierIsDataLossNotSigbus) {
  SsdTempDir dir;
  const auto tier = OpenTier(TestOptions(dir.store()));
  const SlotId slot = AcquireSlot(tier.get());
  ASSERT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  ASSERT_EQ(truncate(dir.file("data").c_str(), 0), 0);
  const Status status = ReadBlock(tier.get(), slot, 1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.reason(), Reason::kTorn);
}

TEST(SsdOpen, LinksAreRefusedAndTheirTargetsUntouched) {
  for (const char* name : {"superblock", "data", "LOCK"}) {
    SsdTempDir dir;
    FillStore(dir);
    const std::string target = dir.path() + "/target";
    std::filesystem::rename(dir.file(name), target);
    const std::string before = FileBytes(target);
    std::filesystem::create_symlink(target, dir.file(name));
    EXPECT_EQ(OpenStatus(TestOptions(dir.store())).code(), StatusCode::kFailedPrecondition) << name;
    std::filesystem::remove(dir.file(name));
    std::filesystem::create_hard_link(target, dir.file(name));
    const Status hard = OpenStatus(TestOptions(dir.store()));
    EXPECT_EQ(hard.code(), StatusCode::kFailedPrecondition) << name;
    EXPECT_NE(hard.message().find("2 hard links"), std::string::npos) << hard.message();
    EXPECT_EQ(FileBytes(target), before) << name;
  }
  SsdTempDir dir;
  std::filesystem::create_directory(dir.path() + "/elsewhere");
  std::filesystem::create_directory_symlink(dir.path() + "/elsewhere", dir.store());
  EXPECT_EQ(OpenStatus(TestOptions(dir.store())).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path() + "/elsewhere"));
}

TEST(SsdOpen, WhatIsNoRegularFileIsRefused) {
  SsdTempDir dir;
  FillStore(dir);
  std::filesystem::remove(dir.file("data"));
  ASSERT_EQ(mkfifo(dir.file("data").c_str(), 0600), 0);
  EXPECT_EQ(OpenStatus(TestOptions(dir.store())).code(), StatusCode::kFailedPrecondition);
}

TEST(SsdOpen, MoreThanTheDiskHasIsNoSpaceAndLeavesNothing) {
  SsdTempDir dir;
  const Status status = OpenStatus(TestOptions(dir.store(), 0xfffffffe, 1 << 20));  // 4 PiB
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.reason(), Reason::kNoSpace);
  EXPECT_NE(status.message().find("free"), std::string::npos) << status.message();
  EXPECT_FALSE(std::filesystem::exists(dir.file("data")));
  EXPECT_FALSE(std::filesystem::exists(dir.file("superblock")));
  EXPECT_NE(OpenTier(TestOptions(dir.store())), nullptr);
}

TEST(SsdOpen, GrowingBeyondTheDiskLeavesTheStoreAsItWas) {
  SsdTempDir dir;
  FillStore(dir);
  EXPECT_EQ(OpenStatus(TestOptions(dir.store(), 0x7fffffff)).reason(), Reason::kNoSpace);
  EXPECT_EQ(std::filesystem::file_size(dir.file("data")), 16u * 65536);
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_EQ(RecoverAll(tier.get()).size(), 16u);
}

TEST(SsdOpen, DamagedCatalogStartsColdAndSaysSo) {
  SsdTempDir dir;
  FillStore(dir);
  for (const auto& entry : std::filesystem::directory_iterator(dir.file("meta"))) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("MANIFEST", 0) == 0 || name == "CURRENT")
      std::ofstream(entry.path()) << "garbage";
  }
  const auto tier = OpenTier(TestOptions(dir.store()));
  EXPECT_TRUE(RecoverAll(tier.get()).empty());
  EXPECT_EQ(StatText(*tier, "ssd.meta"), "ok");
  EXPECT_EQ(StatValue(*tier, "ssd.meta_reset"), 1u) << StatText(*tier, "ssd.meta_reset");
  EXPECT_TRUE(std::filesystem::exists(dir.file("meta.bad")));
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
}

TEST(SsdOpen, WithoutIoUringPreadDoesAll) {
  SsdTempDir dir;
  SsdTierOptions options = TestOptions(dir.store());
  options.io_uring = false;
  const auto tier = OpenTier(options);
  EXPECT_EQ(StatText(*tier, "ssd.io_mode").rfind("pread+", 0), 0u)
      << StatText(*tier, "ssd.io_mode");
  EXPECT_NE(StatText(*tier, "ssd.io_fallback").find("io_uring: off by configuration"),
            std::string::npos);
  for (uint64_t uid = 1; uid <= 16; ++uid) {
    const SlotId slot = AcquireSlot(tier.get());
    ASSERT_TRUE(WriteBlock(tier.get(), slot, uid).ok());
    ASSERT_TRUE(ReadBlock(tier.get(), slot, uid).ok());
  }
}

TEST(SsdOpen, RefusedIoUringFallsBackToPread) {
  SsdTempDir dir;
  SsdTierOptions options = TestOptions(dir.store());
  options.make_device =
      [](BlockDeviceKind kind,
         const BlockDeviceOptions& device) -> Result<std::unique_ptr<BlockDevice>> {
    if (kind == BlockDeviceKind::kUring)
      return ErrorF(StatusCode::kUnavailable, "io_uring_setup: Operation not permitted");
    return OpenPreadDevice(device);
  };
  const auto tier = OpenTier(options);
  EXPECT_NE(StatText(*tier, "ssd.io_fallback").find("Operation not permitted"), std::string::npos);
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), slot, 1).ok());
}

TEST(SsdOpen, WithoutDirectIoAllIsBuffered) {
  SsdTempDir dir;
  SsdTierOptions options = TestOptions(dir.store());
  options.direct_io = false;
  const auto tier = OpenTier(options);
  EXPECT_NE(StatText(*tier, "ssd.io_mode").find("+buffered"), std::string::npos);
  const SlotId slot = AcquireSlot(tier.get());
  EXPECT_TRUE(WriteBlock(tier.get(), slot, 1).ok());
  EXPECT_TRUE(ReadBlock(tier.get(), slot, 1).ok());
}

// Exit code 0: it answered, and left no signal behind. Else it died of SIGXFSZ.
int OpenWithSmallFiles(const std::string& directory) {
  for (const rlim_t limit :
       {rlim_t{0}, rlim_t{1}, rlim_t{4096}, rlim_t{8192}, rlim_t{65536}, rlim_t{1} << 20}) {
    const rlimit files{limit, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &files) != 0) return 3;
    Result<std::unique_ptr<SsdTier>> tier = SsdTier::Create(TestOptions(directory));
    if (tier.ok() != (limit == 1 << 20)) return 4;
    if (!tier.ok() && tier.status().reason() != Reason::kNoSpace) return 5;
    if (tier.ok() && !(*tier)->Shutdown().ok()) return 6;
    sigset_t signals;
    if (sigpending(&signals) != 0 || sigismember(&signals, SIGXFSZ) == 1) return 7;
    if (pthread_sigmask(SIG_BLOCK, nullptr, &signals) != 0 || sigismember(&signals, SIGXFSZ) == 1)
      return 8;
  }
  return 0;
}

TEST(SsdOpen, AFileSizeLimitIsNoSpaceAndNoSignal) {
  SsdTempDir dir;
  EXPECT_EQ(ExitCode(StartSelf("--small-files", dir.store(), -1)), 0);
}

// In a child without privileges: root's memlock has no limit.
int OpenWithSmallMemlock(const std::string& directory) {
  const rlimit limit{65536, 65536};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 3;
  if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 3;
  const AlignedBuffer fixed(8 << 20);
  std::memset(fixed.data(), 1, 8 << 20);
  SsdTierOptions options = TestOptions(directory);
  options.fixed_buffers = {fixed.span()};
  Result<std::unique_ptr<SsdTier>> tier = SsdTier::Create(options);
  if (!tier.ok()) return tier.status().code() == StatusCode::kPermissionDenied ? 4 : 1;
  const std::string mode = StatText(**tier, "ssd.io_mode");
  const std::string why = StatText(**tier, "ssd.io_fallback");
  if (mode.rfind("io_uring", 0) != 0) return 4;
  if (mode.find("fixed") != std::string::npos || why.find("register_buffers") == std::string::npos)
    return 2;
  const SlotId slot = AcquireSlot(tier->get());
  return WriteBlock(tier->get(), slot, 1).ok() && ReadBlock(tier->get(), slot, 1).ok() ? 0 : 1;
}

TEST(SsdOpen, SmallMemlockLimitMeansNoFixedBuffers) {
  SsdTempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
  const int result = ExitCode(StartSelf("--small-memlock", dir.store(), -1));
  if (result == 4)
    GTEST_SKIP() << "no io_uring for the unprivileged, or a path that it cannot reach";
  EXPECT_EQ(result, 0);
}

TEST(SsdOpen, FixedBuffersAreUsedWhereTheyCanBe) {
  SsdTempDir dir;
  const AlignedBuffer fixed(1 << 20);
  SsdTierOptions options = TestOptions(dir.store());
  options.fixed_buffers = {fixed.span()};
  const auto tier = OpenTier(options);
  const std::string mode = StatText(*tier, "ssd.io_mode");
  const std::string why = StatText(*tier, "ssd.io_fallback");
  EXPECT_TRUE(mode.find("+fixed") != std::string::npos || !why.empty()) << mode << " " << why;
  const SlotId slot = AcquireSlot(tier.get());
  const TestRecord record(4);
  FillBlock(4, fixed.span().first(65536));
  EXPECT_TRUE(RunOne(tier.get(), {TierIo::Op::kWrite, IoClass::kDemand, 0, slot, fixed.data(),
                                  &record.record, 0})
                  .ok());
  std::memset(fixed.data(), 0, 65536);
  EXPECT_TRUE(RunOne(tier.get(), {TierIo::Op::kRead, IoClass::kDemand, 0, slot, fixed.data(),
                                  &record.record, 0})
                  .ok());
  EXPECT_TRUE(IsBlock(4, fixed.span().first(65536)));
}

TEST(SsdOpen, DescriptorsDoNotGrowWithTransfers) {
  SsdTempDir dir;
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto tier = OpenTier(TestOptions(dir.store(), 16, 4096));
  const SlotId slot = AcquireSlot(tier.get());
  ASSERT_TRUE(WriteBlock(tier.get(), slot, 1, 4096).ok());
  const auto before = count();
  for (uint64_t i = 0; i < 2000; ++i) ASSERT_TRUE(WriteBlock(tier.get(), slot, i + 1, 4096).ok());
  ASSERT_TRUE(ReadBlock(tier.get(), slot, 2000, 4096).ok());
  EXPECT_LE(count(), before + 8);
}

}  // namespace

int RunMode(const std::string& mode, const std::string& directory) {
  if (mode == "--small-memlock") return OpenWithSmallMemlock(directory);
  if (mode == "--fork-exit") return ForkedChildExits(directory);
  if (mode == "--static-close") return StaticClosesAtExit(directory);
  if (mode.rfind("--few-threads=", 0) == 0)
    return OpenWithFewThreads(directory, std::stoul(mode.substr(mode.find('=') + 1)));
  if (mode == "--small-files") return OpenWithSmallFiles(directory);
  Result<std::unique_ptr<SsdTier>> tier = SsdTier::Create(TestOptions(directory));
  if (mode == "--open-in-use") return tier.status().reason() == Reason::kInUse ? 0 : 1;
  _exit(mode == "--open-and-die" && tier.ok() ? 0 : 1);  // without any destructor
}

}  // namespace fermata

int main(int argc, char** argv) {
  if (argc == 4) return fermata::RunMode(argv[1], argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
