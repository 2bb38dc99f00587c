// SPDX-License-Identifier: Apache-2.0
//
// SsdTier over real files and the real catalog, through io_uring and through pread/pwrite. Faults
// come from a BlockDevice that passes everything on and turns single results into errors.
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tests/conformance/tier_suite.h"
#include "tiers/ssd_tier.h"

namespace fermata {
namespace {

// What the next writes and reads are to answer, shared by a harness and its devices.
struct Faults {
  int writes = 0;
  int reads = 0;
};

class FaultyDevice final : public BlockDevice {
 public:
  FaultyDevice(std::unique_ptr<BlockDevice> device, Faults* faults)
      : device_(std::move(device)), faults_(faults) {}
  size_t Submit(std::span<const BlockIo> batch) override {
    const size_t accepted = device_->Submit(batch);
    for (const BlockIo& io : batch.first(accepted)) is_write_[io.cookie] = io.write;
    return accepted;
  }
  size_t Poll(std::span<BlockCompletion> out) override {
    const size_t count = device_->Poll(out);
    for (BlockCompletion& completion : out.first(count)) {
      int& faults = is_write_.at(completion.cookie) ? faults_->writes : faults_->reads;
      is_write_.erase(completion.cookie);
      if (faults == 0) continue;
      --faults;
      completion.result = -EIO;
    }
    return count;
  }
  uint64_t in_flight() const override { return device_->in_flight(); }
  int fd() const override { return device_->fd(); }
  const char* mode() const override { return device_->mode(); }
  bool fixed() const override { return device_->fixed(); }
  std::string fixed_refusal() const override { return device_->fixed_refusal(); }

 private:
  const std::unique_ptr<BlockDevice> device_;
  Faults* const faults_;
  std::map<uint64_t, bool> is_write_;  // by cookie
};

class SsdHarness final : public TierHarness {
 public:
  SsdHarness(bool io_uring, bool direct_io) {
    std::string name = testing::TempDir() + "/fermata_ssd_conformance_XXXXXX";
    FERMATA_CHECK(::mkdtemp(name.data()) != nullptr);
    root_ = name;
    SsdTierOptions options;
    options.directory = root_ + "/tier";
    options.groups = ConformanceGroups();
    options.io_uring = io_uring;
    options.direct_io = direct_io;
    options.make_device =
        [this](BlockDeviceKind kind,
               const BlockDeviceOptions& device_options) -> Result<std::unique_ptr<BlockDevice>> {
      std::unique_ptr<BlockDevice> device;
      if (kind == BlockDeviceKind::kUring) {
        Result<std::unique_ptr<BlockDevice>> uring = OpenUringDevice(device_options);
        if (!uring.ok()) return uring.status();
        device = std::move(*uring);
      } else {
        device = OpenPreadDevice(device_options);
      }
      return std::unique_ptr<BlockDevice>(
          std::make_unique<FaultyDevice>(std::move(device), &faults_));
    };
    Result<std::unique_ptr<SsdTier>> tier = SsdTier::Create(std::move(options));
    if (!tier.ok()) {
      ADD_FAILURE() << tier.status().ToString();
      return;
    }
    tier_ = std::move(*tier);
    const Status recovered =
        tier_->Recover([](const SpaceRecord&) { ADD_FAILURE() << "a space in a new directory"; },
                       [](const BlockRecord&, SlotId) { ADD_FAILURE() << "a block in it"; });
    EXPECT_TRUE(recovered.ok()) << recovered.ToString();
  }
  ~SsdHarness() override {
    tier_ = nullptr;
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Tier& tier() override { return *tier_; }
  bool FailNextWrite() override {
    faults_.writes = 1;
    return true;
  }
  bool FailNextRead() override {
    faults_.reads = 1;
    return true;
  }
  bool opened() const { return tier_ != nullptr; }

 private:
  std::string root_;
  Faults faults_;
  std::unique_ptr<SsdTier> tier_;
};

TierCase Case(const char* name, bool io_uring, bool direct_io) {
  return TierCase{name, [=]() -> std::unique_ptr<TierHarness> {
                    auto harness = std::make_unique<SsdHarness>(io_uring, direct_io);
                    if (!harness->opened()) return nullptr;
                    return harness;
                  }};
}

// Where io_uring or O_DIRECT is refused the tier falls back by itself, and the suite holds for what
// it fell back to.
INSTANTIATE_TEST_SUITE_P(Ssd, TierContract,
                         testing::Values(Case("UringDirect", true, true),
                                         Case("UringBuffered", true, false),
                                         Case("PreadDirect", false, true),
                                         Case("PreadBuffered", false, false)),
                         TierCaseName);

}  // namespace
}  // namespace fermata
