// SPDX-License-Identifier: Apache-2.0
//
// Log lines ("operation=open_ssd status=...") to the sink of the C ABI's config; silent without
// one. Never call with a lock held.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fermata {

enum class LogLevel : uint32_t { kError = 0, kWarning = 1, kInfo = 2 };

// Empty: no sink. Called on whichever thread logs.
using LogSink = std::function<void(LogLevel, const std::string&)>;

}  // namespace fermata
