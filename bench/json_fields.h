// SPDX-License-Identifier: Apache-2.0
//
// Checked access to the fields of one JSON object of a trace. Every refusal reads "FILE:LINE: field
// 'x': why". nlohmann's own exceptions are never provoked: types are asked for before values are
// taken. Thread safety: reads only.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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
      return where_.Error(name, "want 0 to " + std::to_string(max) + ", got " + Shown(*value));
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
      return where_.Error(name, "want 0 to " + std::to_string(max) + ", got " + Shown(value));
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
    return where_.Error(name, std::string("want ") + want + ", got " + Shown(value));
  }
  // At most 40 characters of the value; bytes that are no UTF-8 are replaced.
  static std::string Shown(const Json& value) {
    if (value.is_structured()) return value.is_array() ? "an array" : "an object";
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 40) text = text.substr(0, 40) + "...";
    return text;
  }

  const Where& where_;
  const Json& object_;
};

// Parses one object; false when `text` is anything else.
inline bool ParseJsonObject(std::string_view text, Json* out) {
  *out = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return out->is_object();
}

}  // namespace fermata::bench
