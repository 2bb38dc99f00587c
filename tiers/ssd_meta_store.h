// SPDX-License-Identifier: Apache-2.0
//
// MetaStore: the seam to the durable catalog, an ordered map from short keys to short values. It
// does not know what they mean (ssd_format.h does). Real form: RocksDB (ssd_rocks_meta_store.cc).
// Simulated form: tests/support/mem_meta_store.h.
//
// Thread safety: Apply from any thread; ForEach and Close by one thread while nobody else calls.
// Contract: a batch is applied whole or not at all, also over a crash; no exception, no abort,
// whatever the disk does.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace fermata {

struct MetaOp {
  enum class Kind : uint8_t { kPut, kDelete };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
};

class MetaStore {
 public:
  virtual ~MetaStore() = default;
  // In order and atomic. `sync`: survives power loss on return; otherwise it survives the death of
  // the process.
  virtual Status Apply(std::span<const MetaOp> ops, bool sync) = 0;
  using Visitor = std::function<void(std::string_view key, std::string_view value)>;
  virtual Status ForEach(std::string_view prefix, const Visitor& visit) = 0;
  virtual Status Close() = 0;  // Nothing else may be called after it.
};

// Opens or creates. DATA_LOSS: what is there cannot be read and never will be; another error: may
// pass.
Result<std::unique_ptr<MetaStore>> OpenRocksMetaStore(const std::string& directory);

}  // namespace fermata
