// SPDX-License-Identifier: Apache-2.0
//
// Reader of TraceLab's session rounds, a CSV with a header that names these columns in any order:
//   session_id (or id), round_idx, prefix_len, input_len, output_len, tool_wait_after_ms [,
//   arrival_time (ms)]
//
// A round's prompt is prefix_len + input_len tokens: the first prefix_len repeat the session's
// context, input_len are fresh. Its full blocks are those of the round before as far as prefix_len
// covers them whole, and new ones after that (generated tokens name no blocks, so a prefix that
// reaches into the last output starts new blocks there). A session starts at its first
// arrival_time; without that column, uniformly over TraceOptions::spread_hours (seeded). Later
// rounds come when the round before has ended (ModelledDurationMs) and its tool wait is over, or at
// their own arrival_time if that is later. Rounds of a session stand in order; sessions may
// interleave.
#include <charconv>
#include <cmath>
#include <string>
#include <unordered_map>

#include "base/random.h"
#include "bench/json_fields.h"
#include "bench/trace_builder.h"
#include "bench/trace_file.h"
#include "bench/trace_reader.h"

namespace fermata::bench {
namespace {

enum Column { kSession, kRound, kPrefix, kInput, kOutput, kWait, kArrival, kColumns };
constexpr const char* kNames[kColumns] = {"session_id",  "round_idx",  "prefix_len",
                                          "input_len",   "output_len", "tool_wait_after_ms",
                                          "arrival_time"};
constexpr size_t kAbsent = ~size_t{0};

std::vector<std::string_view> Split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

struct Session {
  uint32_t number = 0;
  uint64_t next_round = 0;
  uint64_t ready_ms = 0;  // when the round before is over and its tool has answered
  std::vector<uint32_t> path;
};

class TraceLabReader {
 public:
  explicit TraceLabReader(const TraceOptions& options) : options_(options), random_(options.seed) {}

  Status Header(const Where& where, std::string_view line) {
    const std::vector<std::string_view> cells = Split(line);
    for (size_t& at : at_) at = kAbsent;
    for (size_t i = 0; i < cells.size(); ++i) {
      size_t column = cells[i] == "id" ? size_t{kSession} : size_t{kColumns};
      for (size_t c = 0; c < kColumns; ++c) {
        if (cells[i] == kNames[c]) column = c;
      }
      if (column == kColumns) {
        return where.Error(Printable(cells[i]).c_str(), "unknown column");
      }
      if (at_[column] != kAbsent) return where.Error(kNames[column], "column named twice");
      at_[column] = i;
    }
    for (size_t c = 0; c < kArrival; ++c) {
      if (at_[c] == kAbsent) return where.Error(kNames[c], "column missing");
    }
    width_ = cells.size();
    return Status();
  }

  Status Row(const Where& where, std::string_view line) {
    const std::vector<std::string_view> cells = Split(line);
    if (cells.size() != width_) {
      return ErrorF(StatusCode::kInvalidArgument, "%shas %zu columns, the header %zu",
                    where.Text().c_str(), cells.size(), width_);
    }
    uint64_t round = 0, prefix = 0, input = 0, output = 0, wait_ms = 0, arrival_ms = 0;
    FERMATA_RETURN_IF_ERROR(Cell(where, cells, kRound, kMaxRequests, &round));
    FERMATA_RETURN_IF_ERROR(Cell(where, cells, kPrefix, kMaxPromptTokens, &prefix));
    FERMATA_RETURN_IF_ERROR(Cell(where, cells, kInput, kMaxPromptTokens, &input));
    FERMATA_RETURN_IF_ERROR(Cell(where, cells, kOutput, kMaxPromptTokens, &output));
    FERMATA_RETURN_IF_ERROR(Cell(where, cells, kWait, kMaxTimeMs, &wait_ms));
    const bool has_arrival = at_[kArrival] != kAbsent;
    if (has_arrival) {
      FERMATA_RETURN_IF_ERROR(Cell(where, cells, kArrival, kMaxTimeMs, &arrival_ms));
    }
    if (prefix + input > kMaxPromptTokens) {
      return where.Error("input_len", std::to_string(input) + " with a prefix_len of " +
                                          std::to_string(prefix) + " is more than " +
                                          std::to_string(kMaxPromptTokens) + " tokens");
    }
    blocks_ += (prefix + input) / kBlockTokens;
    if (blocks_ > options_.max_blocks) {
      return where.Error("input_len", std::to_string(input) + " makes more than " +
                                          std::to_string(options_.max_blocks) +
                                          " blocks in all rows");
    }
    if (builder_.size() >= kMaxRequests) {
      return ErrorF(StatusCode::kInvalidArgument, "%smore requests than %llu", where.Text().c_str(),
                    static_cast<unsigned long long>(kMaxRequests));
    }
    const std::string_view name = cells[at_[kSession]];
    if (name.empty()) return where.Error("session_id", "is empty");
    const auto [it, first] = sessions_.try_emplace(std::string(name));
    Session& session = it->second;
    if (first) {
      session.number = static_cast<uint32_t>(sessions_.size() - 1);
      if (session.number > kMaxSessionNumber) {
        return where.Error("session_id", "'" + Printable(name) + "' is one more session than " +
                                             std::to_string(kMaxSessionNumber + 1));
      }
      session.next_round = round;
      session.ready_ms =
          has_arrival ? arrival_ms
                      : static_cast<uint64_t>(random_.Unit() * options_.spread_hours * 3'600'000.0);
    }
    if (round != session.next_round) {
      return where.Error("round_idx", "want " + std::to_string(session.next_round) + ", got " +
                                          std::to_string(round) + ", in session '" +
                                          Printable(name) + "'");
    }
    ++session.next_round;

    Request request;
    request.session = session.number;
    request.t_ms = std::max(session.ready_ms, arrival_ms);
    if (request.t_ms > kMaxTimeMs) {
      return where.Error("tool_wait_after_ms", "the waits of session '" + Printable(name) +
                                                   "' end at " + std::to_string(request.t_ms) +
                                                   " ms, after " + std::to_string(kMaxTimeMs));
    }
    request.in_tokens = static_cast<uint32_t>(prefix + input);
    request.out_tokens = static_cast<uint32_t>(output);
    request.dur_ms = ModelledDurationMs(output);
    request.end = wait_ms > 0 ? EndKind::kTool : EndKind::kHuman;
    if (wait_ms > 0) request.tool = builder_.tools_of().InternTool("tool");
    session.ready_ms = request.t_ms + request.dur_ms + wait_ms;
    const size_t kept = std::min<size_t>(prefix / kBlockTokens, session.path.size());
    session.path.resize(kept);
    while (session.path.size() < request.in_tokens / kBlockTokens) {
      session.path.push_back(trie_.Fresh());
    }
    builder_.Add(request, session.path);
    return Status();
  }

  Trace Finish() { return builder_.Finish(); }

 private:
  // A number, as some tools write it: "58.0", "1e3". Times may have a fraction, which is rounded.
  Status Cell(const Where& where, const std::vector<std::string_view>& cells, Column column,
              uint64_t max, uint64_t* out) const {
    const std::string_view cell = cells[at_[column]];
    double number = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(number)) {
      return where.Error(kNames[column], "want a number, got '" + Printable(cell) + "'");
    }
    if (number < 0 || number > static_cast<double>(max)) {
      return where.Error(kNames[column],
                         "want 0 to " + std::to_string(max) + ", got " + Printable(cell));
    }
    if (column != kWait && column != kArrival && number != std::floor(number)) {
      return where.Error(kNames[column], "want a whole number, got '" + Printable(cell) + "'");
    }
    *out = static_cast<uint64_t>(std::llround(number));
    return Status();
  }

  const TraceOptions& options_;
  Random random_;
  PathTrie trie_;
  TraceBuilder builder_;
  std::unordered_map<std::string, Session> sessions_;
  size_t at_[kColumns] = {};
  size_t width_ = 0;
  uint64_t blocks_ = 0;  // of all rows
};

}  // namespace

Result<Trace> ReadTraceLab(const TraceText& file, const TraceOptions& options) {
  TraceLabReader reader(options);
  LineReader lines(file.text);
  std::string_view line;
  while (lines.Next(&line)) {
    const Where where{&file.name, lines.number(), ""};
    FERMATA_RETURN_IF_ERROR(lines.number() == 1 ? reader.Header(where, line)
                                                : reader.Row(where, line));
  }
  Trace trace = reader.Finish();
  trace.name = file.name;
  trace.format = TraceFormatName(TraceFormat::kTraceLab);
  return trace;
}

}  // namespace fermata::bench
