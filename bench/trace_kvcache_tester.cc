// SPDX-License-Identifier: Apache-2.0
//
// Reader of kv-cache-tester's traces: one JSON object a file, one conversation each:
//   {id, block_size, tool_tokens, system_tokens, requests: [{t (s), type n|s|subagent, in, out,
//   hash_ids, stop, think_time,
//    api_time, requests: [...] of a subagent}]}
//
// Hash ids name block_size tokens and are local to the conversation. They are regrouped into
// 512-token blocks, each named by its whole prefix. What the source does not say is filled in, and
// only this:
//  * Conversations start uniformly over TraceOptions::spread_hours (seeded); a file read alone
//  starts at 0.
//  * Conversations with equal tool_tokens share the blocks of their tool definitions
//  (TraceOptions::shared_tools).
//  * A subagent is a session of its own, and its last turn is final. Its times count from the
//  conversation's start when
//    they are not before the subagent's own t, else from that t.
//  * Without api_time, ModelledDurationMs. A stop that is neither tool_use nor end_turn: the kind
//  of gap is unknown and
//    treated as a tool's, named "unk".
// Positions in errors are "FILE:1: requests[i]: field 'x'": such a file is one line.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "bench/json_fields.h"
#include "bench/trace_builder.h"
#include "bench/trace_reader.h"

namespace fermata::bench {
namespace {

constexpr double kMaxSeconds = 1e9;  // 31 years
constexpr uint64_t kMaxLocalId = (uint64_t{1} << 32) - 1;
constexpr uint64_t kToolUnit = uint64_t{1} << 63;

struct Conversation {
  uint32_t block_size = 0;
  uint32_t tool_units = 0;  // leading ids that lie within the tool definitions
  uint64_t tool_tokens = 0;
  uint64_t index = 0;
  uint64_t start_ms = 0;
};

class TesterReader {
 public:
  explicit TesterReader(const TraceOptions& options) : options_(options), random_(options.seed) {}

  Status File(const TraceText& file, bool alone) {
    Where where{&file.name, 1, ""};
    Json object;
    FERMATA_RETURN_IF_ERROR(ParseJsonObject(where, file.text, &object));
    const JsonFields fields(where, object);
    Conversation conversation;
    uint64_t block_size = 0;
    FERMATA_RETURN_IF_ERROR(fields.Uint("block_size", kBlockTokens, &block_size));
    if (block_size == 0 || kBlockTokens % block_size != 0) {
      return where.Error("block_size", std::to_string(block_size) + " does not divide 512");
    }
    FERMATA_RETURN_IF_ERROR(
        fields.UintOr("tool_tokens", kMaxPromptTokens, 0, &conversation.tool_tokens));
    conversation.block_size = static_cast<uint32_t>(block_size);
    if (options_.shared_tools) {
      conversation.tool_units = static_cast<uint32_t>(conversation.tool_tokens / block_size);
    }
    conversation.index = conversations_++;
    if (!alone) {
      conversation.start_ms =
          static_cast<uint64_t>(random_.Unit() * options_.spread_hours * 3'600'000.0);
    }
    uint32_t session = 0;
    FERMATA_RETURN_IF_ERROR(NewSession(where, &session));
    return Requests(where, fields, conversation, session, kNoSessionNumber, 0);
  }

  Trace Finish() { return builder_.Finish(); }

 private:
  Status NewSession(const Where& where, uint32_t* out) {
    if (sessions_ > kMaxSessionNumber) {
      return ErrorF(StatusCode::kInvalidArgument, "%smore than %llu sessions", where.Text().c_str(),
                    static_cast<unsigned long long>(kMaxSessionNumber + 1));
    }
    *out = sessions_++;
    return Status();
  }

  // The requests of a conversation, or of a subagent in it (then parent >= 0), whose times count
  // from `base_s`.
  Status Requests(const Where& where, const JsonFields& fields, const Conversation& conversation,
                  uint32_t session, int32_t parent, double base_s) {
    const Json* array = nullptr;
    FERMATA_RETURN_IF_ERROR(fields.Array("requests", &array));
    std::vector<uint64_t> before;  // the session's last hash ids and the nodes they led to
    std::vector<uint32_t> before_nodes;
    double earlier_s = 0;
    for (size_t i = 0; i < array->size(); ++i) {
      Where here = where;
      here.inside += (here.inside.empty() ? "requests[" : ".requests[") + std::to_string(i) + "]";
      const Json& object = (*array)[i];
      if (!object.is_object()) {
        return ErrorF(StatusCode::kInvalidArgument, "%swant an object, got %s", here.Text().c_str(),
                      ShownJson(object).c_str());
      }
      const JsonFields item(here, object);
      double t_s = 0;
      std::string type;
      FERMATA_RETURN_IF_ERROR(item.Number("t", kMaxSeconds, &t_s));
      FERMATA_RETURN_IF_ERROR(item.Text("type", &type));
      if (t_s < earlier_s) {
        return here.Error("t", Plain(t_s) + " is before the request above, " + Plain(earlier_s));
      }
      earlier_s = t_s;
      if (type == "subagent") {
        if (parent >= 0) return here.Error("type", "a subagent inside a subagent");
        FERMATA_RETURN_IF_ERROR(Subagent(here, item, conversation, session, t_s));
        continue;
      }
      if (type != "n" && type != "s") {
        return here.Error("type", "want n, s or subagent, got '" + Printable(type) + "'");
      }
      const bool last = i + 1 == array->size();
      FERMATA_RETURN_IF_ERROR(OneRequest(item, conversation, session, parent, base_s + t_s,
                                         parent >= 0 && last, &before, &before_nodes));
    }
    return Status();
  }

  Status Subagent(const Where& where, const JsonFields& item, const Conversation& conversation,
                  uint32_t parent, double t_s) {
    uint32_t session = 0;
    FERMATA_RETURN_IF_ERROR(NewSession(where, &session));
    const Json* array = nullptr;
    FERMATA_RETURN_IF_ERROR(item.Array("requests", &array));
    double first_s = t_s;
    if (!array->empty() && (*array)[0].is_object()) {
      Where inside = where;
      inside.inside += ".requests[0]";
      const JsonFields first(inside, (*array)[0]);
      FERMATA_RETURN_IF_ERROR(first.Number("t", kMaxSeconds, &first_s));
    }
    return Requests(where, item, conversation, session, static_cast<int32_t>(parent),
                    first_s >= t_s ? 0 : t_s);
  }

  Status OneRequest(const JsonFields& item, const Conversation& conversation, uint32_t session,
                    int32_t parent, double t_s, bool final_turn, std::vector<uint64_t>* before,
                    std::vector<uint32_t>* before_nodes) {
    const Where& where = item.where();
    uint64_t in = 0, out = 0;
    const Json* ids = nullptr;
    FERMATA_RETURN_IF_ERROR(item.Uint("in", kMaxPromptTokens, &in));
    FERMATA_RETURN_IF_ERROR(item.Uint("out", kMaxPromptTokens, &out));
    FERMATA_RETURN_IF_ERROR(item.Array("hash_ids", &ids));
    const uint64_t units = in / conversation.block_size;
    if (ids->size() < units || ids->size() > units + 1) {
      return where.Error("hash_ids", "has " + std::to_string(ids->size()) + " ids for " +
                                         std::to_string(in) + " tokens of blocks of " +
                                         std::to_string(conversation.block_size));
    }
    Request request;
    request.session = session;
    request.parent_session = parent;
    request.t_ms = conversation.start_ms + static_cast<uint64_t>(std::llround(t_s * 1000));
    request.in_tokens = static_cast<uint32_t>(in);
    request.out_tokens = static_cast<uint32_t>(out);
    FERMATA_RETURN_IF_ERROR(ReadEnd(item, final_turn, &request));
    request.dur_ms = ModelledDurationMs(out);
    if (item.Has("api_time")) {
      double api_s = 0;
      FERMATA_RETURN_IF_ERROR(item.Number("api_time", kMaxSeconds, &api_s));
      request.dur_ms = static_cast<uint64_t>(std::llround(api_s * 1000));
    }

    // Prompts repeat the one before almost whole, so only what follows the common part is looked
    // up.
    std::vector<uint64_t> now;
    now.reserve(units);
    for (size_t i = 0; i < ids->size(); ++i) {
      uint64_t id = 0;
      FERMATA_RETURN_IF_ERROR(item.UintValue((*ids)[i], "hash_ids", kMaxLocalId, &id));
      if (i >= units) break;  // of a partial unit
      now.push_back(i < conversation.tool_units ? kToolUnit | conversation.tool_tokens << 32 | i
                                                : conversation.index << 32 | id);
    }
    size_t common = 0;
    while (common < now.size() && common < before->size() && now[common] == (*before)[common]) {
      ++common;
    }
    before_nodes->resize(common);
    uint32_t node = common == 0 ? kRootNode : before_nodes->back();
    for (size_t i = common; i < now.size(); ++i) {
      node = trie_.Child(node, now[i]);
      before_nodes->push_back(node);
    }
    *before = std::move(now);

    const size_t per_block = kBlockTokens / conversation.block_size;
    path_.clear();
    for (size_t i = per_block; i <= before_nodes->size(); i += per_block) {
      path_.push_back((*before_nodes)[i - 1]);
    }
    builder_.Add(request, path_);
    return Status();
  }

  Status ReadEnd(const JsonFields& item, bool final_turn, Request* request) {
    std::string stop;
    if (item.Has("stop")) FERMATA_RETURN_IF_ERROR(item.Text("stop", &stop));
    request->end = EndKind::kTool;
    if (stop == "tool_use") {
      request->tool = builder_.tools_of().InternTool("tool");
    } else if (stop == "end_turn") {
      request->end = EndKind::kHuman;
    } else {
      request->tool = builder_.tools_of().InternTool("unk");
    }
    if (final_turn) request->end = EndKind::kFinal;
    return Status();
  }

  const TraceOptions& options_;
  Random random_;
  PathTrie trie_;
  TraceBuilder builder_;
  std::vector<uint32_t> path_;
  uint32_t sessions_ = 0;
  uint64_t conversations_ = 0;
};

}  // namespace

Result<Trace> ReadKvCacheTester(const std::vector<TraceText>& files, const TraceOptions& options) {
  TesterReader reader(options);
  for (const TraceText& file : files) {
    FERMATA_RETURN_IF_ERROR(reader.File(file, files.size() == 1));
  }
  Trace trace = reader.Finish();
  trace.format = TraceFormatName(TraceFormat::kKvCacheTester);
  if (!files.empty()) trace.name = files.front().name;
  return trace;
}

}  // namespace fermata::bench
