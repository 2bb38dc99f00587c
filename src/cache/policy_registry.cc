// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "base/mutex.h"
#include "cache/policy.h"
#include "cache/policy_lru.h"

namespace fermata {
namespace {

struct Registry {
  Mutex mu;
  std::map<std::string, PolicyFactory, std::less<>> factories FERMATA_GUARDED_BY(mu);
  std::map<std::string, PlacementFactory, std::less<>> placements FERMATA_GUARDED_BY(mu);
};

Registry& GetRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;
    MutexLock lock(&made->mu);
    made->factories["lru"] = [](const RunView*) {
      return MakeLruPolicy(/*superseded_first=*/false);
    };
    made->factories["lru-superseded"] = [](const RunView*) {
      return MakeLruPolicy(/*superseded_first=*/true);
    };
    return made;
  }();
  return *registry;
}

}  // namespace

void RegisterPolicy(const std::string& name, PolicyFactory factory) {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  registry.factories[name] = std::move(factory);
}

PolicyFactory FindPolicy(std::string_view name) {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  const auto it = registry.factories.find(name);
  return it == registry.factories.end() ? nullptr : it->second;
}

void RegisterPlacement(const std::string& policy, PlacementFactory factory) {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  registry.placements[policy] = std::move(factory);
}

PlacementFactory FindPlacement(std::string_view policy) {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  const auto it = registry.placements.find(policy);
  if (it != registry.placements.end()) return it->second;
  return [] { return std::make_unique<PlacementPolicy>(); };
}

std::vector<std::string> PolicyNames() {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry.factories) names.push_back(name);
  return names;
}

}  // namespace fermata
