// Activations, and the elementwise ops that gradients are made of.
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::ElementwiseOp;

BlockKernel eval_scale(const EvalSpec& spec) {
  return elementwise_kernel(spec, ElementwiseOp::kScale, {.params = {{.value = spec.op.get(kFactor)}}});
}

OpDef internal_binary(std::string_view name, std::string_view first, std::string_view second,
                      KernelAspect kernel, Rounding rounding) {
  return {.name = name,
          .inputs = {{first, kFloating}, {second, kFloating}},
          .infer = broadcast_binary,
          .kernel = kernel,
          .numerics = {.rounding = rounding},
          .program = {.internal = true}};
}

}  // namespace

std::vector<OpDef> activations_ops() {
  const OpDef relu = unary_op(
      "relu", kNumbers, elementwise_op<ElementwiseOp::kRelu>,
      [](Grad& g) {
        return g.call("relu_grad", {g.x(), g.dy()});
      },
      Rounding::kNone);
  // The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  const OpDef gelu = unary_op(
      "gelu", kFloating, elementwise_op<ElementwiseOp::kGelu>,
      [](Grad& g) {
        return g.call("gelu_grad", {g.x(), g.dy()});
      },
      Rounding::kOnce);
  // x times the normal distribution, and x times the logistic one
  const OpDef geluerf = unary_op(
      "geluerf", kFloating, elementwise_op<ElementwiseOp::kGeluErf>,
      [](Grad& g) {
        return g.call("geluerf_grad", {g.x(), g.dy()});
      },
      Rounding::kOnce);
  const OpDef swish = unary_op(
      "swish", kFloating, elementwise_op<ElementwiseOp::kSwish>,
      [](Grad& g) {
        return g.call("swish_grad", {g.x(), g.dy()});
      },
      Rounding::kOnce);
  return {
      relu,
      inplace_form(relu, "relu_"),
      gelu,
      inplace_form(gelu, "gelu_"),
      geluerf,
      inplace_form(geluerf, "geluerf_"),
      swish,
      inplace_form(swish, "swish_"),
      unary_op(
          "sigmoid", kFloating, elementwise_op<ElementwiseOp::kSigmoid>,
          [](Grad& g) {
            return g.call("sigmoid_grad", {g.x(), g.dy()});
          },
          Rounding::kOnce),
      unary_op(
          "tanh", kFloating, elementwise_op<ElementwiseOp::kTanh>,
          [](Grad& g) {
            return g.call("tanh_grad", {g.y(), g.dy()});
          },
          Rounding::kOnce),
      {.name = "scale",
       .inputs = {{"t", kFloating}},
       .attrs = {required(kFactor)},
       .infer = same_as_input,
       .kernel = {.eval = eval_scale, .elementwise = ElementwiseOp::kScale},
       .grad = per_input({[](Grad& g) { return g.scale(g.dy(), g.get(kFactor)); }}),
       .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kAll},
       .program = {.internal = true}},
      internal_binary("relu_grad", "t", "dy", elementwise_op<ElementwiseOp::kReluGrad>, Rounding::kNone),
      internal_binary("gelu_grad", "t", "dy", elementwise_op<ElementwiseOp::kGeluGrad>, Rounding::kOnce),
      internal_binary("geluerf_grad", "t", "dy", elementwise_op<ElementwiseOp::kGeluErfGrad>,
                      Rounding::kOnce),
      internal_binary("swish_grad", "t", "dy", elementwise_op<ElementwiseOp::kSwishGrad>, Rounding::kOnce),
      internal_binary("sigmoid_grad", "t", "dy", elementwise_op<ElementwiseOp::kSigmoidGrad>,
                      Rounding::kOnce),
      internal_binary("tanh_grad", "y", "dy", elementwise_op<ElementwiseOp::kTanhGrad>, Rounding::kOnce),
      internal_binary("abs_grad", "t", "dy", elementwise_op<ElementwiseOp::kAbsGrad>, Rounding::kNone),
      internal_binary("pow_grad_base", "t", "e", elementwise_op<ElementwiseOp::kPowGradBase>,
                      Rounding::kOnce),
      internal_binary("pow_grad_exponent", "t", "y", elementwise_op<ElementwiseOp::kPowGradExponent>,
                      Rounding::kOnce),
      internal_binary("equal_mask", "a", "b", elementwise_op<ElementwiseOp::kEqualMask>, Rounding::kNone),
  };
}

}  // namespace popsr
