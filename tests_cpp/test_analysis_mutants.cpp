// Mutation test of the partition analysis: the fuzz must find every planted wrong rule, and show it small.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <ctime>
#include <iostream>

#include "fuzz/hunt.h"
#include "shrink.h"

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

TEST_CASE("analysis slow: every wrong rule is found" * doctest::skip()) {
  CHECK(mutants().size() >= 40);
  const std::clock_t start = std::clock();
  for (const Mutant& mutant : mutants()) {
    const Kill kill = hunt(mutant, 20000);
    std::cout << fmt::format("{:<45} {:<32} {:>6}\n", mutant.op, mutant.what, kill.programs);
    INFO(mutant.op, ": ", mutant.what);
    CHECK(kill.programs > 0);
  }
  std::cout << fmt::format("{} mutants, {:.1f} CPU-seconds\n", mutants().size(),
                           static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace popsr
