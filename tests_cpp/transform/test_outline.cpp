// Graphs that change after ops were made: ops that become the body of a loop, inputs of graphs that are
// called.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fuzz/facts_check.h"
#include "fuzz/programs/random_program.h"
#include "popsr/base/error.h"
#include "popsr/effects/memory.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/ir.h"
#include "popsr/ir/print.h"
#include "popsr/transform/graph_editor.h"
#include "popsr/transform/merge.h"

namespace popsr {
namespace {

using namespace test;
using Names = std::vector<std::string>;

Names kinds(const Ir& ir, GraphId graph = kMainGraph) {
  Names names;
  for (const OpId id : ir.graph(graph).ops) names.emplace_back(ir.op(id).def->name);
  return names;
}

/// Views of the memory of a tensor.
Viewed viewed_of(const Ir& ir, TensorId root) {
  Viewed viewed = Viewed::kNo;
  for (const TensorId view : ir.views(root)) {
    for (const Region& region : ir.tensor(view).memory.view->regions) {
      if (region.root == root) viewed = std::max(viewed, region.whole ? Viewed::kWhole : Viewed::kPartly);
    }
  }
  return viewed;
}

/// Tensors of a graph, by what is known of all.
void check_tensors(const Ir& ir, const Graph& graph) {
  for (std::uint32_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = ir.tensor(graph.tensors[i]);
    CHECK(tensor.graph == graph.id);
    CHECK(tensor.index == i);
    CHECK(tensor.memory.viewed == viewed_of(ir, tensor.id));
    for (const TensorId view : ir.views(tensor.id)) CHECK(ir.tensor(view).graph == graph.id);
    CHECK(ir.tensor(tensor.memory.storage).graph == graph.id);
    if (tensor.kind == TensorKind::kRemote) continue;
    CHECK(ir.storage_index(tensor.id) == ir.tensor(tensor.memory.storage).index);
    CHECK(ir.find_tensor(graph.id, tensor.name) == tensor.id);
    CHECK(tensor.name.starts_with(graph.name));
    if (tensor.uses.producer != kNone) CHECK(ir.op(tensor.uses.producer).graph == graph.id);
    if (!tensor.memory.view) continue;
    CHECK(graph.has_views);
    for (const TensorId base : tensor.memory.view->bases) CHECK(ir.tensor(base).graph == graph.id);
    for (const Region& region : tensor.memory.view->regions) {
      CHECK(ir.tensor(region.root).graph == graph.id);
      CHECK(std::ranges::count(ir.views(region.root), tensor.id) == 1);
    }
  }
}

void check_ops(const Ir& ir, const Graph& graph, std::map<TensorId, OpId>& first_uses) {
  std::set<std::uint32_t> calls, roundings;
  for (const OpId id : single_ops(ir, graph.id)) {
    const Op& op = ir.op(id);
    CHECK(op.graph == graph.id);
    CHECK(graph.ops.at(op.schedule.position) == (op.schedule.part_of == kNone ? id : op.schedule.part_of));
    for (const TensorId input : op.inputs) {
      if (input == kNone) continue;
      CHECK(ir.tensor(input).graph == graph.id);
      first_uses[input] = std::min(first_uses.try_emplace(input, id).first->second, id);
      const OpId producer = ir.tensor(input).uses.producer;
      if (producer != kNone) CHECK(ir.op(producer).schedule.position < op.schedule.position);
    }
    for (const OpId before : op.schedule.after) {
      CHECK(ir.op(before).graph == graph.id);
      CHECK(ir.op(before).schedule.position < op.schedule.position);
    }
    for (const CalledGraph& called : called_graphs(ir, op)) {
      CHECK(ir.graph(called.graph).called());
      CHECK(ir.graph(called.graph).calls.first <= id);
      CHECK(graph.calls.depth > ir.graph(called.graph).calls.depth);
    }
    if (op.def->program.control != Control::kNone) {
      CHECK(calls.insert(op.call.index).second);
      CHECK(op.call.index < graph.next.call);
    } else if (op.def->numerics.random || rounds(ir, op)) {
      CHECK(roundings.insert(op.noise.index).second);
      CHECK(op.noise.index < graph.next.noise);
    }
  }
}

/// Everything that graphs, tensors and ops say of each other agrees.
void check_consistent(const Ir& ir) {
  std::map<TensorId, OpId> first_uses;
  for (const GraphId id : ids<GraphId>(ir.num_graphs())) {
    check_tensors(ir, ir.graph(id));
    check_ops(ir, ir.graph(id), first_uses);
  }
  for (const TensorId t : ids<TensorId>(ir.num_tensors())) {
    const auto it = first_uses.find(t);
    CHECK(ir.tensor(t).uses.first_use == (it == first_uses.end() ? kNone : it->second));
  }
}

// Outline

TEST_CASE("outline: random programs stay consistent and their facts sound") {
  std::mt19937_64 random(17);
  for (int round = 0; round < 150; ++round) {
    const Flavour flavour = round % 2 == 0 ? Flavour::kStraightLine : Flavour::kControlFlow;
    Recipe recipe = random_recipe(random, random_replicas(random), flavour, 24);
    Program p(recipe.replicas);
    grow(recipe, p);
    check_consistent(p.ir);
    const std::size_t ops = p.ir.graph(kMainGraph).ops.size();
    if (ops == 0) continue;
    const auto first = static_cast<std::uint32_t>(random() % ops);
    const Outlined made =
        GraphEditor(p.ir).outline(kMainGraph, first, {.count = 1 + round % 3, .stem = "body"});
    CHECK(p.ir.graph(kMainGraph).ops.size() == first + 1);
    CHECK(kinds(p.ir).back() == "repeat");
    CHECK(p.ir.graph(kMainGraph).ops.back() == made.op);
    check_consistent(p.ir);
    if (recipe.rounding != RoundingMode::kNearest)
      continue;  // the new loop has none of its own, but the judge wants the transform last
    const Verdict verdict = judge(p, Flavour::kControlFlow);
    CHECK_MESSAGE(verdict.failure.empty(), verdict.failure << "\n" << verdict.program);
  }
}

TEST_CASE("outline: what is taken from outside becomes an input, once for each memory") {
  Program p(2);
  const TensorId w = p.variable("w"), v = p.variable("v"), c = p.constant("c");
  p.sequence = SequenceMode::kOrdered;
  const TensorId grown = p("add_", {w, v}, "grown");
  const TensorId view = p("slice_", {w}, "view", {{"stop", std::vector<std::int64_t>{2}}});
  const auto first = static_cast<std::uint32_t>(p.ir.graph(kMainGraph).ops.size());
  p("relu", {view}, "seen");
  p("add_", {grown, c}, "again");
  const TensorId sum = p("add", {w, v}, "sum");
  const Outlined made = GraphEditor(p.ir).outline(kMainGraph, first, {.count = 3, .stem = "body"});
  check_consistent(p.ir);
  verify(p.ir);
  CHECK(kinds(p.ir) == Names{"add_", "slice_", "repeat"});
  CHECK(kinds(p.ir, made.body) == Names{"slice_", "relu", "add_", "add"});
  const Op& loop = p.ir.op(made.op);
  CHECK(loop.inputs == std::vector<TensorId>{grown, v});  // w by its last name
  CHECK(loop.call.modified == std::vector<std::uint32_t>{0});
  const Graph& body = p.ir.graph(made.body);
  CHECK(body.inputs.size() == 2);
  CHECK(p.ir.tensor(body.inputs[0]).memory.by_ref);
  CHECK_FALSE(p.ir.tensor(body.inputs[1]).memory.by_ref);
  CHECK(p.ir.tensor(sum).graph == made.body);
  CHECK(std::ranges::count(made.moved, sum) == 1);
}

TEST_CASE("outline: views move with what they are views of, and are seen from there alone") {
  Program p(1);
  const Attrs half{{"stop", std::vector<std::int64_t>{2}}};
  const TensorId w = p.variable("w");
  const TensorId early = p("reshape_", {w}, "early", {{"shape", Shape{2, 2}}});
  const TensorId made = p("relu", {p.load("x")}, "made");
  p("slice_", {made}, "of_made", half);
  const TensorId inside = p("slice_", {w}, "of_outer", half);
  CHECK(p.ir.tensor(w).memory.viewed == Viewed::kPartly);
  const Outlined outlined = GraphEditor(p.ir).outline(kMainGraph, 1, {.count = 2, .stem = "body"});
  check_consistent(p.ir);
  CHECK(p.ir.views(w) == std::vector<TensorId>{early});
  CHECK(p.ir.tensor(w).memory.viewed == Viewed::kWhole);
  CHECK(p.ir.views(p.ir.graph(outlined.body).inputs[0]) == std::vector<TensorId>{inside});
  CHECK(p.ir.views(made).size() == 1);
}

TEST_CASE("outline: the loop follows who wrote what it reads through a view") {
  Program p(1);
  const TensorId w = p.variable("w"), c = p.constant("c", {DType::kFloat32, {2}});
  const TensorId view = p("slice_", {w}, "view", {{"stop", std::vector<std::int64_t>{2}}});
  const TensorId written = p("add_", {view, c}, "written");
  p("relu", {written});
  const Outlined made = GraphEditor(p.ir).outline(kMainGraph, 2, {.count = 2, .stem = "body"});
  CHECK(p.ir.op(made.op).inputs == std::vector<TensorId>{w});
  CHECK(p.ir.op(made.op).schedule.after == std::vector<OpId>{p.ir.tensor(written).uses.producer});
  CHECK(kinds(p.ir, made.body) == Names{"slice_", "relu"});
  check_consistent(p.ir);
  verify(p.ir);
}

TEST_CASE("outline: merged ops move with their parts") {
  Program p(4);
  const TensorId x = p.load("x"), y = p.load("y");
  p.all_reduce(x, p.groups(1, 2), "a");
  p.all_reduce(y, p.groups(1, 2), "b");
  merge_collectives(p.ir);
  REQUIRE(kinds(p.ir) == Names{"host_load", "host_load", "multi_replicated_all_reduce"});
  const Outlined made = GraphEditor(p.ir).outline(kMainGraph, 1, {.count = 2, .stem = "body"});
  check_consistent(p.ir);
  CHECK(kinds(p.ir, made.body) == Names{"host_load", "multi_replicated_all_reduce"});
  const Op& merged = p.ir.op(p.ir.graph(made.body).ops[1]);
  CHECK(merged.inputs == std::vector<TensorId>{p.ir.graph(made.body).inputs[0], y});
  for (const OpId part : merged.schedule.parts) CHECK(p.ir.op(part).graph == made.body);
}

TEST_CASE("outline: explicit order passes to the loop") {
  Program p(1);
  p.sequence = SequenceMode::kOrdered;
  const TensorId w = p.variable("w");
  const OpId before = p.emit("add_", {w, w});
  const OpId inside = p.emit("add_", {w, w}), last = p.emit("add_", {w, w});
  const Outlined made = GraphEditor(p.ir).outline(kMainGraph, 1, {.count = 2, .stem = "body"});
  const OpId after = p.emit("add_", {w, w});
  CHECK(p.ir.op(inside).schedule.after.empty());
  CHECK(p.ir.op(last).schedule.after == std::vector<OpId>{inside});
  CHECK(p.ir.op(made.op).schedule.after == std::vector<OpId>{before});
  CHECK(p.ir.op(after).schedule.after == std::vector<OpId>{made.op});
  verify(p.ir);
}

TEST_CASE("outline: outputs are carried or refused, and then nothing changes") {
  Program p(1);
  p.at = p.ir.create_graph("f");
  const TensorId x = p.input("x");
  p.input("unused", {DType::kInt32, {}});
  const TensorId y = p("relu", {x}, "y");
  p.ir.add_output(p.at, y);
  const std::uint64_t epoch = p.ir.epoch();
  const auto outline = [&](bool carries) {
    return GraphEditor(p.ir).outline(p.at, 0, {.count = 2, .stem = "body", .carries = carries});
  };
  CHECK(error_of<GraphError>([&] { outline(false); }).find("'f_subgraph(0)/y' is made in the loop") !=
        std::string::npos);
  CHECK(p.ir.epoch() == epoch);
  const Outlined made = outline(true);
  check_consistent(p.ir);
  CHECK(p.ir.graph(made.body).inputs.size() == 2);
  CHECK(p.ir.graph(made.body).outputs == std::vector<TensorId>{y});
  CHECK(p.ir.graph(p.at).outputs == p.ir.op(made.op).outputs);
  CHECK(p.ir.tensor(p.ir.op(made.op).outputs[0]).name == "f_subgraph(0)/y");
  p.ir.add_output(p.at, p("relu", {x}));
  p.ir.add_output(p.at, p("relu", {x}));
  CHECK(error_of<GraphError>([&] { outline(true); }).find("fewer inputs than outputs") != std::string::npos);
}

TEST_CASE("outline: calls do not nest too deeply") {
  Program p(1);
  GraphId inner = p.at = p.ir.create_graph("deepest");
  for (int depth = 0; depth < 199; ++depth) {
    p.at = p.ir.create_graph("f");
    p.emit("call", {}, {{"graph", inner}});
    inner = p.at;
  }
  p.at = kMainGraph;
  p.emit("call", {}, {{"graph", inner}});
  const std::uint64_t epoch = p.ir.epoch();
  const std::string text =
      error_of<GraphError>([&] { GraphEditor(p.ir).outline(kMainGraph, 0, {.count = 2, .stem = "body"}); });
  CHECK(text.find("repeat: calls are nested too deeply") != std::string::npos);
  CHECK(p.ir.epoch() == epoch);
}

// Inputs of called graphs

/// A graph that is called, repeated, and both branches of a conditional.
struct Sites {
  Program p{2};
  GraphId graph = p.at = p.ir.create_graph("f");
  TensorId inner = p.input("x"), result = p("relu", {inner}, "y");
  GraphId other = p.at = p.ir.create_graph("g");
  TensorId of_other = p.input("x");
  TensorId x = kNone, w = kNone, condition = kNone, late = kNone, k = kNone;
  OpId call = kNone, loop = kNone, both = kNone, then_only = kNone, else_only = kNone;

  Sites() {
    p.ir.add_output(graph, result);
    p.ir.add_output(other, of_other);
    p.at = kMainGraph;
    x = p.load("x"), w = p.variable("w");
    condition = p.load("c", StreamMode::kBroadcast, {DType::kBool, {}});
    call = p.emit("call", {x}, {{"graph", graph}});
    loop = p.emit("repeat", {x}, {{"graph", graph}, {"count", std::int64_t{2}}});
    both = conditional(graph, graph);
    then_only = conditional(graph, other);
    else_only = conditional(other, graph);
    late = p.load("late");
    k = p.constant("k");
  }
  OpId conditional(GraphId then_branch, GraphId else_branch) {
    return p.emit("conditional", {condition, x, x},
                  {{"then_branch", then_branch}, {"else_branch", else_branch}});
  }
  std::vector<SiteOperand> all(TensorId tensor) const {
    return {{call, tensor}, {loop, tensor}, {both, tensor}, {then_only, tensor}, {else_only, tensor}};
  }
  TensorId add(const std::vector<SiteOperand>& operands, bool by_ref = false, TensorType type = kVector) {
    return GraphEditor(p.ir).add_called_input(graph, "more", std::move(type), {}, by_ref, operands);
  }
};

TEST_CASE("add_called_input: each op that runs the graph gains an operand in its place") {
  for (const bool by_ref : {false, true}) {
    Sites s;
    GraphEditor(s.p.ir).mark_modified(s.else_only, 2);
    GraphEditor(s.p.ir).mark_modified(s.both, 2);
    const TensorId more = s.add(s.all(s.w), by_ref);
    check_consistent(s.p.ir);
    CHECK(s.p.ir.graph(s.graph).inputs == std::vector<TensorId>{s.inner, more});
    CHECK(s.p.ir.tensor(more).memory.by_ref == by_ref);
    const TensorId x = s.x, w = s.w, c = s.condition;
    const auto inputs = [&](OpId op) { return s.p.ir.op(op).inputs; };
    CHECK(inputs(s.call) == std::vector<TensorId>{x, w});
    CHECK(inputs(s.loop) == std::vector<TensorId>{x, w});
    CHECK(inputs(s.both) == std::vector<TensorId>{c, x, w, x, w});
    CHECK(inputs(s.then_only) == std::vector<TensorId>{c, x, w, x});
    CHECK(inputs(s.else_only) == std::vector<TensorId>{c, x, x, w});
    const auto modified = [&](OpId op) {
      const auto& list = s.p.ir.op(op).call.modified;
      return std::set<std::uint32_t>(list.begin(), list.end());
    };
    using Set = std::set<std::uint32_t>;
    CHECK(modified(s.call) == (by_ref ? Set{1} : Set{}));
    CHECK(modified(s.both) == (by_ref ? Set{2, 3, 4} : Set{3}));
    CHECK(modified(s.then_only) == (by_ref ? Set{2} : Set{}));
    CHECK(modified(s.else_only) == (by_ref ? Set{2, 3} : Set{2}));
  }
}

TEST_CASE("add_called_input: what does not fit is refused and nothing is added") {
  struct Row {
    std::string says;
    void (*add)(Sites&);
  };
  const std::vector<Row> rows{
      {"has no tensor for input 'more'",
       [](Sites& s) {
         s.add({{s.call, s.w}});
       }},
      {"is made later", [](Sites& s) { s.add(s.all(s.late)); }},
      {"is of another graph", [](Sites& s) { s.add(s.all(s.inner)); }},
      {"dtype of input 'more' differs", [](Sites& s) { s.add(s.all(s.condition)); }},
      {"shape of input 'more' differs",
       [](Sites& s) {
         s.add(s.all(s.w), false, {DType::kFloat32, {5}});
       }},
      {"is modified but constant", [](Sites& s) { s.add(s.all(s.k), true); }},
      {"does not run the graph",
       [](Sites& s) {
         s.add({{s.p.ir.tensor(s.x).uses.producer, s.w}});
       }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.says);
    Sites s;
    const std::string before = print_ir(s.p.ir);
    const std::string text = error_of<Error>([&] { row.add(s); });
    CHECK(text.find(row.says) != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(s.p.ir.graph(s.graph).inputs.size() == 1);
    CHECK(print_ir(s.p.ir) == before);
  }
}

}  // namespace
}  // namespace popsr
