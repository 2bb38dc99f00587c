// SPDX-License-Identifier: Apache-2.0
//
// MemMetaStore: a MetaStore in memory that fails when told. Its contents live in a MemMeta that
// outlives it, as a disk would.
//
// Thread safety: any thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "tiers/ssd_meta_store.h"

namespace fermata {

struct MemMeta {
  Mutex mu;
  std::map<std::string, std::string> entries FERMATA_GUARDED_BY(mu);
  bool fail_apply FERMATA_GUARDED_BY(mu) = false;
  bool fail_scan FERMATA_GUARDED_BY(mu) = false;
  uint64_t batches FERMATA_GUARDED_BY(mu) = 0;
  uint64_t synced FERMATA_GUARDED_BY(mu) = 0;
};

class MemMetaStore final : public MetaStore {
 public:
  explicit MemMetaStore(std::shared_ptr<MemMeta> meta) : meta_(std::move(meta)) {}

  Status Apply(std::span<const MetaOp> ops, bool sync) override {
    MutexLock lock(&meta_->mu);
    if (meta_->fail_apply) return ErrorF(StatusCode::kResourceExhausted, "injected: no space");
    ++meta_->batches;
    if (sync) ++meta_->synced;
    for (const MetaOp& op : ops) {
      if (op.kind == MetaOp::Kind::kPut) {
        meta_->entries[op.key] = op.value;
      } else {
        meta_->entries.erase(op.key);
      }
    }
    return Status();
  }

  Status ForEach(std::string_view prefix, const Visitor& visit) override {
    std::map<std::string, std::string> copy;
    {
      MutexLock lock(&meta_->mu);
      if (meta_->fail_scan) return ErrorF(StatusCode::kUnavailable, "injected: scan");
      copy = meta_->entries;
    }
    for (const auto& [key, value] : copy) {
      if (key.compare(0, prefix.size(), prefix) == 0) visit(key, value);
    }
    return Status();
  }

  Status Close() override { return Status(); }

 private:
  const std::shared_ptr<MemMeta> meta_;
};

}  // namespace fermata
