// Explanations and lints that Python cannot reach: mutated registries, and the laws of the search.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/lint/lints.h"
#include "popsr/base/error.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Program;

/// The product's registry with one op changed.
template <class Change>
std::shared_ptr<const Registry> changed(std::string_view op, const Change& change) {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef def = registry->at(op);
  change(def);
  registry->replace(std::move(def));
  return registry;
}

Explanation explain_last(Explainer& explainer, TensorId tensor, Replica r, Replica s) {
  return explainer.explain(tensor, explainer.flow().last(kMainFrame, tensor), r, s);
}

std::vector<Lint> lints_of(Explainer& explainer, int code) {
  std::vector<Lint> lints = find_lints(explainer);
  std::erase_if(lints, [code](const Lint& lint) { return lint.code != code; });
  return lints;
}

// Roots

TEST_CASE("explain: an exchange without a rule is equal nowhere, says so, and is a lint") {
  for (const bool declared : {true, false}) {
    Program p(4, changed("replicated_all_reduce", [declared](OpDef& def) {
                if (!declared) def.replicas.partition = meet_of_inputs;
              }));
    const TensorId y = p.all_reduce(p.variable("w", p.groups(1, 2)), p.groups(1, 4), "y");
    p("print_tensor", {y}, "z");
    const PartitionAnalysis facts(p.ir);
    Explainer explainer(facts);
    const std::vector<Lint> lints = lints_of(explainer, 9);
    CHECK(p.ir.partitions().num_blocks(facts.partition(y)) == (declared ? 1 : 4));
    CHECK(lints.size() == (declared ? 0 : 1));
    if (declared) continue;
    CHECK(lints[0].tensor == y);
    CHECK(lints[0].cost == 1);
    CHECK(lints[0].unit == "values");
    CHECK(lints[0].text.find("declares no partition rule: its 1 result is treated as equal nowhere") !=
          std::string::npos);
    CHECK(explain_last(explainer, y, 0, 1).root == RootKind::kUndeclared);
  }
}

TEST_CASE("explain: a store without a rule is a lint for each entry it may reach") {
  Program p(2, changed("remote_store", [](OpDef& def) { def.replicas.partition = meet_of_inputs; }));
  const RemoteId buffer = p.ir.add_remote_buffer(test::kVector, 3);
  const TensorId offset = p.load("offset", StreamMode::kBroadcast, {DType::kInt32, {}});
  p.emit("remote_store", {p.variable("w"), offset}, {{"remote_buffer", buffer}});
  const PartitionAnalysis facts(p.ir);
  Explainer explainer(facts);
  const std::vector<Lint> lints = lints_of(explainer, 9);
  REQUIRE(lints.size() == 1);
  CHECK(lints[0].cost == 3);
}

TEST_CASE("explain: an op may give each replica a value of its own") {
  const auto own = [](const RuleContext& context, std::size_t) { return context.table.bottom(); };
  Program p(2, changed("init", [&](OpDef& def) { def.replicas.partition = own; }));
  const TensorId zero = p("init", {}, "zero", {{"shape", Shape{4}}, {"dtype", DType::kFloat32}});
  const TensorId y = p("relu", {zero}, "y");
  const PartitionAnalysis facts(p.ir);
  Explainer explainer(facts);
  const Explanation found = explain_last(explainer, y, 0, 1);
  CHECK(found.root == RootKind::kOwnValue);
  CHECK(found.root_text == "init gives replicas 0 and 1 values of their own");
}

TEST_CASE("explain: replicas must be two of those there are") {
  Program p(2);
  const TensorId x = p.load("x");
  const PartitionAnalysis facts(p.ir);
  Explainer explainer(facts);
  CHECK_THROWS_WITH_AS(explain_last(explainer, x, 0, 2), doctest::Contains("expected two of 0 to 1"),
                       ReplicaError);
  CHECK_THROWS_AS(explain_last(explainer, x, 1, 1), ReplicaError);
  p("relu", {x});
  CHECK_THROWS_WITH_AS(explain_last(explainer, x, 0, 1), doctest::Contains("the program changed"),
                       GraphError);
}

TEST_CASE("explain: every exchange of values between replicas says how pairs move") {
  int found = 0;
  for (const std::string_view name : default_registry()->names()) {
    const OpDef& def = default_registry()->at(name);
    const auto moves = [](const AttrDef& attr) {
      return attr.type == AttrType::kGrouping || attr.name == "mapping";
    };
    if (!def.kernel.collective || def.inputs.empty() || std::ranges::none_of(def.attrs, moves)) continue;
    if (def.program.observable) continue;  // tells the host, and no replica
    CAPTURE(name);
    CHECK((def.replicas.witness != nullptr));
    ++found;
  }
  CHECK(found > 10);
}

TEST_CASE("explain: partitions in words") {
  PartitionTable table(64);
  const auto text = [&](std::int64_t stride, std::int64_t size) {
    return equal_inside(table, ReplicaGrouping::from_stride(64, stride, size).partition(table));
  };
  CHECK(text(1, 64) == "equal on all replicas");
  CHECK(text(1, 1) == "equal nowhere");
  CHECK(text(1, 2) == "equal inside each of 32 blocks");
  std::vector<std::uint64_t> keys(64);
  for (std::uint64_t r = 0; r < 64; ++r) keys[r] = r < 3 ? 0 : r;
  CHECK(equal_inside(table, table.from_keys(keys)) == "equal inside {0,1,2}");
}

// The search

/// Random values of one shape, with loops and calls.
std::vector<TensorId> grow(Program& p, std::mt19937& random) {
  const auto below = [&random](std::size_t end) { return random() % end; };
  std::vector<TensorId> pool{p.variable("w"), p.variable("rows", p.groups(1, 2)), p.load("x"),
                             p.load("b", StreamMode::kBroadcast)};
  const auto any = [&] { return pool[below(pool.size())]; };
  const GraphId f = p.at = p.ir.create_graph("f");
  const TensorId a = p.input("a"), b = p.input("b");
  p.ir.add_output(f, p("tanh", {p("add", {a, b})}));
  p.ir.add_output(f, a);
  p.at = kMainGraph;
  for (int i = 0; i < 24; ++i) {
    switch (below(7)) {
      case 0:
        pool.push_back(p.all_reduce(any(), p.groups(below(2) == 0 ? 1 : 3, 2)));
        break;
      case 1:
        p("add_", {pool[below(2)], any()});
        break;
      case 2: {
        const OpId call = p.emit("call", {any(), any()}, {{"graph", f}});
        pool.push_back(p.ir.op(call).outputs[below(2)]);
        break;
      }
      case 3: {
        const auto count = static_cast<std::int64_t>(below(3));
        const OpId loop = p.emit("repeat", {any(), any()}, {{"graph", f}, {"count", count}});
        pool.push_back(p.ir.op(loop).outputs[below(2)]);
        break;
      }
      case 4:
        pool.push_back(p("tanh", {any()}));
        break;
      default:
        pool.push_back(p("add", {any(), any()}));
    }
  }
  return pool;
}

/// Number of steps of the explanation; 0 when the two are equal.
std::size_t length(Explainer& explainer, const Value& value, Replica r, Replica s) {
  const std::vector<Difference> path = explainer.path(value, r, s).value();
  for (std::size_t i = 0; i < path.size(); ++i) {
    CHECK(explainer.root(path[i]).has_value() == (i + 1 == path.size()));
    CHECK(explainer.flow().distance(path[i].value) <= path.size() - 1 - i);
  }
  return path.size();
}

/// A value's path is no longer than one step to a source of it and that one's path.
void check_value(Explainer& explainer, const Value& value, Replica r, Replica s) {
  Dataflow& flow = explainer.flow();
  const std::size_t here = length(explainer, value, r, s);
  CHECK((here == 0) == (flow.ir().partitions().labels(flow.fact(value))[r] ==
                        flow.ir().partitions().labels(flow.fact(value))[s]));
  if (here == 0) return;
  CHECK(flow.distance(value) < here);
  const Op* op = flow.writer(value);
  if (op != nullptr && op->def->replicas.partition != meet_of_inputs) return;  // the pair may move
  for (const Source& source : flow.sources(value)) {
    if (source.link == Link::kOperand && !op->def->influences(source.input)) continue;
    const std::size_t there = length(explainer, source.value, r, s);
    if (there != 0) CHECK(here <= there + 1);
  }
}

TEST_CASE("explain fuzz: paths end at the first root, are shortest, and distances never say too much") {
  std::mt19937 random(77);
  for (int round = 0; round < 40; ++round) {
    Program p(6);
    p.sequence = SequenceMode::kOrdered;
    const std::vector<TensorId> pool = grow(p, random);
    const PartitionAnalysis facts(p.ir);
    Explainer explainer(facts);
    for (const TensorId tensor : pool) {
      for (const auto& [time, fact] : facts.values(tensor, facts.main_id())) {
        const Value value{kMainFrame, explainer.flow().storage_of(tensor), time};
        CHECK(explainer.flow().fact(value) == fact);
        check_value(explainer, value, 0, 1);
        check_value(explainer, value, 2, 5);
      }
    }
  }
}

TEST_CASE("explain: a search without one value finds another cause or none, and can be limited") {
  Program p(2);
  const TensorId x = p.load("x");
  const TensorId y = p.load("y");
  const TensorId both = p("add", {x, y});
  const PartitionAnalysis facts(p.ir);
  Explainer explainer(facts);
  Dataflow& flow = explainer.flow();
  const Difference at_x{.value = flow.last(kMainFrame, x), .r = 0, .s = 1};
  CHECK(explainer.path(flow.last(kMainFrame, both), 0, 1)->back().value == at_x.value);
  CHECK(explainer.path(flow.last(kMainFrame, both), 0, 1, &at_x)->back().value == flow.last(kMainFrame, y));
  const TensorId twice = p("add", {x, x});
  const PartitionAnalysis later(p.ir);
  Explainer again(later);
  CHECK(again.path(again.flow().last(kMainFrame, twice), 0, 1, &at_x)->empty());
  CHECK_FALSE(again.path(again.flow().last(kMainFrame, both), 0, 1, &at_x, 1).has_value());
}

// L1

TEST_CASE("lints: groups that may not meet are counted") {
  PartitionTable table(8);
  const auto count = [&table](std::int64_t stride, std::int64_t size, std::int64_t exec_size) {
    const PartitionId exec = ReplicaGrouping::from_stride(8, 1, exec_size).partition(table);
    return split_groups(ReplicaGrouping::from_stride(8, stride, size), table, exec);
  };
  CHECK(count(1, 8, 8) == 0);
  CHECK(count(1, 8, 4) == 1);
  CHECK(count(1, 2, 4) == 0);
  CHECK(count(1, 4, 2) == 2);
  CHECK(count(4, 2, 4) == 4);
  CHECK(count(1, 1, 1) == 0);
}

}  // namespace
}  // namespace popsr
