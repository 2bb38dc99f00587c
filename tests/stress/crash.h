// SPDX-License-Identifier: Apache-2.0
//
// Crash loop of the disk tier: a child process works on a directory until it is killed at a random
// moment, the parent reopens the directory and compares every block that is found with the oracle.
#pragma once

#include <cstdint>
#include <string>

namespace fermata_test {

struct CrashOptions {
  uint64_t kills = 50;
  uint64_t seed = 1;
  std::string directory;  // empty: a temporary one
  std::string program;    // of this process, run again as the child
};

int RunCrashLoop(const CrashOptions& options);  // exit status

// The child: never returns before `ready_fd` was written to; works until it is killed.
int RunCrashChild(const std::string& directory, uint64_t seed, int ready_fd);

}  // namespace fermata_test
