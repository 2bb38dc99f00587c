// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cache_fixture.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

namespace fermata_test {
namespace {

constexpr fermata_status kUntouched =
    -1;  // what an item's status reads before the library wrote it
constexpr auto kPatience = std::chrono::seconds(30);  // real time after which a wait is a failure

fermata_error NewError() { return FERMATA_ERROR_INIT; }

Outcome MakeOutcome(fermata_status status, const fermata_error& error) {
  return {status, status == FERMATA_OK ? FERMATA_REASON_NONE : error.reason, error.message};
}

template <typename Item>
Outcome ItemOutcome(fermata_status call, const fermata_error& error, const Item& item) {
  if (item.status == kUntouched) return MakeOutcome(call, error);
  return {item.status, item.status == FERMATA_OK ? FERMATA_REASON_NONE : item.reason,
          error.message};
}

fermata_bytes Bytes(const std::string& text) { return {text.data(), text.size()}; }

std::vector<fermata_extra> ToAbi(const Extras& extras) {
  std::vector<fermata_extra> out;
  for (const Extra& extra : extras) {
    fermata_extra e = {};
    e.struct_size = sizeof(e);
    e.type = extra.type;
    e.token_begin = extra.begin;
    e.token_end = extra.end;
    e.data = Bytes(extra.data);
    out.push_back(e);
  }
  return out;
}

class Patience {
 public:
  bool over() const { return std::chrono::steady_clock::now() - start_ > kPatience; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

CacheSetup AllTiers() {
  CacheSetup setup;
  setup.host_blocks = 16;
  setup.ssd_blocks = 64;
  return setup;
}

GroupSetup SmallBlocks() {
  GroupSetup group;
  group.planes = {2048, 2048};
  return group;
}

Tokens Prompt(uint32_t prompt, uint64_t count, uint64_t from) {
  Tokens tokens;
  for (uint64_t i = from; i < from + count; ++i) {
    tokens.push_back(static_cast<uint32_t>(Mix(prompt * 0x10001ull + i * 7919) & 0xffffff));
  }
  return tokens;
}

Tokens Concat(const Tokens& a, const Tokens& b) {
  Tokens out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

Tokens Prefix(const Tokens& tokens, uint64_t count) {
  return Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

// ------------------------------------------------------------------------------------------ life

TestCache::TestCache(CacheSetup setup) : setup_(std::move(setup)) {
  if (setup_.ssd_blocks > 0 && setup_.directory.empty()) {
    std::string pattern = ::testing::TempDir() + "fermata-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      ADD_FAILURE() << "no temporary directory at " << pattern;
    } else {
      setup_.directory = pattern;
      owns_directory_ = true;
    }
  }
  fermata_error error = NewError();
  fermata_status status = fermata_queue_create(8192, &queue_, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  status = fermata_queue_create(1, &wait_queue_, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  spaces_.push_back(SpaceState());
  EXPECT_THAT(Open(), IsOk());
}

TestCache::~TestCache() {
  if (is_open()) {
    Audit();
    Close();
  }
  if (queue_.id != 0) {
    DrainQueue();
    fermata_error error = NewError();
    const fermata_status status = fermata_queue_destroy(queue_, &error);
    EXPECT_THAT(MakeOutcome(status, error), IsOk());
    fermata_queue_destroy(wait_queue_, nullptr);
  }
  if (owns_directory_) {
    std::error_code ignored;
    std::filesystem::remove_all(setup_.directory, ignored);
  }
}

uint32_t TestCache::SlotsOf(uint32_t group) const {
  const GroupSetup& g = setup_.groups[group];
  if (g.slots != 0) return g.slots;
  return static_cast<uint32_t>(uint64_t{setup_.device_blocks} * setup_.groups[0].block_tokens /
                               g.block_tokens);
}

uint64_t TestCache::CapacityBytes(uint64_t blocks) const {
  const uint64_t tokens = blocks * setup_.groups[0].block_tokens;
  uint64_t bytes = 0;
  for (const GroupSetup& group : setup_.groups) {
    bytes += tokens / group.block_tokens * ((group.block_bytes() + 4095) / 4096 * 4096);
  }
  return bytes;
}

Outcome TestCache::Open() {
  std::vector<fermata_group_config> groups;
  for (const GroupSetup& g : setup_.groups) {
    fermata_group_config group = {};
    group.struct_size = sizeof(group);
    group.block_tokens = g.block_tokens;
    group.block_bytes = g.block_bytes();
    groups.push_back(group);
  }
  std::vector<fermata_tier_config> tiers;
  const auto add_tier = [&](uint32_t kind, uint64_t blocks) {
    fermata_tier_config tier = {};
    tier.struct_size = sizeof(tier);
    tier.kind = kind;
    tier.capacity_bytes = CapacityBytes(blocks);
    if (kind == FERMATA_TIER_HOST)
      tier.staging_bytes = setup_.staging_blocks * setup_.groups[0].block_bytes();
    if (kind == FERMATA_TIER_SSD) {
      tier.directory = setup_.directory.c_str();
      tier.flags = setup_.ssd_flags;
      tier.io_depth = setup_.io_depth;
    }
    tiers.push_back(tier);
  };
  add_tier(FERMATA_TIER_DEVICE, 0);
  if (setup_.host_blocks != 0) add_tier(FERMATA_TIER_HOST, setup_.host_blocks);
  if (setup_.ssd_blocks != 0) add_tier(FERMATA_TIER_SSD, setup_.ssd_blocks);
  if (setup_.sim_blocks != 0) add_tier(FERMATA_TIER_SIM, setup_.sim_blocks);
  tier_kinds_.clear();
  for (const fermata_tier_config& tier : tiers) tier_kinds_.push_back(tier.kind);

  fermata_config config = {};
  fermata_config_init(&config, sizeof(config));
  config.chain_tokens = setup_.chain_tokens;
  config.group_count = static_cast<uint32_t>(groups.size());
  config.groups = groups.data();
  config.tiers = tiers.data();
  config.tier_count = static_cast<uint32_t>(tiers.size());
  config.event_capacity = setup_.event_capacity;
  config.policy = setup_.policy.c_str();
  config.device_ops = setup_.device_ops;
  config.lease_ns = setup_.lease_ns;
  config.max_sequences = setup_.max_sequences;

  fermata_x_options options = {};
  options.struct_size = sizeof(options);
  options.seed = setup_.seed;
  if (!setup_.real_time) options.flags |= FERMATA_X_MANUAL_CLOCK | FERMATA_X_STEP_DRIVEN;
  if (setup_.metadata_only) options.flags |= FERMATA_X_METADATA_ONLY;
  fermata_x_sim_faults faults = setup_.sim_faults;
  faults.struct_size = sizeof(faults);
  options.sim_faults = &faults;

  fermata_error error = NewError();
  const fermata_status status = fermata_x_cache_open(&config, &options, &cache_, &error);
  if (status != FERMATA_OK) {
    EXPECT_EQ(cache_.id, 0u) << "a failed open must zero the handle";
    cache_.id = 0;
    return MakeOutcome(status, error);
  }
  arenas_.clear();
  arenas_.resize(setup_.groups.size());
  for (uint32_t g = 0; setup_.register_arenas && g < setup_.groups.size(); ++g) {
    const Outcome outcome = RegisterArena(g);
    if (!outcome.ok()) return outcome;
  }
  for (SpaceState& state : spaces_) {
    const Outcome outcome = OpenSpace(&state);
    if (!outcome.ok()) return outcome;
  }
  return {};
}

Outcome TestCache::RegisterArena(uint32_t group) {
  const GroupSetup& g = setup_.groups[group];
  ArenaState& arena = arenas_[group];
  const uint32_t slots = SlotsOf(group);
  arena.planes.clear();
  std::vector<fermata_region> regions;
  for (const uint64_t slot_bytes : g.planes) {
    const uint64_t stride = slot_bytes + g.stride_pad;
    fermata_region region = {nullptr, slot_bytes, stride};
    if (!setup_.metadata_only) {
      arena.planes.emplace_back(slots * stride);
      region.base = arena.planes.back().data();
    }
    regions.push_back(region);
  }
  fermata_arena_config config = {};
  config.struct_size = sizeof(config);
  config.group = group;
  config.slots = slots;
  config.regions = regions.data();
  config.region_count = static_cast<uint32_t>(regions.size());
  fermata_error error = NewError();
  const fermata_status status = fermata_arena_register(cache_, &config, &arena.id, &error);
  return MakeOutcome(status, error);
}

Outcome TestCache::UnregisterArena(uint32_t group) {
  fermata_error error = NewError();
  const fermata_status status =
      fermata_arena_unregister(arenas_[group].id, Now() + 1'000'000'000, &error);
  return MakeOutcome(status, error);
}

Outcome TestCache::OpenSpace(SpaceState* state) {
  const Fingerprint& f = state->fingerprint;
  fermata_space_config config = {};
  config.struct_size = sizeof(config);
  config.weights = Bytes(f.weights);
  config.model_config = Bytes(f.model_config);
  config.rope = Bytes(f.rope);
  config.tenant_salt = Bytes(f.tenant_salt);
  config.kv_dtype = Bytes(f.kv_dtype);
  config.codec = Bytes(f.codec);
  config.layout_version = f.layout_version;
  config.rank = f.rank;
  config.ranks = f.ranks;
  fermata_error error = NewError();
  const fermata_status status = fermata_space_open(cache_, &config, &state->id, &error);
  return MakeOutcome(status, error);
}

size_t TestCache::AddSpace(const Fingerprint& fingerprint) {
  SpaceState state;
  state.fingerprint = fingerprint;
  EXPECT_THAT(OpenSpace(&state), IsOk());
  spaces_.push_back(std::move(state));
  return spaces_.size() - 1;
}

Outcome TestCache::TryClose(uint64_t deadline_ns) {
  fermata_error error = NewError();
  const fermata_status status = fermata_cache_close(cache_, deadline_ns, &error);
  if (status == FERMATA_OK) cache_.id = 0;
  return MakeOutcome(status, error);
}

void TestCache::Close() {
  const Patience patience;
  Outcome outcome = TryClose(0);
  while (outcome.status == FERMATA_DEADLINE_EXCEEDED && !patience.over()) outcome = TryClose(0);
  EXPECT_THAT(outcome, IsOk());
}

void TestCache::Reopen() {
  if (is_open()) Close();
  EXPECT_THAT(Open(), IsOk());
}

void TestCache::Abandon() { cache_.id = 0; }

int TestCache::TierOf(uint32_t kind) const {
  for (size_t i = 0; i < tier_kinds_.size(); ++i) {
    if (tier_kinds_[i] == kind) return static_cast<int>(i);
  }
  return -1;
}

// ------------------------------------------------------------------------------------ sequences

Outcome TestCache::TryCreate(const CreateOptions& options, Seq* out) {
  const std::vector<fermata_extra> extras = ToAbi(options.extras);
  fermata_sequence_options o = {};
  o.struct_size = sizeof(o);
  o.flags = options.flags;
  o.session = options.session;
  o.extras = extras.data();
  o.extra_count = static_cast<uint32_t>(extras.size());
  out->space = options.space;
  out->extras = options.extras;
  out->tokens.clear();
  fermata_error error = NewError();
  const fermata_status status =
      fermata_sequence_create(spaces_[options.space].id, &o, &out->id, &error);
  return MakeOutcome(status, error);
}

Seq TestCache::Create(const CreateOptions& options) {
  Seq seq;
  EXPECT_THAT(TryCreate(options, &seq), IsOk());
  return seq;
}

void TestCache::RunCopies(const std::vector<fermata_block_copy>& copies) {
  if (setup_.metadata_only) return;
  for (const fermata_block_copy& copy : copies) {
    const GroupSetup& g = setup_.groups[copy.group];
    for (uint32_t plane = 0; plane < g.planes.size(); ++plane) {
      std::memcpy(SlotBytes(copy.group, plane, copy.target_slot),
                  SlotBytes(copy.group, plane, copy.source_slot), g.planes[plane]);
    }
  }
}

Outcome TestCache::TryAppend(Seq* seq, const Tokens& tokens,
                             std::vector<fermata_block_copy>* copies) {
  // On the heap and overwritten after the call: the library must not look at its arguments later.
  Tokens passed = tokens;
  std::vector<fermata_block_copy> list(setup_.groups.size());
  fermata_append_item item = {};
  item.struct_size = sizeof(item);
  item.sequence = seq->id;
  item.tokens = passed.data();
  item.token_count = passed.size();
  item.copies = list.data();
  item.copy_capacity = static_cast<uint32_t>(list.size());
  item.status = kUntouched;
  fermata_error error = NewError();
  const fermata_status status = fermata_append(cache_, &item, 1, &error);
  std::fill(passed.begin(), passed.end(), 0xffffffffu);
  const Outcome outcome = ItemOutcome(status, error, item);
  if (!outcome.ok()) return outcome;
  list.resize(item.copy_count);
  RunCopies(list);
  if (copies != nullptr) *copies = list;
  seq->tokens.insert(seq->tokens.end(), tokens.begin(), tokens.end());
  return outcome;
}

void TestCache::Append(Seq* seq, const Tokens& tokens, std::vector<fermata_block_copy>* copies) {
  const Patience patience;
  Outcome outcome = TryAppend(seq, tokens, copies);
  while (outcome.status == FERMATA_UNAVAILABLE && outcome.reason == FERMATA_REASON_WOULD_BLOCK &&
         !patience.over()) {
    Pump();
    outcome = TryAppend(seq, tokens, copies);
  }
  EXPECT_THAT(outcome, IsOk());
}

std::byte* TestCache::SlotBytes(uint32_t group, uint32_t plane, uint32_t slot) {
  const GroupSetup& g = setup_.groups[group];
  return arenas_[group].planes[plane].data() + slot * (g.planes[plane] + g.stride_pad);
}

std::vector<std::vector<uint32_t>> TestCache::AllSlots(const Seq& seq) {
  std::vector<std::vector<uint32_t>> slots;
  for (uint32_t g = 0; g < setup_.groups.size(); ++g) slots.push_back(Slots(seq, g));
  return slots;
}

void TestCache::Write(const Seq& seq, uint64_t from, uint64_t to) {
  if (!setup_.metadata_only) WriteInto(seq, from, to, AllSlots(seq));
}

void TestCache::WriteInto(const Seq& seq, uint64_t from, uint64_t to,
                          const std::vector<std::vector<uint32_t>>& all_slots) {
  const ContentOracle oracle(spaces_[seq.space].fingerprint, seq.extras, seq.tokens);
  for (uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const uint32_t block_tokens = setup_.groups[g].block_tokens;
    const std::vector<uint32_t>& slots = all_slots[g];
    for (uint64_t at = from; at < to;) {
      const uint64_t block = at / block_tokens;
      const uint64_t end = std::min<uint64_t>(to, (block + 1) * block_tokens);
      if (block >= slots.size() || slots[block] == FERMATA_SLOT_NONE) {
        ADD_FAILURE() << "group " << g << " block " << block << " has no slot to write to";
        return;
      }
      for (uint32_t plane = 0; plane < setup_.groups[g].planes.size(); ++plane) {
        oracle.Fill({g, plane, block_tokens, block, at, end, SlotBytes(g, plane, slots[block]),
                     setup_.groups[g].planes[plane]});
      }
      at = end;
    }
  }
}

Outcome TestCache::TryMark(const Seq& seq, uint64_t tokens, void* event) {
  fermata_mark_item item = {};
  item.struct_size = sizeof(item);
  item.sequence = seq.id;
  item.tokens = tokens;
  item.event = event;
  item.status = kUntouched;
  fermata_error error = NewError();
  const fermata_status status = fermata_mark(cache_, &item, 1, &error);
  return ItemOutcome(status, error, item);
}

void TestCache::Mark(const Seq& seq, uint64_t tokens) { EXPECT_THAT(TryMark(seq, tokens), IsOk()); }

void TestCache::Store(Seq* seq, const Tokens& tokens) {
  const uint64_t before = seq->tokens.size();
  Append(seq, tokens);
  if (seq->tokens.size() != before + tokens.size()) return;  // the failure is already reported
  Write(*seq, before, seq->tokens.size());
  Mark(*seq, seq->tokens.size());
}

Seq TestCache::Stored(const Tokens& tokens, const CreateOptions& options) {
  Seq seq = Create(options);
  Store(&seq, tokens);
  return seq;
}

void TestCache::Truncate(Seq* seq, uint64_t tokens) {
  fermata_error error = NewError();
  const fermata_status status = fermata_sequence_truncate(seq->id, tokens, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  seq->tokens.resize(std::min<size_t>(seq->tokens.size(), tokens));
}

std::vector<Seq> TestCache::Fork(const Seq& seq, size_t count) {
  std::vector<fermata_sequence> ids(count);
  fermata_error error = NewError();
  const fermata_status status = fermata_sequence_fork(seq.id, ids.data(), count, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  std::vector<Seq> children(count, seq);
  for (size_t i = 0; i < count; ++i) children[i].id = ids[i];
  return children;
}

void TestCache::Release(Seq* seq) {
  fermata_error error = NewError();
  const fermata_status status = fermata_release(cache_, &seq->id, 1, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  seq->id = {0};
  seq->tokens.clear();
}

fermata_sequence_info TestCache::Info(const Seq& seq) {
  fermata_sequence_info info = {};
  info.struct_size = sizeof(info);
  fermata_error error = NewError();
  const fermata_status status = fermata_sequence_get_info(seq.id, &info, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  return info;
}

std::vector<uint32_t> TestCache::Slots(const Seq& seq, uint32_t group) {
  std::vector<uint32_t> slots(seq.tokens.size() / setup_.groups[group].block_tokens + 2);
  size_t count = 0;
  fermata_error error = NewError();
  const fermata_status status =
      fermata_sequence_slots(seq.id, group, 0, slots.data(), slots.size(), &count, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  slots.resize(std::min(count, slots.size()));
  return slots;
}

// -------------------------------------------------------------------------------------- lookups

Hit TestCache::Lookup(const Tokens& tokens, const LookupOptions& options) {
  Hit hit;
  hit.asked = tokens;
  hit.extras = options.extras;
  hit.tiers.assign(tier_kinds_.size(), 0);
  const std::vector<fermata_extra> extras = ToAbi(options.extras);
  fermata_lookup_item item = {};
  item.struct_size = sizeof(item);
  item.flags = options.flags;
  item.session = options.session;
  item.tokens = tokens.data();
  item.token_count = tokens.size();
  item.extras = extras.data();
  item.extra_count = static_cast<uint32_t>(extras.size());
  item.leave_tokens = options.leave;
  item.lease_deadline_ns = options.deadline_ns;
  item.tier_tokens = hit.tiers.data();
  item.tier_capacity = static_cast<uint32_t>(hit.tiers.size());
  item.status = kUntouched;
  fermata_error error = NewError();
  const fermata_status status = fermata_lookup(spaces_[options.space].id, &item, 1, &error);
  hit.outcome = ItemOutcome(status, error, item);
  EXPECT_THAT(hit.outcome, IsOk());
  hit.tokens = item.hit_tokens;
  hit.pending = item.pending_tokens;
  hit.lease = item.lease;
  EXPECT_LE(hit.tokens + options.leave, std::max<uint64_t>(tokens.size(), options.leave));
  return hit;
}

uint64_t TestCache::HitTokens(const Tokens& tokens, const LookupOptions& options) {
  LookupOptions counting = options;
  counting.flags |= FERMATA_LOOKUP_NO_LEASE;
  const Hit hit = Lookup(tokens, counting);
  EXPECT_EQ(hit.lease.id, 0u);
  return hit.tokens;
}

Outcome TestCache::Take(const Hit& hit, Seq* seq) {
  fermata_error error = NewError();
  const fermata_status status = fermata_lease_take(hit.lease, seq->id, &error);
  if (status == FERMATA_OK) seq->tokens = Prefix(hit.asked, hit.tokens);
  return MakeOutcome(status, error);
}

Outcome TestCache::Drop(const Hit& hit) {
  fermata_error error = NewError();
  const fermata_status status = fermata_lease_drop(hit.lease, &error);
  return MakeOutcome(status, error);
}

Seq TestCache::Fetch(const Tokens& tokens, const LookupOptions& options) {
  CreateOptions create;
  create.extras = options.extras;
  create.space = options.space;
  create.session = options.session;
  Seq seq = Create(create);
  const Hit hit = Lookup(tokens, options);
  if (hit.tokens == 0) return seq;
  EXPECT_THAT(Take(hit, &seq), IsOk());
  const fermata_completion end = Load(&seq);
  EXPECT_EQ(end.status, FERMATA_OK) << fermata_status_name(end.status);
  EXPECT_EQ(end.valid_tokens, hit.tokens);
  CheckBytes(seq);
  return seq;
}

// ----------------------------------------------------------------------------------------- jobs

Job TestCache::StartLoad(const Seq& seq, const LoadOptions& options) {
  auto o = std::make_unique<fermata_load_options>();
  *o = {};
  o->struct_size = sizeof(*o);
  o->queue = queue_;
  o->user_data = next_user_data_.fetch_add(1);
  o->reserve_tokens = options.reserve_tokens;
  o->deadline_ns = options.deadline_ns;
  Job job;
  fermata_error error = NewError();
  const fermata_status status = fermata_sequence_load(seq.id, o.get(), &job.id, &error);
  std::memset(static_cast<void*>(o.get()), 0xff, sizeof(*o));
  job.outcome = MakeOutcome(status, error);
  return job;
}

Job TestCache::StartResume(const Seq& seq, const LoadOptions& options) {
  auto o = std::make_unique<fermata_load_options>();
  *o = {};
  o->struct_size = sizeof(*o);
  o->queue = queue_;
  o->user_data = next_user_data_.fetch_add(1);
  o->reserve_tokens = options.reserve_tokens;
  o->deadline_ns = options.deadline_ns;
  Job job;
  fermata_error error = NewError();
  const fermata_status status = fermata_sequence_resume(seq.id, o.get(), &job.id, &error);
  std::memset(static_cast<void*>(o.get()), 0xff, sizeof(*o));
  job.outcome = MakeOutcome(status, error);
  return job;
}

Job TestCache::StartPark(const Seq& seq, uint32_t mode) {
  auto o = std::make_unique<fermata_park_options>();
  *o = {};
  o->struct_size = sizeof(*o);
  o->mode = mode;
  if (mode != FERMATA_PARK_LAZY) {
    o->queue = queue_;
    o->user_data = next_user_data_.fetch_add(1);
  }
  Job job;
  fermata_error error = NewError();
  const fermata_status status = fermata_sequence_park(seq.id, o.get(), &job.id, &error);
  std::memset(static_cast<void*>(o.get()), 0xff, sizeof(*o));
  job.outcome = MakeOutcome(status, error);
  return job;
}

Outcome TestCache::Cancel(const Job& job) {
  fermata_error error = NewError();
  const fermata_status status = fermata_job_cancel(job.id, &error);
  return MakeOutcome(status, error);
}

void TestCache::DrainQueue() {
  fermata_completion batch[64] = {};
  size_t count = 0;
  do {
    for (fermata_completion& completion : batch) completion.struct_size = sizeof(completion);
    fermata_error error = NewError();
    const fermata_status status = fermata_queue_poll(queue_, batch, 64, 0, &count, &error);
    EXPECT_THAT(MakeOutcome(status, error), IsOk());
    if (status != FERMATA_OK) return;
    fermata::MutexLock lock(&mu_);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(completions_.emplace(batch[i].job.id, batch[i]).second)
          << "job " << batch[i].job.id << " completed twice";
    }
  } while (count == 64);
}

bool TestCache::TakeCompletion(const Job& job, fermata_completion* out) {
  DrainQueue();
  fermata::MutexLock lock(&mu_);
  const auto found = completions_.find(job.id.id);
  if (found == completions_.end()) return false;
  *out = found->second;
  completions_.erase(found);
  return true;
}

fermata_completion TestCache::Finish(const Job& job) {
  fermata_completion completion = {};
  EXPECT_THAT(job.outcome, IsOk());
  if (!job.outcome.ok()) return completion;
  EXPECT_NE(job.id.id, 0u);
  const Patience patience;
  while (!TakeCompletion(job, &completion)) {
    if (patience.over()) {
      ADD_FAILURE() << "job " << job.id.id << " never ended";
      completion.status = FERMATA_DEADLINE_EXCEEDED;
      return completion;
    }
    Pump();
  }
  EXPECT_LE(completion.items_ok, completion.items_total);
  return completion;
}

fermata_completion TestCache::Load(Seq* seq, const LoadOptions& options) {
  const Patience patience;
  Job job = StartLoad(*seq, options);
  while (job.outcome.status == FERMATA_UNAVAILABLE &&
         job.outcome.reason == FERMATA_REASON_WOULD_BLOCK && !patience.over()) {
    Pump();
    job = StartLoad(*seq, options);
  }
  const fermata_completion end = Finish(job);
  if (end.status == FERMATA_DATA_LOSS || end.status == FERMATA_UNAVAILABLE) {
    seq->tokens.resize(std::min<size_t>(seq->tokens.size(), end.valid_tokens));
  }
  return end;
}

fermata_completion TestCache::Resume(Seq* seq, const LoadOptions& options) {
  const Patience patience;
  Job job = StartResume(*seq, options);
  while (job.outcome.status == FERMATA_UNAVAILABLE &&
         job.outcome.reason == FERMATA_REASON_WOULD_BLOCK && !patience.over()) {
    Pump();
    job = StartResume(*seq, options);
  }
  const fermata_completion end = Finish(job);
  if (job.outcome.ok()) {
    seq->tokens.resize(std::min<size_t>(seq->tokens.size(), Info(*seq).tokens));
  }
  return end;
}

fermata_completion TestCache::Park(Seq* seq, uint32_t mode) {
  const fermata_completion end = Finish(StartPark(*seq, mode));
  seq->tokens.resize(std::min<size_t>(seq->tokens.size(), Info(*seq).tokens));
  return end;
}

void TestCache::ParkLazy(Seq* seq) {
  const Job job = StartPark(*seq, FERMATA_PARK_LAZY);
  EXPECT_THAT(job.outcome, IsOk());
  EXPECT_EQ(job.id.id, 0u);
  seq->tokens.resize(std::min<size_t>(seq->tokens.size(), Info(*seq).tokens));
}

uint64_t TestCache::Step(uint64_t max_steps) {
  uint64_t ran = 0;
  fermata_error error = NewError();
  const fermata_status status = fermata_x_step(cache_, max_steps, &ran, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  return ran;
}

void TestCache::Pump() {
  if (!setup_.real_time && Step(64) != 0) return;
  if (!setup_.real_time && setup_.sim_blocks != 0 && setup_.sim_faults.latency_max_ns != 0) {
    Advance(setup_.sim_faults.latency_max_ns);
    return;
  }
  fermata_completion unused = {};
  unused.struct_size = sizeof(unused);
  size_t count = 0;
  fermata_queue_poll(wait_queue_, &unused, 1, 200'000, &count, nullptr);
}

void TestCache::Settle() {
  const Patience patience;
  while (!patience.over()) {
    const uint64_t ran = setup_.real_time ? 0 : Step(256);
    const Stats stats = GetStats();
    uint64_t busy = stats.total.jobs;
    for (const fermata_tier_stats& tier : stats.tiers) busy += tier.in_flight_slots;
    if (ran == 0 && busy == 0) return;
    if (ran == 0) Pump();
  }
  ADD_FAILURE() << "the cache does not come to rest";
}

void TestCache::Advance(uint64_t ns) {
  fermata_error error = NewError();
  const fermata_status status = fermata_x_clock_advance(cache_, ns, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
}

uint64_t TestCache::Now() {
  uint64_t now = 0;
  fermata_error error = NewError();
  const fermata_status status = fermata_now(cache_, &now, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  return now;
}

// -------------------------------------------------------------------------------- looking inside

Stats TestCache::GetStats() {
  Stats stats;
  stats.tiers.resize(tier_kinds_.size());
  stats.total.struct_size = sizeof(stats.total);
  stats.total.tiers = stats.tiers.data();
  stats.total.tier_capacity = static_cast<uint32_t>(stats.tiers.size());
  fermata_error error = NewError();
  const fermata_status status = fermata_stats_get(cache_, &stats.total, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  return stats;
}

fermata_tier_stats TestCache::TierStats(uint32_t kind) {
  const int tier = TierOf(kind);
  if (tier < 0) {
    ADD_FAILURE() << "no tier of kind " << kind;
    return {};
  }
  return GetStats().tiers[static_cast<size_t>(tier)];
}

std::map<std::string, std::string> TestCache::VisitStats() {
  std::map<std::string, std::string> out;
  const auto visit = [](void* user, const char* name, uint64_t value, const char* text) {
    (*static_cast<std::map<std::string, std::string>*>(user))[name] =
        text != nullptr ? text : std::to_string(value);
  };
  fermata_error error = NewError();
  const fermata_status status = fermata_stats_visit(cache_, visit, &out, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  return out;
}

std::string TestCache::AuditError() {
  fermata_audit_report report = {};
  report.struct_size = sizeof(report);
  fermata_error error = NewError();
  const fermata_status status = fermata_audit(cache_, &report, &error);
  if (status != FERMATA_OK) return std::string("audit: ") + error.message;
  if (report.orphans != 0) return std::to_string(report.orphans) + " orphans";
  return "";
}

void TestCache::Audit() { EXPECT_EQ(AuditError(), ""); }

std::string TestCache::BytesError(const Seq& seq, uint64_t tokens) {
  if (setup_.metadata_only) return "";
  const ContentOracle oracle(spaces_[seq.space].fingerprint, seq.extras, seq.tokens);
  for (uint32_t g = 0; g < setup_.groups.size(); ++g) {
    const uint32_t block_tokens = setup_.groups[g].block_tokens;
    const std::vector<uint32_t> slots = Slots(seq, g);
    for (uint64_t block = 0; block * block_tokens < tokens; ++block) {
      if (block >= slots.size() || slots[block] == FERMATA_SLOT_NONE) {
        return "group " + std::to_string(g) + " block " + std::to_string(block) +
               " is not on the device";
      }
      const uint64_t end = std::min<uint64_t>(tokens, (block + 1) * block_tokens);
      for (uint32_t plane = 0; plane < setup_.groups[g].planes.size(); ++plane) {
        const std::string wrong =
            oracle.Check({g, plane, block_tokens, block, block * block_tokens, end,
                          SlotBytes(g, plane, slots[block]), setup_.groups[g].planes[plane]});
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

void TestCache::CheckBytes(const Seq& seq) { CheckBytes(seq, seq.tokens.size()); }

void TestCache::CheckBytes(const Seq& seq, uint64_t tokens) {
  EXPECT_EQ(BytesError(seq, tokens), "");
}

std::vector<fermata_event> TestCache::PollEvents() {
  std::vector<fermata_event> events(1024);
  for (fermata_event& event : events) event.struct_size = sizeof(event);
  size_t count = 0;
  uint64_t lost = 0;
  fermata_error error = NewError();
  const fermata_status status =
      fermata_events_poll(cache_, events.data(), events.size(), &count, &lost, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  EXPECT_EQ(lost, 0u);
  events.resize(count);
  return events;
}

uint64_t TestCache::Room(uint32_t group, uint64_t* evictable) {
  uint64_t free = 0;
  uint64_t unused = 0;
  fermata_error error = NewError();
  const fermata_status status =
      fermata_room(cache_, group, &free, evictable != nullptr ? evictable : &unused, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
  return free;
}

void TestCache::ScribbleFreeMemory() {
  for (ArenaState& arena : arenas_) {
    for (std::vector<std::byte>& plane : arena.planes) {
      std::fill(plane.begin(), plane.end(), std::byte{0xa5});
    }
  }
}

void TestCache::DeviceLost() {
  ScribbleFreeMemory();
  fermata_error error = NewError();
  const fermata_status status = fermata_device_lost(cache_, 0, &error);
  EXPECT_THAT(MakeOutcome(status, error), IsOk());
}

// ----------------------------------------------------------------------------------- held device

HeldDevice::HeldDevice() {
  ops_.struct_size = sizeof(ops_);
  ops_.user = this;
  ops_.copy_submit = &HeldDevice::Submit;
  ops_.copy_poll = &HeldDevice::Poll;
  ops_.event_query = &HeldDevice::Query;
}

fermata_status HeldDevice::Submit(void* user, const fermata_copy_run* runs, size_t count,
                                  uint32_t /*direction*/, uint64_t ticket) {
  auto* self = static_cast<HeldDevice*>(user);
  fermata::MutexLock lock(&self->mu_);
  Batch batch;
  batch.runs.assign(runs, runs + count);
  self->log_.insert(self->log_.end(), runs, runs + count);
  EXPECT_TRUE(self->batches_.emplace(ticket, std::move(batch)).second) << "ticket used twice";
  self->submitted_.fetch_add(1);
  return FERMATA_OK;
}

fermata_status HeldDevice::Poll(void* user, uint64_t ticket, uint32_t* out_done) {
  auto* self = static_cast<HeldDevice*>(user);
  *out_done = 0;
  if (self->held_.load()) return FERMATA_OK;
  fermata::MutexLock lock(&self->mu_);
  const auto found = self->batches_.find(ticket);
  if (found == self->batches_.end()) {
    ADD_FAILURE() << "polled for a ticket that is done or was never submitted: " << ticket;
    return FERMATA_INTERNAL;
  }
  // The bytes move as late as a device might move them: whoever reused a source or a target before
  // this has a wrong byte.
  for (const fermata_copy_run& run : found->second.runs) {
    std::memcpy(run.target, run.source, run.bytes);
  }
  self->batches_.erase(found);
  *out_done = 1;
  return FERMATA_OK;
}

fermata_status HeldDevice::Query(void* user, void* event, uint32_t* out_done) {
  if (static_cast<HeldDevice*>(user)->refuse_.load()) return FERMATA_UNAVAILABLE;
  *out_done = static_cast<std::atomic<bool>*>(event)->load() ? 1 : 0;
  return FERMATA_OK;
}

uint64_t HeldDevice::outstanding() {
  fermata::MutexLock lock(&mu_);
  return batches_.size();
}

std::vector<fermata_copy_run> HeldDevice::runs() {
  fermata::MutexLock lock(&mu_);
  return log_;
}

}  // namespace fermata_test
