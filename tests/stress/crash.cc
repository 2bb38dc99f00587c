// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/crash.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "tests/support/cache_fixture.h"

namespace fermata_test {
namespace {

constexpr uint32_t kPrompts = 60;
constexpr uint64_t kPromptTokens = 96;

CacheSetup Setup(const std::string& directory) {
  CacheSetup setup;
  setup.groups = {SmallBlocks()};
  setup.device_blocks = 24;
  setup.host_blocks = 8;
  setup.ssd_blocks = 200;  // fewer than the prompts have blocks: slots are overwritten all the time
  setup.directory = directory;
  setup.real_time = true;
  return setup;
}

// Prompts share their first two blocks in fours.
Tokens PromptOf(uint32_t number) {
  return Concat(Prompt(number / 4, 32), Prompt(1000 + number, kPromptTokens - 32));
}

bool Failed() { return ::testing::Test::HasFailure(); }

pid_t Spawn(const CrashOptions& options, uint64_t seed, const std::string& directory,
            int* ready_fd) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) return -1;
  const std::string seed_text = std::to_string(seed);
  const std::string fd_text = std::to_string(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    execl(options.program.c_str(), options.program.c_str(), "crash-child", "--dir",
          directory.c_str(), "--seed", seed_text.c_str(), "--ready-fd", fd_text.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  *ready_fd = ends[0];
  return child;
}

}  // namespace

int RunCrashChild(const std::string& directory, uint64_t seed, int ready_fd) {
  TestCache cache(Setup(directory));
  if (Failed()) return 3;
  if (write(ready_fd, "r", 1) != 1) return 3;
  Stream random(seed);
  while (!Failed()) {
    const Tokens prompt = PromptOf(static_cast<uint32_t>(random.Below(kPrompts)));
    Seq seq = cache.Fetch(prompt);  // what is found is checked here too
    const uint64_t have = seq.tokens.size();
    cache.Store(&seq, Tokens(prompt.begin() + static_cast<std::ptrdiff_t>(have), prompt.end()));
    cache.Finish(cache.StartPark(seq, FERMATA_PARK_DROP));
    cache.Release(&seq);
  }
  return 3;
}

int RunCrashLoop(const CrashOptions& options) {
  std::string directory = options.directory;
  const bool temporary = directory.empty();
  if (temporary) {
    std::string pattern = ::testing::TempDir() + "fermata-crash-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      std::cerr << "no temporary directory at " << pattern << "\n";
      return 1;
    }
    directory = pattern;
  }
  Stream random(options.seed);
  uint64_t hit_tokens = 0;
  uint64_t blocks_checked = 0;
  uint64_t kills = 0;
  const auto start = std::chrono::steady_clock::now();
  for (; kills < options.kills && !Failed(); ++kills) {
    int ready_fd = -1;
    const pid_t child = Spawn(options, options.seed * 1000 + kills, directory, &ready_fd);
    if (child < 0) {
      std::cerr << "fork failed\n";
      return 1;
    }
    pollfd ready = {ready_fd, POLLIN, 0};
    char byte = 0;
    if (poll(&ready, 1, 20'000) != 1 || read(ready_fd, &byte, 1) != 1) {
      std::cerr << "kill " << kills << ": the child did not open the directory\n";
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      return 1;
    }
    // The pipe's end says if the child ended by itself, which it never should.
    const int ended = poll(&ready, 1, static_cast<int>(5 + random.Below(600)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    close(ready_fd);
    if (ended != 0 || !WIFSIGNALED(status)) {
      std::cerr << "kill " << kills << ": the child ended by itself, status " << status << "\n";
      return 1;
    }
    TestCache cache(Setup(directory));
    if (Failed()) return 1;
    for (uint32_t i = 0; i < kPrompts; ++i) {
      Seq seq = cache.Fetch(PromptOf(i));
      hit_tokens += seq.tokens.size();
      blocks_checked += seq.tokens.size() / 16;
      cache.Release(&seq);
    }
    cache.Audit();
    cache.Close();
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << "kills " << kills << ", blocks found and checked " << blocks_checked
            << ", hit tokens " << hit_tokens << ", " << seconds << " s, seed " << options.seed
            << "\n";
  if (temporary) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  if (Failed()) {
    std::cerr << "FAILED; again: fermata-stress crash --kills " << options.kills << " --seed "
              << options.seed << "\n";
    return 1;
  }
  if (blocks_checked == 0) {
    std::cerr << "FAILED: nothing survived any kill, so nothing was shown\n";
    return 1;
  }
  return 0;
}

}  // namespace fermata_test
