// Mode "popart" through the C++ core: the map of values, the reference's own test cases, its rules for ops
// that the product does not have, and seeds. Its known errors are in tests_py/analysis/popart_cases.py.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/lint/lints.h"
#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/transform/graph_editor.h"
#include "popsr/transform/merge.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::error_of;
using test::kVector;
using test::Program;

using Times = std::vector<std::pair<Time, bool>>;
const TensorType kNarrow{DType::kBFloat16, {4}};

// Values

constexpr TensorId kA{0}, kB{1}, kC{2};

TEST_CASE("popart values: what is stored is what all said") {
  PopartValues values(2);
  CHECK_FALSE(values.known(kA));
  const std::vector<std::pair<bool, bool>> says = {
      {true, true}, {false, false}, {true, false}, {false, false}};
  for (const auto& [said, stored] : says) {
    values.set(kA, 3, said);
    CHECK(values.at(kA, 3) == stored);
  }
  CHECK(values.known(kA));
  CHECK_FALSE(values.known(kB));
}

TEST_CASE("popart values: times") {
  PopartValues values(1);
  values.set(kA, 4, false);
  values.set(kA, kInitially, true);
  values.set(kA, 7, true);
  CHECK(values.before(kA, 0));
  CHECK(values.before(kA, 4));
  CHECK_FALSE(values.before(kA, 5));
  CHECK_FALSE(values.before(kA, 7));
  CHECK(values.before(kA, 8));
  CHECK(values.last(kA));
  CHECK(values.of(kA).size() == 3);
  CHECK_THROWS_AS(values.at(kA, 5), InternalError);
  CHECK_THROWS_AS(values.before(kA, kInitially), InternalError);
  CHECK_THROWS_AS(PopartValues(1).last(kA), InternalError);
}

TEST_CASE("popart values: a first value and a fall are changes") {
  PopartValues values(1);
  CHECK_FALSE(values.changed());
  const std::vector<std::pair<bool, bool>> says = {{true, true}, {true, false}, {false, true}, {true, false}};
  for (const auto& [said, changes] : says) {
    values.clear_flags();
    CHECK(values.set(kA, 0, said) == changes);
    CHECK(values.changed() == changes);
  }
  values.clear_flags();
  CHECK(values.set(kA, 1, false));
  CHECK_FALSE(values.set(kA, 1, true));
  CHECK(values.changed());
}

TEST_CASE("popart values: true of what is false already is a disagreement") {
  PopartValues values(3);
  for (const bool said : {true, false, false}) values.set(kA, 0, said);
  CHECK(values.disagreements().empty());
  for (const bool said : {false, true}) values.set(kB, 0, said);
  values.set(kC, 0, false);
  values.set(kC, 1, true);  // another time
  CHECK(values.disagreements() == std::set{kB});
  values.clear_flags();
  CHECK(values.disagreements().empty());
}

// The reference's test cases

TEST_CASE("popart: results of host loads are equal when the stream is broadcast") {
  for (const auto left : {StreamMode::kBroadcast, StreamMode::kReplicate}) {
    for (const auto right : {StreamMode::kBroadcast, StreamMode::kReplicate}) {
      Program p(2);
      const TensorId a = p.load("a", left), b = p.load("b", right);
      const TensorId sum = p("add", {a, b}), same = p("add", {a, a}), out = p("add", {sum, same});
      const PopartAnalysis facts(p.ir);
      const bool x = left == StreamMode::kBroadcast, y = right == StreamMode::kBroadcast;
      CHECK(facts.is_equal(a) == x);
      CHECK(facts.is_equal(b) == y);
      CHECK(facts.is_equal(sum) == (x && y));
      CHECK(facts.is_equal(same) == x);
      CHECK(facts.is_equal(out) == (x && y));
    }
  }
}

/// y = tanh(x * w), as an op sequence or as a call of a graph.
struct Layers {
  Layers(Program& program, int outlined) : p(program), calls_left(outlined) {
    if (outlined == 0) return;
    graph = p.at = p.ir.create_graph("layer");
    const TensorId x = p.input("x");
    p.ir.add_output(graph, inside(x, p.input("w")));
    p.at = kMainGraph;
  }
  TensorId operator()(TensorId x, TensorId w) {
    if (calls_left-- <= 0) return inside(x, w);
    return p("call", {x, w}, {}, {{"graph", graph}});
  }
  TensorId inside(TensorId x, TensorId w) { return p("tanh", {p("mul", {x, w})}); }

  Program& p;
  GraphId graph = {};
  int calls_left;
};

TEST_CASE("popart: a training step, with none, one or two of its layers outlined") {
  for (const int outlined : {0, 1, 2}) {
    for (const auto mode : {StreamMode::kBroadcast, StreamMode::kReplicate}) {
      for (const bool reduces : {false, true}) {
        CAPTURE(outlined);
        CAPTURE(reduces);
        Program p(2);
        Layers layer(p, outlined);
        const TensorId x = p.load("x", mode);
        const TensorId w = p.variable("w"), frozen = p.variable("frozen");
        const TensorId hidden = layer(x, frozen), out = layer(hidden, w);
        TensorId gradient = p("mul", {out, hidden});
        if (reduces) gradient = p("replicated_all_reduce", {gradient});
        const TensorId updated = p("accumulate_", {w, gradient});
        const PopartAnalysis facts(p.ir);
        const bool loads = mode == StreamMode::kBroadcast, weights = loads || reduces;
        CHECK(facts.is_equal(hidden) == loads);
        CHECK(facts.is_equal(out) == loads);
        CHECK(facts.is_equal(gradient) == weights);
        CHECK(facts.is_equal(updated) == weights);
        CHECK(facts.is_equal(w) == weights);
        CHECK(facts.values().at(w, kInitially) == weights);
        CHECK(facts.is_equal(frozen));
        // Both calls pass weights, of which one is trained.
        CHECK(facts.disagreements().size() == (outlined == 2 && !weights ? 1 : 0));
      }
    }
  }
}

TEST_CASE("popart: attributes of ops") {
  Program p(2);
  const OpId update = p.emit("accumulate_", {p.variable("w"), p.load("x")});
  p("relu", {p.ir.op(update).outputs[0]});
  const OpId load = p.ir.graph(kMainGraph).ops[0];
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  const PopartAnalysis facts(p.ir);
  CHECK(facts.attributes(load) == Attributes{{"replEqOut0", "false"}});
  // The variable is unequal from the first run on.
  CHECK(facts.attributes(update) ==
        Attributes{{"replEqIn0", "false"}, {"replEqIn1", "false"}, {"replEqOut0", "false"}});
}

// Ops that the product does not have

/// The registry with one more op.
std::shared_ptr<const Registry> with(OpDef def) {
  auto registry = std::make_shared<Registry>(*default_registry());
  registry->add(std::move(def));
  return registry;
}

std::vector<OutputDef> two_outputs(const InferContext& context) {
  return {{context.type(0)}, {context.type(1)}};
}
std::vector<OutputDef> a_number(const InferContext&) { return {{{DType::kFloat32, {4}}}}; }
PartitionId nowhere(const RuleContext& context, std::size_t) { return context.table.bottom(); }

TEST_CASE("popart: P2, a step that is counted in place spoils itself and then the weights") {
  for (const bool has_output : {false, true}) {
    // Output 1 is the step, counted up; the reference's op writes its input, but has no such output.
    Program p(4, with({.name = "counting_updater",
                       .inputs = {{"moment"}, {"step"}},
                       .infer = two_outputs,
                       .memory = {.effects = {{.input = 1, .output = 1, .in_popart = has_output}}}}));
    const TensorId step = p.variable("step");
    const TensorId w = p.variable("w");
    const TensorId g = p("replicated_all_reduce", {p.load("x")});
    const OpId updater = p.emit("counting_updater", {g, step});
    const TensorId updated = p("accumulate_", {w, p.ir.op(updater).outputs[0]});
    const PopartAnalysis facts(p.ir);
    CHECK(facts.is_equal(g));
    CHECK(facts.is_equal(step) == has_output);
    CHECK(facts.is_equal(p.ir.op(updater).outputs[1]) == has_output);
    CHECK(facts.are_outputs_equal(updater) == has_output);
    CHECK(facts.is_equal(updated) == has_output);
    CHECK(facts.is_equal(w) == has_output);
    const PartitionAnalysis ours(p.ir);
    for (const TensorId t : {step, w, updated}) CHECK(ours.partition(t) == p.ir.partitions().top());
  }
}

TEST_CASE("popart: U10, an op that reads hidden state is equal when its inputs are") {
  const CollectiveFn reads_clock = [](const CollectiveSpec&) { return CollectiveKernel(); };
  const OpDef undeclared{.name = "clock", .infer = a_number, .kernel = {.collective = reads_clock}};
  OpDef declared = undeclared;
  declared.replicas.partition = nowhere;
  for (const bool has_rule : {false, true}) {
    Program p(4, with(has_rule ? declared : undeclared));
    const TensorId now = p("clock", {});
    CHECK(PopartAnalysis(p.ir).is_equal(now));
    const PartitionAnalysis ours(p.ir);
    CHECK(ours.partition(now) == p.ir.partitions().bottom());
    Explainer explainer(ours);
    const std::vector<Lint> lints = find_lints(explainer);
    CHECK(std::ranges::count(lints, 9, &Lint::code) == (has_rule ? 0 : 1));
  }
}

TEST_CASE("popart: constants are equal, but for those that an op reads as its seed") {
  Program p(4, with({.name = "random",
                     .inputs = {{"shape_of"}, {.name = "seed", .seed = true}},
                     .infer = same_as_input,
                     .numerics = {.random = true}}));
  const TensorId seed = p.constant("seed"), c = p.constant("c");
  const TensorId drawn = p("random", {c, seed});
  const TensorId by_variable = p("random", {c, p.variable("seed_variable")});
  const PopartAnalysis facts(p.ir);
  CHECK_FALSE(facts.is_equal(seed));
  CHECK_FALSE(facts.is_equal(drawn));
  CHECK(facts.is_equal(c));
  CHECK(facts.is_equal(by_variable));
}

// Graphs

TEST_CASE("popart: values of a graph are ANDed over its calls, and the calls are warned of") {
  Program p(4);
  const GraphId f = p.at = p.ir.create_graph("f");
  const TensorId x = p.input("x");
  p.ir.add_output(f, p("relu", {x}));
  p.at = kMainGraph;
  const TensorId good = p("call", {p.variable("w")}, {}, {{"graph", f}});
  CHECK(PopartAnalysis(p.ir).is_equal(good));
  const TensorId bad = p("call", {p.load("own")}, {}, {{"graph", f}});
  const PopartAnalysis facts(p.ir);
  CHECK_FALSE(facts.is_equal(good));
  CHECK_FALSE(facts.is_equal(bad));
  CHECK(facts.disagreements() == std::vector<TensorId>{x});
}

TEST_CASE("popart: what a call modifies is what the graph leaves in its input") {
  for (const bool marked : {false, true}) {
    Program p(4);
    const GraphId f = p.at = p.ir.create_graph("f");
    p("add_", {p.input("state"), p.input("x")});
    p.at = kMainGraph;
    const TensorId v = p.variable("v");
    const OpId call = p.emit("call", {v, p.load("x")}, {{"graph", f}});
    if (marked) GraphEditor(p.ir).mark_modified(call, 0);
    const TensorId after = p("relu", {v});
    const PopartAnalysis facts(p.ir);
    CHECK(facts.is_equal(v) == !marked);
    CHECK(facts.is_equal(after) == !marked);
    CHECK(facts.are_outputs_equal(call));  // it has none
    CHECK(facts.disagreements().empty());
  }
}

TEST_CASE("popart: tensors in one place are updated together, whether they were made yet or not") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId a = p.load("a", StreamMode::kBroadcast), x = p.load("x");
  const TensorId b = p("add_", {a, x});
  const TensorId c = p("replicated_all_reduce_", {b});
  const TensorId d = p("copy_var_update_", {a, x});
  const PopartAnalysis facts(p.ir);
  const Times times = {{0, true}, {2, false}, {3, true}, {4, false}};
  for (const TensorId t : {a, b, c, d}) CHECK(facts.values().of(t) == times);
  CHECK(facts.values().of(x) == Times{{1, false}});
  CHECK(facts.is_equal_at(a, 1));
  CHECK_FALSE(facts.is_equal_at(a, 2));
  CHECK(error_of<GraphError>([&] { facts.is_equal_at(x, 0); }) ==
        "analyze: 'x' has no value yet, got time 0, expected 1 or later");
}

TEST_CASE("popart: graphs that the reference stops at are errors") {
  Program p(4);
  const GraphId f = p.at = p.ir.create_graph("f");
  const TensorId c = p.constant("c", kNarrow), y = p("add", {c, c}, "y");
  p.at = kMainGraph;
  CHECK_NOTHROW(PopartAnalysis(p.ir));  // nobody calls it
  CHECK(error_of<GraphError>([&] { SeedRules::of_mode(p.ir, "popart"); }) ==
        "analyze: mode 'popart' never looks at graph 'f_subgraph(0)', got no value of 'f_subgraph(0)/y', "
        "expected a graph with inputs that is called");
  p.ir.add_output(f, c);
  CHECK(PopartAnalysis(p.ir).is_equal(c));
  p.ir.add_output(f, y);
  p.emit("call", {}, {{"graph", f}});
  CHECK(error_of<GraphError>([&] { PopartAnalysis{p.ir}; }) ==
        "analyze: graph 'f_subgraph(0)' has no inputs, so mode 'popart' never looks at it, got no value of "
        "'f_subgraph(0)/y', expected a graph with inputs");
}

TEST_CASE("popart: facts of another version of the program are refused") {
  Program p(4);
  const TensorId w = p.variable("w");
  const PopartAnalysis facts(p.ir);
  const TensorId later = p("relu", {w});
  for (const TensorId t : {w, later}) {
    CHECK(error_of<GraphError>([&] { facts.is_equal(t); }).starts_with("analyze: the program changed"));
  }
}

// Seeds

SeedRule rule_of(const Program& p, const SeedRules& rules, OpId op) {
  return rules.of(p.ir, p.ir.op(op)).value();
}

TEST_CASE("popart seeds: identical where all outputs are equal, and facts follow the seeds") {
  Program p(4);
  const TensorId w = p.variable("w", {}, kNarrow), x = p.load("x", StreamMode::kReplicate, kNarrow);
  const TensorId halves = p.all_reduce(x, p.groups(1, 2));
  const OpId same = p.emit("add", {w, w}), differs = p.emit("add", {w, x});
  const OpId split = p.emit("replicated_all_reduce", {halves}, {{"group", p.groups(2, 2)}});
  const OpId wide = p.emit("cast", {x}, {{"data_type", DType::kFloat32}});
  const SeedRules rules = SeedRules::of_mode(p.ir, "popart");
  CHECK(rules.agree(p.ir, SeedRules::of_mode(p.ir, "popart"), p.ir.num_ops()));
  CHECK(rule_of(p, rules, same) == SeedRule::kIdentical);
  CHECK(rule_of(p, rules, differs) == SeedRule::kDiffering);
  CHECK(rule_of(p, rules, split) == SeedRule::kDiffering);
  CHECK_FALSE(rules.of(p.ir, p.ir.op(wide)).has_value());
  CHECK_NOTHROW(rules.verify(p.ir, true));
  const PartitionAnalysis facts(p.ir, rules);
  PartitionTable& table = p.ir.partitions();
  CHECK(facts.seeds(same) == table.top());
  CHECK(facts.seeds(split) == table.bottom());
  CHECK(facts.partition(p.ir.op(split).outputs[0]) == table.bottom());
  for (const auto rule : {SeedRule::kPartition, SeedRule::kIdentical}) {
    CHECK(rule_of(p, SeedRules(rule), split) == rule);
    CHECK_FALSE(rules.agree(p.ir, SeedRules(rule), p.ir.num_ops()));
    CHECK(PartitionAnalysis(p.ir, SeedRules(rule)).partition(p.ir.op(split).outputs[0]) == table.top());
  }
}

TEST_CASE("popart seeds: parts of a merged op have the seeds of the whole") {
  Program p(4);
  const TensorId w = p.variable("w", {}, kNarrow), x = p.load("x", StreamMode::kReplicate, kNarrow);
  const OpId good = p.emit("replicated_all_reduce", {w}, {{"group", p.groups(1, 2)}});
  const OpId bad = p.emit("replicated_all_reduce", {x}, {{"group", p.groups(1, 2)}});
  const SeedRules alone = SeedRules::of_mode(p.ir, "popart");
  CHECK(rule_of(p, alone, good) == SeedRule::kIdentical);
  REQUIRE(merge_collectives(p.ir) == 1);
  CHECK(rule_of(p, alone, good) == SeedRule::kIdentical);
  const SeedRules merged = SeedRules::of_mode(p.ir, "popart");
  CHECK(rule_of(p, merged, good) == SeedRule::kDiffering);
  CHECK(rule_of(p, merged, bad) == SeedRule::kDiffering);
}

}  // namespace
}  // namespace popsr
