// SPDX-License-Identifier: Apache-2.0
#include "tiers/ssd_catalog.h"

#include <unordered_set>

namespace fermata {

SsdCatalog::SsdCatalog(std::unique_ptr<MetaStore> store, const Status& why, LogSink log)
    : store_(std::move(store)), log_(std::move(log)), attached_(store_ != nullptr) {
  if (store_ == nullptr) Detach(why);
}

std::string SsdCatalog::state() const {
  if (attached()) return "ok";
  MutexLock lock(&mu_);
  return "detached: " + why_;
}

void SsdCatalog::Detach(const Status& why) {
  {
    MutexLock lock(&mu_);
    if (!why_.empty()) return;  // the first reason is the one to know
    why_ = why.ToString();
    attached_.store(false, std::memory_order_release);
  }
  if (log_)
    log_(LogLevel::kError, "operation=ssd_catalog status=detached why=\"" + why.ToString() + "\"");
}

Status SsdCatalog::Apply(std::span<const MetaOp> ops, bool sync) {
  if (!attached()) return ErrorF(StatusCode::kUnavailable, "catalog is %s", state().c_str());
  if (ops.empty()) return Status();
  Status status = store_->Apply(ops, sync);
  if (!status.ok()) Detach(status);
  return status;
}

SsdCatalog::Recovered SsdCatalog::Recover(const std::function<void(const SpaceRecord&)>& space,
                                          const std::function<bool(const SsdSlotRecord&)>& block) {
  Recovered result;
  if (!attached()) return result;
  std::vector<MetaOp> deletes;
  const auto drop = [&](std::string_view key) {
    ++result.dropped;
    deletes.push_back({MetaOp::Kind::kDelete, std::string(key), {}});
  };
  Status status =
      store_->ForEach(kSsdSpacePrefix, [&](std::string_view key, std::string_view value) {
        const Result<SpaceRecord> record = DecodeSpace(key, value);
        if (record.ok()) {
          space(record.value());
        } else {
          drop(key);
        }
      });
  std::unordered_set<uint64_t> uids;
  if (status.ok()) {
    status = store_->ForEach(kSsdBlockPrefix, [&](std::string_view key, std::string_view value) {
      const Result<SsdSlotRecord> record = DecodeBlock(key, value);
      if (!record.ok() || !uids.insert(record.value().record.uid).second ||
          !block(record.value())) {
        drop(key);
      } else {
        ++result.records;
      }
    });
  }
  // A scan that breaks off gave what it gave; the rest is forgotten and its slots get overwritten.
  if (!status.ok()) Detach(status);
  if (attached()) (void)Apply(deletes, /*sync=*/false);  // has detached if it failed
  return result;
}

Status SsdCatalog::Close() {
  if (store_ == nullptr) return Status();
  const bool was_attached = attached();
  Status status = store_->Close();
  if (!status.ok()) Detach(status);
  return was_attached ? status : Status();  // a detached store has nothing more to lose
}

}  // namespace fermata
