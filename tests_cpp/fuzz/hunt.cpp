#include "fuzz/hunt.h"

#include <random>
#include <utility>

namespace popsr::test {

bool convicts(const Recipe& recipe, const std::shared_ptr<const Registry>& registry, SolverFault fault) {
  const Verdict verdict = judge(recipe, registry, fault);
  return verdict.judged && !verdict.failure.empty();
}

Kill hunt(const Mutant& mutant, int programs) {
  constexpr std::size_t kRecords = 40;
  const std::shared_ptr<const Registry> registry = mutated(mutant);
  std::mt19937_64 random(20240614);
  for (int i = 1; i <= programs; ++i) {
    const Flavour flavour = i % 2 == 1 ? Flavour::kStraightLine : Flavour::kControlFlow;
    Recipe recipe = random_recipe(random, random_replicas(random), flavour, kRecords);
    if (convicts(recipe, registry, mutant.fault)) return {i, std::move(recipe)};
  }
  return {};
}

}  // namespace popsr::test
