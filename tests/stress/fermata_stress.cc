// SPDX-License-Identifier: Apache-2.0
//
// fermata-stress: sim (random schedules under seeds) and crash (kill and reopen), for as long as
// one likes.
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <string>
#include <string_view>

#include "tests/sim/sim_run.h"
#include "tests/stress/crash.h"

namespace {

constexpr char kUsage[] =
    "usage: fermata-stress sim [--seeds N] [--first SEED] [--steps M]\n"
    "       fermata-stress crash [--kills N] [--dir D] [--seed S]\n";

// One option of a verb: a whole number within bounds, or text.
struct Option {
  std::string_view name;
  uint64_t* number = nullptr;
  uint64_t least = 0;
  uint64_t most = 0;
  std::string* text = nullptr;
};

bool Refuse(std::string_view what, const std::string& why) {
  std::cerr << "fermata-stress: " << what << ": " << why << "\n" << kUsage;
  return false;
}

bool Set(const Option& option, std::string_view value) {
  if (option.text != nullptr) {
    *option.text = value;
    return !value.empty() || Refuse(option.name, "is empty");
  }
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, *option.number);
  if (error == std::errc() && stop == end && *option.number >= option.least &&
      *option.number <= option.most) {
    return true;
  }
  return Refuse(option.name, "want a whole number from " + std::to_string(option.least) + " to " +
                                 std::to_string(option.most) + ", got '" + std::string(value) +
                                 "'");
}

// The arguments after the verb, in pairs; says what is wrong with them. A run that does less than
// it was asked to must not pass, so nothing is guessed and nothing ignored.
bool Parse(int argc, char** argv, std::initializer_list<Option> options) {
  for (int i = 2; i < argc; i += 2) {
    const Option* found = nullptr;
    for (const Option& option : options) {
      if (option.name == argv[i]) found = &option;
    }
    if (found == nullptr) {
      return Refuse(argv[i], "is no option of " + std::string(argv[1]));
    }
    if (i + 1 == argc) return Refuse(argv[i], "has no value");
    if (!Set(*found, argv[i + 1])) return false;
  }
  return true;
}

constexpr uint64_t kMost = 1'000'000'000'000;  // nobody waits for as many; no sum of two wraps

int Sim(uint64_t first, uint64_t seeds, uint64_t steps) {
  fermata_test::SimResult total;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const fermata_test::SimResult result = fermata_test::RunSim(seed, steps);
    if (!result.error.empty()) {
      std::cerr << "seed " << seed << " step " << result.steps << ": " << result.error
                << "\nreplay: " << fermata_test::ReplayCommand(seed, result.steps) << "\n";
      return 1;
    }
    total.hits += result.hits;
    total.loads += result.loads;
    total.failed_loads += result.failed_loads;
    total.checks += result.checks;
  }
  std::cout << "seeds " << seeds << ", hits " << total.hits << ", loads " << total.loads
            << ", failed loads " << total.failed_loads << ", byte checks " << total.checks << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "--help") {
    std::cout << kUsage;
    return 0;
  }
  if (verb == "sim") {
    uint64_t first = 1, seeds = 1000, steps = 500;
    if (!Parse(argc, argv,
               {{"--first", &first, 0, kMost},
                {"--seeds", &seeds, 1, kMost},
                {"--steps", &steps, 1, kMost}})) {
      return 2;
    }
    return Sim(first, seeds, steps);
  }
  fermata_test::CrashOptions options;
  if (verb == "crash") {
    if (!Parse(argc, argv,
               {{"--kills", &options.kills, 1, kMost},
                {"--seed", &options.seed, 0, kMost},
                {"--dir", nullptr, 0, 0, &options.directory}})) {
      return 2;
    }
    options.program = "/proc/self/exe";
    return fermata_test::RunCrashLoop(options);
  }
  if (verb == "crash-child") {
    // Its seed is made of the parent's and may be any.
    uint64_t ready_fd = 1;
    if (!Parse(argc, argv,
               {{"--seed", &options.seed, 0, std::numeric_limits<uint64_t>::max()},
                {"--ready-fd", &ready_fd, 0, std::numeric_limits<int>::max()},
                {"--dir", nullptr, 0, 0, &options.directory}})) {
      return 2;
    }
    return fermata_test::RunCrashChild(options.directory, options.seed, static_cast<int>(ready_fd));
  }
  std::cerr << kUsage;
  return 2;
}
