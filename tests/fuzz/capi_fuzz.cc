// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: bytes are read as a sequence of C ABI calls on one small cache, with hostile
// arguments: handles that never were, were closed, or belong to something else; struct sizes of
// other versions; zero and huge counts. The cache is stepped, has no bytes and stands in its own
// time, so an input always does the same.
//
// What is held: nothing crashes or hangs; every answer is a known status whose error text ends;
// every accepted job completes exactly once; tables and counts stay in bounds; audit agrees; the
// cache closes. Memory arguments are honest (NULL with any count, or a buffer as long as it says):
// C cannot check more.
#define FERMATA_ALLOW_EXPERIMENTAL
#include <fermata/fermata_experimental.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define HOLDS(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

namespace {

constexpr uint32_t kDeviceSlots = 12;
constexpr size_t kTokens = 512;
constexpr size_t kHandles = 8;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool done() const { return at_ >= size_; }
  uint8_t Byte() { return done() ? uint8_t{0} : data_[at_++]; }
  bool Rarely() { return Byte() >= 232; }  // About one in ten.
  uint32_t Below(uint32_t bound) { return Byte() % bound; }
  uint64_t Huge() { return ~uint64_t{0} >> Below(64); }

 private:
  const uint8_t* const data_;
  const size_t size_;
  size_t at_ = 0;
};

// A struct as a caller of some version would pass it: with room behind it for a future version's
// fields.
template <typename T>
struct Versioned {
  alignas(T) std::array<unsigned char, sizeof(T) + 32> bytes{};
  T* get() { return reinterpret_cast<T*>(bytes.data()); }
  T* operator->() { return get(); }
  void SetSize(Input& in) {
    uint32_t struct_size = sizeof(T);
    if (in.Rarely()) {
      struct_size = in.Below(sizeof(T) + 33);
      if (struct_size > sizeof(T) && in.Rarely()) bytes[struct_size - 1] = in.Byte();
    }
    std::memcpy(bytes.data(), &struct_size, sizeof struct_size);
  }
};

class Caller {
 public:
  explicit Caller(Input& in) : in_(in) {
    for (size_t i = 0; i < kTokens; ++i) tokens_[i] = static_cast<uint32_t>(i);
  }

  void Run() {
    if (!Open()) return;
    for (int calls = 0; calls < 400 && !in_.done(); ++calls) {
      Call();
      if (calls % 16 == 0) Audit();
    }
    Close();
  }

 private:
  // Every answer passes through here.
  fermata_status Seen(fermata_status status) {
    HOLDS(status >= 0 && status <= 15);
    if (status != FERMATA_OK) {
      HOLDS(error_.status == status);
      HOLDS(std::memchr(error_.message, 0, sizeof error_.message) != nullptr);
      HOLDS(error_.message[0] != 0);
      HOLDS(fermata_reason_name(error_.reason) != nullptr);
    }
    return status;
  }
  fermata_error* error() {
    error_ = fermata_error{};
    error_.struct_size = sizeof error_;
    return &error_;
  }

  // A handle of a table, or one that was closed, is foreign, or never was.
  uint64_t Handle(const std::array<uint64_t, kHandles>& table) {
    const uint64_t id = table[in_.Below(kHandles)];
    if (!in_.Rarely()) return id;
    switch (in_.Below(5)) {
      case 0:
        return 0;
      case 1:
        return id + 1;
      case 2:
        return id ^ (uint64_t{1} << in_.Below(64));
      case 3:
        return sequences_[in_.Below(kHandles)];
      default:
        return leases_[in_.Below(kHandles)];
    }
  }
  uint64_t& Place(std::array<uint64_t, kHandles>& table) { return table[in_.Below(kHandles)]; }
  fermata_cache cache() { return {in_.Rarely() ? Handle(spaces_) : cache_}; }

  bool Open();
  void OpenQueue();
  void RegisterArena();
  void OpenSpace();
  void Call();
  void Lookup(bool erase);
  void Append();
  void Mark();
  void Load(bool resume);
  void Park();
  void Slots();
  void Session();
  void Look();
  void Poll(uint64_t queue);
  void Audit();
  void Close();
  void Accepted(fermata_status status, const fermata_job& job) {
    if (status != FERMATA_OK || job.id == 0) return;
    HOLDS(pending_.emplace(job.id, 0).second);  // Ids of jobs are not used twice.
  }

  Input& in_;
  fermata_error error_{};
  std::array<uint32_t, kTokens> tokens_{};
  uint64_t cache_ = 0;
  std::array<uint64_t, kHandles> spaces_{};
  std::array<uint64_t, kHandles> arenas_{};
  std::array<uint64_t, kHandles> sequences_{};
  std::array<uint64_t, kHandles> sessions_{};
  std::array<uint64_t, kHandles> leases_{};
  std::array<uint64_t, kHandles> jobs_{};
  std::array<uint64_t, kHandles> queues_{};
  std::map<uint64_t, int> pending_;  // Accepted jobs -> completions seen.
  std::vector<uint64_t> living_queues_;
};

bool Caller::Open() {
  std::array<fermata_group_config, 2> groups{};
  for (auto& group : groups) {
    group.struct_size = sizeof group;
    group.block_tokens = in_.Rarely() ? in_.Byte() : 16u << in_.Below(2);
    group.block_bytes = in_.Rarely() ? in_.Huge() : 4096;
  }
  std::array<fermata_tier_config, 3> tiers{};
  const uint32_t kinds[] = {FERMATA_TIER_DEVICE, FERMATA_TIER_HOST, FERMATA_TIER_SIM};
  for (size_t i = 0; i < tiers.size(); ++i) {
    tiers[i].struct_size = sizeof tiers[i];
    tiers[i].kind = in_.Rarely() ? in_.Below(8) : kinds[i];
    tiers[i].capacity_bytes = i == 0 ? 0 : 4096 * (1 + uint64_t{in_.Below(40)});
    tiers[i].flags = in_.Rarely() ? in_.Byte() : 0;
  }
  Versioned<fermata_config> config;
  fermata_config_init(config.get(), sizeof(fermata_config));
  config->group_count = in_.Rarely() ? in_.Byte() % 3 : 1 + in_.Below(2);
  config->groups = groups.data();
  config->tiers = tiers.data();
  config->tier_count = in_.Rarely() ? in_.Byte() % 4 : 1 + in_.Below(3);
  config->policy = in_.Below(2) == 0 ? "lru" : nullptr;
  config->event_capacity = in_.Below(16);
  config->max_sequences = in_.Below(16);
  config->max_jobs = in_.Below(8);
  config->free_watermark_ppm = in_.Rarely() ? 250'000 : 0;
  config->chain_tokens = in_.Rarely() ? in_.Byte() : 0;
  config.SetSize(in_);
  fermata_x_sim_faults faults{};
  faults.struct_size = sizeof faults;
  if (in_.Below(2) == 1)
    faults.read_error_ppm = faults.bit_flip_ppm = faults.lost_write_ppm = 100'000;
  Versioned<fermata_x_options> options;
  options->flags = FERMATA_X_MANUAL_CLOCK | FERMATA_X_STEP_DRIVEN | FERMATA_X_METADATA_ONLY;
  options->seed = in_.Byte();
  options->sim_faults = &faults;
  options.SetSize(in_);
  // Without the step flag a thread would be started: only the full struct is passed.
  const uint32_t full = sizeof(fermata_x_options);
  std::memcpy(options.bytes.data(), &full, sizeof full);
  fermata_cache opened{77};
  const fermata_status status =
      Seen(fermata_x_cache_open(config.get(), options.get(), &opened, error()));
  HOLDS((status == FERMATA_OK) == (opened.id != 0));
  cache_ = opened.id;
  if (status != FERMATA_OK) return false;
  for (int i = 0; i < 2; ++i) OpenQueue();
  RegisterArena();
  RegisterArena();
  OpenSpace();
  return true;
}

void Caller::OpenQueue() {
  fermata_queue queue{77};
  const uint32_t depth = in_.Rarely() ? in_.Byte() * 1000u : 1 + in_.Below(8);
  if (Seen(fermata_queue_create(depth, &queue, error())) != FERMATA_OK) {
    HOLDS(queue.id == 0);
    return;
  }
  living_queues_.push_back(queue.id);
  Place(queues_) = queue.id;
}

void Caller::RegisterArena() {
  fermata_region region{};
  region.slot_bytes = in_.Rarely() ? in_.Huge() : 4096;
  region.slot_stride = in_.Rarely() ? in_.Huge() : 0;
  Versioned<fermata_arena_config> config;
  config->group = in_.Below(2);
  config->slots = in_.Rarely() ? in_.Below(8) << in_.Below(29) : kDeviceSlots;
  if (config->slots > 4096)
    config->slots = 0x80000000u;  // Refused; what lies between would only cost memory.
  config->regions = in_.Rarely() ? nullptr : &region;
  config->region_count = config->regions == nullptr ? static_cast<uint32_t>(in_.Huge()) : 1;
  config.SetSize(in_);
  fermata_arena arena{77};
  const fermata_status status =
      Seen(fermata_arena_register(cache(), config.get(), &arena, error()));
  HOLDS((status == FERMATA_OK) == (arena.id != 0));
  if (status == FERMATA_OK) Place(arenas_) = arena.id;
}

void Caller::OpenSpace() {
  Versioned<fermata_space_config> config;
  const char weights[] = "abc";
  config->weights = {weights, in_.Rarely() ? in_.Byte() % 4u : 1u};
  config->key_mode = in_.Rarely() ? in_.Byte() : FERMATA_KEYS_TOKENS;
  config->tenant_salt = {weights, in_.Below(4)};
  config->rank = in_.Rarely() ? in_.Byte() : 0;
  config.SetSize(in_);
  fermata_space space{77};
  const fermata_status status = Seen(fermata_space_open(cache(), config.get(), &space, error()));
  HOLDS((status == FERMATA_OK) == (space.id != 0));
  if (status == FERMATA_OK) Place(spaces_) = space.id;
}

void Caller::Lookup(bool erase) {
  std::array<uint64_t, 4> tier_tokens{};
  fermata_extra extra{};
  extra.struct_size = sizeof extra;
  extra.type = in_.Rarely() ? in_.Byte() : FERMATA_EXTRA_SALT;
  extra.data = {"salt", in_.Below(5)};
  extra.token_end = in_.Rarely() ? in_.Huge() : 0;
  Versioned<fermata_lookup_item> item;
  item->flags = in_.Rarely() ? in_.Byte() : in_.Below(2);
  item->session = {in_.Rarely() ? Handle(sessions_) : 0};
  item->token_count = in_.Byte();
  item->tokens = tokens_.data() + (in_.Rarely() ? in_.Byte() : 0);
  if (in_.Rarely()) {
    item->tokens = nullptr;
    item->token_count = in_.Huge();
  }
  if (in_.Rarely()) {
    item->keys = "keyskeyskeyskeys";
    item->key_bytes = 1 + in_.Below(4);
    item->key_count = in_.Below(5);
  }
  if (in_.Rarely()) {
    item->extras = &extra;
    item->extra_count = 1;
  }
  item->leave_tokens = in_.Rarely() ? in_.Huge() : in_.Below(2);
  item->lease_deadline_ns = in_.Rarely() ? in_.Huge() : 0;
  item->tier_tokens = tier_tokens.data();
  item->tier_capacity = in_.Below(5);
  item.SetSize(in_);
  const fermata_space space{Handle(spaces_)};
  if (erase) {
    uint64_t blocks = 0;
    Seen(
        fermata_erase(space, item.get(), in_.Rarely() ? in_.Huge() : in_.Byte(), &blocks, error()));
    return;
  }
  if (Seen(fermata_lookup(space, item.get(), 1, error())) != FERMATA_OK ||
      item->status != FERMATA_OK)
    return;
  if (item->struct_size < sizeof(fermata_lookup_item)) return;  // The answer is not all there.
  HOLDS(item->tokens == nullptr || item->hit_tokens <= item->token_count);
  HOLDS(item->pending_tokens <= item->hit_tokens);
  if (item->lease.id != 0) Place(leases_) = item->lease.id;
}

void Caller::Append() {
  std::array<fermata_block_copy, 4> copies{};
  Versioned<fermata_append_item> item;
  item->sequence = {Handle(sequences_)};
  item->tokens = tokens_.data() + (in_.Rarely() ? in_.Byte() : 0);
  item->token_count = in_.Below(80);
  if (in_.Rarely()) {
    item->tokens = nullptr;
    item->token_count = in_.Huge();
  }
  item->copies = copies.data();
  item->copy_capacity = in_.Rarely() ? in_.Below(2) : 4;
  item->flags = in_.Rarely() ? in_.Byte() : 0;
  item.SetSize(in_);
  if (Seen(fermata_append(cache(), item.get(), 1, error())) != FERMATA_OK) return;
  HOLDS(item->copy_count <= item->copy_capacity);
  for (uint32_t i = 0; i < item->copy_count; ++i)
    HOLDS(copies[i].source_slot != copies[i].target_slot);
}

void Caller::Mark() {
  Versioned<fermata_mark_item> item;
  item->sequence = {Handle(sequences_)};
  item->tokens = in_.Rarely() ? in_.Huge() : in_.Byte();
  item.SetSize(in_);
  Seen(fermata_mark(cache(), item.get(), 1, error()));
}

void Caller::Load(bool resume) {
  Versioned<fermata_load_options> options;
  options->queue = {Handle(queues_)};
  options->user_data = in_.Byte();
  options->reserve_tokens = in_.Rarely() ? in_.Huge() : in_.Byte();
  options->deadline_ns = in_.Rarely() ? in_.Huge() : 0;
  options->flags = in_.Rarely() ? in_.Byte() : 0;
  options.SetSize(in_);
  fermata_job job{77};
  const fermata_sequence sequence{Handle(sequences_)};
  const fermata_status status =
      Seen(resume ? fermata_sequence_resume(sequence, options.get(), &job, error())
                  : fermata_sequence_load(sequence, options.get(), &job, error()));
  HOLDS((status == FERMATA_OK) == (job.id != 0));
  Accepted(status, job);
  Place(jobs_) = job.id;
}

void Caller::Park() {
  Versioned<fermata_park_options> options;
  options->mode = in_.Rarely() ? in_.Byte() : in_.Below(3);
  options->queue = {Handle(queues_)};
  options.SetSize(in_);
  fermata_job job{77};
  const fermata_status status =
      Seen(fermata_sequence_park({Handle(sequences_)}, options.get(), &job, error()));
  if (status != FERMATA_OK) HOLDS(job.id == 0);
  Accepted(status, job);
  Place(jobs_) = job.id;
}

void Caller::Slots() {
  std::array<uint32_t, 16> slots{};
  size_t count = 0;
  const size_t capacity = in_.Below(17);
  const fermata_sequence sequence{Handle(sequences_)};
  const uint64_t first = in_.Rarely() ? in_.Huge() : in_.Below(4);
  if (Seen(fermata_sequence_slots(sequence, in_.Below(3), first, slots.data(), capacity, &count,
                                  error())) != FERMATA_OK) {
    return;
  }
  for (size_t i = 0; i < std::min(count, capacity); ++i) {
    HOLDS(slots[i] == FERMATA_SLOT_NONE || slots[i] < 2 * kDeviceSlots + 4096);
  }
}

void Caller::Session() {
  uint32_t verdict = 0;
  switch (in_.Below(4)) {
    case 0: {
      Versioned<fermata_session_options> options;
      options->parent = {in_.Rarely() ? Handle(sessions_) : 0};
      options.SetSize(in_);
      fermata_session session{77};
      const fermata_status status =
          Seen(fermata_session_open(cache(), options.get(), &session, error()));
      HOLDS((status == FERMATA_OK) == (session.id != 0));
      Place(sessions_) = session.id;
      break;
    }
    case 1:
      Seen(fermata_session_begin_turn({Handle(sessions_)}, error()));
      break;
    case 2: {
      Versioned<fermata_turn_end> turn;
      turn->kind = in_.Below(5);
      turn->tool = {"tool", in_.Below(5)};
      turn->expected_ns = in_.Huge();
      turn->due_ns = in_.Huge();
      turn.SetSize(in_);
      Seen(fermata_session_end_turn({Handle(sessions_)}, turn.get(), &verdict, error()));
      break;
    }
    default:
      Seen(fermata_session_end({Handle(sessions_)}, &verdict, error()));
      break;
  }
}

void Caller::Look() {
  std::array<fermata_tier_stats, 3> tiers{};
  Versioned<fermata_stats> stats;
  stats->tiers = tiers.data();
  stats->tier_capacity = in_.Below(4);
  stats.SetSize(in_);
  Seen(fermata_stats_get(cache(), stats.get(), error()));
  std::vector<char> text(in_.Byte());
  size_t needed = 0;
  Seen(fermata_state_dump(cache(), text.empty() ? nullptr : text.data(), text.size(), &needed,
                          error()));
  uint64_t free_slots = 0;
  uint64_t evictable = 0;
  if (Seen(fermata_room(cache(), in_.Below(3), &free_slots, &evictable, error())) == FERMATA_OK) {
    HOLDS(free_slots + evictable <= (uint64_t{1} << 31));
  }
  std::array<fermata_event, 4> events{};
  for (auto& event : events) event.struct_size = sizeof event;
  size_t count = 0;
  uint64_t lost = 0;
  if (Seen(fermata_events_poll(cache(), events.data(), in_.Below(5), &count, &lost, error())) ==
      FERMATA_OK) {
    HOLDS(count <= events.size());
  }
}

void Caller::Poll(uint64_t queue) {
  std::array<fermata_completion, 4> done{};
  for (auto& completion : done) completion.struct_size = sizeof completion;
  size_t count = 0;
  const size_t capacity = 1 + in_.Below(4);
  if (Seen(fermata_queue_poll({queue}, done.data(), capacity, 0, &count, error())) != FERMATA_OK)
    return;
  HOLDS(count <= capacity);
  for (size_t i = 0; i < count; ++i) {
    const auto it = pending_.find(done[i].job.id);
    HOLDS(it != pending_.end());
    HOLDS(++it->second == 1);
    HOLDS(done[i].items_ok <= done[i].items_total);
  }
}

void Caller::Audit() {
  fermata_audit_report report{};
  report.struct_size = sizeof report;
  HOLDS(Seen(fermata_audit({cache_}, &report, error())) == FERMATA_OK);
  HOLDS(report.orphans == 0);
}

void Caller::Call() {
  switch (in_.Below(26)) {
    case 0:
      OpenSpace();
      break;
    case 1:
      RegisterArena();
      break;
    case 2:
      OpenQueue();
      break;
    case 3:
    case 4: {
      fermata_sequence sequence{77};
      Versioned<fermata_sequence_options> options;
      options->flags = in_.Rarely() ? in_.Byte() : 0;
      options->session = {in_.Rarely() ? Handle(sessions_) : 0};
      options.SetSize(in_);
      const fermata_status status = Seen(fermata_sequence_create(
          {Handle(spaces_)}, in_.Below(2) == 0 ? nullptr : options.get(), &sequence, error()));
      HOLDS((status == FERMATA_OK) == (sequence.id != 0));
      if (status == FERMATA_OK) Place(sequences_) = sequence.id;
      break;
    }
    case 5:
    case 6:
    case 7:
      Append();
      break;
    case 8:
    case 9:
      Mark();
      break;
    case 10:
    case 11:
      Lookup(false);
      break;
    case 12:
      Lookup(true);
      break;
    case 13:
      Seen(fermata_lease_take({Handle(leases_)}, {Handle(sequences_)}, error()));
      break;
    case 14: {
      uint64_t kept = 0;
      const uint64_t asked = in_.Rarely() ? in_.Huge() : in_.Byte();
      if (in_.Below(2) == 0) {
        Seen(fermata_lease_drop({Handle(leases_)}, error()));
      } else if (Seen(fermata_lease_trim({Handle(leases_)}, asked, &kept, error())) == FERMATA_OK) {
        HOLDS(kept <= asked);
      }
      break;
    }
    case 15: {
      std::array<fermata_sequence, 2> children{};
      const size_t count = in_.Below(3);
      if (Seen(fermata_sequence_fork({Handle(sequences_)}, children.data(), count, error())) ==
          FERMATA_OK) {
        for (size_t i = 0; i < count; ++i) Place(sequences_) = children[i].id;
      }
      break;
    }
    case 16:
      Seen(fermata_sequence_truncate({Handle(sequences_)}, in_.Rarely() ? in_.Huge() : in_.Byte(),
                                     error()));
      break;
    case 17:
      Load(false);
      break;
    case 18:
      Load(true);
      break;
    case 19:
      Park();
      break;
    case 20: {
      const fermata_sequence batch[2] = {{Handle(sequences_)}, {Handle(sequences_)}};
      Seen(fermata_release(cache(), batch, in_.Below(3), error()));
      break;
    }
    case 21:
      Slots();
      break;
    case 22:
      Session();
      break;
    case 23:
      Look();
      break;
    case 24: {
      uint64_t ran = 0;
      if (in_.Below(2) == 0)
        Seen(fermata_x_clock_advance({cache_}, in_.Rarely() ? in_.Huge() / 1024 : 1'000'000'000,
                                     error()));
      HOLDS(Seen(fermata_x_step({cache_}, in_.Byte(), &ran, error())) == FERMATA_OK);
      Poll(Handle(queues_));
      break;
    }
    default: {
      uint64_t blocks[3] = {};
      switch (in_.Below(6)) {
        case 0:
          Seen(fermata_job_cancel({Handle(jobs_)}, error()));
          break;
        case 1:
          Seen(fermata_arena_unregister({Handle(arenas_)}, in_.Byte(), error()));
          break;
        case 2:
          Seen(fermata_device_lost(cache(), in_.Below(2), error()));
          break;
        case 3:
          Seen(fermata_space_close({Handle(spaces_)}, error()));
          break;
        case 4:
          Seen(
              fermata_reset(cache(), in_.Below(5), Handle(spaces_), blocks, in_.Below(4), error()));
          break;
        default:
          Seen(fermata_sequence_load({Handle(sequences_)}, nullptr, nullptr, error()));
          break;
      }
    }
  }
}

void Caller::Close() {
  Audit();
  fermata_status status = FERMATA_DEADLINE_EXCEEDED;
  for (int tries = 0; tries < 100 && status == FERMATA_DEADLINE_EXCEEDED; ++tries) {
    status = Seen(fermata_cache_close({cache_}, 0, error()));
    uint64_t ran = 0;
    if (status != FERMATA_OK) (void)fermata_x_step({cache_}, 1000, &ran, nullptr);
  }
  HOLDS(status == FERMATA_OK);
  for (const uint64_t queue : living_queues_) {
    for (size_t i = 0; i <= pending_.size(); ++i) Poll(queue);
    HOLDS(Seen(fermata_queue_destroy({queue}, error())) == FERMATA_OK);
  }
  for (const auto& [job, completions] : pending_) HOLDS(completions == 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Caller(in).Run();
  return 0;
}
