// SPDX-License-Identifier: Apache-2.0
//
// Reader of kvt1, the project's own format: one JSON object a line in order of arrival; blocks as
// "the first `keep` blocks of line p, then these runs of ids".
#include <map>
#include <utility>

#include "bench/json_fields.h"
#include "bench/trace_file.h"
#include "bench/trace_reader.h"

namespace fermata::bench {
namespace {

Status ReadGap(const JsonFields& fields, GapKind* out) {
  std::string text;
  FERMATA_RETURN_IF_ERROR(fields.Text("gap", &text));
  for (const GapKind kind : {GapKind::kNone, GapKind::kTool, GapKind::kHuman}) {
    if (text == GapKindName(kind)) {
      *out = kind;
      return Status();
    }
  }
  return fields.where().Error("gap", "want none, tool or human");
}

Status ReadEnd(const JsonFields& fields, EndKind* out) {
  std::string text;
  FERMATA_RETURN_IF_ERROR(fields.Text("end", &text));
  for (const EndKind kind : {EndKind::kUnknown, EndKind::kTool, EndKind::kHuman, EndKind::kFinal}) {
    if (text == EndKindName(kind)) {
      *out = kind;
      return Status();
    }
  }
  return fields.where().Error("end", "want tool, human, final or -");
}

// A session's number or a line's, where -1 means none.
Status ReadOptionalNumber(const JsonFields& fields, const Json& object, const char* name,
                          uint64_t max, int64_t* out) {
  const auto it = object.find(name);
  if (it != object.end() && it->is_number_integer() && !it->is_number_unsigned() &&
      it->get<int64_t>() == -1) {
    *out = -1;
    return Status();
  }
  uint64_t number = 0;
  FERMATA_RETURN_IF_ERROR(fields.Uint(name, max, &number));
  *out = static_cast<int64_t>(number);
  return Status();
}

Status ReadRuns(const JsonFields& fields, uint64_t want_blocks, std::vector<BlockRun>* runs) {
  const Json* array = nullptr;
  FERMATA_RETURN_IF_ERROR(fields.Array("new", &array));
  runs->clear();
  uint64_t total = 0;
  for (const Json& pair : *array) {
    if (!pair.is_array() || pair.size() != 2) {
      return fields.where().Error("new", "want [first, count] pairs");
    }
    BlockRun run;
    uint64_t count = 0;
    FERMATA_RETURN_IF_ERROR(fields.UintValue(pair[0], "new", kMaxBlockNumber, &run.first));
    FERMATA_RETURN_IF_ERROR(fields.UintValue(pair[1], "new", want_blocks, &count));
    total += count;
    run.count = static_cast<uint32_t>(count);
    if (count > 0) runs->push_back(run);
  }
  if (total != want_blocks) {
    return fields.where().Error("new", "lists " + std::to_string(total) + " blocks where in/512 " +
                                           "less keep leaves " + std::to_string(want_blocks));
  }
  return Status();
}

Status ReadLine(const Where& where, const Json& object, Trace* trace) {
  const JsonFields fields(where, object);
  const auto& earlier = trace->requests();
  Request request;
  uint64_t session = 0, turn = 0, in = 0, out = 0, keep = 0;
  int64_t parent_session = -1, parent = -1;
  FERMATA_RETURN_IF_ERROR(fields.Uint("t", kMaxTimeMs, &request.t_ms));
  if (!earlier.empty() && request.t_ms < earlier.back().t_ms) {
    return where.Error("t", std::to_string(request.t_ms) + " is before the line above, " +
                                std::to_string(earlier.back().t_ms));
  }
  FERMATA_RETURN_IF_ERROR(fields.Uint("s", kMaxSessionNumber, &session));
  FERMATA_RETURN_IF_ERROR(fields.Uint("i", kMaxRequests, &turn));
  FERMATA_RETURN_IF_ERROR(
      ReadOptionalNumber(fields, object, "ps", kMaxSessionNumber, &parent_session));
  FERMATA_RETURN_IF_ERROR(ReadOptionalNumber(fields, object, "p", kMaxRequests, &parent));
  FERMATA_RETURN_IF_ERROR(fields.Uint("in", kMaxPromptTokens, &in));
  FERMATA_RETURN_IF_ERROR(fields.Uint("out", kMaxPromptTokens, &out));
  FERMATA_RETURN_IF_ERROR(fields.Uint("keep", in / kBlockTokens, &keep));
  FERMATA_RETURN_IF_ERROR(fields.Uint("dur", kMaxTimeMs, &request.dur_ms));
  FERMATA_RETURN_IF_ERROR(fields.Uint("gap_ms", kMaxTimeMs, &request.gap_ms));
  FERMATA_RETURN_IF_ERROR(ReadGap(fields, &request.gap));
  FERMATA_RETURN_IF_ERROR(ReadEnd(fields, &request.end));
  std::string tool;
  FERMATA_RETURN_IF_ERROR(fields.Text("tool", &tool));
  if (tool.size() > 255) return where.Error("tool", "longer than 255 bytes");

  if (parent >= static_cast<int64_t>(earlier.size())) {
    return where.Error("p", "line " + std::to_string(parent) + " is not an earlier one");
  }
  if (parent < 0 && keep > 0) return where.Error("keep", "is above 0 though p is -1");
  if (parent >= 0 && keep > earlier[static_cast<size_t>(parent)].blocks) {
    return where.Error("keep", std::to_string(keep) + " is more than the " +
                                   std::to_string(earlier[static_cast<size_t>(parent)].blocks) +
                                   " blocks of line p");
  }
  std::vector<BlockRun> runs;
  FERMATA_RETURN_IF_ERROR(ReadRuns(fields, in / kBlockTokens - keep, &runs));

  request.session = static_cast<uint32_t>(session);
  request.turn = static_cast<uint32_t>(turn);
  request.parent_session = static_cast<int32_t>(parent_session);
  request.in_tokens = static_cast<uint32_t>(in);
  request.out_tokens = static_cast<uint32_t>(out);
  request.parent_request = parent < 0 ? kNoRequest : static_cast<uint32_t>(parent);
  request.keep = static_cast<uint32_t>(keep);
  request.tool = trace->InternTool(tool);
  trace->Add(request, runs);
  return Status();
}

}  // namespace

Result<Trace> ReadKvt1(const TraceText& file) {
  Trace trace;
  trace.name = file.name;
  trace.format = TraceFormatName(TraceFormat::kKvt1);
  LineReader lines(file.text);
  std::string_view line;
  while (lines.Next(&line)) {
    const Where where{&file.name, lines.number(), ""};
    Json object;
    FERMATA_RETURN_IF_ERROR(ParseJsonObject(where, line, &object));
    if (trace.requests().size() >= kMaxRequests) {
      return ErrorF(StatusCode::kInvalidArgument, "%smore requests than %llu", where.Text().c_str(),
                    static_cast<unsigned long long>(kMaxRequests));
    }
    FERMATA_RETURN_IF_ERROR(ReadLine(where, object, &trace));
  }
  return trace;
}

}  // namespace fermata::bench
