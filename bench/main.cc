// SPDX-License-Identifier: Apache-2.0
//
// fermata-bench: replays traces of agent workloads through the library, makes and converts such
// traces, and measures the index.
//
// Exit codes: 0 all well; 1 wrong bytes, orphans, a failed audit or a row that failed; 2 bad usage
// or input; 3 the library or the machine refused something. All parameters are options; nothing is
// read from the environment.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <limits>
#include <string>

#include "bench/convert.h"
#include "bench/generate.h"
#include "bench/index.h"
#include "bench/policy_names.h"
#include "bench/progress.h"
#include "bench/replay.h"
#include "bench/report.h"
#include "bench/trace_file.h"
#include "bench/trace_reader.h"

namespace fermata::bench {
namespace {

constexpr double kMaxSpreadHours = 100000;
constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();

enum ExitCode { kPassed = 0, kFailed = 1, kBadInput = 2, kRefused = 3 };

struct Arguments {
  std::string trace;
  std::string trace_dir;
  std::string format = "auto";
  std::string clock = "virtual";
  std::string keys = "blocks";
  std::string by = "names";
  std::string json;
  std::string html;
  std::string out;
  uint64_t limit = 0;
  bool no_shared_tools = false;
  TraceOptions trace_options;
  GenerateOptions generate;
  ReplayOptions replay;
  IndexOptions index;
};

int Complain(const Status& status, ExitCode code) {
  std::fprintf(stderr, "fermata-bench: %s\n", status.message().c_str());
  return code;
}

// A number within bounds, in decimal digits. CLI11 alone wraps a negative number round, reads
// "0x1F" and says no range when it refuses.
template <typename T>
CLI::Option* Bounded(CLI::App* app, const char* name, T* value, T least, T most, const char* kind,
                     const char* text) {
  const std::string range = CLI::detail::to_string(least) + " to " + CLI::detail::to_string(most);
  const auto check = [least, most, range, kind](const std::string& given) -> std::string {
    T number{};
    const char* const end = given.data() + given.size();
    const auto [stop, error] = std::from_chars(given.data(), end, number);
    if (error == std::errc() && stop == end && number >= least && number <= most) return "";
    return std::string("want a ") + kind + " from " + range + ", got '" + given.substr(0, 40) + "'";
  };
  return app->add_option(name, *value, text)->check(CLI::Validator(check, range));
}

template <typename T>
CLI::Option* Whole(CLI::App* app, const char* name, T* value, uint64_t least, uint64_t most,
                   const char* text) {
  return Bounded(app, name, value, static_cast<T>(least), static_cast<T>(most), "whole number",
                 text);
}

CLI::Option* Real(CLI::App* app, const char* name, double* value, double least, double most,
                  const char* text) {
  return Bounded(app, name, value, least, most, "number", text);
}

void AddTraceOptions(CLI::App* app, Arguments* a) {
  app->add_option("--trace", a->trace,
                  "trace file, plain or .gz; a directory of kv-cache-tester files")
      ->type_name("FILE");
  app->add_option("--trace-dir", a->trace_dir, "directory that a relative --trace is looked up in")
      ->type_name("DIR");
  app->add_option("--format", a->format, "auto, kvt1, mooncake, kv-cache-tester or tracelab")
      ->capture_default_str();
  Whole(app, "--limit", &a->limit, 0, kMaxRequests, "only the first N requests; 0 = all")
      ->type_name("N");
  Real(app, "--spread-hours", &a->trace_options.spread_hours, 0, kMaxSpreadHours,
       "sessions of a source without arrival times start within so long")
      ->capture_default_str();
  app->add_flag("--no-shared-tools", a->no_shared_tools,
                "kv-cache-tester: do not share tool definitions of equal size");
}

void AddGenerateOptions(CLI::App* app, Arguments* a) {
  Whole(app, "--sessions", &a->generate.sessions, 1, GenerateOptions::kMaxSessions,
        "generated main sessions")
      ->capture_default_str();
  Real(app, "--hours", &a->generate.hours, 0, GenerateOptions::kMaxHours,
       "generated sessions start within so long")
      ->capture_default_str();
  Whole(app, "--max-steps", &a->generate.max_steps, 1, GenerateOptions::kMaxSteps,
        "longest generated session, in requests")
      ->capture_default_str();
  Real(app, "--context-scale", &a->generate.context_scale, GenerateOptions::kLeastScale,
       GenerateOptions::kMaxScale, "size of generated contexts; 1 = as published")
      ->capture_default_str();
  Whole(app, "--max-context", &a->generate.max_context, GenerateOptions::kLeastContext,
        GenerateOptions::kMostContext, "generated contexts are compacted here")
      ->capture_default_str();
  Whole(app, "--seed", &a->generate.seed, 0, kAny, "of everything random")->capture_default_str();
}

void AddReplayOptions(CLI::App* app, Arguments* a) {
  ReplayOptions& r = a->replay;
  Whole(app, "--device-blocks", &r.device_blocks, 1, ReplayOptions::kMaxSlots,
        "slots of the device tier")
      ->capture_default_str();
  Whole(app, "--host-blocks", &r.host_blocks, 0, ReplayOptions::kMaxSlots,
        "slots of the host tier; 0 = none")
      ->capture_default_str();
  Whole(app, "--ssd-blocks", &r.ssd_blocks, 0, ReplayOptions::kMaxSlots,
        "slots of the SSD tier; 0 = none")
      ->capture_default_str();
  app->add_option("--policy", r.policy, "order of eviction: " + KnownPolicies())
      ->capture_default_str();
  app->add_option("--clock", a->clock, "virtual (no bytes) or real (every byte checked)")
      ->capture_default_str();
  app->add_option("--dir", r.dir, "of the SSD tier; what is in it is used again")->type_name("DIR");
  Whole(app, "--block-bytes", &r.block_bytes, 64, ReplayOptions::kMaxBlockBytes,
        "payload of a block on the real clock")
      ->capture_default_str();
  Whole(app, "--block-split", &r.block_split, 1, kBlockTokens,
        "blocks that each 512-token id becomes")
      ->capture_default_str();
  app->add_option("--keys", a->keys, "name blocks by the trace's ids (blocks) or by tokens")
      ->capture_default_str();
  app->add_option("--by", a->by,
                  "how a session's next turn has its prompt: looked up by names, or resumed by "
                  "handles and cut to what the two share")
      ->capture_default_str();
  Whole(app, "--audit-every", &r.audit_every, 0, kAny,
        "recount the library's books after so many requests; 0 = only at the end")
      ->capture_default_str();
  Whole(app, "--threads", &r.threads, 1, ReplayOptions::kMaxThreads,
        "threads that write and check bytes")
      ->capture_default_str();
  Whole(app, "--sabotage", &r.sabotage, 0, kAny,
        "flip a byte of every Nth written block; the run must fail");
  app->add_option("--json", a->json, "write the report as JSON")->type_name("FILE");
  app->add_option("--per-request", r.per_request, "write hits of every request as CSV")
      ->type_name("FILE");
  app->add_option("--html", a->html, "write the report as one HTML page with charts")
      ->type_name("FILE");
  app->add_flag("--quiet", r.quiet, "no progress and no table");
}

Result<Trace> LoadTrace(Arguments* a) {
  Result<TraceFormat> format = ParseTraceFormat(a->format);
  if (!format.ok()) {
    return ErrorF(StatusCode::kInvalidArgument, "--format: %s", format.status().message().c_str());
  }
  a->trace_options.format = *format;
  a->trace_options.seed = a->generate.seed;
  a->trace_options.shared_tools = !a->no_shared_tools;
  std::string path = a->trace;
  if (path.empty()) {
    if (!a->trace_dir.empty()) {
      return ErrorF(StatusCode::kInvalidArgument, "--trace-dir %s: needs --trace",
                    a->trace_dir.c_str());
    }
    return GenerateTrace(a->generate);
  }
  if (!a->trace_dir.empty() && path[0] != '/') path = a->trace_dir + "/" + path;
  Result<Trace> trace = ReadTrace(path, a->trace_options);
  if (trace.ok()) trace->name = a->trace;
  return trace;
}

Status CheckReplayArguments(Arguments* a) {
  if (a->clock != "virtual" && a->clock != "real") {
    return ErrorF(StatusCode::kInvalidArgument, "--clock %s: want virtual or real",
                  a->clock.c_str());
  }
  if (a->keys != "blocks" && a->keys != "tokens") {
    return ErrorF(StatusCode::kInvalidArgument, "--keys %s: want blocks or tokens",
                  a->keys.c_str());
  }
  if (a->by != "names" && a->by != "handles") {
    return ErrorF(StatusCode::kInvalidArgument, "--by %s: want names or handles", a->by.c_str());
  }
  a->replay.by_handle = a->by == "handles";
  a->replay.real_clock = a->clock == "real";
  a->replay.token_keys = a->keys == "tokens";
  a->replay.seed = a->generate.seed;
  FERMATA_RETURN_IF_ERROR(a->replay.Validate());
  const std::pair<const char*, const std::string*> files[] = {
      {"--json", &a->json}, {"--html", &a->html}, {"--per-request", &a->replay.per_request}};
  for (const auto& [option, path] : files) {
    if (path->empty()) continue;
    const Status writable = CheckWritable(*path);
    if (!writable.ok()) {
      return ErrorF(StatusCode::kInvalidArgument, "%s %s", option, writable.message().c_str());
    }
  }
  return Status();
}

int RunReplayVerb(Arguments* a) {
  Status status = CheckReplayArguments(a);
  if (!status.ok()) return Complain(status, kBadInput);
  Result<Trace> trace = LoadTrace(a);
  if (!trace.ok()) return Complain(trace.status(), kBadInput);
  if (a->limit > 0) trace->Truncate(a->limit);
  status = a->replay.ValidateFor(*trace);
  if (!status.ok()) return Complain(status, kBadInput);

  Result<Metrics> metrics = [&] {
    Progress progress(trace->requests().size(), a->replay.quiet);
    return RunReplay(*trace, a->replay, [&](const Metrics& so_far) { progress.Update(so_far); });
  }();
  if (!metrics.ok()) return Complain(metrics.status(), kRefused);

  const ReportInput input{&*trace.operator->(), &a->replay, metrics.operator->()};
  if (!a->replay.quiet) std::fputs(TextReport(input).c_str(), stdout);
  if (!a->json.empty()) status = WriteTextFile(a->json, JsonReport(input));
  if (!status.ok()) return Complain(status, kRefused);
  if (!a->html.empty()) status = WriteTextFile(a->html, HtmlReport(input));
  if (!status.ok()) return Complain(status, kRefused);
  if (metrics->passed()) return kPassed;
  std::fprintf(stderr, "fermata-bench: FAILED: %llu blocks with wrong bytes, %llu orphans%s%s\n",
               static_cast<unsigned long long>(metrics->oracle_failures),
               static_cast<unsigned long long>(metrics->orphans_max),
               metrics->audit_error.empty() ? "" : ", audit: ", metrics->audit_error.c_str());
  return kFailed;
}

int WriteTrace(const Trace& trace, const std::string& path) {
  const Status status = WriteTextFile(path, ToKvt1(trace));
  if (!status.ok()) return Complain(status, kRefused);
  std::printf("%s: %zu requests, %u sessions, %llu block touches\n", path.c_str(),
              trace.requests().size(), trace.session_count(),
              static_cast<unsigned long long>(trace.block_touches()));
  return kPassed;
}

int RunTraceVerb(Arguments* a, bool convert) {
  const Status writable = CheckWritable(a->out);
  if (!writable.ok()) return Complain(writable, kBadInput);
  if (convert && a->trace.empty()) {
    return Complain(ErrorF(StatusCode::kInvalidArgument, "--trace: is empty"), kBadInput);
  }
  Result<Trace> trace = LoadTrace(a);
  if (!trace.ok()) return Complain(trace.status(), kBadInput);
  if (a->limit > 0) trace->Truncate(a->limit);
  return WriteTrace(*trace, a->out);
}

void AddIndexOptions(CLI::App* app, Arguments* a) {
  app->add_option("--json", a->json, "write all figures as JSON")->type_name("FILE");
  app->add_option("--only", a->index.only, "measure these rows alone")
      ->delimiter(',')
      ->type_name("KEY,...");
  app->add_flag("--quick", a->index.quick, "smaller sizes: a minute, not an hour");
  app->add_flag("--tiny", a->index.tiny, "for tests: sizes whose figures mean nothing");
  std::string keys = "Rows:";
  for (const IndexRow& row : IndexRows()) keys += std::string("\n  ") + row.key;
  app->footer(keys);
}

int RunIndexVerb(const Arguments& a) {
  if (!a.json.empty()) {
    const Status writable = CheckWritable(a.json);
    if (!writable.ok()) {
      return Complain(ErrorF(StatusCode::kInvalidArgument, "--json %s", writable.message().c_str()),
                      kBadInput);
    }
  }
  IndexReport report;
  Status status = RunIndex(a.index, &report);
  if (!status.ok()) return Complain(status, kBadInput);
  std::fputs(IndexTextReport(report).c_str(), stdout);
  if (!a.json.empty()) status = WriteTextFile(a.json, IndexJsonReport(report));
  if (!status.ok()) return Complain(status, kRefused);
  for (const std::string& failure : report.failures) {
    std::fprintf(stderr, "fermata-bench: FAILED: %s\n", failure.c_str());
  }
  return report.failures.empty() ? kPassed : kFailed;
}

int Main(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Replays, generates and converts traces of agent workloads for Fermata."};
  app.name("fermata-bench");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default(false);
  CLI::App* replay =
      app.add_subcommand("replay", "play a trace through the library and count hits");
  AddTraceOptions(replay, &a);
  AddGenerateOptions(replay, &a);
  AddReplayOptions(replay, &a);
  replay->footer("Without --trace a small workload is generated from --seed.");
  CLI::App* generate = app.add_subcommand("generate", "make a kvt1 trace of an agent workload");
  AddGenerateOptions(generate, &a);
  Whole(generate, "--limit", &a.limit, 0, kMaxRequests, "only the first N requests; 0 = all");
  generate->add_option("--out", a.out, "where to; .gz compresses")->required()->type_name("FILE");
  CLI::App* convert = app.add_subcommand("convert", "read any known trace format, write kvt1");
  AddTraceOptions(convert, &a);
  Whole(convert, "--seed", &a.generate.seed, 0, kAny, "of synthetic arrivals");
  convert->add_option("--out", a.out, "where to; .gz compresses")->required()->type_name("FILE");
  CLI::App* index = app.add_subcommand("index", "measure what the prefix index costs");
  AddIndexOptions(index, &a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help is a "parse error" of code 0.
    return app.exit(error) == 0 ? kPassed : kBadInput;
  }
  if (replay->parsed()) return RunReplayVerb(&a);
  if (index->parsed()) return RunIndexVerb(a);
  return RunTraceVerb(&a, convert->parsed());
}

}  // namespace
}  // namespace fermata::bench

int main(int argc, char** argv) { return fermata::bench::Main(argc, argv); }
