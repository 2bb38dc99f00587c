// SPDX-License-Identifier: Apache-2.0
#include "tiers/ssd_store.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/check.h"

namespace fermata {
namespace {

constexpr char kSuperblockName[] = "superblock";
// Two copies, then a page that only the O_DIRECT probe writes.
constexpr off_t kProbeAt = 2 * kSsdSuperblockBytes;

std::string DataName(size_t group) { return group == 0 ? "data" : "data." + std::to_string(group); }

struct AlignedFree {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kSsdIoAlignment}); }
};
using AlignedPage = std::unique_ptr<std::byte[], AlignedFree>;

AlignedPage MakePage() {
  return AlignedPage(new (std::align_val_t{kSsdIoAlignment}, std::nothrow)
                         std::byte[kSsdIoAlignment]);
}

uint64_t FileBytes(const SsdGroupGeometry& group) {
  return group.slot_bytes * group.slots;  // < 2^31 * 2^32: checked by the tier's options
}

}  // namespace

Result<std::unique_ptr<SsdStore>> SsdStore::Open(const Options& options) {
  Result<std::unique_ptr<SsdDirectory>> directory = SsdDirectory::Open(options.directory);
  if (!directory.ok()) return directory.status();
  std::unique_ptr<SsdStore> store(new SsdStore(std::move(*directory), options));
  FERMATA_RETURN_IF_ERROR(store->LoadSuperblock());
  const Status opened = [&] {
    FERMATA_RETURN_IF_ERROR(store->CheckGeometry());
    FERMATA_RETURN_IF_ERROR(store->CheckRoom());
    FERMATA_RETURN_IF_ERROR(store->ProbeDirect());
    return store->OpenData();
  }();
  if (!opened.ok()) {
    if (store->superblock_created_) store->directory_->Remove(kSuperblockName);
    return opened;
  }
  FERMATA_RETURN_IF_ERROR(store->Commit());
  store->ShrinkData();
  return store;
}

Status SsdStore::LoadSuperblock() {
  const std::string full = directory_->path() + "/" + kSuperblockName;
  if (!directory_->Exists(kSuperblockName)) {
    // An empty superblock is the first file to appear and the last to be filled. Data without one
    // is not of our making.
    if (directory_->Exists(DataName(0))) {
      return ErrorF(StatusCode::kFailedPrecondition,
                    "%s/%s exists and there is no superblock; not touched",
                    directory_->path().c_str(), DataName(0).c_str());
    }
    superblock_created_ = true;
  }
  Result<UniqueFd> file =
      directory_->OpenFile(kSuperblockName, O_RDWR | (superblock_created_ ? O_CREAT : 0));
  if (!file.ok()) return file.status();
  superblock_file_ = std::move(*file);
  SsdSuperblockBytes copies[2] = {};
  const ssize_t got = pread(superblock_file_.get(), copies, sizeof copies, 0);
  if (got < 0) return ErrnoStatus(errno, "read", full);
  // Empty, or zeros: its creation never came to Commit. Damage does not look like that.
  const std::span<const std::byte> all = std::as_bytes(std::span(copies));
  if (std::all_of(all.begin(), all.end(), [](std::byte b) { return b == std::byte{0}; })) {
    created_ = true;
    superblock_.groups = options_.groups;
    if (getrandom(superblock_.uuid.data(), superblock_.uuid.size(), 0) !=
        static_cast<ssize_t>(superblock_.uuid.size())) {
      return ErrnoStatus(errno, "getrandom for", full);
    }
    return Status();
  }
  bool found = false;
  for (int i = 0; i < 2; ++i) {
    Result<SsdSuperblock> copy = DecodeSuperblock(copies[i]);
    if (!copy.ok()) {
      // Another version wins over a readable copy of ours: that one is what its writer has not yet
      // replaced.
      if (copy.status().code() == StatusCode::kFailedPrecondition) {
        return ErrorF(StatusCode::kFailedPrecondition, "directory %s: %s; not touched",
                      directory_->path().c_str(), copy.status().message().c_str());
      }
      if (options_.log)
        options_.log(LogLevel::kWarning,
                     "operation=open_ssd superblock_copy=" + std::to_string(i) + " status=damaged");
      continue;
    }
    if (found && copy->incarnation <= superblock_.incarnation) continue;
    found = true;
    newest_copy_ = i;
    superblock_ = std::move(*copy);
  }
  if (!found) {
    return ReasonF(StatusCode::kDataLoss, Reason::kChecksum,
                   "both copies of %s are damaged; remove the directory to start with an empty one",
                   full.c_str());
  }
  return Status();
}

Status SsdStore::CheckGeometry() const {
  const char* const path = directory_->path().c_str();
  if (superblock_.groups.size() != options_.groups.size()) {
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                   "directory %s has %zu groups, configured are %zu", path,
                   superblock_.groups.size(), options_.groups.size());
  }
  for (size_t i = 0; i < options_.groups.size(); ++i) {
    if (superblock_.groups[i].block_bytes == options_.groups[i].block_bytes) continue;
    return ReasonF(StatusCode::kInvalidArgument, Reason::kBadLayout,
                   "directory %s has block_bytes %llu in group %zu, configured is %llu", path,
                   static_cast<unsigned long long>(superblock_.groups[i].block_bytes), i,
                   static_cast<unsigned long long>(options_.groups[i].block_bytes));
  }
  return Status();
}

// Asked before anything is allocated: fallocate takes what is left before it fails, and others on
// the disk would notice.
Status SsdStore::CheckRoom() const {
  uint64_t missing = 0;
  for (size_t i = 0; i < options_.groups.size(); ++i) {
    struct stat info {};
    uint64_t have = 0;
    if (fstatat(directory_->fd(), DataName(i).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      have = std::min(static_cast<uint64_t>(info.st_blocks) * 512,
                      static_cast<uint64_t>(info.st_size));
    }
    const uint64_t want = FileBytes(options_.groups[i]);
    const uint64_t more = want > have ? want - have : 0;
    if (__builtin_add_overflow(missing, more, &missing)) missing = UINT64_MAX;
  }
  struct statvfs space {};
  if (fstatvfs(directory_->fd(), &space) != 0)
    return ErrnoStatus(errno, "statvfs", directory_->path());
  const uint64_t room = uint64_t{space.f_bavail} * space.f_frsize;
  if (missing > room) {
    return ReasonF(StatusCode::kResourceExhausted, Reason::kNoSpace,
                   "directory %s needs %llu more bytes, the file system has %llu free",
                   directory_->path().c_str(), static_cast<unsigned long long>(missing),
                   static_cast<unsigned long long>(room));
  }
  return Status();
}

Status SsdStore::ProbeDirect() {
  if (!options_.direct_io) {
    direct_refusal_ = "O_DIRECT: off by configuration";
    return Status();
  }
  // Open may accept what the first write refuses; so write, and read back, in a page that nothing
  // else uses.
  Result<UniqueFd> file = directory_->OpenFile(kSuperblockName, O_RDWR | O_DIRECT);
  if (!file.ok()) {
    if (file.status().code() != StatusCode::kInvalidArgument) return file.status();
    direct_refusal_ = "O_DIRECT refused at open";
    return Status();
  }
  const AlignedPage out = MakePage();
  const AlignedPage in = MakePage();
  if (out == nullptr || in == nullptr)
    return ErrorF(StatusCode::kResourceExhausted, "no memory for two pages");
  std::memset(out.get(), 0x5a, kSsdIoAlignment);
  std::memset(in.get(), 0, kSsdIoAlignment);
  constexpr auto kBytes = static_cast<ssize_t>(kSsdIoAlignment);
  if (pwrite(file->get(), out.get(), kSsdIoAlignment, kProbeAt) != kBytes ||
      pread(file->get(), in.get(), kSsdIoAlignment, kProbeAt) != kBytes ||
      std::memcmp(in.get(), out.get(), kSsdIoAlignment) != 0) {
    direct_refusal_ = "O_DIRECT refused by the probe";
  }
  direct_ = direct_refusal_.empty();
  return Status();
}

Status SsdStore::OpenData() {
  std::vector<std::string> created;
  for (size_t i = 0; i < options_.groups.size(); ++i) {
    const Status status = OpenDataFile(i, &created);
    if (status.ok()) continue;
    for (const std::string& name : created) directory_->Remove(name);
    return status;
  }
  if (!created_) return Status();
  // Records of an earlier life of this directory do not belong to the new data.
  std::error_code ignored;
  std::filesystem::remove_all(meta_path(), ignored);
  return Status();
}

Status SsdStore::OpenDataFile(size_t group, std::vector<std::string>* created) {
  const std::string name = DataName(group);
  const std::string full = directory_->path() + "/" + name;
  if (!directory_->Exists(name)) created->push_back(name);
  Result<UniqueFd> file = directory_->OpenFile(name, O_RDWR | O_CREAT | (direct_ ? O_DIRECT : 0));
  if (!file.ok()) return file.status();
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return ErrnoStatus(errno, "stat", full);
  const SsdGroupGeometry& geometry = options_.groups[group];
  const uint64_t want = FileBytes(geometry);
  const uint64_t have = static_cast<uint64_t>(info.st_size);
  old_slots_.push_back(created_ ? 0
                                : std::min({have / geometry.slot_bytes, geometry.slots,
                                            superblock_.groups[group].slots}));
  // Also over what exists: a file that lost blocks to a hole would meet a full disk at run time.
  // Kept bytes stay as they are.
  if (fallocate(file->get(), 0, 0, static_cast<off_t>(want)) != 0) {
    const int error = errno;
    if (error == EOPNOTSUPP &&
        ftruncate(file->get(), static_cast<off_t>(std::max(want, have))) == 0) {
      if (options_.log)
        options_.log(LogLevel::kWarning,
                     "operation=open_ssd status=\"space cannot be reserved on this file system\"");
    } else {
      // The size that was; what fallocate got beyond it goes back.
      [[maybe_unused]] const int undone = ftruncate(file->get(), static_cast<off_t>(have));
      Status status = ErrnoStatus(error, "allocate", full);
      return ReasonF(status.code(), status.reason(), "%s: want %llu bytes, had %llu",
                     status.message().c_str(), static_cast<unsigned long long>(want),
                     static_cast<unsigned long long>(have));
    }
  }
  data_.push_back(std::move(*file));
  return Status();
}

Status SsdStore::Commit() {
  const std::string full = directory_->path() + "/" + kSuperblockName;
  superblock_.groups = options_.groups;
  ++superblock_.incarnation;
  // The older copy is overwritten, so that a torn write leaves the newer one. At creation there is
  // none, and both are written.
  SsdSuperblockBytes copies[2];
  copies[0] = copies[1] = EncodeSuperblock(superblock_);
  const size_t bytes = created_ ? sizeof copies : kSsdSuperblockBytes;
  const off_t at = created_ || newest_copy_ == 1 ? 0 : static_cast<off_t>(kSsdSuperblockBytes);
  const ssize_t put = pwrite(superblock_file_.get(), copies, bytes, at);
  if (put != static_cast<ssize_t>(bytes)) return ErrnoStatus(put < 0 ? errno : EIO, "write", full);
  if (fdatasync(superblock_file_.get()) != 0) return ErrnoStatus(errno, "fdatasync", full);
  return created_ ? directory_->Sync() : Status();
}

// After Commit: a file longer than the superblock says is harmless, the other way round records
// would lie beyond its end.
void SsdStore::ShrinkData() {
  for (size_t i = 0; i < data_.size(); ++i) {
    struct stat info {};
    const uint64_t want = FileBytes(options_.groups[i]);
    if (fstat(data_[i].get(), &info) != 0 || static_cast<uint64_t>(info.st_size) <= want) continue;
    if (ftruncate(data_[i].get(), static_cast<off_t>(want)) != 0 && options_.log) {
      options_.log(LogLevel::kWarning,
                   "operation=shrink_ssd status=" + std::string(strerrordesc_np(errno)));
    }
  }
}

std::vector<int> SsdStore::data_fds() const {
  std::vector<int> fds;
  for (const UniqueFd& file : data_) fds.push_back(file.get());
  return fds;
}

void SsdStore::SetBuffered() {
  direct_ = false;
  for (const UniqueFd& file : data_) {
    const int flags = fcntl(file.get(), F_GETFL);
    if (flags >= 0) fcntl(file.get(), F_SETFL, flags & ~O_DIRECT);
  }
}

void SsdStore::MoveMetaAside() const {
  std::error_code ignored;
  std::filesystem::remove_all(meta_path() + ".bad", ignored);
  std::filesystem::rename(meta_path(), meta_path() + ".bad", ignored);
  std::filesystem::remove_all(meta_path(), ignored);
}

Status SsdStore::SyncData() const {
  for (const UniqueFd& file : data_) {
    if (fdatasync(file.get()) != 0)
      return ErrnoStatus(errno, "fdatasync data in", directory_->path());
  }
  return Status();
}

}  // namespace fermata
