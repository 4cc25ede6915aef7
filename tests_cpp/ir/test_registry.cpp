// A registry with one op more: rows, FLOP counts, gradients and random programs know the op from its OpDef.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/op_pools.h"
#include "popsr/kernels/contract/elementwise.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/loops/reduce_walk.h"
#include "popsr/ops/reduce/axes.h"
#include "popsr/transform/autodiff.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::OpPools;
using test::Program;

bool has(const OpPools::Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::shared_ptr<Registry> with(OpDef def) {
  auto registry = std::make_shared<Registry>(*default_registry());
  registry->add(std::move(def));
  return registry;
}

/// The sum of an op's terms.
std::int64_t count(const Ir& ir, OpId op) {
  std::int64_t sum = 0;
  for (const FlopTerm& term : flops_of(ir, ir.op(op))) sum += term.elements * term.each;
  return sum;
}

OpDef opposite() {
  return unary_op(
      "opposite", kFloating, elementwise_op<kernels::ElementwiseOp::kNegate>,
      [](Grad& g) { return g.call("opposite", {g.dy()}); }, Rounding::kNone);
}

OpDef range_of_axes() {
  return {.name = "spread",
          .inputs = {{"t", kFloating}},
          .attrs = {optional(kAxes), optional(kKeepDims, false)},
          .infer = infer_reduction,
          .kernel = reduction_op<ReductionOp::kVar>};
}

TEST_CASE("registry: names of rows and values of the enum are in one order") {
  const std::string_view names[] = {
#define POPSR_ROW(name, ...) #name,
#include "popsr/kernels/contract/elementwise.def"
  };
  REQUIRE(std::size(names) == static_cast<std::size_t>(kernels::kNumElementwiseOps));
  for (int op = 0; op < kernels::kNumElementwiseOps; ++op) {
    CHECK(kernels::row_of(static_cast<kernels::ElementwiseOp>(op)).name == names[op]);
  }
}

TEST_CASE("registry: every row is an op of the registry, or a part of one") {
  std::vector<bool> found(static_cast<std::size_t>(kernels::kNumElementwiseOps));
  for (const std::string_view name : default_registry()->names()) {
    const auto row = default_registry()->at(name).kernel.elementwise;
    if (row) found[static_cast<std::size_t>(*row)] = true;
  }
  std::string parts;
  for (int op = 0; op < kernels::kNumElementwiseOps; ++op) {
    if (found[static_cast<std::size_t>(op)]) continue;
    parts += std::string(" ") + kernels::row_of(static_cast<kernels::ElementwiseOp>(op)).name;
  }
  CHECK(parts == " RoundAway");  // round counts as its other kernel
}

TEST_CASE("registry: an element-wise op that is added counts, differentiates and is drawn at random") {
  Program p(1, with(opposite()));
  p.at = p.ir.create_graph("forward");
  const TensorId x = p.input("x", {DType::kFloat32, {3, 4}});
  const OpId op = p.emit("opposite", {x});
  p.ir.add_output(p.at, p.ir.op(op).outputs[0]);
  CHECK(count(p.ir, op) == 12);

  const GradGraph grad = autodiff(p.ir, p.at, {}).at(p.at);
  REQUIRE(p.ir.graph(grad.graph).ops.size() == 1);
  const OpId made = p.ir.graph(grad.graph).ops[0];
  CHECK(p.ir.op(made).def->name == "opposite");
  CHECK(count(p.ir, made) == 12);

  CHECK(has(test::op_pools(p.ir.registry()).unary, "opposite"));
  CHECK(!has(test::op_pools(*default_registry()).unary, "opposite"));
}

TEST_CASE("registry: a reduction that is added counts and is drawn at random") {
  Program p(1, with(range_of_axes()));
  const OpId op = p.emit("spread", {p.constant("x", {DType::kFloat32, {5, 7}})});
  CHECK(count(p.ir, op) == 4 * 35);
  CHECK(has(test::op_pools(p.ir.registry()).over_axes, "spread"));
}

TEST_CASE("registry: random programs draw from all elementary ops") {
  const OpPools pools = test::op_pools(*default_registry());
  for (const std::string_view name : {"exp", "erf", "isnan", "floor", "tanh"}) CHECK(has(pools.unary, name));
  for (const std::string_view name : {"add", "pow", "maximum", "equal", "tanh_grad"}) {
    CHECK(has(pools.binary, name));
  }
  for (const std::string_view name : {"var", "sum", "median"}) CHECK(has(pools.over_axes, name));
  for (const std::string_view name : {"argmax", "cumsum", "lamb_square"}) CHECK(has(pools.others, name));
  for (const std::string_view name : {"add_", "relu_", "accumulate_mean_", "copy_var_update_"}) {
    CHECK(has(pools.in_place, name));
  }
  for (const std::string_view name : {"replicated_all_reduce", "replicated_all_to_all"}) {
    CHECK(has(pools.collectives, name));
  }
  CHECK(!has(pools.in_place, "adam_var_update"));
  CHECK(!has(pools.others, "random_normal"));
}

}  // namespace
}  // namespace popsr
