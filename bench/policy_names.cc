// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_names.h"

#include <algorithm>
#include <vector>

#include "cache/policy.h"

namespace fermata::bench {

bool IsPolicyName(std::string_view name) {
  const std::vector<std::string> names = PolicyNames();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string KnownPolicies() {
  const std::vector<std::string> names = PolicyNames();
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace fermata::bench
