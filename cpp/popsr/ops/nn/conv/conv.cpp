// Convolutions: conv, conv_transpose, the two gradients of conv, and the forms for float8. See kernel.h
// for the arithmetic.
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/math/pow2scale.h"
#include "popsr/ops/nn/conv/conv_kernel.h"
#include "popsr/ops/nn/conv/conv_shape.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr std::size_t kData = 0, kWeight = 1;

std::vector<OutputDef> infer_conv(const InferContext& context) {
  require_equal_dtypes(context, 0, 1);
  ConvShape shape = conv_shape(context.op, context.type(0).shape, context.type(1).shape);
  return {{{context.type(0).dtype, std::move(shape.output)}, {}}};
}

std::vector<OutputDef> infer_conv_transpose(const InferContext& context) {
  require_equal_dtypes(context, 0, 1);
  ConvShape shape = conv_transpose_shape(context.op, context.type(0).shape, context.type(1).shape);
  return {{{context.type(0).dtype, std::move(shape.output)}, {}}};
}

BlockKernel eval_conv(const EvalSpec& spec) {
  return conv_kernel(spec, conv_shape(spec.op, spec.inputs[0]->shape, spec.inputs[1]->shape));
}

BlockKernel eval_conv_transpose(const EvalSpec& spec) {
  return conv_transpose_kernel(spec,
                               conv_transpose_shape(spec.op, spec.inputs[0]->shape, spec.inputs[1]->shape));
}

/// The cotangent takes the place of the operand.
BlockKernel eval_conv_data_grad(const EvalSpec& spec) {
  ConvShape shape = conv_shape(spec.op, spec.op.get(kShape), spec.inputs[1]->shape);
  std::swap(shape.in, shape.out);
  std::swap(shape.in_channels, shape.out_channels);
  return conv_transpose_kernel(spec, shape);
}

BlockKernel eval_conv_weight_grad(const EvalSpec& spec) {
  return conv_weight_grad_kernel(spec, conv_shape(spec.op, spec.inputs[0]->shape, spec.op.get(kShape)));
}

/// A transposed convolution from `t` to its result, seen as the plain one from the result to `t`.
ConvShape plain_shape(const Op& op, const Shape& t, const Shape& weight) {
  ConvShape shape = conv_transpose_shape(op, t, weight);
  std::swap(shape.in, shape.out);
  std::swap(shape.in_channels, shape.out_channels);
  return shape;
}

/// The cotangent is convolved.
BlockKernel eval_conv_transpose_data_grad(const EvalSpec& spec) {
  return conv_kernel(spec, plain_shape(spec.op, spec.op.get(kShape), spec.inputs[1]->shape));
}

/// The cotangent is the operand, the operand the cotangent.
BlockKernel eval_conv_transpose_weight_grad(const EvalSpec& spec) {
  return conv_weight_grad_kernel(spec, plain_shape(spec.op, spec.inputs[1]->shape, spec.op.get(kShape)));
}

/// The attributes of a gradient of input i.
std::vector<NamedAttribute> gradient_attrs(const Grad& g, const std::vector<AttrDef>& own, std::size_t i) {
  std::vector<NamedAttribute> attrs = g.same(own);
  attrs.push_back(kShape(g.in_type(i).shape));
  return attrs;
}

GradAspect conv_grad() {
  return per_input(
      {[](Grad& g) {
         return g.call("conv_data_grad", {g.dy(), g.x(kWeight)}, gradient_attrs(g, conv_attrs(), kData));
       },
       [](Grad& g) {
         return g.call("conv_weight_grad", {g.x(kData), g.dy()}, gradient_attrs(g, conv_attrs(), kWeight));
       }});
}

GradAspect conv_transpose_grad() {
  return per_input({[](Grad& g) {
                      return g.call("conv_transpose_data_grad", {g.dy(), g.x(kWeight)},
                                    gradient_attrs(g, conv_transpose_attrs(), kData));
                    },
                    [](Grad& g) {
                      return g.call("conv_transpose_weight_grad", {g.dy(), g.x(kData)},
                                    gradient_attrs(g, conv_transpose_attrs(), kWeight));
                    }});
}

/// Operations: a multiplication and an addition for each pair of weight and position, padding included.
std::vector<FlopTerm> conv_flops(const Shape& positions, const Shape& weight) {
  return {{num_elements(positions), 2 * num_elements(Shape(weight.begin() + 1, weight.end()))}};
}

const Shape& input_shape(const Ir& ir, const Op& op, std::size_t i) {
  return ir.tensor(op.inputs[i]).type.shape;
}
const Shape& output_shape(const Ir& ir, const Op& op) { return ir.tensor(op.outputs[0]).type.shape; }

std::vector<FlopTerm> flops_at_outputs(const Ir& ir, const Op& op) {
  return conv_flops(output_shape(ir, op), input_shape(ir, op, kWeight));
}
std::vector<FlopTerm> flops_at_inputs(const Ir& ir, const Op& op) {
  return conv_flops(input_shape(ir, op, kData), input_shape(ir, op, kWeight));
}
/// The second operand is the cotangent.
std::vector<FlopTerm> weight_grad_flops(const Ir& ir, const Op& op) {
  return conv_flops(input_shape(ir, op, 1), output_shape(ir, op));
}

OpDef conv_op(std::string_view name, std::string_view first, std::string_view second,
              std::vector<AttrDef> attrs, InferFn infer, KernelAspect kernel, GradAspect grad = {}) {
  return {.name = name,
          .inputs = {{first, kFloating}, {second, kFloating}},
          .attrs = std::move(attrs),
          .infer = infer,
          .kernel = kernel,
          .grad = std::move(grad),
          .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kEach}};
}

OpDef gradient_op(std::string_view name, std::string_view first, std::string_view second,
                  std::vector<AttrDef> attrs, KernelAspect kernel) {
  attrs.push_back(required(kShape));
  OpDef def = conv_op(name, first, second, std::move(attrs), of_given_shape, kernel);
  def.program.internal = true;
  return def;
}

// float8: the result times 2^log2_scale, in float16

constexpr std::size_t kScale = 2;

template <ConvShape (*shape_of)(const Op&, const Shape&, const Shape&)>
std::vector<OutputDef> infer_scaled(const InferContext& context) {
  require_scalar_scale(context, kScale);
  ConvShape shape = shape_of(context.op, context.type(0).shape, context.type(1).shape);
  return {{{DType::kFloat16, std::move(shape.output)}, {}}};
}

using ConvKernelFn = BlockKernel (*)(const EvalSpec&, const ConvShape&, ConvOptions);

template <ConvShape (*shape_of)(const Op&, const Shape&, const Shape&), ConvKernelFn kernel>
BlockKernel eval_scaled(const EvalSpec& spec) {
  const auto factor = [](const Block& block) { return block_scale(block, kScale); };
  const ConvShape shape = shape_of(spec.op, spec.inputs[0]->shape, spec.inputs[1]->shape);
  return with_checked_scale(spec, kScale, kernel(spec, shape, {.factor = factor}));
}

OpDef scaled_op(std::string_view name, std::vector<AttrDef> attrs, InferFn infer, KernelAspect kernel) {
  return {.name = name,
          .inputs = {{"t", kFloat8}, {"weight", kFloat8}, log2_scale_input()},
          .attrs = std::move(attrs),
          .infer = infer,
          .kernel = kernel,
          .grad = {.missing = NoGrad::kThrows},
          .numerics = kRoundsOnce};
}

}  // namespace

std::vector<OpDef> conv_ops() {
  return {
      conv_op("conv", "t", "weight", conv_attrs(), infer_conv, {.eval = eval_conv, .flops = flops_at_outputs},
              conv_grad()),
      gradient_op("conv_data_grad", "dy", "weight", conv_attrs(),
                  {.eval = eval_conv_data_grad, .flops = flops_at_inputs}),
      gradient_op("conv_weight_grad", "t", "dy", conv_attrs(),
                  {.eval = eval_conv_weight_grad, .flops = weight_grad_flops}),
      conv_op("conv_transpose", "t", "weight", conv_transpose_attrs(), infer_conv_transpose,
              {.eval = eval_conv_transpose, .flops = flops_at_inputs}, conv_transpose_grad()),
      gradient_op("conv_transpose_data_grad", "dy", "weight", conv_transpose_attrs(),
                  {.eval = eval_conv_transpose_data_grad, .flops = flops_at_outputs}),
      gradient_op("conv_transpose_weight_grad", "dy", "t", conv_transpose_attrs(),
                  {.eval = eval_conv_transpose_weight_grad, .flops = weight_grad_flops}),
      scaled_op("conv_pow2scaled", conv_attrs(), infer_scaled<conv_shape>,
                {.eval = eval_scaled<conv_shape, conv_kernel>, .flops = flops_at_outputs}),
      scaled_op("conv_transpose_pow2scaled", conv_transpose_attrs(), infer_scaled<conv_transpose_shape>,
                {.eval = eval_scaled<conv_transpose_shape, conv_transpose_kernel>, .flops = flops_at_inputs}),
  };
}

}  // namespace popsr
