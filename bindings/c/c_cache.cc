// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: versions, opening and closing, spaces, arenas, life cycle. Check, unwrap, call,
// report; no logic.
#include <fermata/fermata.h>
#define FERMATA_ALLOW_EXPERIMENTAL
#include <fermata/fermata_experimental.h>

#include "bindings/c/registry.h"
#include "bindings/c/structs.h"

using namespace fermata;     // STYLE_OK(using-namespace): C functions have no namespace to be in
using namespace fermata::c;  // STYLE_OK(using-namespace): as above

namespace {

// The engine's table of functions as the core sees it.
class EngineDeviceOps final : public DeviceOps {
 public:
  explicit EngineDeviceOps(const fermata_device_ops& ops) : ops_(ops) {}

  Status CopySubmit(std::span<const CopyRun> runs, CopyDirection direction,
                    uint64_t ticket) override {
    static_assert(sizeof(CopyRun) == sizeof(fermata_copy_run));
    const CallbackScope scope;
    return Answer(
        ops_.copy_submit(ops_.user, reinterpret_cast<const fermata_copy_run*>(runs.data()),
                         runs.size(), static_cast<uint32_t>(direction), ticket),
        "device_ops.copy_submit");
  }
  Result<bool> CopyPoll(uint64_t ticket) override {
    uint32_t done = 0;
    const CallbackScope scope;
    Status status = Answer(ops_.copy_poll(ops_.user, ticket, &done), "device_ops.copy_poll");
    if (!status.ok()) return status;
    return done != 0;
  }
  Result<bool> EventQuery(void* event) override {
    uint32_t done = 0;
    const CallbackScope scope;
    Status status = Answer(ops_.event_query(ops_.user, event, &done), "device_ops.event_query");
    if (!status.ok()) return status;
    return done != 0;
  }
  bool has_events() const override { return ops_.event_query != nullptr; }

 private:
  static Status Answer(fermata_status status, const char* what) {
    if (status == FERMATA_OK) return Status();
    return ErrorF(StatusCode::kUnavailable, "%s answered %d", what, status);
  }
  const fermata_device_ops ops_;
};

Status ReadTier(const fermata_tier_config* in, size_t i, TierConfig* out) {
  fermata_tier_config tier;
  FERMATA_RETURN_IF_ERROR(ReadStruct(in, "config.tiers[]", &tier));
  if (tier.kind < FERMATA_TIER_DEVICE || tier.kind > FERMATA_TIER_SIM) {
    return ErrorF(StatusCode::kInvalidArgument, "tiers[%zu].kind is %u, want 1..5", i, tier.kind);
  }
  constexpr uint32_t kKnown =
      FERMATA_TIER_NO_DIRECT_IO | FERMATA_TIER_NO_IO_URING | FERMATA_TIER_NO_HUGE_PAGES;
  if ((tier.flags & ~kKnown) != 0)
    return ErrorF(StatusCode::kInvalidArgument, "tiers[%zu].flags is 0x%x: unknown bits", i,
                  tier.flags);
  if (tier.reserved != 0)
    return ErrorF(StatusCode::kInvalidArgument, "tiers[%zu].reserved is %u, want 0", i,
                  tier.reserved);
  out->kind = static_cast<TierKind>(tier.kind);
  out->ordinal = tier.ordinal;
  out->direct_io = (tier.flags & FERMATA_TIER_NO_DIRECT_IO) == 0;
  out->io_uring = (tier.flags & FERMATA_TIER_NO_IO_URING) == 0;
  out->huge_pages = (tier.flags & FERMATA_TIER_NO_HUGE_PAGES) == 0;
  out->capacity_bytes = tier.capacity_bytes;
  out->staging_bytes = tier.staging_bytes;
  if (tier.directory != nullptr) out->directory = tier.directory;
  out->io_depth = tier.io_depth == 0 ? 32 : tier.io_depth;
  return Status();
}

Status ReadGroup(const fermata_group_config* in, size_t i, uint32_t chain_tokens,
                 GroupConfig* out) {
  fermata_group_config group;
  FERMATA_RETURN_IF_ERROR(ReadStruct(in, "config.groups[]", &group));
  if (group.rule == FERMATA_RULE_WINDOW || group.rule == FERMATA_RULE_STATE) {
    return ErrorF(StatusCode::kUnimplemented,
                  "groups[%zu].rule is %u, which this version lacks (only FULL)", i, group.rule);
  }
  if (group.rule != FERMATA_RULE_FULL)
    return ErrorF(StatusCode::kInvalidArgument, "groups[%zu].rule is %u, want 0", i, group.rule);
  if (group.reserved != 0)
    return ErrorF(StatusCode::kInvalidArgument, "groups[%zu].reserved is %u, want 0", i,
                  group.reserved);
  out->block_tokens = group.block_tokens == 0 ? chain_tokens : group.block_tokens;
  out->block_bytes = group.block_bytes;
  return Status();
}

Status ReadConfig(const fermata_config* in, CacheConfig* out, std::unique_ptr<DeviceOps>* ops) {
  fermata_config config;
  FERMATA_RETURN_IF_ERROR(ReadStruct(in, "config", &config));
  if (config.flags != 0)
    return ErrorF(StatusCode::kInvalidArgument, "config.flags is 0x%x: unknown bits", config.flags);
  if (config.reserved != 0)
    return ErrorF(StatusCode::kInvalidArgument, "config.reserved is %u, want 0", config.reserved);
  if (config.chain_tokens != 0) out->chain_tokens = config.chain_tokens;
  if (out->chain_tokens > 65536) {
    return ErrorF(StatusCode::kInvalidArgument, "config.chain_tokens is %u, want 1..65536",
                  out->chain_tokens);
  }
  if (config.group_count == 0 || config.group_count > 16) {
    return ErrorF(StatusCode::kInvalidArgument, "config.group_count is %u, want 1..16",
                  config.group_count);
  }
  if (config.tier_count == 0 || config.tier_count > FERMATA_TIERS_MAX) {
    return ErrorF(StatusCode::kInvalidArgument, "config.tier_count is %u, want 1..%u",
                  config.tier_count, FERMATA_TIERS_MAX);
  }
  FERMATA_RETURN_IF_ERROR(CheckArray(config.groups, config.group_count, 16, "config.groups"));
  FERMATA_RETURN_IF_ERROR(
      CheckArray(config.tiers, config.tier_count, FERMATA_TIERS_MAX, "config.tiers"));
  for (size_t i = 0; i < config.group_count; ++i) {
    GroupConfig group;
    FERMATA_RETURN_IF_ERROR(ReadGroup(Element(config.groups, i), i, out->chain_tokens, &group));
    out->groups.push_back(group);
  }
  for (size_t i = 0; i < config.tier_count; ++i) {
    TierConfig tier;
    FERMATA_RETURN_IF_ERROR(ReadTier(Element(config.tiers, i), i, &tier));
    out->tiers.push_back(std::move(tier));
  }
  out->event_capacity = config.event_capacity;
  if (config.policy != nullptr) out->policy = config.policy;
  if (config.log != nullptr) {
    out->log = [log = config.log, user = config.log_user](LogLevel level, const std::string& line) {
      const CallbackScope scope;
      log(user, static_cast<uint32_t>(level), line.c_str());
    };
  }
  if (config.lease_ns != 0) out->lease_ns = config.lease_ns;
  if (config.max_sequences != 0) out->max_sequences = config.max_sequences;
  if (config.max_jobs != 0) out->max_jobs = config.max_jobs;
  out->free_watermark_ppm = config.free_watermark_ppm;
  if (config.device_ops == nullptr) {
    *ops = std::make_unique<PlainMemoryOps>();
    return Status();
  }
  fermata_device_ops table;
  FERMATA_RETURN_IF_ERROR(ReadStruct(config.device_ops, "config.device_ops", &table));
  if (table.copy_submit == nullptr || table.copy_poll == nullptr) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "config.device_ops.copy_submit or copy_poll is NULL");
  }
  *ops = std::make_unique<EngineDeviceOps>(table);
  return Status();
}

Status ReadOptions(const fermata_x_options* in, CacheConfig* out) {
  fermata_x_options options;
  FERMATA_RETURN_IF_ERROR(ReadStruct(in, "options", &options));
  constexpr uint32_t kKnown =
      FERMATA_X_MANUAL_CLOCK | FERMATA_X_STEP_DRIVEN | FERMATA_X_METADATA_ONLY;
  if ((options.flags & ~kKnown) != 0)
    return ErrorF(StatusCode::kInvalidArgument, "options.flags is 0x%x: unknown bits",
                  options.flags);
  out->manual_clock = (options.flags & FERMATA_X_MANUAL_CLOCK) != 0;
  out->step_driven = (options.flags & FERMATA_X_STEP_DRIVEN) != 0;
  out->metadata_only = (options.flags & FERMATA_X_METADATA_ONLY) != 0;
  out->seed = options.seed;
  if (options.hash_bits > 128)
    return ErrorF(StatusCode::kInvalidArgument, "options.hash_bits is %u, want at most 128",
                  options.hash_bits);
  if (options.reserved != 0)
    return ErrorF(StatusCode::kInvalidArgument, "options.reserved is %u, want 0", options.reserved);
  out->index_hash_bits = options.hash_bits;
  if (options.sim_faults == nullptr) return Status();
  fermata_x_sim_faults faults;
  FERMATA_RETURN_IF_ERROR(ReadStruct(options.sim_faults, "options.sim_faults", &faults));
  const uint32_t ppm[] = {faults.read_error_ppm,        faults.write_error_ppm,
                          faults.short_read_ppm,        faults.torn_write_ppm,
                          faults.misdirected_write_ppm, faults.bit_flip_ppm,
                          faults.lost_write_ppm};
  for (const uint32_t value : ppm) {
    if (value > 1'000'000)
      return ErrorF(StatusCode::kInvalidArgument,
                    "options.sim_faults: a rate is %u ppm, want at most 1000000", value);
  }
  if (faults.latency_min_ns > faults.latency_max_ns) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "options.sim_faults.latency_min_ns exceeds latency_max_ns");
  }
  out->sim = SimFaults{faults.read_error_ppm, faults.write_error_ppm,       faults.short_read_ppm,
                       faults.torn_write_ppm, faults.misdirected_write_ppm, faults.bit_flip_ppm,
                       faults.lost_write_ppm, faults.latency_min_ns,        faults.latency_max_ns};
  return Status();
}

Status OpenCache(const fermata_config* config, const fermata_x_options* options, bool experimental,
                 fermata_cache* out_cache) {
  if (out_cache == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_cache is NULL");
  out_cache->id = 0;
  CacheConfig parsed;
  std::unique_ptr<DeviceOps> ops;
  FERMATA_RETURN_IF_ERROR(ReadConfig(config, &parsed, &ops));
  if (experimental) FERMATA_RETURN_IF_ERROR(ReadOptions(options, &parsed));
  return RegisterCache(std::move(parsed), std::move(ops), &out_cache->id);
}

}  // namespace

// --- versions ---

const char* fermata_status_name(fermata_status status) {
  return StatusCodeName(static_cast<StatusCode>(status));
}
const char* fermata_reason_name(uint32_t reason) { return ReasonName(static_cast<Reason>(reason)); }
const char* fermata_version(void) {
#define FERMATA_TEXT_OF(x) #x
#define FERMATA_TEXT(x) FERMATA_TEXT_OF(x)
  return FERMATA_TEXT(FERMATA_VERSION_MAJOR) "." FERMATA_TEXT(
      FERMATA_VERSION_MINOR) "." FERMATA_TEXT(FERMATA_VERSION_PATCH);
}
uint32_t fermata_abi(void) { return uint32_t{FERMATA_VERSION_MAJOR} << 16 | FERMATA_VERSION_MINOR; }

void fermata_config_init(fermata_config* config, size_t struct_size) {
  if (config == nullptr || !IsStructSize<fermata_config>(struct_size)) return;
  std::memset(static_cast<void*>(config), 0, struct_size);
  const uint32_t size = static_cast<uint32_t>(struct_size);
  std::memcpy(static_cast<void*>(config), &size, sizeof size);
}

// --- open and close ---

fermata_status fermata_cache_open(const fermata_config* config, fermata_cache* out_cache,
                                  fermata_error* error) {
  return Call(error, [&] { return OpenCache(config, nullptr, false, out_cache); });
}

fermata_status fermata_x_cache_open(const fermata_config* config, const fermata_x_options* options,
                                    fermata_cache* out_cache, fermata_error* error) {
  return Call(error, [&] { return OpenCache(config, options, true, out_cache); });
}

fermata_status fermata_cache_close(fermata_cache handle, uint64_t deadline_ns,
                                   fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (handle.id == 0) return Status();
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    FERMATA_RETURN_IF_ERROR(cache->Close(deadline_ns));
    ForgetCache(handle.id);
    return Status();
  });
}

fermata_status fermata_now(fermata_cache handle, uint64_t* out_ns, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (out_ns == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_ns is NULL");
    *out_ns = cache->NowNs();
    return Status();
  });
}

fermata_status fermata_x_clock_advance(fermata_cache handle, uint64_t ns, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    return cache->AdvanceClock(ns);
  });
}

fermata_status fermata_x_step(fermata_cache handle, uint64_t max_steps, uint64_t* out_ran,
                              fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    Result<uint64_t> ran = cache->Step(max_steps);
    if (ran.ok() && out_ran != nullptr) *out_ran = *ran;
    return ran.status();
  });
}

// --- spaces ---

fermata_status fermata_space_open(fermata_cache handle, const fermata_space_config* config,
                                  fermata_space* out_space, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_space == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_space is NULL");
    out_space->id = 0;
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    fermata_space_config in;
    FERMATA_RETURN_IF_ERROR(ReadStruct(config, "config", &in));
    if (in.key_mode > FERMATA_KEYS_BLOCKS)
      return ErrorF(StatusCode::kInvalidArgument, "config.key_mode is %u, want 0 or 1",
                    in.key_mode);
    SpaceIdentity identity;
    identity.key_mode = static_cast<KeyMode>(in.key_mode);
    FERMATA_RETURN_IF_ERROR(CheckBytes(in.weights, "config.weights", &identity.weights));
    FERMATA_RETURN_IF_ERROR(
        CheckBytes(in.model_config, "config.model_config", &identity.model_config));
    FERMATA_RETURN_IF_ERROR(CheckBytes(in.rope, "config.rope", &identity.rope));
    FERMATA_RETURN_IF_ERROR(
        CheckBytes(in.tenant_salt, "config.tenant_salt", &identity.tenant_salt));
    FERMATA_RETURN_IF_ERROR(CheckBytes(in.kv_dtype, "config.kv_dtype", &identity.kv_dtype));
    FERMATA_RETURN_IF_ERROR(CheckBytes(in.codec, "config.codec", &identity.codec));
    identity.layout_version = in.layout_version;
    identity.rank = in.rank;
    identity.ranks = in.ranks == 0 ? 1 : in.ranks;
    identity.replicated = in.replicated;
    Result<ObjectId> id = cache->OpenSpace(identity);
    if (id.ok()) out_space->id = cache.HandleOf(Kind::kSpace, *id);
    return id.status();
  });
}

fermata_status fermata_space_close(fermata_space space, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (space.id == 0) return Status();
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(space.id, Kind::kSpace, "space", &cache, &id));
    return cache->CloseSpace(id);
  });
}

// --- arenas ---

fermata_status fermata_arena_register(fermata_cache handle, const fermata_arena_config* config,
                                      fermata_arena* out_arena, fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (out_arena == nullptr) return ErrorF(StatusCode::kInvalidArgument, "out_arena is NULL");
    out_arena->id = 0;
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    fermata_arena_config in;
    FERMATA_RETURN_IF_ERROR(ReadStruct(config, "config", &in));
    if (in.reserved != 0)
      return ErrorF(StatusCode::kInvalidArgument, "config.reserved is %u, want 0", in.reserved);
    if (in.group >= cache->config().groups.size()) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "config.group is %u, but the cache has %zu groups", in.group,
                    cache->config().groups.size());
    }
    if (in.device != cache->config().tiers[0].ordinal) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "config.device is %u, but the device tier's ordinal is %u", in.device,
                    cache->config().tiers[0].ordinal);
    }
    if (in.slots == 0 || in.slots > 0x7fffffff) {
      return ErrorF(StatusCode::kInvalidArgument, "config.slots is %u, want 1..2147483647",
                    in.slots);
    }
    if (in.region_count == 0 || in.region_count > 4096 || in.regions == nullptr) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "config.region_count is %u%s, want 1..4096 regions", in.region_count,
                    in.regions == nullptr ? " and config.regions is NULL" : "");
    }
    std::vector<DeviceRegion> regions;
    for (uint32_t i = 0; i < in.region_count; ++i) {
      const fermata_region& region = in.regions[i];
      regions.push_back(
          DeviceRegion{static_cast<std::byte*>(region.base), region.slot_bytes,
                       region.slot_stride == 0 ? region.slot_bytes : region.slot_stride});
    }
    Result<ObjectId> id =
        cache->RegisterArena(static_cast<GroupIndex>(in.group), regions, in.slots);
    if (id.ok()) out_arena->id = cache.HandleOf(Kind::kArena, *id);
    return id.status();
  });
}

fermata_status fermata_arena_unregister(fermata_arena arena, uint64_t deadline_ns,
                                        fermata_error* error) {
  return Call(error, [&]() -> Status {
    if (arena.id == 0) return Status();
    CacheRef cache;
    ObjectId id = 0;
    FERMATA_RETURN_IF_ERROR(Resolve(arena.id, Kind::kArena, "arena", &cache, &id));
    return cache->UnregisterArena(id, deadline_ns);
  });
}

fermata_status fermata_device_lost(fermata_cache handle, uint32_t device, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (device != cache->config().tiers[0].ordinal) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "device is %u, but the device tier's ordinal is %u", device,
                    cache->config().tiers[0].ordinal);
    }
    return cache->DeviceLost();
  });
}

// --- life cycle ---

fermata_status fermata_reset(fermata_cache handle, uint32_t scope, uint64_t target,
                             uint64_t* out_blocks, uint32_t capacity, fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (out_blocks == nullptr && capacity != 0)
      return ErrorF(StatusCode::kInvalidArgument, "out_blocks is NULL, but capacity is %u",
                    capacity);
    ObjectId id = 0;
    if (scope == FERMATA_RESET_SPACE) {
      FERMATA_RETURN_IF_ERROR(ResolveIn(cache, target, Kind::kSpace, "target", false, &id));
    } else if (scope == FERMATA_RESET_SESSION) {
      FERMATA_RETURN_IF_ERROR(ResolveIn(cache, target, Kind::kSession, "target", false, &id));
    } else if (scope != FERMATA_RESET_ALL) {
      return ErrorF(StatusCode::kInvalidArgument, "scope is %u, want 1..3", scope);
    }
    std::vector<uint64_t> counts;
    const Status status = cache->Reset(static_cast<ResetScope>(scope), id, &counts);
    for (uint32_t i = 0; i < capacity && i < counts.size(); ++i) out_blocks[i] = counts[i];
    return status;
  });
}

fermata_status fermata_tier_resize(fermata_cache handle, uint32_t tier, uint64_t,
                                   fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    if (tier >= cache->config().tiers.size())
      return ErrorF(StatusCode::kInvalidArgument, "tier is %u, but there are %zu", tier,
                    cache->config().tiers.size());
    return Status(StatusCode::kUnimplemented,
                  "fermata_tier_resize: this version cannot resize a tier at run time");
  });
}

fermata_status fermata_quota_set(fermata_cache handle, fermata_bytes, uint32_t, uint64_t,
                                 fermata_error* error) {
  return Call(error, [&]() -> Status {
    CacheRef cache;
    FERMATA_RETURN_IF_ERROR(FindCache(handle, &cache));
    return Status(StatusCode::kUnimplemented, "fermata_quota_set: this version has no quotas");
  });
}
