// Changes of a program are made completely or not at all: when they are taken back, when they are refused,
// and when memory runs out in any of their allocations.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/programs/random_program.h"
#include "popsr/base/error.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/print.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/graph_editor.h"
#include "popsr/transform/merge.h"
#include "support/allocation_faults.h"

namespace popsr {
namespace {

using namespace test;
using Duration = AllocationFault::Duration;

struct State {
  explicit State(const Ir& ir) : text(print_state(ir)), epoch(ir.epoch()) {}
  std::string text;
  std::uint64_t epoch;
};

void check_same(const Ir& ir, const State& before) {
  CHECK(print_state(ir) == before.text);
  CHECK(ir.epoch() == before.epoch);
}

/// A change of a program that `prepare` made.
struct Change {
  std::string name;
  std::function<void(Program&)> prepare;
  std::function<void(Program&)> make;
};

TensorId tensor(const Program& p, std::string_view name, GraphId graph = kMainGraph) {
  return p.ir.find_tensor(graph, name);
}

/// A graph that `build` fills.
template <class Build>
GraphId graph_of(Program& p, std::string_view name, const Build& build) {
  const GraphId outer = std::exchange(p.at, p.ir.create_graph(name));
  build();
  return std::exchange(p.at, outer);
}

/// Variables v and w, a loaded x, and a graph f(a, b) = tanh(a * b) that is called once.
void small_program(Program& p) {
  p.variable("v");
  p.variable("w");
  const TensorId x = p.load("x");
  const GraphId f = graph_of(p, "f", [&] {
    const TensorId a = p.input("a"), b = p.input("b");
    p.ir.add_output(p.at, p("tanh", {p("mul", {a, b}, "product")}, "y"));
  });
  p.emit("call", {x, tensor(p, "v")}, {{"graph", f}}, "called");
}

void narrow_program(Program& p) {
  const TensorType narrow{DType::kBFloat16, {4}};
  const TensorId x = p.load("x", StreamMode::kReplicate, narrow);
  for (int i = 0; i < 4; ++i) p("add", {x, x});
}

void exchanges(Program& p) {
  const TensorId x = p.load("x"), y = p.load("y");
  for (const TensorId t : {x, y}) p.all_reduce(t, p.groups(1, 2));
  p.all_reduce(x, p.groups(2, 2));
  p("tanh", {x});
}

void views_and_order(Program& p) {
  const TensorId v = p.variable("v", {}, {DType::kFloat32, {8}});
  p.sequence = SequenceMode::kUnordered;
  p("slice_", {v}, "front",
    {{"start", std::vector<std::int64_t>{0}},
     {"stop", std::vector<std::int64_t>{4}},
     {"step", std::vector<std::int64_t>{1}},
     {"axis", std::vector<std::int64_t>{0}}});
  p.sequence = SequenceMode::kOrdered;
  p("relu_", {tensor(p, "front")}, "written");
}

/// After an ordered op; the next one is ordered.
void unordered_ops(Program& p) {
  views_and_order(p);
  p.sequence = SequenceMode::kUnordered;
  p("tanh", {tensor(p, "v")});
  p("tanh", {tensor(p, "v")});
  p.sequence = SequenceMode::kOrdered;
}

/// Two calls of f, whose gradient needs what is inside.
void nested_calls(Program& p) {
  small_program(p);
  graph_of(p, "g", [&] {
    const TensorId a = p.input("a");
    const TensorId once = p("call", {a, a}, "once", {{"graph", GraphId{1}}});
    p.ir.add_output(p.at, p("call", {once, p("sigmoid", {once})}, "twice", {{"graph", GraphId{1}}}));
  });
}

void conditional_graph(Program& p) {
  std::vector<GraphId> branches;
  for (const char* op : {"tanh", "sigmoid"}) {
    branches.push_back(graph_of(p, op, [&] { p.ir.add_output(p.at, p(op, {p.input("x")}, "y")); }));
  }
  graph_of(p, "f", [&] {
    const TensorId condition = p.input("condition", {DType::kBool, {}}), x = p.input("x");
    const TensorId c = p("conditional", {condition, p("tanh", {x}), x}, "c",
                         {{"then_branch", branches[0]}, {"else_branch", branches[1]}});
    p.ir.add_output(p.at, c);
  });
}

const std::vector<Change> kChanges = {
    {"graph", small_program,
     [](Program& p) { p.ir.create_graph("a name that is too long for its own buffer"); }},
    {"named graph", small_program, [](Program& p) { p.ir.create_named_graph("f_subgraph(0)"); }},
    {"number", small_program, [](Program& p) { p.ir.skip_subgraph_number(); }},
    {"input", [](Program& p) { p.at = p.ir.create_graph("f"); }, [](Program& p) { p.input("input"); }},
    {"output", small_program,
     [](Program& p) { p.ir.add_output(GraphId{1}, tensor(p, "f_subgraph(0)/a", GraphId{1})); }},
    {"no output",
     [](Program& p) {
       p.at = p.ir.create_graph("f");
       for (const char* name : {"a", "b", "c"}) p.ir.add_output(p.at, p.input(name));
     },
     [](Program& p) { GraphEditor(p.ir).remove_output(p.at, 1); }},
    {"variable", small_program, [](Program& p) { p.variable("v", p.groups(2, 2)); }},
    {"constant", small_program, [](Program& p) { p.constant("v"); }},
    {"stream", small_program,
     [](Program& p) { p.ir.add_stream("x_stream", kVector, true, StreamMode::kReplicate); }},
    {"remote buffer", small_program,
     [](Program& p) {
       p.ir.add_remote_buffer(kVector, 5, {2, 2});
     }},
    {"remote entries", [](Program& p) { p.ir.add_remote_buffer(kVector, 2); },
     [](Program& p) { GraphEditor(p.ir).grow_remote_buffer(RemoteId(0), 9); }},
    {"remote shape", [](Program& p) { p.ir.add_remote_buffer(kVector, 2); },
     [](Program& p) {
       GraphEditor(p.ir).set_meta_shape(RemoteId(0), {2, 2});
     }},
    {"remote variable",
     [](Program& p) {
       p.ir.add_remote_buffer(kVector, 2);
       p.variable("v");
     },
     [](Program& p) { GraphEditor(p.ir).place_variable(tensor(p, "v"), RemoteId(0), 1, 1); }},
    {"shard", [](Program& p) { p.variable("v"); },
     [](Program& p) { GraphEditor(p.ir).add_shard(tensor(p, "v"), 2, "v"); }},
    {"op", small_program,
     [](Program& p) {
       p("add", {tensor(p, "x"), tensor(p, "v")}, "called");
     }},
    {"op that rounds", narrow_program,
     [](Program& p) {
       p("add", {tensor(p, "x"), tensor(p, "x")});
     }},
    {"op in place", small_program, [](Program& p) { p("relu_", {tensor(p, "w")}); }},
    {"collective", small_program, [](Program& p) { p.all_reduce(tensor(p, "x"), p.groups(2, 2)); }},
    {"random op",
     [](Program& p) {
       p.variable("seed", {}, {DType::kUInt32, {2}});
     },
     [](Program& p) {
       p("random_normal", {tensor(p, "seed")}, "random",
         {{"shape", std::vector<std::int64_t>{2, 3}}, {"dtype", DType::kFloat32}});
     }},
    {"view", views_and_order,
     [](Program& p) {
       p("reshape_", {tensor(p, "v")}, "view", {{"shape", Shape{2, 4}}});
     }},
    {"view of a view", views_and_order,
     [](Program& p) {
       p("reshape_", {tensor(p, "front")}, "view", {{"shape", Shape{2, 2}}});
     }},
    {"order", unordered_ops, [](Program& p) { p("tanh", {tensor(p, "v")}); }},
    {"one more without order", unordered_ops,
     [](Program& p) {
       p.sequence = SequenceMode::kUnordered;
       p("tanh", {tensor(p, "v")});
     }},
    {"no order", unordered_ops, [](Program& p) { GraphEditor(p.ir).clear_sequence(kMainGraph); }},
    {"call", small_program,
     [](Program& p) {
       p("call", {tensor(p, "x"), tensor(p, "w")}, {}, {{"graph", GraphId{1}}});
     }},
    {"loop", small_program,
     [](Program& p) {
       p("repeat", {tensor(p, "x"), tensor(p, "w")}, {}, {{"graph", GraphId{1}}, {"count", std::int64_t{3}}});
     }},
    {"modified input", small_program,
     [](Program& p) { GraphEditor(p.ir).mark_modified(p.ir.ops_with_graphs()[0], 1); }},
    {"output of a call", small_program,
     [](Program& p) {
       GraphEditor(p.ir).add_call_output(p.ir.ops_with_graphs()[0],
                                         tensor(p, "f_subgraph(0)/product", GraphId{1}), "called");
     }},
    {"input of a called graph", small_program,
     [](Program& p) {
       GraphEditor(p.ir).add_called_input(GraphId{1}, "c", kVector, {}, true,
                                          {{p.ir.ops_with_graphs()[0], tensor(p, "w")}});
     }},
    {"name", small_program,
     [](Program& p) { GraphEditor(p.ir).rename(tensor(p, "x"), "another name, too long for its buffer"); }},
    {"name that is taken", small_program, [](Program& p) { GraphEditor(p.ir).rename(tensor(p, "x"), "v"); }},
    {"merged collectives", exchanges, [](Program& p) { merge_collectives(p.ir); }},
    {"merged exchanges", exchanges, [](Program& p) { merge_exchange(p.ir); }},
    {"exchanges merged again",
     [](Program& p) {
       exchanges(p);
       merge_exchange(p.ir);
       p.load("z");
     },
     [](Program& p) { merge_exchange_since(p.ir, kMainGraph, 0); }},
    {"outline", small_program,
     [](Program& p) { GraphEditor(p.ir).outline(kMainGraph, 0, {.count = 2, .stem = "loop"}); }},
    {"outline of views", views_and_order,
     [](Program& p) { GraphEditor(p.ir).outline(kMainGraph, 1, {.count = 2, .stem = "loop"}); }},
    {"outline of merged ops",
     [](Program& p) {
       exchanges(p);
       merge_collectives(p.ir);
     },
     [](Program& p) { GraphEditor(p.ir).outline(kMainGraph, 1, {.count = 2, .stem = "loop"}); }},
    {"outline that carries",
     [](Program& p) {
       p.at = p.ir.create_graph("f");
       const TensorId x = p.input("x");
       p.ir.add_output(p.at, p("add", {p("tanh", {x}), p.constant("c")}, "y"));
     },
     [](Program& p) { GraphEditor(p.ir).outline(p.at, 0, {.count = 2, .stem = "loop", .carries = true}); }},
    {"autodiff", small_program, [](Program& p) { autodiff(p.ir, GraphId{1}, {}); }},
    {"autodiff of calls", nested_calls, [](Program& p) { autodiff(p.ir, GraphId{2}, {}); }},
    {"autodiff of a conditional", conditional_graph,
     [](Program& p) {
       autodiff(p.ir, GraphId{3}, {.grads_required = {{tensor(p, "f_subgraph(2)/x", GraphId{3})}}});
     }},
};

TEST_CASE("transactions: what is taken back leaves nothing") {
  for (const Change& change : kChanges) {
    CAPTURE(change.name);
    Program p(4), untouched(4);
    change.prepare(p);
    change.prepare(untouched);
    const State before(p.ir);
    {
      const Transaction transaction(p.ir);
      change.make(p);
      CHECK(print_state(p.ir) != before.text);
    }
    check_same(p.ir, before);
    change.make(p);
    change.make(untouched);
    CHECK(print_ir(p.ir) == print_ir(untouched.ir));
    CHECK(p.ir.counters() == untouched.ir.counters());
  }
}

TEST_CASE("transactions: when memory runs out in any allocation of a change, nothing changes") {
  std::int64_t faults = 0;
  for (const Change& change : kChanges) {
    for (const Duration duration : {Duration::kOnce, Duration::kForEver}) {
      CAPTURE(change.name);
      Program p(4), untouched(4);
      change.prepare(p);
      change.prepare(untouched);
      const State before(p.ir);
      const std::int64_t failed = with_each_fault(
          duration, [&] { change.make(p); }, [&] { check_same(p.ir, before); });
      faults += failed;
      CHECK(print_state(p.ir) != before.text);
      change.make(untouched);
      CHECK(print_ir(p.ir) == print_ir(untouched.ir));
      CHECK(p.ir.counters() == untouched.ir.counters());
    }
  }
  MESSAGE("allocation faults: ", faults);
  CHECK(faults > 3000);
}

TEST_CASE("transactions: random programs come and go") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    const Flavour flavour = round % 2 == 0 ? Flavour::kStraightLine : Flavour::kControlFlow;
    const Recipe recipe = random_recipe(random, 4, flavour, 25);
    Program p(4), direct(4);
    grow(recipe, direct);
    const State empty(p.ir);
    {
      const Transaction transaction(p.ir);
      grow(recipe, p);
    }
    check_same(p.ir, empty);
    grow(recipe, p);
    CHECK(print_ir(p.ir) == print_ir(direct.ir));
    const State grown(p.ir);
    {
      const Transaction transaction(p.ir);
      merge_exchange(p.ir);
      merge_collectives(p.ir);
      if (!p.ir.graph(kMainGraph).ops.empty())
        GraphEditor(p.ir).outline(kMainGraph, 0, {.count = 2, .stem = "loop"});
    }
    check_same(p.ir, grown);
  }
}

TEST_CASE("transactions: inner ones end on their own") {
  Program p(2);
  p.variable("v");
  const State before(p.ir);
  {
    Transaction outer(p.ir);
    p.variable("kept");
    const State kept(p.ir);
    {
      const Transaction inner(p.ir);
      p.variable("dropped");
      p("tanh", {tensor(p, "kept")});
    }
    check_same(p.ir, kept);
    {
      Transaction inner(p.ir);
      p("tanh", {tensor(p, "v")});
      inner.commit();
    }
    CHECK(p.ir.num_ops() == 1);
  }
  check_same(p.ir, before);
  {
    Transaction outer(p.ir);
    p.variable("kept");
    outer.commit();
  }
  CHECK(p.ir.num_tensors() == 2);
}

TEST_CASE("transactions: an outer one that ends takes those inside it along") {
  Program p(2);
  const State before(p.ir);
  auto outer = std::make_unique<Transaction>(p.ir);
  p.variable("v");
  auto inner = std::make_unique<Transaction>(p.ir);
  p.variable("w");
  outer.reset();
  check_same(p.ir, before);
  p.variable("x");
  inner.reset();  // it is over
  CHECK(p.ir.num_tensors() == 1);
}

TEST_CASE("transactions: facts of what was taken back are never fresh") {
  Program p(2);
  const TensorId x = p.load("x");
  const PartitionAnalysis before(p.ir);
  std::uint64_t inside = 0;
  {
    const Transaction transaction(p.ir);
    p("tanh", {x});
    inside = p.ir.epoch();
    const PartitionAnalysis facts(p.ir);
  }
  before.check_fresh();
  p("sigmoid", {x});
  CHECK(p.ir.epoch() != inside);
  CHECK(!error_of<GraphError>([&] { before.check_fresh(); }).empty());
}

TEST_CASE("transactions: addresses of what was there stay what they were") {
  Program p(4);
  small_program(p);
  const Op& op = p.ir.op(OpId(0));
  const TensorId* const inputs = p.ir.op(OpId(1)).inputs.data();
  const char* const name = p.ir.tensor(TensorId(0)).name.data();
  {
    const Transaction transaction(p.ir);
    GraphEditor(p.ir).outline(kMainGraph, 0, {.count = 2, .stem = "loop"});
  }
  CHECK(&op == &p.ir.op(OpId(0)));
  CHECK(inputs == p.ir.op(OpId(1)).inputs.data());
  CHECK(name == p.ir.tensor(TensorId(0)).name.data());
}

}  // namespace
}  // namespace popsr
