// SPDX-License-Identifier: Apache-2.0
//
// The report of `fermata-bench index`: a table for eyes, and JSON whose figures are flat and in the
// order of the rows, references and what accompanies the rows behind them.
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/index.h"

namespace fermata::bench {
namespace {

std::string FigureText(std::optional<double> value) {
  if (!value) return "-";
  char text[32];
  const double size = *value < 0 ? -*value : *value;
  const bool whole = *value == static_cast<double>(static_cast<int64_t>(*value));
  const char* const format = whole ? "%.0f" : size >= 100 ? "%.1f" : size >= 1 ? "%.2f" : "%.3f";
  std::snprintf(text, sizeof(text), format, *value);
  return text;
}

std::string TableLine(const char* row, const std::string& ours, const std::string& reference,
                      const char* unit, const char* target) {
  char line[200];
  std::snprintf(line, sizeof(line), "%-34s %12s %12s  %-9s %s\n", row, ours.c_str(),
                reference.c_str(), unit, target);
  std::string text(line);
  text.erase(text.find_last_not_of(" \n") + 1);
  return text + "\n";
}

bool IsReferenceKey(const std::string& key) { return key.compare(0, 4, "ref_") == 0; }

// Whether a reference stands in the line of a row, or of what it bears the name of.
bool ShownBesideOurs(const IndexFigures& figures, const std::string& key) {
  for (const IndexRow& row : IndexRows()) {
    if (key == row.reference) return figures.Has(row.key);
  }
  const std::string ours = key.substr(4);
  return figures.Has(ours) && FindIndexRow(ours) == nullptr;
}

nlohmann::ordered_json SizesJson(const IndexSizes& s) {
  nlohmann::ordered_json out;
  out["sessions_1k"] = s.sessions_1k;
  out["sessions_100k"] = s.sessions_100k;
  out["sessions_1m"] = s.sessions_1m;
  out["evict_calls"] = s.evict_calls;
  out["context_blocks"] = s.context_blocks;
  out["resident_blocks"] = s.resident_blocks;
  out["flush_bytes"] = s.flush_bytes;
  out["identity_blocks"] = s.identity_blocks;
  out["identity_lookups"] = s.identity_lookups;
  out["blocks_1m"] = s.blocks_1m;
  out["blocks_10m"] = s.blocks_10m;
  out["pool_ids"] = s.pool_ids;
  out["rounds"] = s.rounds;
  out["fork_blocks"] = s.fork_blocks;
  out["abi_calls"] = s.abi_calls;
  out["scaling_rounds"] = s.scaling_rounds;
  out["scaling_ms"] = s.scaling_ms;
  out["write_windows"] = s.write_windows;
  out["write_ms"] = s.write_ms;
  out["writes_per_s"] = s.writes_per_s;
  return out;
}

}  // namespace

std::string IndexTextReport(const IndexReport& report) {
  const IndexFigures& figures = report.figures;
  std::string text =
      "sizes: " + std::string(report.options.size_name()) +
      (report.options.quick || report.options.tiny ? " (smaller than the rows' names say)\n"
                                                   : "\n");
  text += TableLine("row", "ours", "reference", "unit", "target");
  for (const auto& [key, value] : figures.all()) {
    const IndexRow* const row = FindIndexRow(key);
    if (row == nullptr) continue;
    const std::string reference =
        row->reference[0] == '\0' ? "" : FigureText(figures.Get(row->reference));
    text += TableLine(row->key, FigureText(value), reference, row->unit, row->target);
  }
  text += "\nbeside them\n";
  for (const auto& [key, value] : figures.all()) {
    if (FindIndexRow(key) != nullptr) continue;
    if (IsReferenceKey(key)) continue;
    const std::string reference = "ref_" + key;
    text += TableLine(key.c_str(), FigureText(value),
                      figures.Has(reference) ? FigureText(figures.Get(reference)) : "", "", "");
  }
  for (const auto& [key, value] : figures.all()) {
    if (IsReferenceKey(key) && !ShownBesideOurs(figures, key)) {
      text += TableLine(key.c_str(), "", FigureText(value), "", "");
    }
  }
  for (const std::string& failure : report.failures) text += "FAILED " + failure + "\n";
  return text;
}

std::string IndexJsonReport(const IndexReport& report) {
  nlohmann::ordered_json out;
  for (const auto& [key, value] : report.figures.all()) {
    out[key] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  }
  out["size"] = report.options.size_name();
  out["sizes"] = SizesJson(report.sizes);
  out["failures"] = report.failures;
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace fermata::bench
