// conditional: each replica runs one of two graphs.
#include "popsr/base/error.h"
#include "popsr/ops/program/callee.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<GraphId> kThenBranch{"then_branch"};
constexpr Attr<GraphId> kElseBranch{"else_branch"};

/// Checks that outputs have the same types in both branches; meta shapes are equal where both sides have
/// one.
void check_same_outputs(const InferContext& context, const Graph& then_branch, const Graph& else_branch) {
  if (then_branch.outputs.size() != else_branch.outputs.size()) {
    raise<GraphError>(
        "{}: branches have different numbers of outputs, got {} of '{}' and {} of '{}', expected "
        "the same number",
        context.name(), then_branch.outputs.size(), then_branch.name, else_branch.outputs.size(),
        else_branch.name);
  }
  for (std::size_t k = 0; k < then_branch.outputs.size(); ++k) {
    const Tensor& a = context.ir.tensor(then_branch.outputs[k]);
    const Tensor& b = context.ir.tensor(else_branch.outputs[k]);
    if (a.type.dtype != b.type.dtype) {
      raise<DTypeError>("{}: dtypes of output {} differ, got {} '{}' and {} '{}', expected the same dtype",
                        context.name(), k, to_string(a.type), a.name, to_string(b.type), b.name);
    }
    if (a.type.shape != b.type.shape) {
      raise<ShapeError>("{}: shapes of output {} differ, got {} '{}' and {} '{}', expected the same shape",
                        context.name(), k, to_string(a.type), a.name, to_string(b.type), b.name);
    }
    if (!a.meta_shape.empty() && !b.meta_shape.empty() && a.meta_shape != b.meta_shape) {
      raise<ShapeError>("{}: output {} is a shard of different shapes, got {} '{}' and {} '{}', expected one",
                        context.name(), k, to_string(a.meta_shape), a.name, to_string(b.meta_shape), b.name);
    }
  }
}

/// Inputs: the condition, the then branch's, the else branch's.
std::vector<OutputDef> infer_conditional(const InferContext& context) {
  if (num_elements(context.type(0).shape) != 1) {
    raise<ShapeError>("{}: cond is not one value, got {} '{}', expected one element", context.name(),
                      to_string(context.type(0)), context.tensor(0).name);
  }
  const Graph& then_branch = callee(context, kThenBranch);
  const Graph& else_branch = callee(context, kElseBranch);
  const std::size_t expected = 1 + then_branch.inputs.size() + else_branch.inputs.size();
  if (context.op.inputs.size() != expected) {
    raise<GraphError>("{}: wrong number of inputs for graphs '{}' and '{}', got {}, expected {}",
                      context.name(), then_branch.name, else_branch.name, context.op.inputs.size() - 1,
                      expected - 1);
  }
  for (std::size_t i = 0; i < then_branch.inputs.size(); ++i) check_argument(context, then_branch, i, 1);
  for (std::size_t i = 0; i < else_branch.inputs.size(); ++i) {
    check_argument(context, else_branch, i, 1 + then_branch.inputs.size());
  }
  check_same_outputs(context, then_branch, else_branch);
  std::vector<OutputDef> outputs = outputs_of(context, then_branch);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].meta_shape.empty()) {
      outputs[k].meta_shape = context.ir.tensor(else_branch.outputs[k]).meta_shape;
    }
  }
  return outputs;
}

}  // namespace

std::vector<OpDef> conditional_ops() {
  return {{.name = "conditional",
           .inputs = {{.name = "cond", .dtypes = {DType::kBool}}, {.name = "inputs", .variadic = true}},
           .attrs = {required(kThenBranch), required(kElseBranch)},
           .infer = infer_conditional,
           .program = {.control = Control::kConditional}}};
}

}  // namespace popsr
