// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fermata {

void CheckFailed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "fermata: check failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace fermata
