// SPDX-License-Identifier: Apache-2.0
//
// fermata-stress: sim (random schedules under seeds) and crash (kill and reopen), for as long as
// one likes.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>

#include "tests/sim/sim_run.h"
#include "tests/stress/crash.h"

namespace {

constexpr char kUsage[] =
    "usage: fermata-stress sim [--seeds N] [--first SEED] [--steps M]\n"
    "       fermata-stress crash [--kills N] [--dir D] [--seed S]\n";

class Arguments {
 public:
  // False when one is unknown or lacks its value.
  bool Parse(int argc, char** argv) {
    for (int i = 2; i < argc; i += 2) {
      if (std::strncmp(argv[i], "--", 2) != 0 || i + 1 >= argc) {
        std::cerr << "argument " << argv[i] << " is unknown or has no value\n";
        return false;
      }
      values_[argv[i] + 2] = argv[i + 1];
    }
    return true;
  }
  uint64_t Number(const std::string& name, uint64_t fallback) const {
    const auto found = values_.find(name);
    return found == values_.end() ? fallback : std::strtoull(found->second.c_str(), nullptr, 10);
  }
  std::string Text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

int Sim(const Arguments& arguments) {
  const uint64_t first = arguments.Number("first", 1);
  const uint64_t seeds = arguments.Number("seeds", 1000);
  const uint64_t steps = arguments.Number("steps", 500);
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
  const std::string verb = argc > 1 ? argv[1] : "";
  Arguments arguments;
  if (!arguments.Parse(argc, argv)) {
    std::cerr << kUsage;
    return 2;
  }
  if (verb == "sim") return Sim(arguments);
  if (verb == "crash") {
    fermata_test::CrashOptions options;
    options.kills = arguments.Number("kills", 50);
    options.seed = arguments.Number("seed", 1);
    options.directory = arguments.Text("dir");
    options.program = "/proc/self/exe";
    return fermata_test::RunCrashLoop(options);
  }
  if (verb == "crash-child") {
    return fermata_test::RunCrashChild(arguments.Text("dir"), arguments.Number("seed", 1),
                                       static_cast<int>(arguments.Number("ready-fd", 1)));
  }
  std::cerr << kUsage;
  return 2;
}
