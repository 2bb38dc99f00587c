// SPDX-License-Identifier: Apache-2.0
//
// FERMATA_CHECK stops the process on what only a bug of ours can cause, where going on could hand
// out wrong bytes. FERMATA_DCHECK is for the rest: compiled in every build, run in builds without
// NDEBUG. What the world may do (full, missing, I/O, bad input) is a Status, never a check.
#pragma once

namespace fermata {

[[noreturn]] void CheckFailed(const char* expression, const char* file, int line) noexcept;

}  // namespace fermata

#define FERMATA_CHECK(condition)                                                              \
  (__builtin_expect(!(condition), 0) ? ::fermata::CheckFailed(#condition, __FILE__, __LINE__) \
                                     : (void)0)

#ifdef NDEBUG
#define FERMATA_DCHECK(condition) ((void)sizeof(!(condition)))
#else
#define FERMATA_DCHECK(condition) FERMATA_CHECK(condition)
#endif
