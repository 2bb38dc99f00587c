// SPDX-License-Identifier: Apache-2.0
//
// bytes_per_block: how much the process grows for each cached block, beyond the block's own token
// ids. Each size is measured in a child of its own, forked before any cache is open, so that no
// memory that something else has freed is used again unseen.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "bench/index.h"
#include "bench/index_cache.h"
#include "bench/index_reference.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kUsualRun = 10;  // blocks between two branches
constexpr uint64_t kTrunkBlocks = 100;
constexpr uint64_t kSpareSlots = 256;
constexpr double kTokenBytes = kIndexBlockTokens * sizeof(uint32_t);

struct MemoryUse {
  double bytes_per_block = 0;
  double peak_per_block = 0;  // while growing
};

// What a child tells its parent through the pipe.
struct ChildAnswer {
  uint32_t ok = 0;
  uint32_t reserved = 0;
  MemoryUse use;
  char message[240] = {};
};

// A number of /proc/self/status in bytes, VmRSS or VmHWM; 0 when there is none.
uint64_t ProcStatusBytes(std::string_view field) {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  uint64_t kib = 0;
  while (kib == 0 && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::string_view(line).substr(0, field.size()) != field) continue;
    (void)std::sscanf(line + field.size(), ": %" SCNu64, &kib);
  }
  (void)std::fclose(file);
  return kib * 1024;
}

// Resident memory now, of /proc/self/statm, which is exact where status may lag by some pages.
uint64_t ResidentBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  uint64_t total = 0;
  uint64_t resident = 0;
  const int read = std::fscanf(file, "%" SCNu64 " %" SCNu64, &total, &resident);
  (void)std::fclose(file);
  return read == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

MemoryUse UseSince(uint64_t before, uint64_t blocks, double token_bytes) {
  const auto per_block = [&](uint64_t bytes) {
    return (static_cast<double>(bytes) - static_cast<double>(before)) /
               static_cast<double>(blocks) -
           token_bytes;
  };
  return MemoryUse{per_block(ResidentBytes()),
                   per_block(std::max(ProcStatusBytes("VmHWM"), ResidentBytes()))};
}

Status OurUse(uint64_t blocks, uint64_t run, MemoryUse* out) {
  ContextFamily family;
  family.run = run;
  family.pieces = kTrunkBlocks / run;
  const uint64_t before = ResidentBytes();
  IndexCacheOptions options;
  options.slots = FamilyBlocks(family, blocks) + kSpareSlots;
  Result<std::unique_ptr<IndexCache>> opened = IndexCache::Open(options);
  if (!opened.ok()) return opened.status();
  uint64_t families = 0;
  FERMATA_RETURN_IF_ERROR(BuildFamilies(opened->get(), family, blocks, &families));
  *out = UseSince(before, families * family.blocks(), kTokenBytes);
  return Status();
}

// The reference keeps no tokens, so none are taken off.
Status ReferenceUse(uint64_t blocks, uint64_t /*run*/, MemoryUse* out) {
  const uint64_t before = ResidentBytes();
  RefBlockPool pool(static_cast<uint32_t>(blocks));
  for (uint64_t i = 0; i < blocks; ++i) {
    RefBlockPool::Block* const block = pool.Take();
    pool.Publish(block, Hash128{MixU64(i), MixU64(~i)});
    pool.Release(block);
  }
  *out = UseSince(before, blocks, 0);
  return Status();
}

using MeasureUse = Status (*)(uint64_t blocks, uint64_t run, MemoryUse* out);

[[noreturn]] void RunChild(int to, MeasureUse measure, uint64_t blocks, uint64_t run) {
  ChildAnswer answer;
  const Status status = measure(blocks, run, &answer.use);
  answer.ok = status.ok() ? 1 : 0;
  (void)std::snprintf(answer.message, sizeof(answer.message), "%s", status.message().c_str());
  const ssize_t written = write(to, &answer, sizeof(answer));  // below PIPE_BUF: whole, or not
  _exit(written == static_cast<ssize_t>(sizeof(answer)) ? 0 : 1);
}

Status UseInChild(MeasureUse measure, uint64_t blocks, uint64_t run, MemoryUse* out) {
  int ends[2];
  if (pipe(ends) != 0) {
    return ErrorF(StatusCode::kUnavailable, "pipe: %s", std::strerror(errno));
  }
  malloc_trim(0);  // the child should not find room in what the parent has freed
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    RunChild(ends[1], measure, blocks, run);
  }
  const int fork_errno = errno;
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return ErrorF(StatusCode::kUnavailable, "fork: %s", std::strerror(fork_errno));
  }
  ChildAnswer answer;
  ssize_t got = -1;
  do {
    got = read(ends[0], &answer, sizeof(answer));
  } while (got < 0 && errno == EINTR);
  close(ends[0]);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(sizeof(answer))) {
    return ErrorF(StatusCode::kUnavailable,
                  "the process that held %" PRIu64
                  " blocks ended with status 0x%x (out of memory?)",
                  blocks, static_cast<unsigned>(ended));
  }
  if (answer.ok == 0) return ErrorF(StatusCode::kUnavailable, "%s", answer.message);
  *out = answer.use;
  return Status();
}

}  // namespace

Status MeasureIndexMemory(const IndexSizes& sizes, IndexFigures* out) {
  const std::pair<const char*, uint64_t> scales[] = {{"1m", sizes.blocks_1m},
                                                     {"10m", sizes.blocks_10m}};
  for (const auto& [scale, blocks] : scales) {
    MemoryUse usual;
    MemoryUse singles;
    MemoryUse reference;
    FERMATA_RETURN_IF_ERROR(UseInChild(OurUse, blocks, kUsualRun, &usual));
    FERMATA_RETURN_IF_ERROR(UseInChild(OurUse, blocks, 1, &singles));
    FERMATA_RETURN_IF_ERROR(UseInChild(ReferenceUse, blocks, 1, &reference));
    const auto set = [&, end = scale](const std::string& name, double value) {
      out->Set(name + end, value);
    };
    set("bytes_per_block_", usual.bytes_per_block);
    set("bytes_per_block_peak_", usual.peak_per_block);
    set("bytes_per_block_run1_", singles.bytes_per_block);
    set("bytes_per_block_run1_peak_", singles.peak_per_block);
    set("ref_bytes_per_block_", reference.bytes_per_block);
    set("ref_bytes_per_block_peak_", reference.peak_per_block);
  }
  return Status();
}

}  // namespace fermata::bench
