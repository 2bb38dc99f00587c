// SPDX-License-Identifier: Apache-2.0
//
// How one request of a replay comes to hold its prompt: found by name, or resumed by the handle of
// its session's last turn.
#include <algorithm>
#include <utility>

#include "bench/replay_run.h"

namespace fermata::bench {
namespace {

constexpr uint64_t kFailuresShown = 10;
constexpr uint32_t kFitTriesMax = 4;

}  // namespace

void Replay::Spell(size_t index, uint64_t first) {
  const uint64_t split = options_.block_split;
  first_ = arena_ == nullptr ? first / split * split : 0;  // every block of a real one is checked
  trace_.Expand(index, first_ / split, &trace_ids_);
  if (split == 1) {
    ids_.swap(trace_ids_);
  } else {
    ids_.resize(trace_ids_.size() * split);
    for (size_t i = 0; i < trace_ids_.size(); ++i) {
      for (uint64_t k = 0; k < split; ++k) ids_[i * split + k] = trace_ids_[i] * split + k;
    }
  }
  if (options_.token_keys) {
    tokens_.resize(ids_.size() * options_.block_tokens());
    for (size_t i = 0; i < ids_.size(); ++i) {
      ExpandTokens(ids_[i], options_.block_tokens(), &tokens_[i * options_.block_tokens()]);
    }
  }
  if (arena_ != nullptr) {
    seeds_.resize(ids_.size());
    ContentSeed seed = space_seed_;
    for (size_t i = 0; i < ids_.size(); ++i) seeds_[i] = seed = Extend(seed, ids_[i]);
  }
  prompt_ = {ids_, tokens_};
}

// Takes up the sequence of the session's last turn, cuts it to what the two prompts share, and goes
// on from there. *placed: false when there is none, or nothing is shared.
Status Replay::PlaceByHandle(size_t index, RequestRow* row, fermata_sequence* sequence,
                             bool* placed) {
  const Request& request = trace_.requests()[index];
  const uint64_t block_tokens = options_.block_tokens();
  const Kept kept = std::exchange(kept_[request.session], Kept{});
  if (kept.sequence.id == 0) return Status();
  const uint64_t split = options_.block_split;
  const uint64_t total = request.blocks * split;
  const uint64_t shared = trace_.CommonBlocks(index, kept.request) * split;
  LoadResult load;
  if (shared != 0) FERMATA_RETURN_IF_ERROR(client_->Resume(kept.sequence, &load));
  uint64_t valid = std::min(load.valid_tokens / block_tokens, shared);
  if (valid == 0) return client_->Release(kept.sequence);
  if (load.valid_tokens > valid * block_tokens)
    FERMATA_RETURN_IF_ERROR(client_->Truncate(kept.sequence, valid * block_tokens));
  *placed = true;
  *sequence = kept.sequence;
  ++metrics_.resumed;
  row->hit[kDevice] = valid * block_tokens;
  Spell(index, valid);
  uint64_t free = 0, evictable = 0;
  FERMATA_RETURN_IF_ERROR(client_->Room(&free, &evictable));
  uint64_t blocks = std::min(total, valid + free + evictable);
  if (blocks > valid) FERMATA_RETURN_IF_ERROR(Fit(*sequence, valid, &blocks, &load));
  if (blocks < total) {
    ++metrics_.requests_cut;
    metrics_.blocks_cut += total - blocks;
  }
  return Fill(index, *sequence, valid, blocks);
}

// The end of a turn by handle: the session's next one takes it up.
Status Replay::Park(const Running& running) {
  if (running.sequence.id == 0) return Status();
  Kept& kept = kept_[trace_.requests()[running.request].session];
  if (kept.sequence.id != 0) FERMATA_RETURN_IF_ERROR(client_->Release(kept.sequence));
  kept = Kept{running.sequence, running.request};
  return client_->Park(running.sequence);
}

Status Replay::Place(size_t index, fermata_session session, RequestRow* row,
                     fermata_sequence* sequence) {
  const uint64_t block_tokens = options_.block_tokens();
  Spell(index, 0);
  const uint64_t started_ns = clock_.NowNs();
  LookupResult lookup;
  FERMATA_RETURN_IF_ERROR(client_->Lookup(session, prompt_, &lookup));
  const uint64_t hit = lookup.hit_tokens / block_tokens;
  for (uint32_t i = 0; i < kTierSlots; ++i) row->hit[i] = lookup.tier_tokens[i];

  uint64_t free = 0, evictable = 0;
  FERMATA_RETURN_IF_ERROR(client_->Room(&free, &evictable));
  const uint64_t on_device = lookup.tier_tokens[kDevice] / block_tokens;
  uint64_t blocks = std::min<uint64_t>(ids_.size(), on_device + free + evictable);
  if (blocks < hit) {
    FERMATA_RETURN_IF_ERROR(blocks == 0 ? client_->DropLease(lookup.lease)
                                        : client_->TrimLease(lookup.lease, blocks * block_tokens));
    if (blocks == 0) lookup.lease = fermata_lease{0};
  }
  FERMATA_RETURN_IF_ERROR(client_->CreateSequence(session, lookup.lease, sequence));
  LoadResult load;
  if (blocks > 0) FERMATA_RETURN_IF_ERROR(Fit(*sequence, std::min(hit, blocks), &blocks, &load));
  const uint64_t found = std::min(hit, blocks);
  const uint64_t valid = std::min(load.valid_tokens / block_tokens, found);
  if (blocks < ids_.size()) {
    ++metrics_.requests_cut;
    metrics_.blocks_cut += ids_.size() - blocks;
    metrics_.tokens_hit_cut += (hit - found) * block_tokens;
  }
  // What was found but not given back is no hit; the deepest blocks lie in the lowest tier.
  uint64_t lost = (found - valid) * block_tokens;
  metrics_.tokens_lost += lost;
  for (uint32_t i = kTierSlots; i-- > 0 && lost > 0;) {
    const uint64_t taken = std::min(lost, row->hit[i]);
    row->hit[i] -= taken;
    lost -= taken;
  }
  if (arena_ != nullptr && row->hit[kHost] + row->hit[kSsd] > 0 && valid > 0) {
    metrics_.resume_ms.push_back(static_cast<double>(clock_.NowNs() - started_ns) * 1e-6);
  }
  return Fill(index, *sequence, valid, blocks);
}

// Checks what the sequence has of the prompt, and computes the rest of what it is to hold.
Status Replay::Fill(size_t index, fermata_sequence sequence, uint64_t valid, uint64_t blocks) {
  FERMATA_RETURN_IF_ERROR(Verify(index, sequence, valid));
  if (valid == blocks) return Status();
  FERMATA_RETURN_IF_ERROR(AppendRest(sequence, valid, blocks));
  FERMATA_RETURN_IF_ERROR(WriteNew(sequence, valid, blocks));
  metrics_.blocks_written += blocks - valid;
  return client_->Mark(sequence, blocks * options_.block_tokens());
}

// Loads what was found and reserves the rest of *blocks; shortens the request when the library says
// that it does not fit.
Status Replay::Fit(fermata_sequence sequence, uint64_t found, uint64_t* blocks, LoadResult* load) {
  const uint64_t block_tokens = options_.block_tokens();
  for (uint32_t tries = 0; tries < kFitTriesMax; ++tries) {
    ++metrics_.load_jobs;
    FERMATA_RETURN_IF_ERROR(client_->Load(sequence, *blocks * block_tokens, load));
    if (!load->no_space) return Status();
    uint64_t free = 0, evictable = 0;
    fermata_sequence_info info;
    FERMATA_RETURN_IF_ERROR(client_->Room(&free, &evictable));
    FERMATA_RETURN_IF_ERROR(client_->Info(sequence, &info));
    const uint64_t fits = info.device_tokens / block_tokens + free + evictable;
    if (fits >= *blocks) {
      return ErrorF(
          StatusCode::kInternal,
          "fermata_sequence_load: NO_SPACE for %llu blocks though fermata_room finds %llu",
          static_cast<unsigned long long>(*blocks), static_cast<unsigned long long>(fits));
    }
    *blocks = fits;
    if (fits < found) FERMATA_RETURN_IF_ERROR(client_->Truncate(sequence, fits * block_tokens));
    if (fits == 0) return Status();
  }
  return ErrorF(StatusCode::kInternal,
                "fermata_sequence_load: NO_SPACE %u times over, each for less", kFitTriesMax);
}

Status Replay::AppendRest(fermata_sequence sequence, uint64_t valid, uint64_t blocks) {
  for (uint32_t tries = 0; tries < kFitTriesMax; ++tries) {
    bool retry = false;
    FERMATA_RETURN_IF_ERROR(
        client_->Append(sequence, prompt_, valid - first_, blocks - first_, &retry));
    if (!retry) return Status();
    // A load that lost blocks gave its reservation up with them: state the need anew.
    LoadResult load;
    ++metrics_.load_jobs;
    FERMATA_RETURN_IF_ERROR(client_->Load(sequence, blocks * options_.block_tokens(), &load));
  }
  return ErrorF(StatusCode::kInternal, "fermata_append: no room for %llu blocks that were reserved",
                static_cast<unsigned long long>(blocks - valid));
}

Status Replay::Verify(size_t index, fermata_sequence sequence, uint64_t blocks) {
  if (arena_ == nullptr || blocks == 0) return Status();
  const uint64_t started_ns = clock_.NowNs();
  FERMATA_RETURN_IF_ERROR(client_->Slots(sequence, blocks, &slots_));
  wrong_.assign(blocks, kAllRight);
  pool_.ParallelFor(blocks,
                    [this](size_t i) { wrong_[i] = arena_->FindWrong(slots_[i], seeds_[i]); });
  for (uint64_t i = 0; i < blocks; ++i) {
    if (wrong_[i] == kAllRight) continue;
    if (++metrics_.oracle_failures <= kFailuresShown) ReportFailure(index, i, wrong_[i]);
  }
  metrics_.oracle_checks += blocks;
  metrics_.oracle_bytes += blocks * options_.block_bytes;
  metrics_.check_s += static_cast<double>(clock_.NowNs() - started_ns) * 1e-9;
  return Status();
}

void Replay::ReportFailure(size_t index, uint64_t block, size_t offset) const {
  std::fprintf(
      stderr,
      "wrong bytes: request %zu, block %llu (id %llu), slot %u, first wrong byte at %zu of "
      "%llu\n",
      index, static_cast<unsigned long long>(block), static_cast<unsigned long long>(ids_[block]),
      slots_[block], offset, static_cast<unsigned long long>(options_.block_bytes));
}

Status Replay::WriteNew(fermata_sequence sequence, uint64_t first, uint64_t end) {
  if (arena_ == nullptr) return Status();
  const uint64_t started_ns = clock_.NowNs();
  FERMATA_RETURN_IF_ERROR(client_->Slots(sequence, end, &slots_));
  pool_.ParallelFor(end - first, [this, first](size_t i) {
    arena_->Write(slots_[first + i], seeds_[first + i]);
  });
  if (options_.sabotage > 0) {
    for (uint64_t i = first; i < end; ++i) {
      if ((metrics_.blocks_written + i - first + 1) % options_.sabotage != 0) continue;
      arena_->FlipByte(slots_[i], random_.Below(options_.block_bytes));
      ++metrics_.blocks_sabotaged;
    }
  }
  metrics_.write_s += static_cast<double>(clock_.NowNs() - started_ns) * 1e-9;
  return Status();
}

}  // namespace fermata::bench
