// SPDX-License-Identifier: Apache-2.0
//
// Reader of Mooncake's published traces: JSONL {timestamp (ms), input_length, output_length,
// hash_ids}, one id per 512 tokens, the last of which may name a partial block: only
// floor(input_length / 512) count.
//
// The source has no sessions. A request continues the session whose latest prompt, at least two
// full blocks long, its own prompt extends; the longest such prompt wins. (One block is the system
// prompt that everyone shares.) Everything else starts a session. The source has no durations
// either: ModelledDurationMs. What follows a turn is unknown and called human.
#include "bench/json_fields.h"
#include "bench/trace_builder.h"
#include "bench/trace_file.h"
#include "bench/trace_reader.h"

namespace fermata::bench {
namespace {

constexpr size_t kLeastTailBlocks = 2;
constexpr uint32_t kNoSessionYet = 0xffffffffu;

class MooncakeReader {
 public:
  Status Line(const Where& where, const Json& object) {
    const JsonFields fields(where, object);
    Request request;
    uint64_t in = 0, out = 0;
    const Json* ids = nullptr;
    FERMATA_RETURN_IF_ERROR(fields.Uint("timestamp", kMaxTimeMs, &request.t_ms));
    FERMATA_RETURN_IF_ERROR(fields.Uint("input_length", kMaxPromptTokens, &in));
    FERMATA_RETURN_IF_ERROR(fields.Uint("output_length", kMaxPromptTokens, &out));
    FERMATA_RETURN_IF_ERROR(fields.Array("hash_ids", &ids));
    if (request.t_ms < last_ms_) {
      return where.Error("timestamp", std::to_string(request.t_ms) + " is before the line above, " +
                                          std::to_string(last_ms_));
    }
    last_ms_ = request.t_ms;
    const uint64_t blocks = in / kBlockTokens;
    const uint64_t most = (in + kBlockTokens - 1) / kBlockTokens;
    if (ids->size() < blocks || ids->size() > most) {
      return where.Error("hash_ids", "has " + std::to_string(ids->size()) +
                                         " ids for an input_length of " + std::to_string(in));
    }
    path_.clear();
    uint32_t node = kRootNode;
    for (size_t i = 0; i < ids->size(); ++i) {
      uint64_t id = 0;
      FERMATA_RETURN_IF_ERROR(fields.UintValue((*ids)[i], "hash_ids", kMaxBlockNumber, &id));
      if (i >= blocks) break;
      node = trie_.Child(node, id);
      path_.push_back(node);
    }
    request.in_tokens = static_cast<uint32_t>(in);
    request.out_tokens = static_cast<uint32_t>(out);
    request.dur_ms = ModelledDurationMs(out);
    request.end = EndKind::kHuman;
    request.session = SessionOfPath();
    if (request.session > kMaxSessionNumber) {
      return ErrorF(StatusCode::kInvalidArgument, "%smore than %llu sessions", where.Text().c_str(),
                    static_cast<unsigned long long>(kMaxSessionNumber + 1));
    }
    builder_.Add(request, path_);
    return Status();
  }

  Trace Finish() { return builder_.Finish(); }

 private:
  uint32_t SessionOfPath() {
    tail_session_.resize(trie_.size(), kNoSessionYet);
    uint32_t session = kNoSessionYet;
    size_t tail = 0;
    for (size_t i = kLeastTailBlocks - 1; i < path_.size(); ++i) {
      if (tail_session_[path_[i]] == kNoSessionYet) continue;
      session = tail_session_[path_[i]];
      tail = i;
    }
    if (session == kNoSessionYet) {
      session = sessions_++;
    } else {
      tail_session_[path_[tail]] = kNoSessionYet;
    }
    if (path_.size() >= kLeastTailBlocks) tail_session_[path_.back()] = session;
    return session;
  }

  PathTrie trie_;
  TraceBuilder builder_;
  std::vector<uint32_t> path_;
  std::vector<uint32_t> tail_session_;  // by node: the session whose latest prompt ends here
  uint32_t sessions_ = 0;
  uint64_t last_ms_ = 0;
};

}  // namespace

Result<Trace> ReadMooncake(const TraceText& file) {
  MooncakeReader reader;
  LineReader lines(file.text);
  std::string_view line;
  while (lines.Next(&line)) {
    const Where where{&file.name, lines.number(), ""};
    Json object;
    FERMATA_RETURN_IF_ERROR(ParseJsonObject(where, line, &object));
    FERMATA_RETURN_IF_ERROR(reader.Line(where, object));
  }
  Trace trace = reader.Finish();
  trace.name = file.name;
  trace.format = TraceFormatName(TraceFormat::kMooncake);
  return trace;
}

}  // namespace fermata::bench
