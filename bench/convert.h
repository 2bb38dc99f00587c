// SPDX-License-Identifier: Apache-2.0
//
// Writes a Trace as kvt1 text (see trace_kvt1.cc for the reader). Reading it back gives a Trace
// whose requests have the same fields and expand to the same blocks. Thread safety: a free function
// without state. Cost: O(requests + runs), about 150 bytes of text a request.
#pragma once

#include <string>

#include "bench/trace.h"

namespace fermata::bench {

std::string ToKvt1(const Trace& trace);

}  // namespace fermata::bench
