// SPDX-License-Identifier: Apache-2.0
//
// fork: 64 children of a long sequence that ends in mid-block, and how many blocks are copied when
// they part. abi: what a call through the C ABI costs that does nearly nothing.
#include <algorithm>
#include <cinttypes>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "bench/index.h"
#include "bench/index_cache.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kChildren = 64;
constexpr uint64_t kTailTokens = kIndexBlockTokens / 2;  // mid-block
constexpr uint64_t kSpareSlots = 64;
constexpr uint64_t kAbiRounds = 11;
constexpr uint64_t kAbiHandles = 4096;  // of the reference's table

Status BuildLongSequence(IndexCache* cache, uint64_t tokens, fermata_sequence* out) {
  std::vector<uint32_t> ids(tokens);
  FillTokens(1, ids);
  FERMATA_RETURN_IF_ERROR(cache->Create(out));
  return cache->AppendAndMark(*out, 0, ids);
}

// Forks, and asks where the last block of each child lies, so that whatever a fork leaves for
// later is in the time.
Status TimedFork(fermata_sequence parent, uint64_t blocks, std::span<fermata_sequence> children,
                 Samples* us) {
  fermata_status forked = FERMATA_OK;
  fermata_status asked = FERMATA_OK;
  bool placed = true;
  const double ns = TimedNs([&] {
    forked = fermata_sequence_fork(parent, children.data(), children.size(), nullptr);
    for (size_t i = 0; i < children.size() && forked == FERMATA_OK; ++i) {
      uint32_t slot = FERMATA_SLOT_NONE;
      size_t count = 0;
      asked |= fermata_sequence_slots(children[i], 0, blocks - 1, &slot, 1, &count, nullptr);
      placed &= count == 1 && slot != FERMATA_SLOT_NONE;
    }
  });
  if (forked != FERMATA_OK || asked != FERMATA_OK || !placed) {
    return ErrorF(StatusCode::kInternal, "fermata_sequence_fork: %s, slots %s, %s",
                  fermata_status_name(forked), fermata_status_name(asked),
                  placed ? "placed" : "a child's last block has no slot");
  }
  us->Add(ns / 1e3 / static_cast<double>(children.size()));
  return Status();
}

// Lets each child write on; *copies is how many blocks the engine was asked to copy, *tails how
// many of those were the shared tail.
Status CountCopies(IndexCache* cache, std::span<const fermata_sequence> children,
                   uint32_t tail_slot, uint64_t* copies, uint64_t* tails) {
  const std::vector<uint32_t> token(1, 7);
  for (const fermata_sequence child : children) {
    fermata_block_copy wanted[4] = {};
    fermata_append_item item = AppendItem(child, token);
    item.copies = wanted;
    item.copy_capacity = 4;
    fermata_error error = FERMATA_ERROR_INIT;
    FERMATA_RETURN_IF_ERROR(
        IndexCallStatus("fermata_append", fermata_append(cache->cache(), &item, 1, &error), error));
    *copies += item.copy_count;
    for (uint32_t i = 0; i < std::min(item.copy_count, 4u); ++i) {
      *tails += wanted[i].source_slot == tail_slot && wanted[i].valid_tokens == kTailTokens ? 1 : 0;
    }
  }
  return Status();
}

// The usual design copies the table and counts a reference on each block.
class TableCopyReference {
 public:
  explicit TableCopyReference(uint64_t blocks) : table_(blocks), refs_(blocks, 1) {
    for (uint64_t i = 0; i < blocks; ++i) table_[i] = static_cast<uint32_t>(i);
  }
  double ForkUs(uint64_t children) {
    std::vector<std::vector<uint32_t>> tables(children);
    const double ns = TimedNs([&] {
      for (std::vector<uint32_t>& table : tables) {
        table = table_;
        for (const uint32_t block : table) ++refs_[block];
        KeepResult(table.back());
      }
    });
    for (const std::vector<uint32_t>& table : tables) {
      for (const uint32_t block : table) --refs_[block];
    }
    return ns / 1e3 / static_cast<double>(children);
  }

 private:
  std::vector<uint32_t> table_;
  std::vector<uint32_t> refs_;
};

// Mean ns of one call over `calls` of them.
template <typename F>
double MeanNs(uint64_t calls, F&& call) {
  return TimedNs([&] {
           for (uint64_t i = 0; i < calls; ++i) call();
         }) /
         static_cast<double>(calls);
}

// The usual way from a handle to its object: a table behind a lock.
class HandleTableReference {
 public:
  HandleTableReference() {
    for (uint64_t i = 0; i < kAbiHandles; ++i) objects_.emplace(i * 3 + 1, i);
  }
  void Call() {
    MutexLock lock(&mu_);
    KeepResult(objects_.find(1)->second);
  }

 private:
  Mutex mu_;
  std::unordered_map<uint64_t, uint64_t> objects_ FERMATA_GUARDED_BY(mu_);
};

}  // namespace

Status MeasureIndexFork(const IndexSizes& sizes, IndexFigures* out) {
  const uint64_t blocks = sizes.fork_blocks;
  IndexCacheOptions options;
  options.slots = blocks + kChildren + kSpareSlots;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  IndexCache* const cache = opened->get();
  fermata_sequence parent{0};
  FERMATA_RETURN_IF_ERROR(
      BuildLongSequence(cache, blocks * kIndexBlockTokens - kTailTokens, &parent));
  uint32_t tail_slot = FERMATA_SLOT_NONE;
  size_t count = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(IndexCallStatus(
      "fermata_sequence_slots",
      fermata_sequence_slots(parent, 0, blocks - 1, &tail_slot, 1, &count, &error), error));
  TableCopyReference reference(blocks);
  std::vector<fermata_sequence> children(kChildren);
  Samples us;
  Samples reference_us;
  uint64_t copies = 0;
  uint64_t tails = 0;
  for (uint64_t round = 0; round < sizes.rounds; ++round) {
    FERMATA_RETURN_IF_ERROR(TimedFork(parent, blocks, children, &us));
    FERMATA_RETURN_IF_ERROR(CountCopies(cache, children, tail_slot, &copies, &tails));
    FERMATA_RETURN_IF_ERROR(cache->Release(children));
    FERMATA_RETURN_IF_ERROR(cache->Step());
    reference_us.Add(reference.ForkUs(kChildren));
  }
  // A child that was asked for no copy would write on its relatives' block.
  if (tails != sizes.rounds * kChildren) {
    return ErrorF(StatusCode::kInternal, "%" PRIu64 " children copied the tail %" PRIu64 " times",
                  sizes.rounds * kChildren, tails);
  }
  out->Set("fork_us", us.Median());
  out->Set("fork_copies", static_cast<double>(copies - tails));
  out->Set("ref_fork_us", reference_us.Median());
  out->Set("fork_p99_us", us.P99());
  return Status();
}

Status MeasureIndexAbi(const IndexSizes& sizes, IndexFigures* out) {
  IndexCacheOptions options;
  options.slots = kSpareSlots;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  IndexCache* const cache = opened->get();
  fermata_sequence sequence{0};
  FERMATA_RETURN_IF_ERROR(BuildLongSequence(cache, kIndexBlockTokens, &sequence));
  HandleTableReference reference;
  Samples now_ns;
  Samples room_ns;
  Samples info_ns;
  Samples reference_ns;
  fermata_status failed = FERMATA_OK;
  for (uint64_t round = 0; round <= kAbiRounds; ++round) {
    const double now = MeanNs(sizes.abi_calls, [&] {
      uint64_t ns = 0;
      failed |= fermata_now(cache->cache(), &ns, nullptr);
    });
    const double room = MeanNs(sizes.abi_calls, [&] {
      uint64_t free = 0;
      uint64_t evictable = 0;
      failed |= fermata_room(cache->cache(), 0, &free, &evictable, nullptr);
    });
    const double info = MeanNs(sizes.abi_calls, [&] {
      fermata_sequence_info got{};
      got.struct_size = sizeof(got);
      failed |= fermata_sequence_get_info(sequence, &got, nullptr);
    });
    const double table = MeanNs(sizes.abi_calls, [&] { reference.Call(); });
    if (round == 0) continue;  // warms up
    now_ns.Add(now);
    room_ns.Add(room);
    info_ns.Add(info);
    reference_ns.Add(table);
  }
  if (failed != FERMATA_OK) return ErrorF(StatusCode::kInternal, "a call of the C ABI failed");
  out->Set("abi_call_ns", now_ns.Median());
  out->Set("ref_abi_call_ns", reference_ns.Median());
  out->Set("abi_room_ns", room_ns.Median());
  out->Set("abi_sequence_info_ns", info_ns.Median());
  return Status();
}

}  // namespace fermata::bench
