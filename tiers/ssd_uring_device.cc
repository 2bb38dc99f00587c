// SPDX-License-Identifier: Apache-2.0
//
// BlockDevice over io_uring: one ring, used by one thread (SINGLE_ISSUER where the
// kernel has it), registered files and buffers where it lets us. What is refused is done without,
// and said.
//
// The ring is created disabled and enabled by the first Submit: with SINGLE_ISSUER that binds it to
// the submitting thread, which is not the one that opens the tier.
#include <liburing.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "tiers/ssd_block_device.h"

namespace fermata {
namespace {

constexpr size_t kFixedBytesMax = size_t{1} << 30;  // the kernel's cap of one registered buffer

std::string ErrnoText(int error) { return std::string(strerrordesc_np(error)); }

class UringDevice final : public BlockDevice {
 public:
  explicit UringDevice(const BlockDeviceOptions& options) : options_(options) {}

  ~UringDevice() override {
    if (!open_) return;
    // The owner drains first; if it could not, the kernel may still write to memory that is about
    // to go.
    while (in_flight_ > unsubmitted_.size()) {
      io_uring_cqe* cqe = nullptr;
      if (io_uring_wait_cqe(&ring_, &cqe) != 0) break;
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
    }
    io_uring_queue_exit(&ring_);
  }

  Status Open() {
    // Not DEFER_TASKRUN: with it poll(2) on the ring's descriptor slept until its timeout here
    // (kernel 6.18; seen in ssd_device_test), and it is worth less than 10 % of GB/s.
    const unsigned flag_sets[] = {IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER,
                                  IORING_SETUP_R_DISABLED};
    int error = 0;
    for (const unsigned flags : flag_sets) {
      error = io_uring_queue_init(options_.depth, &ring_, flags);
      if (error != -EINVAL) break;
    }
    if (error != 0) {
      return ErrorF(StatusCode::kUnavailable, "io_uring_setup: %s", ErrnoText(-error).c_str());
    }
    open_ = true;
    registered_files_ = io_uring_register_files(&ring_, options_.files.data(),
                                                static_cast<unsigned>(options_.files.size())) == 0;
    RegisterBuffers();
    return Status();
  }

  size_t Submit(std::span<const BlockIo> batch) override {
    if (!Enable()) return 0;
    size_t taken = 0;
    while (taken < batch.size() && in_flight_ < options_.depth) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) break;
      Prepare(sqe, batch[taken]);
      unsubmitted_.push_back(batch[taken].cookie);
      ++in_flight_;
      ++taken;
    }
    Flush();
    return taken;
  }

  size_t Poll(std::span<BlockCompletion> out) override {
    if (in_flight_ == 0 || out.empty()) return 0;
    size_t count = 0;
    if (!broken_) Flush();
    // What the kernel never took comes back as "not supported": the caller then goes on without
    // this ring.
    while (broken_ && !unsubmitted_.empty() && count < out.size()) {
      out[count++] = {unsubmitted_.front(), -EOPNOTSUPP};
      unsubmitted_.pop_front();
      --in_flight_;
    }
    io_uring_cqe* cqes[64];
    while (count < out.size()) {
      const unsigned want = static_cast<unsigned>(std::min(out.size() - count, std::size(cqes)));
      const unsigned got = io_uring_peek_batch_cqe(&ring_, cqes, want);
      for (unsigned i = 0; i < got; ++i) {
        out[count++] = {io_uring_cqe_get_data64(cqes[i]), cqes[i]->res};
      }
      io_uring_cq_advance(&ring_, got);
      in_flight_ -= got;
      if (got < want) break;
    }
    return count;
  }

  uint64_t in_flight() const override { return in_flight_; }
  // The ring's own descriptor, on which poll(2) wakes up (ssd_device_test). It says nothing of
  // entries that the kernel has not taken yet; with such, the caller is to ask by the clock.
  int fd() const override { return unsubmitted_.empty() ? ring_.ring_fd : -1; }
  const char* mode() const override { return "io_uring"; }
  bool fixed() const override { return fixed_; }
  std::string fixed_refusal() const override { return fixed_refusal_; }

 private:
  void RegisterBuffers() {
    std::vector<iovec> slices;
    for (const std::span<std::byte> buffer : options_.fixed_buffers) {
      for (size_t at = 0; at < buffer.size(); at += kFixedBytesMax) {
        slices.push_back({buffer.data() + at, std::min(kFixedBytesMax, buffer.size() - at)});
      }
    }
    if (slices.empty()) return;
    const int error =
        io_uring_register_buffers(&ring_, slices.data(), static_cast<unsigned>(slices.size()));
    if (error != 0) {
      fixed_refusal_ = "register_buffers: " + ErrnoText(-error);
      return;
    }
    fixed_ = true;
    fixed_slices_ = std::move(slices);
  }

  // The registered slice that holds all of [data, data + bytes), or -1.
  int FixedIndex(const std::byte* data, uint32_t bytes) const {
    for (size_t i = 0; i < fixed_slices_.size(); ++i) {
      const auto* base = static_cast<const std::byte*>(fixed_slices_[i].iov_base);
      const uintptr_t at = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(base);
      if (at < fixed_slices_[i].iov_len && bytes <= fixed_slices_[i].iov_len - at)
        return static_cast<int>(i);
    }
    return -1;
  }

  void Prepare(io_uring_sqe* sqe, const BlockIo& io) const {
    const int fixed = FixedIndex(io.data, io.bytes);
    const int file = registered_files_ ? static_cast<int>(io.file) : options_.files[io.file];
    if (io.write) {
      if (fixed >= 0) {
        io_uring_prep_write_fixed(sqe, file, io.data, io.bytes, io.offset, fixed);
      } else {
        io_uring_prep_write(sqe, file, io.data, io.bytes, io.offset);
      }
    } else if (fixed >= 0) {
      io_uring_prep_read_fixed(sqe, file, io.data, io.bytes, io.offset, fixed);
    } else {
      io_uring_prep_read(sqe, file, io.data, io.bytes, io.offset);
    }
    if (registered_files_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, io.cookie);
  }

  bool Enable() {
    if (!enabled_ && !broken_) {
      // Not io_uring_enable_rings: liburing 2.3 declares it and does not export it.
      enabled_ = syscall(SYS_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS,
                         nullptr, 0) == 0;
      broken_ = !enabled_;
    }
    return !broken_;
  }

  // Hands queued entries to the kernel. A full or starved kernel leaves some for the next call; any
  // other refusal is for good.
  void Flush() {
    if (unsubmitted_.empty()) return;
    const int taken = io_uring_submit(&ring_);
    if (taken >= 0) {
      unsubmitted_.erase(
          unsubmitted_.begin(),
          unsubmitted_.begin() + std::min<ptrdiff_t>(taken, std::ssize(unsubmitted_)));
    } else if (taken != -EAGAIN && taken != -EBUSY && taken != -EINTR) {
      broken_ = true;
    }
  }

  const BlockDeviceOptions options_;
  io_uring ring_{};
  bool open_ = false;
  bool enabled_ = false;
  bool broken_ = false;  // never submits again
  bool registered_files_ = false;
  bool fixed_ = false;
  std::string fixed_refusal_;
  std::vector<iovec> fixed_slices_;
  std::deque<uint64_t>
      unsubmitted_;  // cookies of entries in the ring that the kernel has not taken
  uint64_t in_flight_ = 0;
};

}  // namespace

Result<std::unique_ptr<BlockDevice>> OpenUringDevice(const BlockDeviceOptions& options) {
  auto device = std::make_unique<UringDevice>(options);
  FERMATA_RETURN_IF_ERROR(device->Open());
  return std::unique_ptr<BlockDevice>(std::move(device));
}

}  // namespace fermata
