// Gradient graphs: their structure on small programs, and their values on random ones.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/ir/print.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::error_of;
using test::kVector;
using test::Program;

/// Starts a graph; later emits go there.
GraphId open(Program& p, std::string_view name) { return p.at = p.ir.create_graph(name); }

GradGraph differentiate(Program& p, GraphId graph, const AutodiffOptions& options = {}) {
  return autodiff(p.ir, graph, options).at(graph);
}

std::string name_of(const Ir& ir, TensorId t) {
  const std::string& name = ir.tensor(t).name;
  return name.substr(name.rfind('/') + 1);
}

std::string names_of(const Ir& ir, const std::vector<TensorId>& tensors) {
  std::vector<std::string> names;
  for (const TensorId t : tensors) names.push_back(name_of(ir, t));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string ops_of(const Ir& ir, GraphId graph) {
  std::vector<std::string_view> names;
  for (const OpId op : ir.graph(graph).ops) names.push_back(ir.op(op).def->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// "grad y" or "y".
std::string roles_of(const Ir& ir, const std::vector<ExpectedConnection>& connections) {
  std::vector<std::string> names;
  for (const auto& [is_gradient, t] : connections)
    names.push_back((is_gradient ? "grad " : "") + name_of(ir, t));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Structure

TEST_CASE("autodiff: inputs are the provided gradients, then what is needed; outputs are as required") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId w = p.input("w");
  p.ir.add_output(f, p("mul", {x, w}, "y"));
  const GradGraph grad = differentiate(p, f);
  CHECK(p.ir.graph(grad.graph).name == "f_subgraph(0)_bwd");
  CHECK(grad.forward == f);
  CHECK(names_of(p.ir, p.ir.graph(grad.graph).inputs) == "Gradient___y, w, x");
  CHECK(roles_of(p.ir, grad.inputs) == "grad y, w, x");
  CHECK(roles_of(p.ir, grad.outputs) == "grad x, grad w");
  CHECK(ops_of(p.ir, grad.graph) == "mul, mul");
  CHECK(p.ir.graph(f).outputs.size() == 1);

  const GradGraph only_w = differentiate(p, f, {.grads_required = {{w}}});
  CHECK(p.ir.graph(only_w.graph).name == "f_subgraph(0)_bwd_0");
  CHECK(roles_of(p.ir, only_w.inputs) == "grad y, x");
  CHECK(roles_of(p.ir, only_w.outputs) == "grad w");
  CHECK(roles_of(p.ir, differentiate(p, f, {.grads_required = {{w, x}}}).outputs) == "grad w, grad x");
}

TEST_CASE("autodiff: gradients are summed: provided first, then consumers from the last to the first") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId h = p("tanh", {x}, "h");
  const TensorId y = p("mul", {h, h}, "y");
  const TensorId z = p("add", {h, y}, "z");
  p.ir.add_output(f, z);
  p.ir.add_output(f, h);
  const GradGraph grad = differentiate(p, f);
  CHECK(roles_of(p.ir, grad.inputs) == "grad z, grad h, h");
  CHECK(print_graph(p.ir, grad.graph)
            .find("(%Gradient___z f32[4], %Gradient___h f32[4], %h f32[4]) {\n"
                  "  %mul_out f32[4] = mul(%Gradient___z, %h)\n") != std::string::npos);
  CHECK(names_of(p.ir, p.ir.graph(grad.graph).outputs) == "Gradient___x");
  CHECK(ops_of(p.ir, grad.graph) == "mul, mul, add, add, add, tanh_grad");
  const Op& first = p.ir.op(p.ir.graph(grad.graph).ops[2]);
  CHECK(names_of(p.ir, first.inputs) == "Gradient___h, Gradient___z");
  CHECK(names_of(p.ir, first.outputs).starts_with("Gradient___h__t"));
}

TEST_CASE("autodiff: needed intermediates become outputs of the graph and of all its calls") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId h = p("tanh", {x}, "h");
  p.ir.add_output(f, p("exp", {h}, "y"));
  p.at = kMainGraph;
  const TensorId w = p.variable("w");
  const OpId first = p.emit("call", {w}, {{"graph", f}});
  const GraphId g = open(p, "g");
  const OpId second = p.emit("call", {p.input("x")}, {{"graph", f}});
  const std::uint64_t epoch = p.ir.epoch();
  const GradGraph grad = differentiate(p, f);
  CHECK(roles_of(p.ir, grad.inputs) == "grad y, y, h");
  CHECK(names_of(p.ir, p.ir.graph(f).outputs) == "y, h");
  CHECK(names_of(p.ir, p.ir.op(first).outputs) == "call_out, h_out");
  CHECK(names_of(p.ir, p.ir.op(second).outputs) == "call_out, h_out");
  CHECK(p.ir.tensor(p.ir.op(second).outputs[1]).graph == g);
  CHECK(p.ir.tensor(p.ir.op(second).outputs[1]).uses.producer == second);
  CHECK(p.ir.epoch() > epoch);
  CHECK_NOTHROW(PartitionAnalysis(p.ir));

  differentiate(p, f, {.grads_provided = {{p.ir.graph(f).outputs[0]}}});  // nothing more is needed
  CHECK(p.ir.op(first).outputs.size() == 2);
}

TEST_CASE("autodiff: a graph that is repeated keeps its outputs, intermediates are computed again") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId h = p("tanh", {p("mul", {x, p.constant("two")}, "m")}, "h");
  p.ir.add_output(f, p("exp", {h}, "y"));
  p.at = kMainGraph;
  const OpId loop = p.emit("repeat", {p.variable("w")}, {{"graph", f}, {"count", std::int64_t{2}}});
  const GradGraph grad = differentiate(p, f);
  CHECK(p.ir.graph(f).outputs.size() == 1);
  CHECK(p.ir.op(loop).outputs.size() == 1);
  CHECK(roles_of(p.ir, grad.inputs) == "grad y, y, x");
  CHECK(ops_of(p.ir, grad.graph) == "mul, mul, tanh, tanh_grad, mul");
}

TEST_CASE("autodiff: a value from the host cannot be computed again") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  p.ir.add_output(f, p("mul", {x, p.load("batch")}, "y"));
  p.at = kMainGraph;
  p.emit("repeat", {p.variable("w")}, {{"graph", f}, {"count", std::int64_t{2}}});
  CHECK_THROWS_WITH_AS(differentiate(p, f), doctest::Contains("'f_subgraph(0)/batch' cannot be recomputed"),
                       GraphError);
}

TEST_CASE("autodiff: constants are copied, not connected") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId two = p.constant("two");
  p.ir.add_output(f, p("mul", {x, two}, "y"));
  const GradGraph grad = differentiate(p, f);
  CHECK(roles_of(p.ir, grad.inputs) == "grad y");
  const TensorId copy = p.ir.find_tensor(grad.graph, "f_subgraph(0)_bwd/two");
  CHECK(p.ir.tensor(copy).kind == TensorKind::kConstant);
  CHECK(p.ir.tensor(copy).state.data == p.ir.tensor(two).state.data);
}

TEST_CASE("autodiff: gradient ops are at the place of their forward op") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  p.location = p.ir.locations().intern("model.py", 5);
  p.ir.add_output(f, p("add", {p("tanh", {x}), p("exp", {x})}));
  const GradGraph grad = differentiate(p, f);
  for (const OpId op : p.ir.graph(grad.graph).ops) CHECK(p.ir.op(op).origin.location == p.location);
}

TEST_CASE("autodiff: tensors inside the graph can be required") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId h = p("tanh", {p.input("x")}, "h");
  p.ir.add_output(f, p("mul", {h, h}, "y"));
  const GradGraph grad = differentiate(p, f, {.grads_required = {{h}}});
  CHECK(roles_of(p.ir, grad.outputs) == "grad h");
  CHECK(ops_of(p.ir, grad.graph) == "mul, mul, add");
}

TEST_CASE("autodiff: gradients have the type of what they are gradients of") {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Program p(1);
    const GraphId f = open(p, "f");
    const TensorId x = p.input("x", {dtype, {8, 4}});
    const TensorId labels = p.input("labels", {DType::kInt32, {8}});
    const TensorId w = p.input("w", {dtype, {4, 3}});
    const TensorId b = p.input("b", {dtype, {3}});
    const TensorId scores = p("relu", {p("add", {p("matmul", {x, w}), b})}, "scores");
    const TensorId probs = p("softmax", {scores}, "probs", {{"axis", std::int64_t{1}}});
    p.ir.add_output(f, p("nll_loss", {probs, labels}, "loss"));
    const GradGraph grad = differentiate(p, f, {.grads_required = {{x, w, b}}});
    CHECK(roles_of(p.ir, grad.outputs) == "grad x, grad w, grad b");
    for (std::size_t i = 0; i < 3; ++i) {
      const TensorId gradient = p.ir.graph(grad.graph).outputs[i];
      CHECK(p.ir.tensor(gradient).type == p.ir.tensor(grad.outputs[i].fwd_tensor).type);
    }
  }
}

// Calls

/// y = tanh(a) * b, and z = exp(a).
GraphId inner_graph(Program& p) {
  const GraphId f = open(p, "f");
  const TensorId a = p.input("a");
  p.ir.add_output(f, p("mul", {p("tanh", {a}, "h"), p.input("b")}, "y"));
  p.ir.add_output(f, p("exp", {a}, "z"));
  return f;
}

TEST_CASE("autodiff: called graphs are differentiated once, missing gradients are zeros") {
  Program p(1);
  const GraphId f = inner_graph(p);
  const GraphId g = open(p, "g");
  const TensorId x = p.input("x");
  const TensorId w = p.input("w");
  const OpId first = p.emit("call", {x, w}, {{"graph", f}});
  const OpId second = p.emit("call", {p.ir.op(first).outputs[0], w}, {{"graph", f}});
  p.ir.add_output(g, p("add", {p.ir.op(second).outputs[0], p.ir.op(second).outputs[1]}, "out"));
  const auto all = autodiff(p.ir, g);
  CHECK(all.size() == 2);
  const GradGraph& inner = all.at(f);
  CHECK(roles_of(p.ir, inner.inputs) == "grad y, grad z, z, b, h");
  CHECK(roles_of(p.ir, inner.outputs) == "grad a, grad b");
  // the second call's z and the forward values of both calls became outputs of g
  CHECK(p.ir.op(first).outputs.size() == 3);
  const GradGraph& outer = all.at(g);
  CHECK(roles_of(p.ir, outer.outputs) == "grad x, grad w");
  CHECK(ops_of(p.ir, outer.graph) == "call, init, call, add");
  const std::vector<OpId>& ops = p.ir.graph(outer.graph).ops;
  CHECK(p.ir.op(ops[0]).get(Attr<GraphId>{"graph"}) == inner.graph);
  CHECK(p.ir.op(ops[1]).get(Attr<std::string>{"init_type"}) == "zero");
  CHECK(p.ir.op(ops[2]).inputs[1] == p.ir.op(ops[1]).outputs[0]);
}

TEST_CASE("autodiff: a called graph gives and takes only what its calls need") {
  Program p(1);
  const GraphId f = inner_graph(p);
  const GraphId g = open(p, "g");
  const TensorId x = p.input("x");
  const TensorId w = p.input("w");
  p.ir.add_output(g, p("call", {x, w}, "out", {{"graph", f}}));
  const auto all = autodiff(p.ir, g, {.grads_required = {{w}}});
  CHECK(roles_of(p.ir, all.at(f).inputs) == "grad y, h");
  CHECK(roles_of(p.ir, all.at(f).outputs) == "grad b");
}

TEST_CASE("autodiff: a gradient graph that is given is used") {
  Program p(1);
  const GraphId f = inner_graph(p);
  const GradGraph given = differentiate(p, f);
  const GraphId g = open(p, "g");
  const TensorId x = p.input("x");
  p.ir.add_output(g, p("call", {x, p.input("w")}, "out", {{"graph", f}}));
  const std::size_t graphs = p.ir.num_graphs();
  const auto all = autodiff(p.ir, g, {.called = {{f, given}}});
  CHECK(p.ir.num_graphs() == graphs + 1);
  CHECK(all.at(f).graph == given.graph);
  CHECK(ops_of(p.ir, all.at(g).graph) == "init, call");
}

TEST_CASE("autodiff: integer inputs of called graphs take no part") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId a = p.input("a");
  const TensorId k = p.input("k", {DType::kInt32, {4}});
  p.ir.add_output(f, p("mul", {a, p("cast", {k}, "c", {{"data_type", DType::kFloat32}})}, "y"));
  const GraphId g = open(p, "g");
  const TensorId x = p.input("x");
  const TensorId labels = p.input("labels", {DType::kInt32, {4}});
  p.ir.add_output(g, p("call", {x, labels}, "out", {{"graph", f}}));
  const auto all = autodiff(p.ir, g, {.grads_required = {{x}}});
  CHECK(roles_of(p.ir, all.at(f).outputs) == "grad a");
  CHECK(error_of<GraphError>([&] {
          autodiff(p.ir, g);
        }).starts_with("autodiff: unable to provide required gradient of 'g_subgraph(1)/labels' i32[4]"));
}

// Errors

TEST_CASE("autodiff: what cannot be asked for") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId unused = p.input("unused");
  p.ir.add_output(f, p("tanh", {x}, "y"));
  const TensorId outside = p.ir.add_input(p.ir.create_graph("g"), "outside", kVector);
  const std::string before = print_ir(p.ir);
  const auto error = [&](const AutodiffOptions& options) {
    return error_of<GraphError>([&] { autodiff(p.ir, f, options); });
  };
  CHECK(error({}).starts_with("autodiff: unable to provide required gradient of 'f_subgraph(0)/unused'"));
  CHECK(error({.grads_required = {{}}}).starts_with("autodiff: no gradients are required"));
  CHECK(error({.grads_required = {{outside}}})
            .starts_with("autodiff: grads_required has a tensor of another graph"));
  CHECK(error({.grads_provided = {{outside}}})
            .starts_with("autodiff: grads_provided has a tensor of another graph"));
  CHECK(error({.grads_provided = {{}}, .grads_required = {{x}}}).starts_with("autodiff: unable to provide"));
  CHECK(print_ir(p.ir) == before);
  CHECK(unused != x);
}

TEST_CASE("autodiff: graphs that modify are refused, wherever they are") {
  Program p(1);
  const GraphId f = open(p, "f");
  const TensorId a = p.input("a");
  p.location = p.ir.locations().intern("model.py", 3);
  p.ir.add_output(f, p("tanh", {p("relu_", {a})}));
  const std::string text = "The graph f_subgraph(0) contains a modifying op, got relu_ at model.py:3";
  CHECK(error_of<GraphError>([&] { autodiff(p.ir, f); }).starts_with(text));
  const GraphId g = open(p, "g");
  const OpId call = p.emit("call", {p.input("x")}, {{"graph", f}});
  p.ir.add_output(g, p.ir.op(call).outputs[0]);
  CHECK(error_of<GraphError>([&] { autodiff(p.ir, g); }).starts_with(text));
  GraphEditor(p.ir).mark_modified(call, 0);
  CHECK(error_of<GraphError>([&] {
          autodiff(p.ir, g);
        }).starts_with("The graph g_subgraph(1) contains a modifying op, got call"));
}

TEST_CASE("autodiff: an op that throws does so only on the way to a required gradient") {
  Program p(2);
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId w = p.input("w", {DType::kFloat32, {2}});
  p.location = p.ir.locations().intern("model.py", 9);
  p.ir.add_output(f, p("mul", {p("replicated_reduce_scatter", {x}, "shard"), w}));
  CHECK(error_of<GraphError>([&] { autodiff(p.ir, f); })
            .starts_with(
                "autodiff: replicated_reduce_scatter has no gradient, got 'f_subgraph(0)/shard' made at "
                "model.py:9"));
  CHECK(roles_of(p.ir, differentiate(p, f, {.grads_required = {{w}}}).outputs) == "grad w");
}

TEST_CASE("autodiff: gradients stop at ops without one, and at loops") {
  Program p(2);
  const GraphId body = open(p, "body");
  p.ir.add_output(body, p("tanh", {p.input("a")}));
  const GraphId f = open(p, "f");
  const TensorId x = p.input("x");
  const TensorId w = p.input("w");
  const TensorId loop =
      p("repeat", {p("replicated_all_reduce", {x})}, "loop", {{"graph", body}, {"count", std::int64_t{3}}});
  p.ir.add_output(f, p("mul", {loop, w}));
  CHECK(error_of<GraphError>([&] { autodiff(p.ir, f); }).find("required gradient of 'f_subgraph(1)/x'") !=
        std::string::npos);
  const GradGraph grad = differentiate(p, f, {.grads_required = {{w}}});
  CHECK(roles_of(p.ir, grad.inputs) == "grad mul_out, loop");
}

// Values: random programs of scalars against finite differences

const TensorType kScalar{DType::kFloat64, {}};

/// Evaluates a graph of scalars.
std::vector<double> evaluate(const Ir& ir, GraphId graph, const std::vector<double>& inputs) {
  std::map<TensorId, double> values;
  for (const TensorId t : ir.graph(graph).tensors) {
    if (ir.tensor(t).kind == TensorKind::kConstant) values[t] = 0.5;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) values[ir.graph(graph).inputs[i]] = inputs[i];
  for (const OpId id : ir.graph(graph).ops) {
    const Op& op = ir.op(id);
    std::vector<double> in;
    for (const TensorId t : op.inputs) in.push_back(values.at(t));
    const std::string_view name = op.def->name;
    std::vector<double> out;
    if (name == "call") out = evaluate(ir, op.get(Attr<GraphId>{"graph"}), in);
    if (name == "add") out = {in[0] + in[1]};
    if (name == "sub") out = {in[0] - in[1]};
    if (name == "mul") out = {in[0] * in[1]};
    if (name == "negate") out = {-in[0]};
    if (name == "tanh") out = {std::tanh(in[0])};
    if (name == "tanh_grad") out = {(1 - in[0] * in[0]) * in[1]};
    if (name == "init") out = {0.0};
    REQUIRE(out.size() == op.outputs.size());
    for (std::size_t k = 0; k < out.size(); ++k) values[op.outputs[k]] = out[k];
  }
  std::vector<double> outputs;
  for (const TensorId t : ir.graph(graph).outputs) outputs.push_back(values.at(t));
  return outputs;
}

/// A random graph of two inputs and two outputs that may call earlier ones.
GraphId random_graph(Program& p, std::mt19937& random, const std::vector<GraphId>& callees) {
  const GraphId graph = open(p, "f");
  std::vector<TensorId> tensors{p.input("x", kScalar), p.input("w", kScalar), p.constant("c", kScalar)};
  const auto any = [&] { return tensors[random() % tensors.size()]; };
  for (int i = 0; i < 7; ++i) {
    const std::size_t kind = random() % (callees.empty() ? 4 : 6);
    if (kind >= 4) {
      const OpId call = p.emit("call", {any(), any()}, {{"graph", callees[random() % callees.size()]}});
      const auto& outputs = p.ir.op(call).outputs;
      tensors.insert(tensors.end(), outputs.begin(), outputs.end());
    } else if (kind == 0) {
      tensors.push_back(p("tanh", {any()}));
    } else {
      tensors.push_back(p(kind == 1 ? "add" : kind == 2 ? "sub" : "mul", {any(), any()}));
    }
  }
  p.ir.add_output(graph, p("tanh", {p("add", {tensors.back(), p("add", {tensors[0], tensors[1]})})}));
  p.ir.add_output(graph, any());
  return graph;
}

/// Value of each connection, where the forward graph and a call of it are evaluated at `x`.
std::vector<double> gradient_inputs(const Ir& ir, const GradGraph& grad, const std::vector<double>& x,
                                    const std::vector<double>& seeds) {
  const std::vector<double> outputs = evaluate(ir, grad.forward, x);
  const Graph& forward = ir.graph(grad.forward);
  std::vector<double> inputs;
  std::size_t seed = 0;
  for (const ExpectedConnection& c : grad.inputs) {
    const auto in = std::ranges::find(forward.inputs, c.fwd_tensor) - forward.inputs.begin();
    const auto out = std::ranges::find(forward.outputs, c.fwd_tensor) - forward.outputs.begin();
    if (c.is_gradient) {
      inputs.push_back(seeds[seed++]);
    } else if (static_cast<std::size_t>(in) < x.size()) {
      inputs.push_back(x[static_cast<std::size_t>(in)]);
    } else {
      inputs.push_back(outputs.at(static_cast<std::size_t>(out)));
    }
  }
  return inputs;
}

/// Derivative of sum(seed * output) by input i.
double difference(const Ir& ir, const GradGraph& grad, std::vector<double> x,
                  const std::vector<double>& seeds, std::size_t i) {
  const auto loss = [&] {
    const std::vector<double> outputs = evaluate(ir, grad.forward, x);
    double sum = 0;
    std::size_t seed = 0;
    for (const ExpectedConnection& c : grad.inputs) {
      if (!c.is_gradient) continue;
      const auto at = std::ranges::find(ir.graph(grad.forward).outputs, c.fwd_tensor);
      sum += seeds[seed++] * outputs[static_cast<std::size_t>(at - ir.graph(grad.forward).outputs.begin())];
    }
    return sum;
  };
  constexpr double kStep = 1e-5;
  x[i] += kStep;
  const double above = loss();
  x[i] -= 2 * kStep;
  return (above - loss()) / (2 * kStep);
}

TEST_CASE("autodiff fuzz: gradients of nested random programs are their derivatives") {
  std::mt19937 random(20240614);
  for (int round = 0; round < 300; ++round) {
    Program p(1);
    std::vector<GraphId> graphs;
    for (int g = 0; g < 3; ++g) graphs.push_back(random_graph(p, random, graphs));
    if (round % 3 == 0) {  // a repeated graph is not stitched
      p.at = kMainGraph;
      const TensorId v = p.variable("v", {}, kScalar);
      p.emit("repeat", {v, v}, {{"graph", graphs[random() % 3]}, {"count", std::int64_t{1}}});
    }
    std::vector<double> x{0.3, -0.7};
    const std::vector<double> seeds{1.25, -0.5};
    const std::vector<double> before = evaluate(p.ir, graphs.back(), x);
    const GradGraph grad = differentiate(p, graphs.back());
    const std::vector<double> after = evaluate(p.ir, graphs.back(), x);
    CHECK(std::equal(before.begin(), before.end(), after.begin()));
    const std::vector<double> gradients = evaluate(p.ir, grad.graph, gradient_inputs(p.ir, grad, x, seeds));
    for (std::size_t i = 0; i < 2; ++i) {
      CAPTURE(print_ir(p.ir));
      CHECK(gradients[i] == doctest::Approx(difference(p.ir, grad, x, seeds, i)).epsilon(1e-5));
    }
  }
}

}  // namespace
}  // namespace popsr
