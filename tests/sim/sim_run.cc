// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

constexpr uint64_t kChain = 16;
constexpr uint64_t kLongest = 64;  // tokens of a sequence

struct SimSeq {
  Seq seq;
  uint64_t written = 0;  // leading tokens whose bytes are in place
  uint64_t marked = 0;
  bool loaded = true;  // every block is on the device
  bool parked = false;
  uint64_t stale_from = ~uint64_t{0};  // blocks that end here or later are of before a reset
  bool busy = false;                   // a job works on it
  Job job;
  bool job_is_park = false;
};

// A turn whose kernel still runs: its bytes come into the slots it had when it was started,
// whatever has become of the sequence; then its event fires.
struct LateTurn {
  Seq seq;
  uint64_t marked = 0;
  std::vector<std::vector<uint32_t>> slots;
  std::atomic<bool>* fired = nullptr;
  bool stale = false;  // of before a reset
};

class SimRun {
 public:
  SimRun(uint64_t seed) : random_(seed), cache_(MakeSetup(seed, &random_, device_)) {
    joint_ = kChain;
    for (const GroupSetup& group : cache_.setup().groups) {
      joint_ = std::max<uint64_t>(joint_, group.block_tokens);
    }
    fermata_session_options options = {};
    options.struct_size = sizeof(options);
    for (fermata_session& session : sessions_) {
      Expect(fermata_session_open(cache_.id(), &options, &session, nullptr) == FERMATA_OK,
             "session_open");
    }
  }

  SimResult Run(uint64_t steps) {
    for (uint64_t step = 0; step < steps && result_.error.empty(); ++step) {
      result_.steps = step + 1;
      OneOperation();
      CheckBooks();
    }
    if (result_.error.empty()) WindUp();
    if (!result_.error.empty()) cache_.Abandon();  // its end would only add noise
    return result_;
  }

 private:
  static CacheSetup MakeSetup(uint64_t seed, Stream* random, const HeldDevice& device) {
    CacheSetup setup;
    setup.device_ops = device.ops();
    setup.groups = {SmallBlocks()};
    if (random->Chance(30)) {
      GroupSetup second;
      second.block_tokens = 32;
      second.planes = {1536};
      setup.groups.push_back(second);
    }
    setup.device_blocks = static_cast<uint32_t>((2 + random->Below(2)) * 2);
    setup.host_blocks = 2 * random->Below(3);
    setup.sim_blocks = 8;
    setup.seed = seed;
    setup.lease_ns = 3000;
    setup.policy = random->Chance(50) ? "lru" : "lru-superseded";
    fermata_x_sim_faults& faults = setup.sim_faults;
    faults.latency_min_ns = 10;
    faults.latency_max_ns = 300;
    if (random->Chance(70)) {
      uint32_t* const rates[] = {&faults.read_error_ppm,        &faults.write_error_ppm,
                                 &faults.short_read_ppm,        &faults.torn_write_ppm,
                                 &faults.misdirected_write_ppm, &faults.bit_flip_ppm,
                                 &faults.lost_write_ppm};
      for (uint32_t* rate : rates) {
        if (random->Chance(50)) *rate = static_cast<uint32_t>(random->Below(120'000));
      }
    }
    return setup;
  }

  void Expect(bool condition, const std::string& what) {
    if (condition || !result_.error.empty()) return;
    std::string dump(1 << 16, '\0');
    size_t needed = 0;
    fermata_state_dump(cache_.id(), dump.data(), dump.size(), &needed, nullptr);
    dump.resize(std::min(dump.size(), needed));
    result_.error = what + "; operation " + std::to_string(operation_) + "\n" + dump;
  }

  // Token p of one of three prompts, with a rare variant: prefixes are shared and diverge.
  Tokens Draw(uint64_t from, uint64_t count) {
    Tokens tokens;
    for (uint64_t p = from; p < from + count; ++p) {
      uint32_t token = static_cast<uint32_t>(family_ * 1000 + p);
      if (random_.Chance(1)) token += 100 + static_cast<uint32_t>(random_.Below(2));
      tokens.push_back(token);
    }
    return tokens;
  }

  SimSeq* Pick() { return seqs_.empty() ? nullptr : &seqs_[random_.Below(seqs_.size())]; }

  void OneOperation() {
    if (random_.Chance(5)) family_ = random_.Below(3);
    operation_ = random_.Below(36);
    switch (operation_) {
      case 32:
      case 33:
        return StartLateTurn();
      case 34:
      case 35:
        return FireOne();
      case 24:
      case 25:
      case 26:
      case 27:
      case 28:
      case 29:
      case 30:
      case 31:
        return Request();
      case 0:
      case 1:
        return Create();
      case 2:
      case 3:
      case 4:
      case 5:
        return Append();
      case 6:
      case 7:
        return WriteAndMark();
      case 8:
        return Fork();
      case 9:
        return Truncate();
      case 10:
        return Release();
      case 11:
      case 12:
        return Lookup();
      case 13:
      case 14:
        return TakeOrDrop();
      case 15:
      case 16:
        return Load();
      case 17:
        return Park();
      case 18:
        return Resume();
      case 19:
        return CancelOne();
      case 20:
        return Turn();
      case 21:
        return random_.Chance(12) ? ResetOrErase() : FinishOne();
      case 22:
        return cache_.Advance(random_.Below(400));
      default:
        cache_.Step(1 + random_.Below(6));
        return FinishOne();
    }
  }

  void CheckBooks() {
    Expect(cache_.AuditError().empty(), cache_.AuditError());
    Expect(!::testing::Test::HasFailure(), "a call failed that may not (see above)");
    for (const fermata_tier_stats& tier : cache_.GetStats().tiers) {
      Expect(tier.free_slots + tier.live_slots + tier.cached_slots + tier.in_flight_slots ==
                 tier.slots,
             "slots of tier kind " + std::to_string(tier.kind) + " do not add up");
    }
    for (const SimSeq& s : seqs_) {
      if (s.busy || s.parked) continue;
      const fermata_sequence_info info = cache_.Info(s.seq);
      Expect(info.tokens == s.seq.tokens.size(), "a sequence has another length than the model");
      Expect(info.published_tokens <= s.marked, "more is published than was marked");
      if (s.loaded) CheckBytes(s, s.written);
    }
  }

  void CheckBytes(const SimSeq& s, uint64_t tokens) {
    ++result_.checks;
    const std::string wrong = cache_.BytesError(s.seq, tokens);
    Expect(wrong.empty(), wrong);
  }

  void Create() {
    if (seqs_.size() >= 3) return;
    SimSeq s;
    CreateOptions options;
    if (random_.Chance(50)) options.session = sessions_[random_.Below(2)];
    if (random_.Chance(20)) options.extras = {{FERMATA_EXTRA_ADAPTER, "a"}};
    s.seq = cache_.Create(options);
    seqs_.push_back(std::move(s));
  }

  void Append() {
    SimSeq* s = Pick();
    if (s == nullptr || s->seq.tokens.size() >= kLongest) return;
    const uint64_t before = s->seq.tokens.size();
    const Tokens tokens = Draw(before, 1 + random_.Below(24));
    const bool wrong_state = cache_.Info(s->seq).state != FERMATA_SEQUENCE_RUNNING;
    if (s->busy && !wrong_state) return;  // the job has ended and its completion waits to be taken
    const Outcome outcome = cache_.TryAppend(&s->seq, tokens);
    if (wrong_state) {
      Expect(outcome.reason == FERMATA_REASON_STATE, "append during a job or parked: not STATE");
      return;
    }
    Expect(outcome.ok() || outcome.reason == FERMATA_REASON_NO_SPACE ||
               outcome.reason == FERMATA_REASON_WOULD_BLOCK ||
               (!s->loaded && outcome.reason == FERMATA_REASON_STATE),
           "append: " + outcome.message);
    Expect(cache_.Info(s->seq).tokens == s->seq.tokens.size(), "append: length");
  }

  void Publish(const SimSeq& s) {
    for (uint64_t n = kChain; n <= s.marked && n < s.stale_from; n += kChain) {
      published_.insert(Name(s.seq.extras, Prefix(s.seq.tokens, n)));
    }
  }

  static std::pair<size_t, Tokens> Name(const Extras& extras, Tokens tokens) {
    return {extras.size(), std::move(tokens)};
  }

  void WriteAndMark() {
    SimSeq* s = Pick();
    if (s == nullptr || s->busy || s->parked || s->written >= s->seq.tokens.size()) return;
    const uint64_t end = s->written + 1 + random_.Below(s->seq.tokens.size() - s->written);
    cache_.Write(s->seq, s->written, end);
    s->written = end;
    const uint64_t mark = random_.Chance(80) ? end : s->marked + random_.Below(end - s->marked + 1);
    cache_.Mark(s->seq, mark);
    s->marked = std::max(s->marked, mark);
    Publish(*s);
  }

  void Fork() {
    SimSeq* s = Pick();
    if (s == nullptr || s->busy || s->parked || seqs_.size() >= 3) return;
    SimSeq child = *s;
    child.seq = cache_.Fork(s->seq, 1)[0];
    seqs_.push_back(std::move(child));
  }

  void Truncate() {
    SimSeq* s = Pick();
    if (s == nullptr || s->busy || s->parked) return;
    CutTo(s, random_.Below(s->seq.tokens.size() + 1), true);
  }

  void CutTo(SimSeq* s, uint64_t tokens, bool call) {
    if (call) cache_.Truncate(&s->seq, tokens);
    s->seq.tokens.resize(std::min<size_t>(s->seq.tokens.size(), tokens));
    s->written = std::min(s->written, tokens);
    s->marked = std::min(s->marked, tokens);
    if (tokens < s->stale_from || tokens == 0) s->stale_from = ~uint64_t{0};
  }

  void Release() {
    if (seqs_.empty()) return;
    const size_t at = random_.Below(seqs_.size());
    SimSeq s = seqs_[at];
    seqs_.erase(seqs_.begin() + static_cast<std::ptrdiff_t>(at));
    cache_.Release(&s.seq);
    if (s.busy) widows_.push_back(s.job);  // its completion still comes
  }

  uint64_t LongestPublished(const Extras& extras, const Tokens& tokens) {
    uint64_t longest = 0;
    for (uint64_t n = kChain; n <= tokens.size(); n += kChain) {
      if (!published_.contains(Name(extras, Prefix(tokens, n)))) break;
      longest = n;
    }
    return longest / joint_ * joint_;
  }

  void Lookup() {
    LookupOptions options;
    options.leave = random_.Below(3) == 0 ? 1 : 0;
    if (random_.Chance(20)) options.extras = {{FERMATA_EXTRA_ADAPTER, "a"}};
    if (random_.Chance(50)) options.session = sessions_[random_.Below(2)];
    SimSeq* like = Pick();
    Tokens tokens = Draw(0, kLongest);
    if (like != nullptr && random_.Chance(60)) tokens = like->seq.tokens;
    if (tokens.empty()) return;
    const Hit hit = cache_.Lookup(tokens, options);
    Expect(hit.tokens <= LongestPublished(options.extras, tokens),
           "a hit of " + std::to_string(hit.tokens) + " tokens, but only " +
               std::to_string(LongestPublished(options.extras, tokens)) +
               " were published under this identity");
    Expect(hit.tokens % joint_ == 0, "a hit of no whole blocks");
    result_.hits += hit.tokens > 0;
    if (hit.lease.id == 0) return;
    if (leases_.size() < 2) {
      leases_.push_back(hit);
    } else {
      Expect(cache_.Drop(hit).ok(), "drop of a fresh lease");
    }
  }

  // A whole turn, as an engine would run it: what is cached comes back, the rest is computed.
  void Request() {
    if (seqs_.size() >= 3) Release();
    LookupOptions options;
    if (random_.Chance(50)) options.session = sessions_[random_.Below(2)];
    const Tokens prompt = Draw(0, kLongest);
    const Hit hit = cache_.Lookup(prompt, options);
    Expect(hit.tokens <= LongestPublished({}, prompt), "a hit of what was never published");
    result_.hits += hit.tokens > 0;
    SimSeq turn;
    turn.seq = cache_.Create();
    if (hit.lease.id != 0) {
      Expect(cache_.Take(hit, &turn.seq).ok(), "take of a fresh lease");
      turn.written = turn.marked = turn.seq.tokens.size();
      turn.loaded = false;
      turn.job = cache_.StartLoad(turn.seq);
      Expect(Acceptable(turn.job), "load: " + turn.job.outcome.message);
      turn.busy = turn.job.outcome.ok();
    }
    if (turn.busy) Ended(&turn, cache_.Finish(turn.job));
    const uint64_t have = turn.seq.tokens.size();
    if ((turn.loaded || have == 0) && have < kLongest) {
      const Tokens rest(prompt.begin() + static_cast<std::ptrdiff_t>(have), prompt.end());
      Outcome outcome = cache_.TryAppend(&turn.seq, rest);
      for (int tries = 0; tries < 3 && outcome.reason == FERMATA_REASON_WOULD_BLOCK; ++tries) {
        cache_.Advance(300);
        cache_.Step(200);
        outcome = cache_.TryAppend(&turn.seq, rest);
      }
      if (outcome.ok()) {
        cache_.Write(turn.seq, turn.written, kLongest);
        cache_.Mark(turn.seq, kLongest);
        turn.written = turn.marked = kLongest;
        Publish(turn);
      }
    }
    if (random_.Chance(60)) {
      cache_.Release(&turn.seq);
    } else {
      seqs_.push_back(std::move(turn));
    }
  }

  // A turn that ends before its kernel has: cut, parked or not, and released.
  void StartLateTurn() {
    if (late_.size() >= 2) return;
    LateTurn turn;
    turn.seq = cache_.Create();
    const Outcome outcome = cache_.TryAppend(&turn.seq, Draw(0, 1 + random_.Below(48)));
    if (outcome.ok()) {
      turn.marked = turn.seq.tokens.size();
      turn.slots = cache_.AllSlots(turn.seq);
      events_.push_back(std::make_unique<std::atomic<bool>>(false));
      turn.fired = events_.back().get();
      Expect(cache_.TryMark(turn.seq, turn.marked, turn.fired).ok(), "mark with an event");
      Seq cut = turn.seq;
      if (random_.Chance(40)) {
        turn.marked = random_.Below(turn.marked + 1);
        cache_.Truncate(&cut, turn.marked);
      }
      if (random_.Chance(50)) {
        const Job job = cache_.StartPark(cut, static_cast<uint32_t>(random_.Below(3)));
        Expect(Acceptable(job), "park of a late turn: " + job.outcome.message);
        if (job.outcome.ok() && job.id.id != 0) widows_.push_back(job);
      }
    }
    Seq released = turn.seq;
    cache_.Release(&released);
    if (outcome.ok()) late_.push_back(std::move(turn));
  }

  void FireOne() {
    if (late_.empty()) return;
    const size_t at = random_.Below(late_.size());
    const LateTurn turn = std::move(late_[at]);
    late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(at));
    cache_.WriteInto(turn.seq, 0, turn.seq.tokens.size(), turn.slots);
    turn.fired->store(true);
    if (turn.stale) return;
    SimSeq published;
    published.seq = turn.seq;
    published.marked = turn.marked;
    Publish(published);
    fired_.push_back(std::move(published));
  }

  void TakeOrDrop() {
    if (leases_.empty()) return;
    const Hit hit = leases_.back();
    leases_.pop_back();
    if (seqs_.size() >= 3 || random_.Chance(20)) {
      const Outcome outcome = cache_.Drop(hit);
      Expect(outcome.ok() || outcome.reason == FERMATA_REASON_LEASE_EXPIRED ||
                 outcome.reason == FERMATA_REASON_BAD_HANDLE,
             "drop: " + outcome.message);
      return;
    }
    SimSeq s;
    CreateOptions options;
    options.extras = hit.extras;
    s.seq = cache_.Create(options);
    const Outcome outcome = cache_.Take(hit, &s.seq);
    Expect(outcome.ok() || outcome.reason == FERMATA_REASON_LEASE_EXPIRED,
           "take: " + outcome.message);
    s.written = s.marked = s.seq.tokens.size();
    s.loaded = s.seq.tokens.empty();
    seqs_.push_back(std::move(s));
  }

  bool Acceptable(const Job& job) {
    return job.outcome.ok() || job.outcome.reason == FERMATA_REASON_NO_SPACE ||
           job.outcome.reason == FERMATA_REASON_WOULD_BLOCK ||
           job.outcome.reason == FERMATA_REASON_TIER_SICK;
  }

  void Load() {
    SimSeq* s = Pick();
    if (s == nullptr || s->busy || s->parked) return;
    LoadOptions options;
    if (random_.Chance(30)) options.reserve_tokens = s->seq.tokens.size() + random_.Below(20);
    s->job = cache_.StartLoad(s->seq, options);
    s->job_is_park = false;
    Expect(Acceptable(s->job), "load: " + s->job.outcome.message);
    s->busy = s->job.outcome.ok();
  }

  void Park() {
    SimSeq* s = Pick();
    if (s == nullptr || s->busy || s->parked) return;
    const uint32_t mode = static_cast<uint32_t>(random_.Below(3));
    const Job job = cache_.StartPark(s->seq, mode);
    Expect(Acceptable(job), "park: " + job.outcome.message);
    if (!job.outcome.ok()) return;
    s->parked = true;
    s->loaded = false;
    s->busy = mode != FERMATA_PARK_LAZY;
    s->job = job;
    s->job_is_park = true;
  }

  void Resume() {
    SimSeq* s = nullptr;
    for (SimSeq& candidate : seqs_) {
      if (candidate.parked && !candidate.busy) s = &candidate;
    }
    if (s == nullptr) return;
    s->job = cache_.StartResume(s->seq);
    Expect(Acceptable(s->job), "resume: " + s->job.outcome.message);
    if (!s->job.outcome.ok()) return;
    s->busy = true;
    s->parked = false;
    s->job_is_park = false;
  }

  void CancelOne() {
    SimSeq* s = Pick();
    if (s == nullptr || !s->busy) return;
    const Outcome outcome = cache_.Cancel(s->job);
    Expect(outcome.ok() || outcome.status == FERMATA_NOT_FOUND, "cancel: " + outcome.message);
  }

  void FinishOne() {
    SimSeq* s = Pick();
    if (s == nullptr || !s->busy) return;
    fermata_completion end = {};
    if (random_.Chance(50)) {
      if (!cache_.TakeCompletion(s->job, &end)) return;
    } else {
      end = cache_.Finish(s->job);
    }
    Ended(s, end);
  }

  void Ended(SimSeq* s, const fermata_completion& end) {
    s->busy = false;
    const fermata_sequence_info info = cache_.Info(s->seq);
    Expect(info.tokens <= s->seq.tokens.size(), "a job made the sequence longer");
    if (s->job_is_park) {
      s->parked = info.state == FERMATA_SEQUENCE_PARKED;
      CutTo(s, info.tokens, false);
      s->loaded = !s->parked && info.device_tokens >= info.tokens;
      return;
    }
    s->parked = info.state == FERMATA_SEQUENCE_PARKED;
    if (end.status == FERMATA_OK) {
      ++result_.loads;
      CutTo(s, info.tokens, false);
      s->loaded = true;
      Expect(end.valid_tokens == info.tokens || end.valid_tokens >= s->written,
             "a load that ended well is not valid whole");
      CheckBytes(*s, s->written);
      return;
    }
    Expect(end.status == FERMATA_DATA_LOSS || end.status == FERMATA_UNAVAILABLE ||
               end.status == FERMATA_CANCELLED ||
               // Others took hold of what was evictable when it was accepted.
               end.status == FERMATA_RESOURCE_EXHAUSTED,
           std::string("a load ended ") + fermata_status_name(end.status));
    if (end.status == FERMATA_DATA_LOSS || end.status == FERMATA_UNAVAILABLE) {
      ++result_.failed_loads;
      Expect(info.tokens == end.valid_tokens, "a failed load did not cut the sequence");
    }
    CutTo(s, info.tokens, false);
    s->loaded = !s->parked && info.device_tokens >= info.tokens;
    if (!s->parked) {
      CheckBytes(*s, std::min<uint64_t>({end.valid_tokens, s->written, info.device_tokens}));
    }
  }

  void Turn() {
    const fermata_session session = sessions_[random_.Below(2)];
    if (random_.Chance(50)) {
      Expect(fermata_session_begin_turn(session, nullptr) == FERMATA_OK, "begin_turn");
      return;
    }
    fermata_turn_end turn = {};
    turn.struct_size = sizeof(turn);
    turn.kind = static_cast<uint32_t>(random_.Below(4));
    uint32_t verdict = 0;
    Expect(fermata_session_end_turn(session, &turn, &verdict, nullptr) == FERMATA_OK, "end_turn");
    Expect(verdict >= 1 && verdict <= 3, "no verdict");
  }

  void ResetOrErase() {
    uint64_t blocks[3] = {};
    if (random_.Chance(50)) {
      Expect(fermata_reset(cache_.id(), FERMATA_RESET_ALL, 0, blocks, 3, nullptr) == FERMATA_OK,
             "reset");
      published_.clear();
      for (LateTurn& turn : late_) turn.stale = true;
      fired_.clear();
      ++resets_;
      for (SimSeq& s : seqs_) {
        if (s.marked >= kChain) s.stale_from = 0;
      }
      return;
    }
    const Tokens tokens = Draw(0, kLongest);
    fermata_lookup_item item = {};
    item.struct_size = sizeof(item);
    item.tokens = tokens.data();
    item.token_count = tokens.size();
    Expect(fermata_erase(cache_.space(0), &item, 0, blocks, nullptr) == FERMATA_OK, "erase");
    // All that continues the first block of that prompt is gone, and no sequence that holds it
    // publishes any more of it.
    const auto erased = [&tokens](const Extras& extras, const Tokens& name) {
      return extras.empty() && name.size() >= kChain &&
             std::equal(name.begin(), name.begin() + kChain, tokens.begin());
    };
    std::erase_if(published_,
                  [&](const auto& entry) { return entry.first == 0 && erased({}, entry.second); });
    // What has fired may be published only now: the cache had not asked yet.
    for (const SimSeq& s : fired_) Publish(s);
    for (SimSeq& s : seqs_) {
      if (s.marked >= kChain && erased(s.seq.extras, s.seq.tokens)) s.stale_from = 0;
    }
    ++resets_;
  }

  void WindUp() {
    while (!late_.empty()) FireOne();
    for (SimSeq& s : seqs_) {
      if (s.busy) Ended(&s, cache_.Finish(s.job));
      cache_.Release(&s.seq);
    }
    seqs_.clear();
    for (const Job& job : widows_) cache_.Finish(job);
    for (const Hit& hit : leases_) cache_.Drop(hit);
    for (const fermata_session session : sessions_) {
      uint32_t verdict = 0;
      fermata_session_end(session, &verdict, nullptr);
    }
    cache_.Advance(10'000);
    cache_.Settle();
    const Stats stats = cache_.GetStats();
    Expect(stats.total.sequences == 0, "sequences are left");
    Expect(stats.total.leases == 0, "leases are left");
    Expect(stats.total.jobs == 0, "jobs are left");
    for (const fermata_tier_stats& tier : stats.tiers) {
      Expect(tier.live_slots == 0, "live slots are left");
      Expect(tier.in_flight_slots == 0, "slots in flight are left");
    }
    CheckBooks();
  }

  Stream random_;
  HeldDevice device_;
  std::vector<std::unique_ptr<std::atomic<bool>>> events_;  // the cache may ask until it is closed
  TestCache cache_;
  uint64_t joint_ = kChain;  // what a hit is a multiple of
  uint64_t family_ = 0;
  uint64_t resets_ = 0;
  std::vector<SimSeq> seqs_;
  std::vector<Job> widows_;
  std::vector<LateTurn> late_;
  std::vector<SimSeq> fired_;  // late turns whose event has fired, since the last reset
  std::vector<Hit> leases_;
  fermata_session sessions_[2] = {};
  std::set<std::pair<size_t, Tokens>> published_;
  SimResult result_;
  uint64_t operation_ = 0;  // the last one, for the report
};

}  // namespace

SimResult RunSim(uint64_t seed, uint64_t steps) { return SimRun(seed).Run(steps); }

std::string ReplayCommand(uint64_t seed, uint64_t steps) {
  return "sim_cache_test --seed=" + std::to_string(seed) + " --steps=" + std::to_string(steps);
}

}  // namespace fermata_test
