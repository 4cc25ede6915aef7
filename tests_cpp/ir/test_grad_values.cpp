// Gradient rules as expressions: which ops they emit, in which order.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "popsr/base/error.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::kVector;
using test::Program;

/// The rule's context for an op of inputs "a" and "b" in a graph of its own; forward values become inputs of
/// the gradient graph when they are asked for.
struct Rule {
  explicit Rule(std::vector<bool> wanted, TensorType first = kVector, std::string_view op = "add")
      : p(1),
        forward(p.emit(op, {p.input("a", std::move(first)), p.input("b")})),
        graph(p.ir.create_named_graph("grad")),
        cotangent(p.ir.add_input(graph, "dy", p.ir.tensor(p.ir.op(forward).outputs[0]).type)),
        g(p.ir, graph, p.ir.op(forward), {cotangent}, std::move(wanted),
          [this](TensorId t) { return p.ir.add_input(graph, p.ir.tensor(t).name, p.ir.tensor(t).type); }) {}

  /// The gradient graph's inputs and ops in the order in which they were made: "dy a mul".
  std::string made() const {
    std::string text;
    for (const TensorId t : p.ir.graph(graph).tensors) {
      const Tensor& tensor = p.ir.tensor(t);
      const std::string& name = tensor.name;
      if (!text.empty()) text += ' ';
      text += tensor.uses.producer == kNone ? std::string_view(name).substr(name.find('/') + 1)
                                            : p.ir.op(tensor.uses.producer).def->name;
    }
    return text;
  }

  Program p;
  OpId forward;
  GraphId graph;
  TensorId cotangent;
  Grad g;
};

TEST_CASE("gradient values: operands are emitted from left to right") {
  struct Case {
    GradValue (*expression)(Grad& g);
    std::string made;
  };
  const Case cases[] = {
      {[](Grad& g) { return g.dy(); }, "dy"},
      {[](Grad& g) { return -(g.dy() * g.x(1)); }, "dy b mul negate"},
      {[](Grad& g) { return (g.x(1) - g.x(0)) / (g.x(0) + g.dy()); }, "dy b a sub a__t0 add div"},
      {[](Grad& g) { return g.call("sin", {g.x(0)}) * g.call("cos", {g.x(1)}); }, "dy a sin b cos mul"},
      {[](Grad& g) { return g.dy() * g.constant(0.5, DType::kFloat32) / g.y(); },
       "dy grad_constant mul add_out div"},
      {[](Grad& g) { return g.constant(2, DType::kBFloat16); }, "dy grad_constant cast"},
      {[](Grad& g) { return g.scale(g.cast(g.dy(), DType::kFloat64), 2); }, "dy cast scale"},
  };
  for (const Case& each : cases) {
    Rule rule({true, true});
    rule.g.set(0, each.expression(rule.g));
    CHECK(rule.made() == each.made);
    CHECK(rule.g.gradients()[0] != kNone);
    CHECK(rule.g.gradients()[1] == kNone);
  }
}

TEST_CASE("gradient values: now() emits a value before what is written to its left") {
  Rule rule({true, false});
  const GradValue twice = rule.g.scale(rule.g.dy(), 2).now();
  rule.g.set(0, rule.g.x(0) * twice);
  CHECK(rule.made() == "dy scale a mul");
}

TEST_CASE("gradient values: a value that is used twice is emitted once") {
  Rule rule({true, true});
  const GradValue product = rule.g.dy() * rule.g.x(1);
  rule.g.set(0, product);
  rule.g.set(1, product + product);
  CHECK(rule.made() == "dy b mul add");
  CHECK(product.tensor() == rule.g.gradients()[0]);
}

TEST_CASE("gradient values: nothing is emitted for an input that needs no gradient") {
  Rule unwanted({false, true});
  unwanted.g.set(0, unwanted.g.dy() * unwanted.g.x(1));
  CHECK(unwanted.made() == "dy");
  Rule integers({true, true}, {DType::kInt32, {4}}, "greater");
  CHECK_FALSE(integers.g.differentiates(0));
  CHECK(integers.g.differentiates(1));
  CHECK_FALSE(integers.g.differentiates(2));
}

TEST_CASE("gradient values: absent operands and gradients are not values") {
  Rule rule({true, true});
  CHECK_FALSE(rule.g.x(2));
  CHECK(GradValue().tensor() == kNone);
  CHECK_THROWS_AS(-GradValue(), InternalError);
  rule.g.set(0, GradValue());
  CHECK(rule.g.gradients()[0] == kNone);
  CHECK(rule.made() == "dy");
}

TEST_CASE("gradient values: sums undo broadcasting") {
  Rule rule({true, true}, {DType::kFloat32, {3, 1}});
  rule.g.set(0, rule.g.sum_to_input(0, rule.g.dy()));
  rule.g.set(1, rule.g.sum_to_input(1, rule.g.dy()));
  CHECK(rule.made() == "dy sum sum reshape");
  for (const std::size_t i : {0U, 1U}) {
    CHECK(rule.p.ir.tensor(rule.g.gradients()[i]).type == rule.g.in_type(i));
  }
}

TEST_CASE("gradient rules: rules of single inputs run for the inputs that need a gradient") {
  const GradAspect rules = per_input({nullptr, [](Grad& g) { return g.dy() * g.x(0); }});
  CHECK(rules.exists());
  CHECK_FALSE(GradAspect{.missing = NoGrad::kThrows}.exists());
  for (const bool wanted : {false, true}) {
    Rule rule({true, wanted});
    rules.apply(rule.g);
    CHECK(rule.made() == (wanted ? "dy a mul" : "dy"));
    CHECK(rule.g.gradients()[0] == kNone);
  }
  Rule each({true, true});
  GradAspect{.each = [](Grad& g, std::size_t i) { return g.dy() * g.x(1 - i); }}.apply(each.g);
  CHECK(each.made() == "dy b mul a mul");
}

}  // namespace
}  // namespace popsr
