// SPDX-License-Identifier: Apache-2.0
//
// SsdCatalog: the durable records of one SSD tier, over a MetaStore that may fail. The first error
// detaches it: from then on it takes nothing, says so, and the tier goes on from RAM. It knows the
// record format's keys, not what slots are for.
//
// Thread safety: Apply*, attached and state from any thread; Recover and Close by one thread while
// nobody else calls. Cost: one batch of the store's per call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "tiers/ssd_format.h"
#include "tiers/ssd_meta_store.h"

namespace fermata {

class SsdCatalog {
 public:
  // `store` null: detached from the start, because of `why`.
  SsdCatalog(std::unique_ptr<MetaStore> store, const Status& why, LogSink log);

  bool attached() const { return attached_.load(std::memory_order_acquire); }
  std::string state() const FERMATA_EXCLUDES(mu_);  // "ok" or "detached: why"

  // Not OK: the catalog is detached, now or already. The batch was then not applied.
  Status Apply(std::span<const MetaOp> ops, bool sync) FERMATA_EXCLUDES(mu_);

  struct Recovered {
    uint64_t records = 0;
    uint64_t dropped = 0;  // damaged, duplicate, or refused by `block`
  };
  // Spaces first. Records that are damaged, whose uid came before, or for which `block` answers
  // false are dropped, and deleted.
  Recovered Recover(const std::function<void(const SpaceRecord&)>& space,
                    const std::function<bool(const SsdSlotRecord&)>& block);

  Status Close();

 private:
  void Detach(const Status& why) FERMATA_EXCLUDES(mu_);

  const std::unique_ptr<MetaStore> store_;
  const LogSink log_;
  std::atomic<bool> attached_{false};  // release on detach, so that who sees false sees why_
  mutable Mutex mu_;
  std::string why_ FERMATA_GUARDED_BY(mu_);
};

}  // namespace fermata
