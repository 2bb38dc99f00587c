// SPDX-License-Identifier: Apache-2.0
#include "bench/generate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/random.h"
#include "bench/convert.h"
#include "bench/trace_builder.h"
#include "bench/trace_file.h"

namespace fermata::bench {
namespace {

// A quantile function: linear in the logarithm between the given points.
struct Quantile {
  double share;
  double value;
};

double Draw(std::span<const Quantile> table, double u) {
  size_t i = 1;
  while (i + 1 < table.size() && u > table[i].share) ++i;
  const Quantile& low = table[i - 1];
  const Quantile& high = table[i];
  const double at = std::clamp((u - low.share) / (high.share - low.share), 0.0, 1.0);
  return std::exp(std::log(low.value) + at * (std::log(high.value) - std::log(low.value)));
}

// TraceLab's table; the ends beyond p25 and p99 are ours. Counts carry +0.5 so that 0 has a
// logarithm.
constexpr Quantile kHumanTurns[] = {{0, 1}, {0.5, 1.2}, {0.9, 18}, {0.99, 137}, {1, 400}};
constexpr Quantile kToolSteps[] = {{0, 0.5},  {0.25, 0.6}, {0.5, 1.5},
                                   {0.9, 20}, {0.99, 86},  {1, 200}};
constexpr Quantile kHumanWaitS[] = {{0, 2},      {0.25, 17.9},  {0.5, 86},
                                    {0.9, 1236}, {0.99, 50040}, {1, 200000}};
constexpr Quantile kGenerationS[] = {{0, 0.8},    {0.25, 3.5}, {0.5, 5.7},
                                     {0.9, 22.2}, {0.99, 84},  {1, 300}};
constexpr Quantile kOutputTokens[] = {{0, 10},     {0.25, 110},  {0.5, 230},
                                      {0.9, 1600}, {0.99, 5000}, {1, 16000}};
constexpr Quantile kAppendedTokens[] = {{0, 30},     {0.25, 300},    {0.5, 870},
                                        {0.9, 9000}, {0.99, 100000}, {1, 150000}};
constexpr Quantile kOwnPrefixTokens[] = {{0, 400}, {0.5, 3500}, {0.9, 18000}, {1, 60000}};
constexpr Quantile kAgentSteps[] = {{0, 2}, {0.5, 8}, {0.9, 30}, {1, 60}};

struct Tool {
  const char* name;
  double share;
  Quantile latency_s[4];  // p50 and p90 as published per tool
};
constexpr Tool kTools[] = {
    {"Bash", 0.46, {{0, 0.02}, {0.5, 0.41}, {0.9, 30.3}, {1, 600}}},
    {"exec_command", 0.30, {{0, 0.02}, {0.5, 0.32}, {0.9, 1.0}, {1, 235}}},
    {"Edit", 0.11, {{0, 0.01}, {0.5, 0.095}, {0.9, 2.2}, {1, 60}}},
    {"Read", 0.09, {{0, 0.005}, {0.5, 0.036}, {0.9, 0.43}, {1, 10}}},
    {"WebFetch", 0.04, {{0, 0.3}, {0.5, 4.0}, {0.9, 40}, {1, 263}}},
};
constexpr uint32_t kHarnesses = 5;  // tool and system prompts that sessions share
constexpr double kHarnessTokens[kHarnesses] = {15700, 13100, 18200, 11400, 16500};
constexpr uint32_t kAgentPpm = 12'000;  // of tool steps call a sub-agent
constexpr uint32_t kShrinkPpm =
    310'000;  // of a Codex user's turns drop the reasoning since the last one
constexpr uint32_t kCodexPpm = 370'000;  // of sessions
constexpr uint64_t kLeastStepMs = 20;

// One conversation's state while it is played.
struct Session {
  uint32_t number = 0;
  int32_t parent = kNoSessionNumber;
  bool codex = false;
  uint64_t now_ms = 0;
  uint32_t tokens = 0;
  std::vector<uint32_t> path;
  std::vector<uint32_t> harness;
};

class Generator {
 public:
  explicit Generator(const GenerateOptions& options)
      : options_(options),
        random_(options.seed),
        end_ms_(static_cast<uint64_t>(options.hours * 1.3 * 3'600'000.0)) {
    for (uint32_t i = 0; i < kHarnesses; ++i) {
      harnesses_[i] = Scaled(kHarnessTokens[i]) / kBlockTokens;
      for (uint32_t k = 0; k < harnesses_[i]; ++k) harness_paths_[i].push_back(trie_.Fresh());
    }
  }

  Trace Run() {
    for (uint32_t i = 0; i < options_.sessions; ++i) PlayMainSession();
    return builder_.Finish();
  }

 private:
  uint32_t Scaled(double tokens) const {
    return static_cast<uint32_t>(std::max(1.0, tokens * options_.context_scale));
  }
  double Draw1(std::span<const Quantile> table) { return Draw(table, random_.Unit()); }
  static uint64_t Ms(double seconds) {
    return std::max(kLeastStepMs, static_cast<uint64_t>(seconds * 1000));
  }

  void StartContext(Session* session, uint32_t harness) {
    session->harness = harness_paths_[harness];
    session->path = session->harness;
    session->tokens = static_cast<uint32_t>(session->path.size()) * kBlockTokens;
    Append(session, Scaled(Draw1(kOwnPrefixTokens)));
  }

  // Grows the prompt; every block that becomes full is one nobody had before.
  void Append(Session* session, uint32_t tokens) {
    session->tokens += tokens;
    while (session->path.size() < session->tokens / kBlockTokens) {
      session->path.push_back(trie_.Fresh());
    }
  }

  // Back to `tokens`; the tail that is cut is never named again.
  static void Shrink(Session* session, uint32_t tokens) {
    session->tokens = std::min(session->tokens, tokens);
    session->path.resize(session->tokens / kBlockTokens);
  }

  void Compact(Session* session) {
    session->path = session->harness;
    session->tokens = static_cast<uint32_t>(session->path.size()) * kBlockTokens;
    Append(session, Scaled(20000 + 20000 * random_.Unit()));
  }

  // Sends the prompt as it is now; the clock stands at the end of the generation after it. False
  // past the end of time.
  bool Step(Session* session, EndKind end, const char* tool) {
    if (session->tokens > options_.max_context) Compact(session);
    if (session->now_ms > end_ms_) return false;
    const double u = random_.Unit();  // long outputs take long: one draw for both
    Request request;
    request.t_ms = session->now_ms;
    request.session = session->number;
    request.parent_session = session->parent;
    request.in_tokens = session->tokens;
    request.out_tokens = static_cast<uint32_t>(Draw(kOutputTokens, u));
    request.dur_ms = Ms(Draw(kGenerationS, std::clamp(u + 0.2 * (random_.Unit() - 0.5), 0.0, 1.0)));
    request.end = end;
    request.tool = builder_.tools_of().InternTool(tool);
    builder_.Add(request, session->path);
    session->now_ms += request.dur_ms;
    Append(session, std::min<uint32_t>(request.out_tokens, 2000));  // the answer becomes context
    return true;
  }

  const Tool& PickTool() {
    double u = random_.Unit();
    for (const Tool& tool : kTools) {
      if (u < tool.share) return tool;
      u -= tool.share;
    }
    return kTools[0];
  }

  void PlayMainSession() {
    Session session;
    session.number = next_session_++;
    session.codex = random_.Chance(kCodexPpm);
    session.now_ms = static_cast<uint64_t>(random_.Unit() * options_.hours * 3'600'000.0);
    const uint32_t harness = static_cast<uint32_t>(random_.Below(kHarnesses));
    StartContext(&session, harness);
    const uint32_t turns = static_cast<uint32_t>(std::lround(Draw1(kHumanTurns)));
    uint32_t steps_left = options_.max_steps;
    for (uint32_t turn = 0; turn < turns && steps_left > 0; ++turn) {
      if (turn > 0) {
        session.now_ms += Ms(Draw1(kHumanWaitS));
        if (session.codex && random_.Chance(kShrinkPpm)) {
          Shrink(&session, session.tokens - session.tokens / 12);
        }
        Append(&session, Scaled(Draw1(kAppendedTokens) / 4));
      }
      uint32_t steps = static_cast<uint32_t>(Draw1(kToolSteps));
      for (; steps > 0 && steps_left > 1; --steps, --steps_left) {
        if (!ToolStep(&session, harness)) return;
      }
      --steps_left;
      if (!Step(&session, EndKind::kHuman, "-")) return;
    }
  }

  bool ToolStep(Session* session, uint32_t harness) {
    if (random_.Chance(kAgentPpm)) {
      if (!Step(session, EndKind::kTool, "agent")) return false;
      session->now_ms = PlaySubAgent(*session, harness);
    } else {
      const Tool& tool = PickTool();
      if (!Step(session, EndKind::kTool, tool.name)) return false;
      session->now_ms += Ms(Draw1(tool.latency_s));
    }
    Append(session, Scaled(Draw1(kAppendedTokens)));
    return true;
  }

  // A sub-agent starts from the same harness prefix and works alone; returns when its last turn
  // ended.
  uint64_t PlaySubAgent(const Session& parent, uint32_t harness) {
    Session session;
    session.number = next_session_++;
    session.parent = static_cast<int32_t>(parent.number);
    session.now_ms = parent.now_ms + kLeastStepMs;
    StartContext(&session, harness);
    const uint32_t steps = static_cast<uint32_t>(Draw1(kAgentSteps));
    for (uint32_t i = 0; i + 1 < steps; ++i) {
      const Tool& tool = PickTool();
      if (!Step(&session, EndKind::kTool, tool.name)) return session.now_ms;
      session.now_ms += Ms(Draw1(tool.latency_s));
      Append(&session, Scaled(Draw1(kAppendedTokens)));
    }
    Step(&session, EndKind::kFinal, "-");
    return session.now_ms;
  }

  const GenerateOptions options_;
  Random random_;
  const uint64_t end_ms_;
  PathTrie trie_;
  TraceBuilder builder_;
  uint32_t harnesses_[kHarnesses] = {};
  std::vector<uint32_t> harness_paths_[kHarnesses];
  uint32_t next_session_ = 0;
};

}  // namespace

Status GenerateOptions::Validate() const {
  if (sessions == 0 || sessions > kMaxSessions) {
    return ErrorF(StatusCode::kInvalidArgument, "--sessions: want 1 to %u, got %u", kMaxSessions,
                  sessions);
  }
  if (!(hours > 0 && hours <= kMaxHours)) {
    return ErrorF(StatusCode::kInvalidArgument, "--hours: want more than 0 to %g, got %g",
                  kMaxHours, hours);
  }
  if (max_steps == 0 || max_steps > kMaxSteps) {
    return ErrorF(StatusCode::kInvalidArgument, "--max-steps: want 1 to %u, got %u", kMaxSteps,
                  max_steps);
  }
  if (!(context_scale >= kLeastScale && context_scale <= kMaxScale)) {
    return ErrorF(StatusCode::kInvalidArgument, "--context-scale: want %g to %g, got %g",
                  kLeastScale, kMaxScale, context_scale);
  }
  if (max_context < kLeastContext || max_context > kMostContext) {
    return ErrorF(StatusCode::kInvalidArgument, "--max-context: want %u to %u, got %u",
                  kLeastContext, kMostContext, max_context);
  }
  return Status();
}

Result<Trace> GenerateTrace(const GenerateOptions& options) {
  FERMATA_RETURN_IF_ERROR(options.Validate());
  Trace trace = Generator(options).Run();
  if (trace.requests().empty()) {
    return ErrorF(StatusCode::kInvalidArgument, "--hours: %g leaves no request", options.hours);
  }
  trace.name = "generated";
  trace.format = "kvt1";
  trace.sha256 = Sha256Hex(ToKvt1(trace));
  return trace;
}

}  // namespace fermata::bench
