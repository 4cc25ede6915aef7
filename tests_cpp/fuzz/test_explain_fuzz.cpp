// Random programs of every rounding mode are explained and linted: each pair that is not proved equal has a
// path to a cause.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "fuzz/programs/random_program.h"
#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/explain/explanation.h"
#include "popsr/analysis/lint/lints.h"

namespace popsr {
namespace {

using namespace test;

/// Explains the last value of a tensor of the main graph; the kind of the cause is counted.
void explain_value(Explainer& explainer, TensorId tensor, Replica r, Replica s,
                   std::map<RootKind, int>& roots) {
  Dataflow& flow = explainer.flow();
  const Value value = flow.last(kMainFrame, tensor);
  const auto labels = flow.ir().partitions().labels(flow.fact(value));
  const Explanation found = explainer.explain(tensor, value, r, s);
  CHECK(found.root.has_value() == (labels[r] != labels[s]));
  CHECK(found.root_text.find('\n') == std::string::npos);
  if (!found.root) return;
  CHECK_FALSE(found.suggestion.empty());
  ++roots[*found.root];
}

TEST_CASE("explain fuzz: every difference of a random program has a cause, whatever its seeds are") {
  std::map<RootKind, int> roots;
  for (std::uint64_t number = 1; number <= 600; ++number) {
    std::mt19937_64 random(number);
    const auto replicas = static_cast<std::int64_t>(2 + random() % 7);
    const Flavour flavour = number % 2 == 0 ? Flavour::kEveryOp : Flavour::kControlFlow;
    const Recipe recipe = random_recipe(random, replicas, flavour, 8 + random() % 24);
    Program p(replicas);
    grow(recipe, p);
    const PartitionAnalysis facts(p.ir, p.seeds);
    Explainer explainer(facts);
    const std::vector<TensorId>& tensors = p.ir.graph(kMainGraph).tensors;
    for (const TensorId tensor : tensors) {
      if (p.ir.tensor(tensor).kind == TensorKind::kConstant || p.ir.tensor(tensor).state.home != kNone)
        continue;
      INFO("program ", number, ", ", p.ir.tensor(tensor).name);
      const auto r = static_cast<Replica>(random() % static_cast<std::uint64_t>(replicas));
      const auto s = static_cast<Replica>((r + 1 + random() % static_cast<std::uint64_t>(replicas - 1)) %
                                          static_cast<std::uint64_t>(replicas));
      explain_value(explainer, tensor, r, s, roots);
    }
    for (const Lint& lint : find_lints(explainer)) CHECK(lint.text.find('\n') == std::string::npos);
  }
  CHECK(roots[RootKind::kSeeds] > 100);
  CHECK(roots[RootKind::kStream] > 1000);
}

}  // namespace
}  // namespace popsr
