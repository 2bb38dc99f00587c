// SPDX-License-Identifier: Apache-2.0
#include "bench/cache_client.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fermata::bench {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are passed as little-endian keys");

constexpr uint64_t kStallNs =
    uint64_t{60} * 1'000'000'000;  // real clock: no answer for so long is an error
constexpr uint64_t kPollNs = uint64_t{200} * 1000;
constexpr uint64_t kWaitNs = uint64_t{100} * 1'000'000;
constexpr uint64_t kLeaseNs = uint64_t{3600} * 1'000'000'000;  // longer than any request is handled
constexpr uint32_t kIdleStepsMax =
    64;  // virtual clock: a library that so often has nothing to do is stuck
constexpr uint64_t kStepBatch = uint64_t{1} << 20;
constexpr uint32_t kQueueDepth = 64;
constexpr uint32_t kTokensPerChainUnit = 16;

Status CallError(const char* call, fermata_status status, uint32_t reason, const char* message) {
  std::string text = call;
  text.append(": ").append(fermata_status_name(status));
  if (reason != FERMATA_REASON_NONE) text.append("/").append(fermata_reason_name(reason));
  if (message != nullptr && message[0] != '\0') text.append(": ").append(message);
  return Status(static_cast<StatusCode>(status), static_cast<Reason>(reason), std::move(text));
}

Status Check(const char* call, fermata_status status, const fermata_error& error) {
  if (status == FERMATA_OK) return Status();
  return CallError(call, status, error.reason, error.message);
}

// A batch call of one item: its own refusal, or the item's.
Status CheckItem(const char* call, fermata_status status, const fermata_error& error,
                 fermata_status item_status, uint32_t item_reason) {
  if (item_status != FERMATA_OK) {
    return CallError(call, item_status, item_reason,
                     status == item_status ? error.message : nullptr);
  }
  return Check(call, status, error);
}

bool Is(const Status& status, StatusCode code, Reason reason) {
  return status.code() == code && status.reason() == reason;
}

fermata_bytes Bytes(const std::string& text) { return {text.data(), text.size()}; }

}  // namespace

Result<std::unique_ptr<CacheClient>> CacheClient::Open(const ReplayOptions& options,
                                                       uint64_t handles, const DeviceArena* arena) {
  std::unique_ptr<CacheClient> client(new CacheClient(options));
  FERMATA_RETURN_IF_ERROR(client->OpenCache(handles));
  FERMATA_RETURN_IF_ERROR(client->RegisterArena(arena));
  FERMATA_RETURN_IF_ERROR(client->OpenSpace());
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(Check("fermata_queue_create",
                                fermata_queue_create(kQueueDepth, &client->queue_, &error), error));
  return client;
}

CacheClient::~CacheClient() {
  if (cache_.id != 0) (void)Close();
}

Status CacheClient::OpenCache(uint64_t handles) {
  fermata_group_config group{};
  group.struct_size = sizeof(group);
  group.rule = FERMATA_RULE_FULL;
  group.block_tokens = options_.block_tokens();
  group.block_bytes = options_.payload_bytes();

  fermata_tier_config tiers[kTierSlots] = {};
  const auto add_tier = [&](TierSlot slot, uint32_t kind, uint64_t blocks) {
    fermata_tier_config& tier = tiers[tier_count_];
    tier.struct_size = sizeof(tier);
    tier.kind = kind;
    tier.capacity_bytes = kind == FERMATA_TIER_DEVICE ? 0 : blocks * options_.slot_bytes();
    if (kind == FERMATA_TIER_SSD) tier.directory = options_.real_clock ? options_.dir.c_str() : "-";
    slot_of_tier_[tier_count_++] = slot;
  };
  add_tier(kDevice, FERMATA_TIER_DEVICE, options_.device_blocks);
  if (options_.host_blocks > 0) add_tier(kHost, FERMATA_TIER_HOST, options_.host_blocks);
  if (options_.ssd_blocks > 0) add_tier(kSsd, FERMATA_TIER_SSD, options_.ssd_blocks);

  fermata_config config;
  fermata_config_init(&config, sizeof(config));
  config.chain_tokens = options_.token_keys ? std::min(kTokensPerChainUnit, options_.block_tokens())
                                            : options_.block_tokens();
  config.groups = &group;
  config.group_count = 1;
  config.tiers = tiers;
  config.tier_count = tier_count_;
  config.policy = options_.policy.c_str();
  config.lease_ns = kLeaseNs;
  config.max_sequences = static_cast<uint32_t>(
      std::min<uint64_t>(std::max<uint64_t>(handles, 65536), uint64_t{1} << 20));

  fermata_error error = FERMATA_ERROR_INIT;
  if (options_.real_clock) {
    return Check("fermata_cache_open", fermata_cache_open(&config, &cache_, &error), error);
  }
  fermata_x_options experimental{};
  experimental.struct_size = sizeof(experimental);
  experimental.flags = FERMATA_X_MANUAL_CLOCK | FERMATA_X_STEP_DRIVEN | FERMATA_X_METADATA_ONLY;
  experimental.seed = options_.seed;
  return Check("fermata_x_cache_open",
               fermata_x_cache_open(&config, &experimental, &cache_, &error), error);
}

Status CacheClient::RegisterArena(const DeviceArena* arena) {
  fermata_region regions[2] = {};
  fermata_arena_config config{};
  config.struct_size = sizeof(config);
  config.slots = static_cast<uint32_t>(options_.device_blocks);
  config.regions = regions;
  if (arena == nullptr) {
    regions[0].slot_bytes = options_.payload_bytes();
    config.region_count = 1;
  } else {
    config.region_count = arena->planes();
    for (uint32_t i = 0; i < arena->planes(); ++i) {
      regions[i].base = arena->plane(i);
      regions[i].slot_bytes = arena->plane_bytes();
    }
  }
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_arena_register", fermata_arena_register(cache_, &config, &arena_, &error),
               error);
}

Status CacheClient::OpenSpace() {
  // The oracle's bytes depend on the ids alone, and ids mean something only together with the
  // split.
  const std::string weights =
      "fermata-bench replay/1 split=" + std::to_string(options_.block_split);
  const std::string dtype = "u8";
  fermata_space_config config{};
  config.struct_size = sizeof(config);
  config.key_mode = options_.token_keys ? FERMATA_KEYS_TOKENS : FERMATA_KEYS_BLOCKS;
  config.weights = Bytes(weights);
  config.kv_dtype = Bytes(dtype);
  config.layout_version = 1;
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_space_open", fermata_space_open(cache_, &config, &space_, &error), error);
}

Status CacheClient::Close() {
  fermata_error error = FERMATA_ERROR_INIT;
  uint64_t now = 0;
  FERMATA_RETURN_IF_ERROR(Check("fermata_now", fermata_now(cache_, &now, &error), error));
  const fermata_status closed = fermata_cache_close(cache_, now + kStallNs, &error);
  cache_ = fermata_cache{0};
  FERMATA_RETURN_IF_ERROR(Check("fermata_cache_close", closed, error));
  const fermata_queue queue = std::exchange(queue_, fermata_queue{0});
  return Check("fermata_queue_destroy", fermata_queue_destroy(queue, &error), error);
}

Status CacheClient::AdvanceTo(uint64_t ms) {
  if (options_.real_clock || ms <= trace_ms_) return Status();
  fermata_error error = FERMATA_ERROR_INIT;
  const uint64_t ns = (ms - std::exchange(trace_ms_, ms)) * 1'000'000;
  FERMATA_RETURN_IF_ERROR(
      Check("fermata_x_clock_advance", fermata_x_clock_advance(cache_, ns, &error), error));
  bool moved = false;
  return Pump(&moved);
}

Status CacheClient::Pump(bool* moved) {
  fermata_error error = FERMATA_ERROR_INIT;
  *moved = false;
  if (options_.real_clock) {
    fermata_completion none{};
    none.struct_size = sizeof(none);
    size_t count = 0;
    *moved = true;
    // No job is out, so nothing is lost by looking; this is the shortest wait that costs no
    // spinning.
    return Check("fermata_queue_poll",
                 fermata_queue_poll(queue_, &none, 1, kPollNs, &count, &error), error);
  }
  for (;;) {
    uint64_t ran = 0;
    FERMATA_RETURN_IF_ERROR(
        Check("fermata_x_step", fermata_x_step(cache_, kStepBatch, &ran, &error), error));
    if (ran > 0) *moved = true;
    if (ran < kStepBatch) return Status();
  }
}

Status CacheClient::OpenSession(fermata_session parent, fermata_session* out) {
  fermata_session_options options{};
  options.struct_size = sizeof(options);
  options.parent = parent;
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_session_open", fermata_session_open(cache_, &options, out, &error), error);
}

Status CacheClient::BeginTurn(fermata_session session) {
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_session_begin_turn", fermata_session_begin_turn(session, &error), error);
}

Status CacheClient::EndTurn(fermata_session session, uint32_t kind, const std::string& tool) {
  fermata_turn_end turn{};
  turn.struct_size = sizeof(turn);
  turn.kind = kind;
  if (kind == FERMATA_TURN_TOOL) turn.tool = Bytes(tool);
  uint32_t verdict = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_session_end_turn",
               fermata_session_end_turn(session, &turn, &verdict, &error), error);
}

Status CacheClient::Lookup(fermata_session session, const PromptKeys& prompt, LookupResult* out) {
  uint64_t found[kTierSlots] = {0, 0, 0};
  fermata_lookup_item item{};
  item.struct_size = sizeof(item);
  item.session = session;
  if (options_.token_keys) {
    item.tokens = prompt.tokens.data();
    item.token_count = prompt.tokens.size();
  } else {
    item.keys = prompt.ids.data();
    item.key_count = prompt.ids.size();
    item.key_bytes = sizeof(uint64_t);
  }
  item.tier_tokens = found;
  item.tier_capacity = tier_count_;
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_lookup(space_, &item, 1, &error);
  FERMATA_RETURN_IF_ERROR(CheckItem("fermata_lookup", status, error, item.status, item.reason));
  *out = LookupResult();
  out->lease = item.lease;
  out->hit_tokens = item.hit_tokens;
  for (uint32_t i = 0; i < tier_count_; ++i) out->tier_tokens[slot_of_tier_[i]] += found[i];
  return Status();
}

Status CacheClient::TrimLease(fermata_lease lease, uint64_t tokens) {
  uint64_t trimmed = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(
      Check("fermata_lease_trim", fermata_lease_trim(lease, tokens, &trimmed, &error), error));
  if (trimmed == tokens) return Status();
  return ErrorF(StatusCode::kInternal, "fermata_lease_trim: asked for %llu tokens, left %llu",
                static_cast<unsigned long long>(tokens), static_cast<unsigned long long>(trimmed));
}

Status CacheClient::DropLease(fermata_lease lease) {
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_lease_drop", fermata_lease_drop(lease, &error), error);
}

Status CacheClient::CreateSequence(fermata_session session, fermata_lease lease,
                                   fermata_sequence* out) {
  fermata_sequence_options options{};
  options.struct_size = sizeof(options);
  options.session = session;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(Check("fermata_sequence_create",
                                fermata_sequence_create(space_, &options, out, &error), error));
  if (lease.id == 0) return Status();
  return Check("fermata_lease_take", fermata_lease_take(lease, *out, &error), error);
}

Status CacheClient::Room(uint64_t* free, uint64_t* evictable) {
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_room", fermata_room(cache_, 0, free, evictable, &error), error);
}

Status CacheClient::Load(fermata_sequence sequence, uint64_t reserve_tokens, LoadResult* out) {
  return LoadBy(fermata_sequence_load, "fermata_sequence_load", sequence, reserve_tokens, out);
}

Status CacheClient::Resume(fermata_sequence sequence, LoadResult* out) {
  return LoadBy(fermata_sequence_resume, "fermata_sequence_resume", sequence, 0, out);
}

Status CacheClient::Park(fermata_sequence sequence) {
  fermata_park_options options{};
  options.struct_size = sizeof(options);
  options.mode = FERMATA_PARK_LAZY;
  fermata_job job{0};
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_sequence_park", fermata_sequence_park(sequence, &options, &job, &error),
               error);
}

Status CacheClient::LoadBy(LoadCall call, const char* name, fermata_sequence sequence,
                           uint64_t reserve_tokens, LoadResult* out) {
  fermata_load_options options{};
  options.struct_size = sizeof(options);
  options.queue = queue_;
  options.user_data = sequence.id;
  options.reserve_tokens = reserve_tokens;
  const uint64_t started_ns = clock_.NowNs();
  for (uint32_t idle = 0;;) {
    fermata_job job{0};
    fermata_error error = FERMATA_ERROR_INIT;
    const Status status = Check(name, call(sequence, &options, &job, &error), error);
    bool again = Is(status, StatusCode::kUnavailable, Reason::kWouldBlock);
    *out = LoadResult();
    if (Is(status, StatusCode::kResourceExhausted, Reason::kNoSpace)) {
      out->no_space = true;
      return Status();
    }
    if (status.ok()) FERMATA_RETURN_IF_ERROR(WaitForJob(out, &again));
    if (!again) return status;
    ++would_block_;
    bool moved = false;
    FERMATA_RETURN_IF_ERROR(Pump(&moved));
    idle = moved ? 0 : idle + 1;
    if (idle > kIdleStepsMax || clock_.NowNs() - started_ns > kStallNs) {
      return ErrorF(StatusCode::kInternal, "%s: answers WOULD_BLOCK though nothing moves any more",
                    name);
    }
  }
}

Status CacheClient::WaitForJob(LoadResult* out, bool* again) {
  const uint64_t started_ns = clock_.NowNs();
  fermata_completion completion{};
  for (uint32_t idle = 0;;) {
    completion = fermata_completion{};
    completion.struct_size = sizeof(completion);
    fermata_error error = FERMATA_ERROR_INIT;
    size_t count = 0;
    FERMATA_RETURN_IF_ERROR(
        Check("fermata_queue_poll",
              fermata_queue_poll(queue_, &completion, 1, options_.real_clock ? kWaitNs : 0, &count,
                                 &error),
              error));
    if (count > 0) break;
    if (!options_.real_clock) {
      bool moved = false;
      FERMATA_RETURN_IF_ERROR(Pump(&moved));
      idle = moved ? 0 : idle + 1;
    }
    if (idle > kIdleStepsMax || clock_.NowNs() - started_ns > kStallNs) {
      return ErrorF(StatusCode::kInternal, "fermata_queue_poll: a load job does not end");
    }
  }
  out->valid_tokens = completion.valid_tokens;
  switch (completion.status) {
    case FERMATA_OK:
      return Status();
    case FERMATA_DATA_LOSS:
      out->lost = true;
      return Status();
    case FERMATA_UNAVAILABLE:
      *again = completion.reason == FERMATA_REASON_WOULD_BLOCK;
      out->lost = !*again;
      return Status();
    case FERMATA_RESOURCE_EXHAUSTED:
      out->no_space = true;
      return Status();
    default:
      return CallError("load job", completion.status, completion.reason, nullptr);
  }
}

Status CacheClient::Truncate(fermata_sequence sequence, uint64_t tokens) {
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_sequence_truncate", fermata_sequence_truncate(sequence, tokens, &error),
               error);
}

Status CacheClient::Info(fermata_sequence sequence, fermata_sequence_info* out) {
  *out = fermata_sequence_info{};
  out->struct_size = sizeof(*out);
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_sequence_get_info", fermata_sequence_get_info(sequence, out, &error),
               error);
}

Status CacheClient::Append(fermata_sequence sequence, const PromptKeys& prompt, uint64_t first,
                           uint64_t end, bool* retry) {
  const uint64_t block_tokens = options_.block_tokens();
  fermata_block_copy copy{};
  fermata_append_item item{};
  item.struct_size = sizeof(item);
  item.sequence = sequence;
  item.token_count = (end - first) * block_tokens;
  if (options_.token_keys) {
    item.tokens = prompt.tokens.data() + first * block_tokens;
  } else {
    item.keys = prompt.ids.data() + first;
    item.key_count = end - first;
    item.key_bytes = sizeof(uint64_t);
  }
  item.copies = &copy;
  item.copy_capacity = 1;
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_append(cache_, &item, 1, &error);
  const Status result = CheckItem("fermata_append", status, error, item.status, item.reason);
  *retry = Is(result, StatusCode::kUnavailable, Reason::kWouldBlock) ||
           Is(result, StatusCode::kResourceExhausted, Reason::kNoSpace);
  if (*retry) return Status();
  FERMATA_RETURN_IF_ERROR(result);
  if (item.copy_count != 0) {
    return ErrorF(StatusCode::kInternal,
                  "fermata_append: wants %u copies though only whole blocks were ever appended",
                  item.copy_count);
  }
  return Status();
}

Status CacheClient::Slots(fermata_sequence sequence, uint64_t count, std::vector<uint32_t>* out) {
  out->assign(count, FERMATA_SLOT_NONE);
  size_t have = 0;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(
      Check("fermata_sequence_slots",
            fermata_sequence_slots(sequence, 0, 0, out->data(), count, &have, &error), error));
  if (have < count) {
    return ErrorF(StatusCode::kInternal, "fermata_sequence_slots: %zu blocks where %llu should be",
                  have, static_cast<unsigned long long>(count));
  }
  for (uint64_t i = 0; i < count; ++i) {
    if ((*out)[i] >= options_.device_blocks) {
      return ErrorF(StatusCode::kInternal, "fermata_sequence_slots: block %llu is in slot %u",
                    static_cast<unsigned long long>(i), (*out)[i]);
    }
  }
  return Status();
}

Status CacheClient::Mark(fermata_sequence sequence, uint64_t tokens) {
  fermata_mark_item item{};
  item.struct_size = sizeof(item);
  item.sequence = sequence;
  item.tokens = tokens;
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_mark(cache_, &item, 1, &error);
  return CheckItem("fermata_mark", status, error, item.status, item.reason);
}

Status CacheClient::Release(fermata_sequence sequence) {
  fermata_error error = FERMATA_ERROR_INIT;
  return Check("fermata_release", fermata_release(cache_, &sequence, 1, &error), error);
}

Status CacheClient::Audit(uint64_t* orphans, std::string* contradiction) {
  fermata_audit_report report{};
  report.struct_size = sizeof(report);
  fermata_error error = FERMATA_ERROR_INIT;
  const fermata_status status = fermata_audit(cache_, &report, &error);
  *orphans = report.orphans;
  contradiction->clear();
  if (status == FERMATA_INTERNAL) {
    *contradiction = error.message[0] != '\0' ? error.message : "no message";
    return Status();
  }
  return Check("fermata_audit", status, error);
}

Status CacheClient::ReadTiers(Metrics* out) {
  fermata_tier_stats tiers[kTierSlots] = {};
  fermata_stats stats{};
  stats.struct_size = sizeof(stats);
  stats.tiers = tiers;
  stats.tier_capacity = tier_count_;
  fermata_error error = FERMATA_ERROR_INIT;
  FERMATA_RETURN_IF_ERROR(
      Check("fermata_stats_get", fermata_stats_get(cache_, &stats, &error), error));
  for (uint32_t i = 0; i < tier_count_; ++i) {
    TierMetrics& tier = out->tiers[slot_of_tier_[i]];
    tier.present = true;
    tier.slots = tiers[i].slots;
    tier.used_slots = tiers[i].slots - tiers[i].free_slots;
    tier.evictions = tiers[i].evictions;
    tier.bytes_read = tiers[i].bytes_read;
    tier.bytes_written = tiers[i].bytes_written;
    tier.healthy = tiers[i].healthy;
  }
  out->dropped_blocks = stats.dropped_blocks;
  out->lost_blocks = stats.lost_blocks;
  out->superseded_blocks = stats.superseded_blocks;
  return Status();
}

Status CacheClient::ReadAllStats(Metrics* out) {
  out->stat_words.clear();
  out->stat_counters.clear();
  fermata_error error = FERMATA_ERROR_INIT;
  const auto visit = [](void* user, const char* name, uint64_t value, const char* text) {
    Metrics* const metrics = static_cast<Metrics*>(user);
    if (text != nullptr) {
      metrics->stat_words.emplace_back(name, text);
    } else {
      metrics->stat_counters.emplace_back(name, value);
    }
  };
  return Check("fermata_stats_visit", fermata_stats_visit(cache_, visit, out, &error), error);
}

}  // namespace fermata::bench
