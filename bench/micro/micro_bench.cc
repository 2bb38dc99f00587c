// SPDX-License-Identifier: Apache-2.0
//
// Micro benchmarks of the pieces that every token or block passes: naming, finding, slots,
// checksum. Each against what it is measured by, in the same run (memcmp for a name, memcpy for a
// payload).
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "allocators/slot_pool.h"
#include "base/hash.h"
#include "base/random.h"

namespace fermata {
namespace {

std::vector<std::byte> RandomBytes(size_t bytes) {
  Random random(1);
  std::vector<std::byte> out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random.Next());
  return out;
}

// One step of the chain: 16 tokens of 4 bytes.
void ChainStep(benchmark::State& state) {
  const std::vector<std::byte> tokens = RandomBytes(64);
  Hash128 value;
  for (auto _ : state) benchmark::DoNotOptimize(value = ChainHash(value, tokens));
}
BENCHMARK(ChainStep);

// What makes a hit of the found block: its name is compared.
void CompareName(benchmark::State& state) {
  const std::vector<std::byte> a = RandomBytes(64);
  const std::vector<std::byte> b = RandomBytes(64);
  for (auto _ : state) {
    benchmark::DoNotOptimize(a.data());
    benchmark::DoNotOptimize(std::memcmp(a.data(), b.data(), a.size()));
  }
}
BENCHMARK(CompareName);

void Checksum(benchmark::State& state) {
  const std::vector<std::byte> payload = RandomBytes(static_cast<size_t>(state.range(0)));
  uint64_t generation = 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(PayloadChecksum(payload, Hash128{1, 2}, ++generation));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Checksum)->Arg(65536)->Arg(1 << 20);

void Memcpy(benchmark::State& state) {
  const std::vector<std::byte> from = RandomBytes(static_cast<size_t>(state.range(0)));
  std::vector<std::byte> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Memcpy)->Arg(65536)->Arg(1 << 20);

void AcquireAndRelease(benchmark::State& state) {
  SlotPool pool(1 << 16);
  std::vector<SlotId> slots(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    if (!pool.Acquire(slots).ok()) state.SkipWithError("the pool is empty");
    pool.Release(slots);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(AcquireAndRelease)->Arg(1)->Arg(64);

}  // namespace
}  // namespace fermata

BENCHMARK_MAIN();
