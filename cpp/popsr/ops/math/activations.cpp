// Activations, and the elementwise ops that gradients are made of.
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::ElementwiseOp;

void relu_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("relu_grad", {g.in(0), g.cotangent(0)}));
}

void gelu_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("gelu_grad", {g.in(0), g.cotangent(0)}));
}

void geluerf_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("geluerf_grad", {g.in(0), g.cotangent(0)}));
}

void swish_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("swish_grad", {g.in(0), g.cotangent(0)}));
}

void sigmoid_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("sigmoid_grad", {g.in(0), g.cotangent(0)}));
}

void tanh_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("tanh_grad", {g.out(0), g.cotangent(0)}));
}

BlockKernel eval_scale(const EvalSpec& spec) {
  return elementwise_kernel(spec, ElementwiseOp::kScale,
                            {.params = {{.value = spec.op.attr<double>("factor")}}});
}

void scale_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("scale", {g.cotangent(0)}, {{"factor", g.op().attr<double>("factor")}}));
}

OpDef internal_binary(std::string_view name, std::string_view first, std::string_view second, EvalFn eval,
                      Rounding rounding) {
  return {.name = name,
          .inputs = {{first, kFloating}, {second, kFloating}},
          .infer = broadcast_binary,
          .eval = eval,
          .rounding = rounding,
          .internal = true};
}

}  // namespace

std::vector<OpDef> activation_ops() {
  const OpDef relu =
      unary_op("relu", kNumbers, elementwise<ElementwiseOp::kRelu>, relu_grad, Rounding::kNone);
  // The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  const OpDef gelu =
      unary_op("gelu", kFloating, elementwise<ElementwiseOp::kGelu>, gelu_grad, Rounding::kOnce);
  // x times the normal distribution, and x times the logistic one
  const OpDef geluerf =
      unary_op("geluerf", kFloating, elementwise<ElementwiseOp::kGeluErf>, geluerf_grad, Rounding::kOnce);
  const OpDef swish =
      unary_op("swish", kFloating, elementwise<ElementwiseOp::kSwish>, swish_grad, Rounding::kOnce);
  return {
      relu,
      inplace_form(relu, "relu_"),
      gelu,
      inplace_form(gelu, "gelu_"),
      geluerf,
      inplace_form(geluerf, "geluerf_"),
      swish,
      inplace_form(swish, "swish_"),
      unary_op("sigmoid", kFloating, elementwise<ElementwiseOp::kSigmoid>, sigmoid_grad, Rounding::kOnce),
      unary_op("tanh", kFloating, elementwise<ElementwiseOp::kTanh>, tanh_grad, Rounding::kOnce),
      {.name = "scale",
       .inputs = {{"t", kFloating}},
       .attrs = {required("factor", AttrType::kFloat)},
       .infer = same_as_input,
       .eval = eval_scale,
       .grad = scale_grad,
       .rounding = Rounding::kOnce,
       .internal = true},
      internal_binary("relu_grad", "t", "dy", elementwise<ElementwiseOp::kReluGrad>, Rounding::kNone),
      internal_binary("gelu_grad", "t", "dy", elementwise<ElementwiseOp::kGeluGrad>, Rounding::kOnce),
      internal_binary("geluerf_grad", "t", "dy", elementwise<ElementwiseOp::kGeluErfGrad>, Rounding::kOnce),
      internal_binary("swish_grad", "t", "dy", elementwise<ElementwiseOp::kSwishGrad>, Rounding::kOnce),
      internal_binary("sigmoid_grad", "t", "dy", elementwise<ElementwiseOp::kSigmoidGrad>, Rounding::kOnce),
      internal_binary("tanh_grad", "y", "dy", elementwise<ElementwiseOp::kTanhGrad>, Rounding::kOnce),
      internal_binary("abs_grad", "t", "dy", elementwise<ElementwiseOp::kAbsGrad>, Rounding::kNone),
      internal_binary("pow_grad_base", "t", "e", elementwise<ElementwiseOp::kPowGradBase>, Rounding::kOnce),
      internal_binary("pow_grad_exponent", "t", "y", elementwise<ElementwiseOp::kPowGradExponent>,
                      Rounding::kOnce),
      internal_binary("equal_mask", "a", "b", elementwise<ElementwiseOp::kEqualMask>, Rounding::kNone),
  };
}

}  // namespace popsr
