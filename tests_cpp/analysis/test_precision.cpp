// Share of the exact facts that the two analyses find, on the same random programs: the table of
// bench/README.md.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <random>
#include <string_view>

#include "fuzz/facts_check.h"
#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"

namespace popsr {
namespace {

using namespace test;

struct Score {
  double values = 0, exact = 0, wrong = 0;
  double equal_pairs = 0, proved_pairs = 0;  ///< Pairs of replicas.

  void add(const Comparison& seen) {
    ++values;
    exact += seen.exact() ? 1 : 0;
    wrong += seen.unsound_pairs > 0 ? 1 : 0;
    equal_pairs += static_cast<double>(seen.equal_pairs);
    proved_pairs += static_cast<double>(seen.proved_pairs);
  }
};

struct Scores {
  Score ours, popart;
};

void judge_both(const Ir& ir, Scores& scores) {
  const PartitionAnalysis facts(ir);
  if (may_part(facts)) return;  // its runs end early, and show little
  const PopartAnalysis popart(ir);
  PartitionTable& table = ir.partitions();
  for (const JudgedValue& value : judge_values(facts, 24, 3)) {
    const bool listed = value.pairs.place.index < ir.op(value.op).outputs.size();
    if (!listed) continue;  // remote entries are not values of the reference
    const bool equal = popart.is_output_equal(value.op, value.pairs.place.index);
    scores.ours.add(compare(value.pairs, table.labels(value.fact.value())));
    scores.popart.add(compare(value.pairs, table.labels(equal ? table.top() : table.bottom())));
  }
}

Scores scores_of(Flavour flavour, int programs) {
  std::mt19937_64 random(20261121);
  Scores scores;
  for (int round = 0; round < programs; ++round) {
    Recipe recipe = random_recipe(random, random_replicas(random), flavour, 40);
    recipe.rounding = RoundingMode::kNearest;
    Program p(recipe.replicas);
    grow(recipe, p);
    try {
      judge_both(p.ir, scores);
    } catch (const GraphError&) {
      continue;  // where the reference stops: graphs without inputs
    }
  }
  return scores;
}

TEST_CASE("analysis slow: precision beside mode popart" * doctest::skip()) {
  std::cout << "| programs | analysis | values | exact | equal pairs proved | values with a wrong claim |\n"
               "| --- | --- | --- | --- | --- | --- |\n";
  for (const Flavour flavour : {Flavour::kStraightLine, Flavour::kControlFlow}) {
    const Scores scores = scores_of(flavour, 1500);
    const auto print = [flavour](std::string_view mode, const Score& score) {
      std::cout << fmt::format("| {} | {} | {} | {:.4f} | {:.4f} | {:.4f} |\n",
                               flavour == Flavour::kStraightLine ? "straight line" : "control flow", mode,
                               score.values, score.exact / score.values,
                               score.proved_pairs / score.equal_pairs, score.wrong / score.values);
    };
    print("partition", scores.ours);
    print("popart", scores.popart);
    CHECK(scores.ours.wrong == 0);
    CHECK(scores.ours.values > 10000);
    CHECK(scores.popart.wrong > 0);
  }
}

}  // namespace
}  // namespace popsr
