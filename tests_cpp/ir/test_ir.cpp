// Building programs: names, checks of emit, order, the in-place check, text.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/print.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::error_of;
using test::kVector;
using test::Program;

const TensorType kInts{DType::kInt32, {4}};

std::string name_of(const Program& p, TensorId t) { return p.ir.tensor(t).name; }

// Names

TEST_CASE("ir: tensors are named by graph, stem and collision counter") {
  Program p(2);
  const TensorId a = p.input("a");
  CHECK(name_of(p, a) == "a");
  CHECK(name_of(p, p("add", {a, a})) == "add_out");
  CHECK(name_of(p, p("add", {a, a})) == "add_out__t0");
  CHECK(name_of(p, p("add", {a, a}, "layer/h")) == "layer/h");
  CHECK(name_of(p, p("add", {a, a}, "layer/h")) == "layer/h__t1");
  p.at = p.ir.create_graph("f");
  CHECK(p.ir.graph(p.at).name == "f_subgraph(0)");
  const TensorId inner = p.input("a");
  CHECK(name_of(p, inner) == "f_subgraph(0)/a");
  CHECK(name_of(p, p("add", {inner, inner})) == "f_subgraph(0)/add_out");
  CHECK(name_of(p, p.input("a")) == "f_subgraph(0)/a__t2");
}

TEST_CASE("ir: graphs share one counter, named graphs count collisions") {
  Program p(1);
  CHECK(p.ir.graph(p.ir.create_graph("f")).name == "f_subgraph(0)");
  p.ir.skip_subgraph_number();
  CHECK(p.ir.graph(p.ir.create_graph("g")).name == "g_subgraph(2)");
  CHECK(p.ir.graph(p.ir.create_named_graph("f_bwd")).name == "f_bwd");
  CHECK(p.ir.graph(p.ir.create_named_graph("f_bwd")).name == "f_bwd_0");
  CHECK(p.ir.graph(p.ir.create_named_graph("f_bwd")).name == "f_bwd_1");
}

TEST_CASE("ir: streams of one name are told apart") {
  Program p(1);
  const StreamId first = p.ir.add_stream("x", kVector, true, StreamMode::kReplicate);
  const StreamId second = p.ir.add_stream("x", kVector, false, StreamMode::kReplicate);
  CHECK(p.ir.stream(first).name == "x");
  CHECK(p.ir.stream(second).name == "x__t0");
}

TEST_CASE("ir: get_tensor finds by full id, in its graph only") {
  Program p(1);
  p.input("weights");
  const GraphId graph = p.ir.create_graph("f");
  CHECK(p.ir.find_tensor(kMainGraph, "weights") == TensorId(0));
  CHECK_THROWS_WITH_AS(p.ir.find_tensor(kMainGraph, "wieghts"), doctest::Contains("'weights'"), NameError);
  CHECK_THROWS_AS(p.ir.find_tensor(graph, "weights"), NameError);
}

TEST_CASE("ir: ops that round and calls are numbered apart") {
  Program p(1);
  const TensorId narrow = p.input("n", {DType::kBFloat16, {4}});
  const TensorId wide = p.input("w");
  CHECK(p.ir.op(p.emit("add", {narrow, narrow})).noise.index == 0);
  CHECK_FALSE(rounds(p.ir, p.ir.op(p.emit("add", {wide, wide}))));
  CHECK(p.ir.op(p.emit("mul", {narrow, narrow})).noise.index == 1);
  CHECK(rounds(p.ir, p.ir.op(p.emit("mul", {narrow, narrow}))));
}

// Checks of emit

/// The refused op leaves the program as it was.
template <class E>
void check_refused(Program& p, std::string_view op, const std::vector<TensorId>& inputs,
                   const test::Attrs& attrs, const char* text) {
  CAPTURE(op);
  const auto before = std::tuple(p.ir.num_ops(), p.ir.num_tensors(), p.ir.epoch(), print_ir(p.ir));
  CHECK_THROWS_WITH_AS(p.emit(op, inputs, attrs), doctest::Contains(text), E);
  CHECK(before == std::tuple(p.ir.num_ops(), p.ir.num_tensors(), p.ir.epoch(), print_ir(p.ir)));
}

TEST_CASE("emit: each kind of mistake has its type and names op and input") {
  Program p(2);
  const TensorId a = p.input("a");
  const TensorId odd = p.input("odd", {DType::kFloat32, {3}});
  const TensorId ints = p.input("ints", kInts);
  const TensorId fixed = p.constant("fixed");
  const GraphId other = p.ir.create_graph("f");
  const TensorId inner = p.ir.add_input(other, "inner", kVector);
  check_refused<NameError>(p, "ad", {a, a}, {}, "registry: unknown op, got 'ad', expected one of 'add'");
  check_refused<GraphError>(p, "add", {a, a, a}, {}, "add: too many inputs, got 3, expected at most 2");
  check_refused<GraphError>(p, "add", {a}, {}, "add: input rhs is missing, got 1 inputs");
  check_refused<GraphError>(p, "add", {a, kNone}, {}, "add: input rhs is missing");
  check_refused<GraphError>(p, "add", {a, inner}, {}, "add: input rhs is of another graph");
  check_refused<GraphError>(p, "add_", {fixed, a}, {},
                            "add_: input lhs is modified but constant, got 'fixed'");
  check_refused<DTypeError>(p, "exp", {ints}, {}, "exp: input t has the wrong dtype, got i32[4] 'ints'");
  check_refused<DTypeError>(p, "add", {a, ints}, {}, "add: ");
  check_refused<ShapeError>(p, "add", {a, odd}, {}, "add: shapes do not broadcast, got [4] and [3]");
  check_refused<AttributeValueError>(p, "cast", {a}, {}, "cast: attribute data_type is missing");
  check_refused<AttributeValueError>(p, "cast", {a}, {{"data_type", 3.0}},
                                     "data_type has the wrong type, got 3");
  check_refused<AttributeValueError>(p, "add", {a, a}, {{"axis", true}},
                                     "add: unknown attribute, got 'axis'");
}

TEST_CASE("emit: graphs cannot call each other in a circle") {
  Program p(1);
  const GraphId f = p.ir.create_graph("f");
  const GraphId g = p.ir.create_graph("g");
  const GraphId h = p.ir.create_graph("h");
  p.at = f;
  p.emit("call", {}, {{"graph", g}});
  p.at = g;
  p.emit("repeat", {}, {{"graph", h}, {"count", std::int64_t{2}}});
  p.at = h;
  check_refused<GraphError>(p, "call", {}, {{"graph", f}},
                            "call: graph 'f_subgraph(0)' calls graph 'h_subgraph(2)'");
  check_refused<GraphError>(p, "call", {}, {{"graph", h}},
                            "call: graph 'h_subgraph(2)' cannot be called here");
}

TEST_CASE("emit: optional attributes take their default, None stands for it") {
  Program p(2);
  const TensorId a = p.input("a");
  const OpId op = p.emit("replicated_all_reduce", {a}, {{"op", std::monostate()}});
  CHECK(p.ir.op(op).get(Attr<std::string>{"op"}) == "add");
  CHECK_FALSE(p.ir.op(op).find(Attr<ReplicaGrouping>{"group"}).has_value());
  CHECK_THROWS_AS(p.ir.op(op).attribute("axis"), InternalError);
}

TEST_CASE("ir: variables, outputs and replication are checked") {
  Program p(4);
  const auto grouping = ReplicaGrouping::from_stride(2);
  const auto all = ReplicaGrouping::from_stride(4);
  const auto bytes = test::zero_bytes(kVector);
  CHECK_THROWS_WITH_AS(p.ir.add_variable("w", kVector, bytes, grouping, VariableRetrievalMode::kOnePerGroup),
                       doctest::Contains("got 2 replicas for 'w', expected 4"), ReplicaError);
  CHECK_THROWS_WITH_AS(
      p.ir.add_variable("w", kInts, test::zero_bytes(kInts, 2), all, VariableRetrievalMode::kOnePerGroup),
      doctest::Contains("got 32 bytes, expected 16"), ShapeError);
  const TensorId a = p.input("a");
  CHECK_THROWS_WITH_AS(p.ir.add_output(p.ir.create_graph("f"), a),
                       doctest::Contains("tensor of another graph"), GraphError);
  CHECK_THROWS_AS(Program(0), ReplicaError);
}

TEST_CASE("registry: a definition can be replaced in a copy, once registered names stay unique") {
  Registry copy = *default_registry();
  OpDef add = copy.at("add");
  add.numerics.rounding = Rounding::kNone;
  copy.replace(add);
  CHECK(copy.at("add").numerics.rounding == Rounding::kNone);
  CHECK(default_registry()->at("add").numerics.rounding == Rounding::kOnce);
  CHECK_THROWS_AS(copy.add(add), InternalError);
  add.name = "brand_new";
  CHECK_THROWS_AS(copy.replace(add), InternalError);
}

// in_sequence

using After = std::vector<OpId>;

TEST_CASE("in_sequence: ordered ops wait for all since the last, unordered ones for the last ordered one") {
  SequenceState state;
  CHECK(state.place(OpId(0), SequenceMode::kPass) == After{});
  CHECK(state.place(OpId(1), SequenceMode::kOrdered) == After{});
  CHECK(state.place(OpId(2), SequenceMode::kOrdered) == After{OpId(1)});
  CHECK(state.place(OpId(3), SequenceMode::kUnordered) == After{OpId(2)});
  CHECK(state.place(OpId(4), SequenceMode::kPass) == After{});
  CHECK(state.place(OpId(5), SequenceMode::kUnordered) == After{OpId(2)});
  CHECK(state.place(OpId(6), SequenceMode::kOrdered) == After{OpId(3), OpId(5)});
  CHECK(state.place(OpId(7), SequenceMode::kOrdered) == After{OpId(6)});
  state.clear();
  CHECK(state.place(OpId(8), SequenceMode::kOrdered) == After{});
}

// In-place ambiguity

std::string verdict(const Program& p) {
  return error_of<GraphError>([&] { verify_order(p.ir); }).substr(0, 29);
}
const std::string kRefused = "Inplacing ambiguity detected.";

TEST_CASE("verify_order: two writers of one tensor need an order") {
  for (const auto mode : {SequenceMode::kPass, SequenceMode::kUnordered, SequenceMode::kOrdered}) {
    Program p(1);
    p.sequence = mode;
    const TensorId w = p.variable("w");
    const TensorId x = p.load("x");
    p("add_", {w, x});
    p("add_", {w, x});
    CHECK(verdict(p) == (mode == SequenceMode::kOrdered ? "" : kRefused));
  }
}

TEST_CASE("verify_order: a writer and a reader need an order") {
  for (const bool write_first : {false, true}) {
    for (const auto mode : {SequenceMode::kPass, SequenceMode::kOrdered}) {
      Program p(1);
      p.sequence = mode;
      const TensorId a = p.load("a");
      p(write_first ? "relu_" : "relu", {a});
      p(write_first ? "relu" : "relu_", {a});
      CHECK(verdict(p) == (mode == SequenceMode::kOrdered ? "" : kRefused));
    }
  }
}

TEST_CASE("verify_order: an op that writes two tensors follows the readers of both") {
  Program p(2);
  const GraphId body = p.ir.create_graph("body");
  p.at = body;
  const TensorId a = p.ir.add_input(body, "a", kVector, {}, true),
                 b = p.ir.add_input(body, "b", kVector, {}, true);
  p("relu_", {a});
  p("relu_", {b});
  p.at = kMainGraph;
  p.sequence = SequenceMode::kUnordered;
  const TensorId x = p.load("x"), y = p.load("y"), z = p.load("z");
  p("tanh", {z});
  p("tanh", {y});
  p("tanh", {x});
  p.sequence = SequenceMode::kOrdered;
  const OpId call = p.emit("call", {x, y}, {{"graph", body}});
  GraphEditor(p.ir).mark_modified(call, 0);
  GraphEditor(p.ir).mark_modified(call, 1);
  CHECK(error_of<GraphError>([&] { verify_order(p.ir); }).empty());
}

TEST_CASE("verify_order: data fixes the order") {
  Program p(1);
  const TensorId a = p.load("a");
  const TensorId b = p("add_", {a, p("relu", {a})});  // the reader feeds the writer
  const TensorId c = p("add_", {b, b});               // reads what it writes, after the first writer
  p("relu", {c});
  CHECK(verdict(p) == "");
  p("relu", {b});  // an alias of c, before or after it?
  CHECK(verdict(p) == kRefused);
}

TEST_CASE("verify_order: readers alone need no order, and storage counts, not names") {
  Program p(1);
  const TensorId a = p.load("a");
  p("relu", {a});
  p("relu", {a});
  const TensorId copy = p("reshape", {a}, "copy", {{"shape", Shape{2, 2}}});
  p("relu_", {copy});
  CHECK(verdict(p) == "");
}

TEST_CASE(
    "verify_order: called graphs are checked, others are not; calls write what they were given by "
    "reference") {
  Program p(1);
  const GraphId f = p.at = p.ir.create_graph("f");
  const TensorId a = p.input("a");
  p("relu_", {a});
  p("relu_", {a});
  p.at = kMainGraph;
  const TensorId w = p.variable("w");
  CHECK(verdict(p) == "");
  p.emit("call", {w}, {{"graph", f}});
  CHECK(verdict(p) == kRefused);

  Program q(1);
  const GraphId g = q.at = q.ir.create_graph("g");
  q("relu_", {q.input("a")});
  q.at = kMainGraph;
  const TensorId v = q.variable("v");
  const OpId call = q.emit("call", {v}, {{"graph", g}});
  q("relu", {v});
  CHECK(verdict(q) == "");
  GraphEditor(q.ir).mark_modified(call, 0);
  CHECK(verdict(q) == kRefused);
  CHECK_THROWS_AS(GraphEditor(q.ir).mark_modified(call, 1), InternalError);
}

TEST_CASE("verify_order: the message names ops, tensor and places") {
  Program p(1);
  const TensorId a = p.load("a");
  p.location = p.ir.locations().intern("model.py", 12);
  p("relu", {a});
  p.location = p.ir.locations().intern("model.py", 13);
  p("relu_", {a});
  CHECK(error_of<GraphError>([&] { verify_order(p.ir); }) ==
        "Inplacing ambiguity detected. relu_: 'a' is modified here (model.py:13) and read by relu "
        "(model.py:12) in "
        "main graph, expected an order by data or popsr.in_sequence()");
}

// Text

TEST_CASE("print: a program reads as it was written") {
  Program p(4);
  const GraphId f = p.at = p.ir.create_graph("f");
  const TensorId a = p.input("a");
  p.ir.add_output(f, p("mul", {a, p.constant("two")}));
  p.at = kMainGraph;
  const TensorId w = p.variable("w", p.groups(1, 2));
  p.location = p.ir.locations().intern("model.py", 7);
  const TensorId y = p("call", {w}, "y", {{"graph", f}});
  p("replicated_all_reduce", {y}, {}, {{"op", std::string("mean")}});
  CHECK(print_ir(p.ir) ==
        "graph main() {\n"
        "  variable %w f32[4] ReplicaGrouping(num_replicas=4, stride=1, group_size=2, num_groups=2)\n"
        "  %y f32[4] = call(%w, graph='f_subgraph(0)')  # model.py:7\n"
        "  %replicated_all_reduce_out f32[4] = replicated_all_reduce(%y, op='mean')  # model.py:7\n"
        "}\n"
        "graph 'f_subgraph(0)'(%a f32[4]) {\n"
        "  constant %two f32[4]\n"
        "  %mul_out f32[4] = mul(%a, %two)\n"
        "  return %mul_out\n"
        "}\n");
}

}  // namespace
}  // namespace popsr
