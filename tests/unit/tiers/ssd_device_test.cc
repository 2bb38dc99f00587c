// SPDX-License-Identifier: Apache-2.0
//
// The real block devices, over a real file.
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <map>
#include <thread>

#include "tests/unit/tiers/ssd_test_util.h"
#include "tiers/ssd_block_device.h"

namespace fermata {
namespace {

class DeviceFile {
 public:
  DeviceFile() : fd_(open((dir_.path() + "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_GE(fd_, 0);
    EXPECT_EQ(ftruncate(fd_, 1 << 20), 0);
  }
  ~DeviceFile() { close(fd_); }
  int fd() const { return fd_; }

 private:
  SsdTempDir dir_;
  int fd_;
};

std::map<uint64_t, int32_t> DrainDevice(BlockDevice* device) {
  std::map<uint64_t, int32_t> results;
  BlockCompletion done[3];
  while (device->in_flight() > 0) {
    const size_t count = device->Poll(done);
    for (size_t i = 0; i < count; ++i)
      EXPECT_TRUE(results.emplace(done[i].cookie, done[i].result).second);
    if (count > 0 || device->fd() < 0) continue;
    pollfd fd{device->fd(), POLLIN, 0};
    // The claim of UringDevice::fd(): the ring's descriptor alone wakes poll(2), well within 10 s.
    if (poll(&fd, 1, -1) != 1) {
      ADD_FAILURE() << "the ring's descriptor did not wake poll(2)";
      break;
    }
  }
  return results;
}

void RoundTrip(BlockDevice* device) {
  const AlignedBuffer out(65536);
  const AlignedBuffer in(65536);
  FillBlock(5, out.span());
  const BlockIo write{true, 0, 4096, out.data(), 65536, 1};
  ASSERT_EQ(device->Submit(std::span(&write, 1)), 1u);
  EXPECT_EQ(DrainDevice(device)[1], 65536);
  const BlockIo read{false, 0, 4096, in.data(), 65536, 2};
  ASSERT_EQ(device->Submit(std::span(&read, 1)), 1u);
  EXPECT_EQ(DrainDevice(device)[2], 65536);
  EXPECT_TRUE(IsBlock(5, in.span()));
  // Across the end of the file: short; beyond: nothing.
  const BlockIo past[] = {{false, 0, (1 << 20) - 4096, in.data(), 8192, 3},
                          {false, 0, 2 << 20, in.data(), 4096, 4}};
  ASSERT_EQ(device->Submit(past), 2u);
  std::map<uint64_t, int32_t> results = DrainDevice(device);
  EXPECT_EQ(results[3], 4096);
  EXPECT_EQ(results[4], 0);
}

TEST(SsdDevice, PreadMovesBytesAndReportsShortReads) {
  DeviceFile file;
  const std::unique_ptr<BlockDevice> device = OpenPreadDevice({{file.fd()}, 4, {}});
  RoundTrip(device.get());
}

TEST(SsdDevice, PreadReportsErrors) {
  const std::unique_ptr<BlockDevice> device = OpenPreadDevice({{-1}, 4, {}});
  const AlignedBuffer buffer(4096);
  const BlockIo io{false, 0, 0, buffer.data(), 4096, 1};
  ASSERT_EQ(device->Submit(std::span(&io, 1)), 1u);
  EXPECT_EQ(DrainDevice(device.get())[1], -EBADF);
}

std::unique_ptr<BlockDevice> OpenUring(const BlockDeviceOptions& options) {
  Result<std::unique_ptr<BlockDevice>> device = OpenUringDevice(options);
  return device.ok() ? std::move(*device) : nullptr;
}

TEST(SsdDevice, UringMovesBytesAndReportsShortReads) {
  DeviceFile file;
  const std::unique_ptr<BlockDevice> device = OpenUring({{file.fd()}, 4, {}});
  if (device == nullptr) GTEST_SKIP() << "io_uring is refused here";
  RoundTrip(device.get());
}

TEST(SsdDevice, UringMayBeOpenedOnAnotherThreadThanItIsUsedOn) {
  DeviceFile file;
  const std::unique_ptr<BlockDevice> device = OpenUring({{file.fd()}, 4, {}});
  if (device == nullptr) GTEST_SKIP() << "io_uring is refused here";
  std::thread user([&] { RoundTrip(device.get()); });
  user.join();
}

TEST(SsdDevice, UringTakesAPrefixWhenFullAndLosesNothing) {
  DeviceFile file;
  const std::unique_ptr<BlockDevice> device = OpenUring({{file.fd()}, 4, {}});
  if (device == nullptr) GTEST_SKIP() << "io_uring is refused here";
  const AlignedBuffer buffer(64 * 4096);
  std::vector<BlockIo> batch;
  for (uint64_t i = 0; i < 64; ++i)
    batch.push_back({false, 0, i * 4096, buffer.data() + i * 4096, 4096, i});
  std::span<const BlockIo> rest(batch);
  size_t completed = 0;
  while (!rest.empty()) {
    const size_t taken = device->Submit(rest);
    EXPECT_LE(device->in_flight(), 4u);
    rest = rest.subspan(taken);
    for (const auto& [cookie, result] : DrainDevice(device.get())) {
      EXPECT_EQ(result, 4096) << cookie;
      ++completed;
    }
  }
  EXPECT_EQ(completed, 64u);
}

TEST(SsdDevice, RegisteredBuffersCarryTransfersWithinAndBesideThem) {
  DeviceFile file;
  const AlignedBuffer fixed(1 << 20);
  const std::unique_ptr<BlockDevice> device = OpenUring({{file.fd()}, 4, {fixed.span()}});
  if (device == nullptr) GTEST_SKIP() << "io_uring is refused here";
  if (!device->fixed()) GTEST_SKIP() << device->fixed_refusal();
  const AlignedBuffer plain(65536);
  FillBlock(9, fixed.span().first(65536));
  const BlockIo write{true, 0, 0, fixed.data(), 65536, 1};
  ASSERT_EQ(device->Submit(std::span(&write, 1)), 1u);
  EXPECT_EQ(DrainDevice(device.get())[1], 65536);
  const BlockIo reads[] = {{false, 0, 0, plain.data(), 65536, 2},
                           {false, 0, 0, fixed.data() + 131072, 65536, 3}};
  ASSERT_EQ(device->Submit(reads), 2u);
  DrainDevice(device.get());
  EXPECT_TRUE(IsBlock(9, plain.span()));
  EXPECT_TRUE(IsBlock(9, fixed.span().subspan(131072, 65536)));
}

}  // namespace
}  // namespace fermata
