// SPDX-License-Identifier: Apache-2.0
//
// SsdDirectory: one directory on a file system, held by one process at a time. Opens files in it so
// that nobody can make it write elsewhere: no symbolic links, no hard links, regular files of our
// own user, mode 0600. It does not know what is in them.
//
// Thread safety: none; used while a tier opens. The lock lasts as long as the object, or the
// process; children of fork() do not prolong it past the object. Cost: a few system calls each.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace fermata {

// Owns a descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class SsdDirectory {
 public:
  // Creates the last component (0700) when it is missing, then takes the lock.
  // FAILED_PRECONDITION/IN_USE when another process, or another object of this one, has it.
  static Result<std::unique_ptr<SsdDirectory>> Open(const std::string& path);
  ~SsdDirectory();
  SsdDirectory(const SsdDirectory&) = delete;
  SsdDirectory& operator=(const SsdDirectory&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return directory_.get(); }

  // NOT_FOUND when the file is missing and `flags` has no O_CREAT. INVALID_ARGUMENT from the file
  // system (O_DIRECT refused) is INVALID_ARGUMENT here.
  Result<UniqueFd> OpenFile(const std::string& name, int flags) const;
  bool Exists(const std::string& name) const;
  void Remove(const std::string& name) const;  // of a file; best effort
  Status Sync() const;

 private:
  SsdDirectory(std::string path, UniqueFd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  Status Lock();

  const std::string path_;
  UniqueFd directory_;
  UniqueFd lock_;
  pid_t locked_by_ = 0;
};

// "operation path: text of errno", with the code that errno deserves.
Status ErrnoStatus(int error, const char* operation, const std::string& path);

}  // namespace fermata
