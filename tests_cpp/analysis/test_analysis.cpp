// The replica-partition analysis on small programs: each test is a program and the facts expected of it.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "analysis/names.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/error.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Expect;
using test::facts_of;
using test::kAll;
using test::kEach;
using test::Program;

void check_facts(const Program& p, const Expect& expect) {
  const PartitionAnalysis facts(p.ir);
  CHECK(facts_of(p.ir, facts, expect) == expect);
}

std::vector<std::pair<int, std::string>> texts(const Program& p,
                                               const std::vector<std::pair<int, PartitionId>>& values) {
  std::vector<std::pair<int, std::string>> result;
  for (const auto& [at, fact] : values) result.emplace_back(at, p.ir.partitions().to_string(fact));
  return result;
}

// Straight-line programs

TEST_CASE("analysis: sources") {
  Program p(4);
  p.load("x");
  p.load("mask", StreamMode::kBroadcast);
  p("relu", {p.variable("w")}, "h");
  p("relu", {p.variable("shared", p.groups(2, 2))}, "s");
  p("relu", {p.constant("two")}, "c");
  p("init", {}, "zero", {{"shape", Shape{4}}, {"dtype", DType::kFloat32}});
  p("init", {}, "undef",
    {{"shape", Shape{4}}, {"dtype", DType::kFloat32}, {"init_type", std::string("undef")}});
  check_facts(p, {{"x", kEach},
                  {"mask", kAll},
                  {"w", kAll},
                  {"h", kAll},
                  {"shared", "{0,2}{1,3}"},
                  {"s", "{0,2}{1,3}"},
                  {"c", kAll},
                  {"zero", kAll},
                  {"undef", kEach}});
}

TEST_CASE("analysis: an op keeps what all its inputs keep") {
  Program p(4);
  const TensorId rows = p.variable("rows", p.groups(1, 2));
  const TensorId columns = p.variable("columns", p.groups(2, 2));
  const TensorId w = p.variable("w");
  p("add", {rows, w}, "h");
  p("add", {rows, columns}, "both");
  check_facts(p, {{"h", "{0,1}{2,3}"}, {"both", kEach}});
}

TEST_CASE("analysis: collectives make equal, position by position") {
  Program p(4);
  const TensorId x = p.load("x");
  const TensorId pairs = p.all_reduce(x, p.groups(1, 2), "pairs");
  p.all_reduce(pairs, p.groups(2, 2), "tensor_then_data");
  p.all_reduce(p.variable("columns", p.groups(2, 2)), p.groups(1, 2), "same_tuples");
  const TensorId shard = p("replicated_reduce_scatter", {x}, "shard", {{"group", p.groups(1, 2)}});
  p.all_reduce(shard, p.groups(2, 2), "transpose");
  p("replicated_all_gather", {shard}, "gathered", {{"group", p.groups(1, 2)}});
  p("replicated_all_reduce", {x}, "all");
  check_facts(p, {{"pairs", "{0,1}{2,3}"},
                  {"tensor_then_data", kAll},
                  {"same_tuples", kAll},
                  {"shard", kEach},
                  {"transpose", "{0,2}{1,3}"},
                  {"gathered", "{0,1}{2,3}"},
                  {"all", kAll}});
}

// In-place

TEST_CASE("analysis: a write changes the value from there on") {
  Program p(4);
  const TensorId x = p.load("x");
  const TensorId y = p.load("y", StreamMode::kBroadcast);
  const TensorId before = p("relu", {y}, "before");
  const TensorId sum = p("add_", {y, x}, "sum");
  p("relu", {y}, "after");
  p("copy_var_update_", {sum, before}, "again");
  p("relu", {y}, "restored");
  check_facts(p, {{"before", kAll}, {"after", kEach}, {"restored", kAll}, {"y", kAll}, {"x", kEach}});
  const PartitionAnalysis facts(p.ir);
  const ContextId main = facts.contexts(kMainGraph).at(0);
  using Values = std::vector<std::pair<int, std::string>>;
  CHECK(texts(p, facts.values(y, main)) == Values{{1, kAll}, {3, kEach}, {5, kAll}});
  CHECK(texts(p, facts.values(sum, main)) == Values{{3, kEach}, {5, kAll}});
  CHECK(texts(p, facts.values(before, main)) == Values{{2, kAll}});
}

TEST_CASE("analysis: variables fall to the fixpoint across runs") {
  Program p(4);
  const TensorId a = p.variable("a");
  const TensorId b = p.variable("b");
  const TensorId c = p.variable("c", p.groups(1, 2));
  const TensorId kept = p.variable("kept");
  p("copy_var_update_", {a, b});  // unequal from the second run on
  p("copy_var_update_", {b, c});  // the first run already ends unequal
  p("accumulate_", {kept, p("replicated_all_reduce", {p.load("x")})});
  check_facts(p, {{"a", "{0,1}{2,3}"}, {"b", "{0,1}{2,3}"}, {"c", "{0,1}{2,3}"}, {"kept", kAll}});
  const PartitionAnalysis facts(p.ir);
  CHECK(p.ir.partitions().to_string(facts.variable(a)) == "{0,1}{2,3}");
  CHECK(facts.variable(kept) == p.ir.partitions().top());
}

// Calls and loops

/// relu(add(a, b)) as a graph.
GraphId add_graph(Program& p) {
  const GraphId main = std::exchange(p.at, p.ir.create_graph("f"));
  const GraphId f = p.at;
  const TensorId a = p.input("a");
  const TensorId b = p.input("b");
  p.ir.add_output(f, p("relu", {p("add", {a, b}, "sum")}));
  p.at = main;
  return f;
}

TEST_CASE("analysis: a graph has one context per vector of input facts") {
  Program p(4);
  const GraphId f = add_graph(p);
  const TensorId w = p.variable("w");
  const TensorId rows = p.variable("rows", p.groups(1, 2));
  const TensorId columns = p.variable("columns", p.groups(2, 2));
  p("call", {w, rows}, "first", {{"graph", f}});
  p("call", {columns, w}, "second", {{"graph", f}});
  p("call", {w, rows}, "third", {{"graph", f}});
  p("call", {w, w}, "fourth", {{"graph", f}});
  check_facts(p, {{"first", "{0,1}{2,3}"},
                  {"second", "{0,2}{1,3}"},
                  {"third", "{0,1}{2,3}"},
                  {"fourth", kAll},
                  {"f_subgraph(0)/sum", kEach},
                  {"f_subgraph(0)/b", "{0,1}{2,3}"}});
  const PartitionAnalysis facts(p.ir);
  CHECK(facts.contexts(f).size() == 3);
}

TEST_CASE("analysis: callees get copies unless the call says that it modifies") {
  for (const bool by_reference : {false, true}) {
    Program p(4);
    const GraphId f = p.at = p.ir.create_graph("f");
    const TensorId a = p.input("a");
    p("add_", {a, p.input("b")});
    p.at = kMainGraph;
    const TensorId y = p.load("y", StreamMode::kBroadcast);
    const OpId call = p.emit("call", {y, p.load("x")}, {{"graph", f}});
    if (by_reference) GraphEditor(p.ir).mark_modified(call, 0);
    p("relu", {y}, "after");
    check_facts(p, {{"after", by_reference ? kEach : kAll}, {"f_subgraph(0)/a", kEach}});
  }
}

/// (a, b, c, x) -> (b, c, c + x): a difference in x reaches a in the third iteration.
GraphId shift_graph(Program& p) {
  const GraphId main = std::exchange(p.at, p.ir.create_graph("f"));
  const GraphId f = p.at;
  p.input("a");
  const TensorId b = p.input("b");
  const TensorId c = p.input("c");
  const TensorId next = p("add", {c, p.input("x")}, "next");
  for (const TensorId t : {b, c, next}) p.ir.add_output(f, t);
  p.at = main;
  return f;
}

TEST_CASE("analysis: carried values fall to the fixpoint of the loop") {
  for (const std::int64_t count : {0, 5}) {
    Program p(4);
    const GraphId f = shift_graph(p);
    const TensorId w = p.variable("w");
    const OpId loop = p.emit("repeat", {w, w, w, p.variable("rows", p.groups(1, 2))},
                             {{"graph", f}, {"count", count}}, "out");
    p("relu", {p.ir.op(loop).outputs[0]}, "a");
    p("relu", {p.ir.op(loop).outputs[2]}, "c");
    const std::string expected = count == 0 ? kAll : "{0,1}{2,3}";
    check_facts(p, {{"a", expected}, {"c", expected}, {"out", expected}});
    CHECK(PartitionAnalysis(p.ir).contexts(f).size() == (count == 0 ? 0 : 1));
  }
}

TEST_CASE("analysis: what a loop modifies by reference persists across its iterations") {
  for (const std::int64_t count : {0, 3}) {
    Program p(4);
    const GraphId f = p.at = p.ir.create_graph("f");
    const TensorId a = p.input("a");
    const TensorId state = p.input("state");
    const TensorId next = p("add", {a, state}, "next");
    p("add_", {state, p.input("x")});
    p.ir.add_output(f, next);
    p.at = kMainGraph;
    const TensorId v = p.load("v", StreamMode::kBroadcast);
    const OpId loop =
        p.emit("repeat", {p.variable("w"), v, p.load("x")}, {{"graph", f}, {"count", count}}, "out");
    GraphEditor(p.ir).mark_modified(loop, 1);
    p("relu", {v}, "after");
    const std::string expected = count == 0 ? kAll : kEach;
    check_facts(p, {{"out", expected}, {"after", expected}, {"v", expected}});
  }
}

TEST_CASE("analysis: a carried value that is modified by reference ends as the loop's output") {
  Program p(4);
  const GraphId f = p.at = p.ir.create_graph("f");
  const TensorId a = p.input("a");
  p.ir.add_output(f, p("relu", {p.input("b")}));
  p("add_", {a, p.input("x")});
  p.at = kMainGraph;
  const TensorId v = p.variable("v");
  const TensorId x = p.load("x");
  const OpId loop =
      p.emit("repeat", {v, p.variable("w"), x}, {{"graph", f}, {"count", std::int64_t{2}}}, "out");
  GraphEditor(p.ir).mark_modified(loop, 0);
  check_facts(p, {{"out", kAll}, {"v", kAll}, {"f_subgraph(0)/a", kEach}});
}

// Seeds

TEST_CASE("analysis: seeds are the finest partition that breaks no proof") {
  const TensorType narrow{DType::kBFloat16, {4}};
  for (const auto rule : {SeedRule::kPartition, SeedRule::kIdentical}) {
    Program p(4);
    const TensorId x = p.load("x", StreamMode::kReplicate, narrow);
    const TensorId w = p.variable("w", {}, narrow);
    const OpId everywhere = p.emit("add", {w, w});
    const OpId nowhere = p.emit("add", {w, x});
    const OpId rows = p.emit("add", {w, p.variable("rows", p.groups(1, 2), narrow)}, {}, "h");
    const OpId wide = p.emit("cast", {x}, {{"data_type", DType::kFloat32}});
    const PartitionAnalysis facts(p.ir, SeedRules(rule));
    CHECK(facts_of(p.ir, facts, {{"h", ""}}) == Expect{{"h", "{0,1}{2,3}"}});
    const auto seeds = [&](OpId op) { return p.ir.partitions().to_string(facts.seeds(op)); };
    const bool identical = rule == SeedRule::kIdentical;
    CHECK(seeds(everywhere) == kAll);
    CHECK(seeds(nowhere) == (identical ? kAll : kEach));
    CHECK(seeds(rows) == (identical ? kAll : "{0,1}{2,3}"));
    CHECK_FALSE(facts.seed_rule(p.ir.op(wide)).has_value());
  }
}

TEST_CASE("stochastic rounding: rules of the present ops are none of later ones") {
  Program p(2);
  const TensorId x = p.load("x", StreamMode::kReplicate, {DType::kBFloat16, {4}});
  p("add", {x, x});
  const SeedRules nearest, all(SeedRule::kPartition), present = all.for_present_ops(p.ir);
  CHECK_NOTHROW(nearest.verify(p.ir, false));
  CHECK_THROWS_WITH_AS(nearest.verify(p.ir, true), doctest::Contains("add: op has no seed rule"), GraphError);
  const PartitionAnalysis facts(p.ir, all);
  CHECK_NOTHROW(facts.check_fresh(present));
  CHECK_NOTHROW(present.verify(p.ir, true));
  CHECK_THROWS_WITH_AS(present.verify(p.ir, false), doctest::Contains("add: op has a seed rule"), GraphError);
  p("mul", {x, x});
  CHECK_THROWS_WITH_AS(present.verify(p.ir, true), doctest::Contains("mul: op has no seed rule"), GraphError);
  CHECK_NOTHROW(all.verify(p.ir, true));
  CHECK_FALSE(all.agree(p.ir, present, p.ir.num_ops()));
}

TEST_CASE("stochastic rounding: ops of a region without it keep rounding to nearest") {
  Program p(2);
  const TensorId x = p.load("x", StreamMode::kReplicate, {DType::kBFloat16, {4}});
  const OpId op = p.ir.emit(kMainGraph, "add", {x, x}, {.allow_stochastic = false});
  const SeedRules rules(SeedRule::kPartition);
  CHECK_FALSE(rules.of(p.ir, p.ir.op(op)).has_value());
  CHECK_NOTHROW(rules.verify(p.ir, true));
}

TEST_CASE("analysis: facts of another version of the program are refused") {
  Program p(4);
  const TensorId w = p.variable("w");
  const PartitionAnalysis facts(p.ir);
  CHECK_NOTHROW(facts.check_fresh());
  p("relu", {w});
  CHECK_THROWS_WITH_AS(facts.check_fresh(), doctest::Contains("the program changed"), GraphError);
  CHECK_THROWS_AS(facts.partition(w), GraphError);
}

TEST_CASE("analysis: facts of other seed rules are refused, and stay what they are") {
  Program p(2);
  const TensorId x = p.load("x", StreamMode::kBroadcast, {DType::kBFloat16, {4}});
  const TensorId y = p("add", {x, x});
  const SeedRules own(SeedRule::kPartition), other(SeedRule::kDiffering);
  const PartitionAnalysis facts(p.ir, own);
  CHECK(facts.partition(y) == p.ir.partitions().top());
  CHECK(PartitionAnalysis(p.ir, other).partition(y) == p.ir.partitions().bottom());
  CHECK_THROWS_WITH_AS(facts.check_fresh(other), doctest::Contains("the program changed"), GraphError);
  CHECK_NOTHROW(facts.check_fresh(own));
  CHECK(facts.partition(y) == p.ir.partitions().top());
}

}  // namespace
}  // namespace popsr
