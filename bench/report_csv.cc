// SPDX-License-Identifier: Apache-2.0
#include <cinttypes>

#include "bench/report.h"

namespace fermata::bench {

void WriteCsvHeader(FILE* file) {
  std::fputs("request,prompt_tokens,hit_device,hit_host,hit_ssd,recomputed\n", file);
}

// A failed write stays in the stream's error flag, which the replay asks for at its end.
void WriteCsvRow(const RequestRow& row, FILE* file) {
  std::fprintf(file, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
               row.index, row.prompt, row.hit[kDevice], row.hit[kHost], row.hit[kSsd],
               row.recomputed());
}

}  // namespace fermata::bench
