// SPDX-License-Identifier: Apache-2.0
//
// What the SSD tier's tests share: a temporary directory, blocks whose bytes are a function of
// their uid, and a driver that writes and reads them one by one or in batches.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tiers/ssd_tier.h"

namespace fermata {

class SsdTempDir {
 public:
  SsdTempDir() {
    // Not TMPDIR: the tests want a file system with O_DIRECT if the build tree has one.
    std::string pattern = std::filesystem::current_path().string() + "/ssd_test.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      pattern = "/tmp/ssd_test.XXXXXX";
      EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    }
    path_ = pattern;
  }
  ~SsdTempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/store/" + name; }
  std::string store() const { return path_ + "/store"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Memory that I/O may use; `offset` for buffers that lie odd.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(size_t bytes, size_t offset = 0) : bytes_(bytes), offset_(offset) {
    base_ =
        static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + offset + 4095) / 4096 * 4096));
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(base_); }
  std::byte* data() const { return base_ + offset_; }
  std::span<std::byte> span() const { return {data(), bytes_}; }

 private:
  size_t bytes_;
  size_t offset_;
  std::byte* base_;
};

inline void FillBlock(uint64_t uid, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t word = MixU64(uid * 0x10001 + i);
    std::memcpy(out.data() + i, &word, std::min<size_t>(8, out.size() - i));
  }
}

inline bool IsBlock(uint64_t uid, std::span<const std::byte> bytes) {
  std::vector<std::byte> want(bytes.size());
  FillBlock(uid, want);
  return std::memcmp(want.data(), bytes.data(), bytes.size()) == 0;
}

// A record of `uid`, with an identity that is a function of it.
struct TestRecord {
  explicit TestRecord(uint64_t uid, GroupIndex group = 0)
      : identity("identity of " + std::to_string(uid)) {
    record.uid = uid;
    record.parent_uid = uid - 1;
    record.space = 1;
    record.group = group;
    record.depth = static_cast<uint32_t>(uid % 97);
    record.key = {MixU64(uid), MixU64(~uid)};
    record.identity = std::as_bytes(std::span(identity));
  }
  TestRecord(const TestRecord&) = delete;
  TestRecord& operator=(const TestRecord&) = delete;
  std::string identity;
  BlockRecord record;
};

inline SsdTierOptions TestOptions(const std::string& directory, uint64_t slots = 16,
                                  uint64_t block_bytes = 65536) {
  SsdTierOptions options;
  options.directory = directory;
  options.groups = {{block_bytes, slots}};
  options.io_depth = 8;
  return options;
}

inline std::unique_ptr<SsdTier> OpenTier(SsdTierOptions options) {
  Result<std::unique_ptr<SsdTier>> tier = SsdTier::Create(std::move(options));
  EXPECT_TRUE(tier.ok()) << tier.status().ToString();
  return tier.ok() ? std::move(*tier) : nullptr;
}

// Polls until nothing is in flight. Waits on the tier's descriptor, so a wake-up that never comes
// fails the test.
inline std::map<uint64_t, Status> Drain(Tier* tier) {
  std::map<uint64_t, Status> done;
  TierCompletion out[4];
  while (tier->in_flight() > 0) {
    const size_t count = tier->Poll(out);
    for (size_t i = 0; i < count; ++i)
      EXPECT_TRUE(done.emplace(out[i].cookie, out[i].status).second);
    if (count > 0 || tier->completion_fd() < 0) continue;
    pollfd fd{tier->completion_fd(), POLLIN, 0};
    if (poll(&fd, 1, 10'000) != 1) {
      ADD_FAILURE() << "no wake-up in 10 s";
      break;
    }
  }
  return done;
}

inline Status RunOne(Tier* tier, TierIo io) {
  io.cookie = 77;
  EXPECT_EQ(tier->Submit(std::span(&io, 1)), 1u);
  std::map<uint64_t, Status> done = Drain(tier);
  EXPECT_EQ(done.count(77), 1u);
  return done[77];
}

inline Status WriteBlock(Tier* tier, SlotId slot, uint64_t uid, uint64_t block_bytes = 65536,
                         GroupIndex group = 0, size_t offset = 0) {
  const TestRecord record(uid, group);
  const AlignedBuffer buffer(block_bytes, offset);
  FillBlock(uid, buffer.span());
  return RunOne(tier, {TierIo::Op::kWrite, IoClass::kWriteBack, group, slot, buffer.data(),
                       &record.record, 0});
}

// OK only if the bytes are those of `uid`.
inline Status ReadBlock(Tier* tier, SlotId slot, uint64_t uid, uint64_t block_bytes = 65536,
                        GroupIndex group = 0, size_t offset = 0) {
  const TestRecord record(uid, group);
  const AlignedBuffer buffer(block_bytes, offset);
  std::memset(buffer.data(), 0xee, block_bytes);
  Status status = RunOne(
      tier, {TierIo::Op::kRead, IoClass::kDemand, group, slot, buffer.data(), &record.record, 0});
  if (status.ok()) {
    EXPECT_TRUE(IsBlock(uid, buffer.span())) << "wrong bytes for " << uid;
  }
  return status;
}

inline SlotId AcquireSlot(Tier* tier, GroupIndex group = 0) {
  SlotId slot = SlotId::kNone;
  EXPECT_TRUE(tier->Acquire(group, std::span(&slot, 1)).ok());
  return slot;
}

// uid -> slot of what survived; checks that the records came back whole.
inline std::map<uint64_t, SlotId> RecoverAll(Tier* tier) {
  std::map<uint64_t, SlotId> found;
  const Status status =
      tier->Recover([](const SpaceRecord&) {},
                    [&](const BlockRecord& record, SlotId slot) {
                      const TestRecord want(record.uid, record.group);
                      EXPECT_EQ(record.parent_uid, want.record.parent_uid);
                      EXPECT_EQ(record.space, want.record.space);
                      EXPECT_EQ(record.depth, want.record.depth);
                      EXPECT_EQ(record.key, want.record.key);
                      EXPECT_EQ(std::string(reinterpret_cast<const char*>(record.identity.data()),
                                            record.identity.size()),
                                want.identity);
                      EXPECT_TRUE(found.emplace(record.uid, slot).second);
                    });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return found;
}

inline std::string StatText(const Tier& tier, const std::string& name) {
  std::string found = "no such stat";
  tier.VisitStats([&](const char* n, uint64_t, const char* text) {
    if (name == n && text != nullptr) found = text;
  });
  return found;
}

inline uint64_t StatValue(const Tier& tier, const std::string& name) {
  uint64_t found = ~uint64_t{0};
  tier.VisitStats([&](const char* n, uint64_t value, const char*) {
    if (name == n) found = value;
  });
  return found;
}

// Starts this program again as `program mode argument` with descriptor `fd` kept open. Not a mere
// fork: RocksDB's threads do not survive one. The test's main() runs the mode.
inline pid_t StartSelf(const char* mode, const std::string& argument, int fd) {
  const std::string fd_text = std::to_string(fd);
  // Such a process ends in ways (without its threads, by a signal's default, with a store abandoned
  // on purpose) that leave memory which nobody can free.
  const char* const set = getenv("ASAN_OPTIONS");  // STYLE_OK(getenv): the sanitizer's own
  const std::string asan_options = std::string(set == nullptr ? "" : set) + ":detect_leaks=0";
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("ASAN_OPTIONS", asan_options.c_str(), 1);
  if (fd >= 0) fcntl(fd, F_SETFD, 0);
  execl("/proc/self/exe", "ssd_test", mode, argument.c_str(), fd_text.c_str(),
        static_cast<char*>(nullptr));
  _exit(98);
}

// Exit code of a child; 99: it did not exit by itself.
inline int ExitCode(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

inline void FlipByte(const std::string& path, off_t at) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0) << path;
  unsigned char byte = 0;
  ASSERT_EQ(pread(fd, &byte, 1, at), 1);
  byte ^= 0x10;
  ASSERT_EQ(pwrite(fd, &byte, 1, at), 1);
  ASSERT_EQ(fsync(fd), 0);
  close(fd);
}

}  // namespace fermata
