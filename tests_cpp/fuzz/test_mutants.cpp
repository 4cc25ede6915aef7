// Mutation test of the partition analysis: the fuzz must find every planted wrong rule, and show it small.
#include <doctest/doctest.h>

#include "fuzz/hunt.h"
#include "fuzz/shrink.h"

namespace popsr {
namespace {

using namespace test;

TEST_CASE("analysis fuzz: ten wrong rules are found, and shrunk to programs of a few ops") {
  int quick = 0;
  for (const Mutant& mutant : mutants()) {
    if (!mutant.quick) continue;
    ++quick;
    const Kill kill = hunt(mutant, 2000);
    INFO(mutant.op, ": ", mutant.what);
    REQUIRE(kill.programs > 0);
    const auto registry = mutated(mutant);
    const Recipe small =
        shrink(kill.recipe, [&](const Recipe& recipe) { return convicts(recipe, registry); });
    const Verdict verdict = judge(small, registry);
    INFO(verdict.failure, "\n", verdict.program);
    CHECK(verdict.ops <= 6);
    CHECK(verdict.program.find(mutant.op) != std::string::npos);
    CHECK(judge(small, default_registry()).failure == "");
  }
  CHECK(quick == 10);
}

TEST_CASE("analysis: every wrong rule is found") {
  CHECK(mutants().size() >= 40);
  for (const Mutant& mutant : mutants()) {
    const Kill kill = hunt(mutant, 20000);
    INFO(mutant.op, ": ", mutant.what);
    CHECK(kill.programs > 0);
  }
}

}  // namespace
}  // namespace popsr
