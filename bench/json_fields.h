// SPDX-License-Identifier: Apache-2.0
//
// Checked access to the fields of one JSON object of a trace. Every refusal reads "FILE:LINE: field
// 'x': why". nlohmann's own exceptions come from its parser alone: types are asked for before
// values are taken. Thread safety: reads only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fermata::bench {

using Json = nlohmann::json;

// Where a value stands, for messages.
struct Where {
  const std::string* file = nullptr;
  uint64_t line = 0;
  std::string inside;  // "requests[3]" within a file that is one object; empty otherwise

  std::string Text() const {
    std::string text = *file;
    text += ":";
    text += std::to_string(line);
    text += ": ";
    if (!inside.empty()) text += inside + ": ";
    return text;
  }
  Status Error(const char* field, const std::string& why) const {
    return ErrorF(StatusCode::kInvalidArgument, "%sfield '%s': %s", Text().c_str(), field,
                  why.c_str());
  }
};

// What a trace wrote, fit for a message: at most `most` bytes, those that are no printable ASCII
// as '?'.
inline std::string Printable(std::string_view text, size_t most = 40) {
  std::string shown(text.substr(0, most));
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text.size() > most ? shown + "..." : shown;
}

inline std::string ShownJson(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return Printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

// A number as short as it reads: 0.5, 1000000000.
inline std::string Plain(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", number);
  return text;
}

// A message of nlohmann's without its number and its own count of lines.
inline std::string ParserSays(std::string_view what) {
  if (!what.empty() && what[0] == '[')
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
  constexpr std::string_view kAt = "parse error at line ";
  const size_t colon = what.find(": ");
  if (what.substr(0, kAt.size()) == kAt && colon != std::string_view::npos) {
    what.remove_prefix(colon + 2);
  }
  return Printable(what, 160);
}

class JsonFields {
 public:
  JsonFields(const Where& where, const Json& object) : where_(where), object_(object) {}

  const Where& where() const { return where_; }
  bool Has(const char* name) const { return object_.contains(name); }

  // A whole number in [0, max]; a fraction is refused.
  Status Uint(const char* name, uint64_t max, uint64_t* out) const {
    const Json* value = nullptr;
    FERMATA_RETURN_IF_ERROR(Find(name, &value));
    return UintValue(*value, name, max, out);
  }
  Status UintOr(const char* name, uint64_t max, uint64_t fallback, uint64_t* out) const {
    *out = fallback;
    return Has(name) ? Uint(name, max, out) : Status();
  }
  // Any finite number in [0, max].
  Status Number(const char* name, double max, double* out) const {
    const Json* value = nullptr;
    FERMATA_RETURN_IF_ERROR(Find(name, &value));
    if (!value->is_number()) return Wrong(name, "a number", *value);
    const double number = value->get<double>();
    if (!std::isfinite(number) || number < 0 || number > max) {
      return where_.Error(name, "want 0 to " + Plain(max) + ", got " + ShownJson(*value));
    }
    *out = number;
    return Status();
  }
  Status Text(const char* name, std::string* out) const {
    const Json* value = nullptr;
    FERMATA_RETURN_IF_ERROR(Find(name, &value));
    if (!value->is_string()) return Wrong(name, "a string", *value);
    *out = *value->get_ptr<const std::string*>();
    return Status();
  }
  Status Array(const char* name, const Json** out) const {
    FERMATA_RETURN_IF_ERROR(Find(name, out));
    if (!(*out)->is_array()) return Wrong(name, "an array", **out);
    return Status();
  }
  Status UintValue(const Json& value, const char* name, uint64_t max, uint64_t* out) const {
    if (!value.is_number_integer()) return Wrong(name, "a whole number", value);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > max) {
      return where_.Error(name, "want 0 to " + std::to_string(max) + ", got " + ShownJson(value));
    }
    *out = value.get<uint64_t>();
    return Status();
  }

 private:
  Status Find(const char* name, const Json** out) const {
    const auto it = object_.find(name);
    if (it == object_.end()) return where_.Error(name, "missing");
    *out = &*it;
    return Status();
  }
  Status Wrong(const char* name, const char* want, const Json& value) const {
    return where_.Error(name, std::string("want ") + want + ", got " + ShownJson(value));
  }

  const Where& where_;
  const Json& object_;
};

// Parses `text`, which must be one object that names no key twice. What the parser says of bad text
// is kept: the byte, counted from 1, and what was expected there.
inline Status ParseJsonObject(const Where& where, std::string_view text, Json* out) {
  const auto refuse = [&where](const std::string& why) {
    return ErrorF(StatusCode::kInvalidArgument, "%snot a JSON object: %s", where.Text().c_str(),
                  why.c_str());
  };
  const size_t nul = text.find('\0');  // to the parser it is the end
  if (nul != std::string_view::npos) {
    return refuse("byte " + std::to_string(nul + 1) + ": is NUL");
  }
  std::vector<std::set<std::string>> open;  // keys of the objects around the parser's position
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = *value.get_ptr<const std::string*>();
      if (!open.back().insert(key).second && twice.empty()) twice = key;
    }
    return true;
  };
  try {
    *out = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    return refuse("byte " + std::to_string(error.byte) + ": " + ParserSays(error.what()));
  } catch (const Json::exception& error) {
    return refuse(ParserSays(error.what()));
  }
  if (!out->is_object()) return refuse(std::string("it is a JSON ") + out->type_name());
  if (!twice.empty()) return where.Error(Printable(twice).c_str(), "named twice in one object");
  return Status();
}

}  // namespace fermata::bench
