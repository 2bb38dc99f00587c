// SPDX-License-Identifier: Apache-2.0
#include "tiers/ssd_directory.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace fermata {
namespace {

constexpr char kLockName[] = "LOCK";

// openat2 where the kernel and the sandbox have it; O_NOFOLLOW otherwise (names here have no slash,
// so the last component is all there is to resolve).
int OpenBeneath(int directory, const char* name, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<uint64_t>(static_cast<unsigned>(flags | O_CLOEXEC | O_NOFOLLOW));
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
  const long fd = syscall(SYS_openat2, directory, name, &how, sizeof how);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != E2BIG)) return static_cast<int>(fd);
  return openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW, mode);
}

}  // namespace

Status ErrnoStatus(int error, const char* operation, const std::string& path) {
  StatusCode code = StatusCode::kUnavailable;
  Reason reason = Reason::kNone;
  switch (error) {
    case ENOENT:
      code = StatusCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = StatusCode::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = StatusCode::kResourceExhausted;
      reason = Reason::kNoSpace;
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = StatusCode::kResourceExhausted;
      break;
    case EINVAL:
    case ENOTDIR:
    case ENAMETOOLONG:
      code = StatusCode::kInvalidArgument;
      break;
    default:
      break;
  }
  return ReasonF(code, reason, "%s %s: %s", operation, path.c_str(), strerrordesc_np(error));
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

Result<std::unique_ptr<SsdDirectory>> SsdDirectory::Open(const std::string& path) {
  if (path.empty()) return ErrorF(StatusCode::kInvalidArgument, "directory is empty");
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, "create directory", path);
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ELOOP || errno == ENOTDIR) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "directory %s is a symbolic link or not a directory", path.c_str());
    }
    return ErrnoStatus(errno, "open directory", path);
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat directory", path);
  if (info.st_uid != geteuid()) {
    return ErrorF(StatusCode::kPermissionDenied,
                  "directory %s belongs to user %u, this process runs as %u", path.c_str(),
                  info.st_uid, geteuid());
  }
  std::unique_ptr<SsdDirectory> directory(new SsdDirectory(path, std::move(fd)));
  FERMATA_RETURN_IF_ERROR(directory->Lock());
  return directory;
}

SsdDirectory::~SsdDirectory() {
  // Said, not left to close(): a child of fork() has the same open file description, and as long as
  // it does not exec the lock would stay. A child that destroys its copy must not free the
  // parent's.
  if (!lock_.valid() || locked_by_ != getpid()) return;
  struct flock unlock {};
  unlock.l_type = F_UNLCK;
  unlock.l_whence = SEEK_SET;
  fcntl(lock_.get(), F_OFD_SETLK, &unlock);
}

Status SsdDirectory::Lock() {
  Result<UniqueFd> file = OpenFile(kLockName, O_RDWR | O_CREAT);
  if (!file.ok()) return file.status();
  // An open-file-description lock: it goes with the last descriptor, so the kernel frees it however
  // the holder dies.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(file->get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return ErrnoStatus(errno, "lock", path_);
    char text[32] = {};
    const ssize_t got = pread(file->get(), text, sizeof text - 1, 0);
    const long holder = got > 0 ? std::strtol(text, nullptr, 10) : 0;
    return ReasonF(StatusCode::kFailedPrecondition, Reason::kInUse,
                   "directory %s is in use by process %ld", path_.c_str(), holder);
  }
  // Only for the message above; a failure to write it changes nothing.
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(file->get(), 0) == 0) {
    [[maybe_unused]] const ssize_t put = pwrite(file->get(), pid.data(), pid.size(), 0);
  }
  lock_ = std::move(*file);
  locked_by_ = getpid();
  return Status();
}

Result<UniqueFd> SsdDirectory::OpenFile(const std::string& name, int flags) const {
  const std::string full = path_ + "/" + name;
  // O_NONBLOCK: a FIFO of that name must not hang us.
  UniqueFd fd(OpenBeneath(directory_.get(), name.c_str(), flags | O_NONBLOCK, 0600));
  if (!fd.valid()) {
    if (errno == ELOOP) {
      return ErrorF(StatusCode::kFailedPrecondition, "%s is a symbolic link; refused",
                    full.c_str());
    }
    const int error = errno;
    struct stat found {};
    if (error == EINVAL &&
        fstatat(directory_.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISREG(
            found.st_mode)) {  // a FIFO refuses O_DIRECT; that must not read as "go on without it"
      return ErrorF(StatusCode::kFailedPrecondition, "%s is not a regular file; refused",
                    full.c_str());
    }
    return ErrnoStatus(error, "open", full);
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat", full);
  if (!S_ISREG(info.st_mode)) {
    return ErrorF(StatusCode::kFailedPrecondition, "%s is not a regular file; refused",
                  full.c_str());
  }
  if (info.st_uid != geteuid()) {
    return ErrorF(StatusCode::kPermissionDenied, "%s belongs to user %u, this process runs as %u",
                  full.c_str(), info.st_uid, geteuid());
  }
  if (info.st_nlink != 1) {
    return ErrorF(StatusCode::kFailedPrecondition, "%s has %lu hard links, want 1; refused",
                  full.c_str(), static_cast<unsigned long>(info.st_nlink));
  }
  if ((info.st_mode & 077) != 0 && fchmod(fd.get(), 0600) != 0)
    return ErrnoStatus(errno, "chmod", full);
  return fd;
}

bool SsdDirectory::Exists(const std::string& name) const {
  struct stat info {};
  return fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

void SsdDirectory::Remove(const std::string& name) const {
  unlinkat(directory_.get(), name.c_str(), 0);
}

Status SsdDirectory::Sync() const {
  if (fsync(directory_.get()) != 0) return ErrnoStatus(errno, "fsync directory", path_);
  return Status();
}

}  // namespace fermata
