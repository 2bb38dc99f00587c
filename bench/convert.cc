// SPDX-License-Identifier: Apache-2.0
#include "bench/convert.h"

#include <cstdint>

namespace fermata::bench {
namespace {

void Number(const char* name, int64_t value, std::string* out) {
  out->append(name);
  out->append(std::to_string(value));
}

// JSON string; names of tools are the only free text in kvt1.
void Quoted(const std::string& text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      out->append("\\u00");
      out->push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
      out->push_back(kDigits[c & 15]);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

}  // namespace

std::string ToKvt1(const Trace& trace) {
  std::string out;
  out.reserve(trace.requests().size() * 160);
  for (const Request& request : trace.requests()) {
    Number("{\"t\":", static_cast<int64_t>(request.t_ms), &out);
    Number(",\"s\":", request.session, &out);
    Number(",\"i\":", request.turn, &out);
    Number(",\"ps\":", request.parent_session, &out);
    Number(",\"p\":",
           request.parent_request == kNoRequest ? -1 : static_cast<int64_t>(request.parent_request),
           &out);
    Number(",\"in\":", request.in_tokens, &out);
    Number(",\"out\":", request.out_tokens, &out);
    Number(",\"keep\":", request.keep, &out);
    out.append(",\"new\":[");
    for (uint32_t i = 0; i < request.run_count; ++i) {
      const BlockRun& run = trace.runs()[request.first_run + i];
      Number(i == 0 ? "[" : ",[", static_cast<int64_t>(run.first), &out);
      Number(",", run.count, &out);
      out.push_back(']');
    }
    Number("],\"dur\":", static_cast<int64_t>(request.dur_ms), &out);
    out.append(",\"gap\":\"").append(GapKindName(request.gap));
    Number("\",\"gap_ms\":", static_cast<int64_t>(request.gap_ms), &out);
    out.append(",\"end\":\"").append(EndKindName(request.end)).append("\",\"tool\":");
    Quoted(trace.tool(request.tool), &out);
    out.append("}\n");
  }
  return out;
}

}  // namespace fermata::bench
