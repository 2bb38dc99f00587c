// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/trace_file.h"

namespace fermata::bench {
namespace {

constexpr TraceFormat kFormats[] = {TraceFormat::kAuto, TraceFormat::kKvt1, TraceFormat::kMooncake,
                                    TraceFormat::kKvCacheTester, TraceFormat::kTraceLab};

// By the names that only one format has, in the first 64 KiB.
TraceFormat Detect(std::string_view text) {
  const std::string_view head = text.substr(0, size_t{1} << 16);
  // Not find(): at -O1 g++ 12 believes the bound exceeds a short string's own buffer.
  const auto line_end = std::find(head.begin(), head.end(), '\n');
  const std::string_view line = head.substr(0, static_cast<size_t>(line_end - head.begin()));
  const auto has = [](std::string_view where, const char* what) {
    return where.find(what) != std::string_view::npos;
  };
  if (has(line, "round_idx") && has(line, ",") && !has(line, "{")) return TraceFormat::kTraceLab;
  if (has(head, "\"block_size\"") && has(head, "\"requests\"")) return TraceFormat::kKvCacheTester;
  if (has(line, "\"input_length\"") && has(line, "\"timestamp\"")) return TraceFormat::kMooncake;
  if (has(line, "\"keep\"") && has(line, "\"new\"")) return TraceFormat::kKvt1;
  return TraceFormat::kAuto;
}

Result<Trace> ReadDirectory(const std::string& path, const TraceOptions& options) {
  if (options.format != TraceFormat::kAuto && options.format != TraceFormat::kKvCacheTester) {
    return ErrorF(StatusCode::kInvalidArgument,
                  "%s: a directory holds kv-cache-tester files, not %s", path.c_str(),
                  TraceFormatName(options.format));
  }
  Result<std::vector<std::string>> names = ListFiles(path, ".json");
  if (!names.ok()) return names.status();
  if (names->empty()) {
    return ErrorF(StatusCode::kInvalidArgument, "%s: no .json file in it", path.c_str());
  }
  Sha256 digest;
  std::vector<TraceText> files;
  for (const std::string& name : *names) {
    Result<std::string> text = ReadTextFile(name, &digest);
    if (!text.ok()) return text.status();
    files.push_back({name, std::move(*text)});
  }
  Result<Trace> trace = ReadKvCacheTester(files, options);
  if (trace.ok()) {
    if (trace->requests().empty()) {
      return ErrorF(StatusCode::kInvalidArgument, "%s: no requests in it", path.c_str());
    }
    trace->name = path;
    trace->sha256 = digest.HexDigest();
  }
  return trace;
}

}  // namespace

const char* TraceFormatName(TraceFormat format) {
  switch (format) {
    case TraceFormat::kAuto:
      return "auto";
    case TraceFormat::kKvt1:
      return "kvt1";
    case TraceFormat::kMooncake:
      return "mooncake";
    case TraceFormat::kKvCacheTester:
      return "kv-cache-tester";
    case TraceFormat::kTraceLab:
      return "tracelab";
  }
  return "auto";
}

Result<TraceFormat> ParseTraceFormat(std::string_view name) {
  for (const TraceFormat format : kFormats) {
    if (name == TraceFormatName(format)) return format;
  }
  return ErrorF(StatusCode::kInvalidArgument, "unknown trace format '%s'",
                std::string(name.substr(0, 40)).c_str());
}

Result<Trace> ReadTrace(const std::string& path, const TraceOptions& options) {
  if (IsDirectory(path)) return ReadDirectory(path, options);
  Sha256 digest;
  Result<std::string> text = ReadTextFile(path, &digest);
  if (!text.ok()) return text.status();
  const TraceText file{path, std::move(*text)};
  const TraceFormat format =
      options.format == TraceFormat::kAuto ? Detect(file.text) : options.format;
  Result<Trace> trace = [&]() -> Result<Trace> {
    switch (format) {
      case TraceFormat::kKvt1:
        return ReadKvt1(file);
      case TraceFormat::kMooncake:
        return ReadMooncake(file);
      case TraceFormat::kKvCacheTester:
        return ReadKvCacheTester({file}, options);
      case TraceFormat::kTraceLab:
        return ReadTraceLab(file, options);
      case TraceFormat::kAuto:
        break;
    }
    return ErrorF(StatusCode::kInvalidArgument,
                  "%s:1: neither kvt1, mooncake, kv-cache-tester nor tracelab; name it with "
                  "--format for a closer look",
                  path.c_str());
  }();
  if (!trace.ok()) return trace;
  if (trace->requests().empty()) {
    return ErrorF(StatusCode::kInvalidArgument, "%s: no requests in it", path.c_str());
  }
  trace->sha256 = digest.HexDigest();
  return trace;
}

}  // namespace fermata::bench
