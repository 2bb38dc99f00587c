// SPDX-License-Identifier: Apache-2.0
//
// SsdStore: the files of one SSD tier as they lie in its directory: superblock, data files, and
// whether they take O_DIRECT. It decides at open whether what is there is ours and fits the
// configuration. It moves no blocks and knows no records.
//
// `data` holds the slots of group 0, `data.1` of group 1 and so on, slot s at s * slot_bytes: a
// file per group, so that a group can grow or shrink without moving another's slots. Thread safety:
// none; open on one thread, then immutable but for SetBuffered (executor's thread). Invariant: when
// Open fails, nothing was changed but for a directory and an empty LOCK that may have been created.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "tiers/ssd_directory.h"
#include "tiers/ssd_format.h"

namespace fermata {

class SsdStore {
 public:
  struct Options {
    std::string directory;
    std::vector<SsdGroupGeometry> groups;
    bool direct_io = true;
    LogSink log;
  };
  static Result<std::unique_ptr<SsdStore>> Open(const Options& options);

  bool created() const { return created_; }  // no records can be valid
  uint64_t incarnation() const { return superblock_.incarnation; }
  std::string meta_path() const { return directory_->path() + "/meta"; }
  // Slots of the group whose bytes may be of an earlier run: records beyond are void.
  uint64_t old_slots(size_t group) const { return old_slots_[group]; }

  std::vector<int> data_fds() const;
  bool direct() const { return direct_; }
  const std::string& direct_refusal() const { return direct_refusal_; }
  void SetBuffered();  // takes O_DIRECT off the open files; what is in flight keeps the mode it
                       // began with

  // Makes an unusable catalog go away: `meta` becomes `meta.bad`, in place of an older one.
  void MoveMetaAside() const;
  Status SyncData() const;

 private:
  SsdStore(std::unique_ptr<SsdDirectory> directory, const Options& options)
      : directory_(std::move(directory)), options_(options) {}
  Status LoadSuperblock();
  Status CheckGeometry() const;
  Status ProbeDirect();
  Status OpenData();
  Status OpenDataFile(size_t group, std::vector<std::string>* created);
  Status CheckRoom() const;
  Status Commit();
  void ShrinkData();

  const std::unique_ptr<SsdDirectory> directory_;
  const Options options_;
  UniqueFd superblock_file_;
  bool superblock_created_ = false;  // by this Open
  SsdSuperblock superblock_;
  int newest_copy_ = 1;
  bool created_ = false;
  bool direct_ = false;
  std::string direct_refusal_;
  std::vector<UniqueFd> data_;
  std::vector<uint64_t> old_slots_;
};

}  // namespace fermata
