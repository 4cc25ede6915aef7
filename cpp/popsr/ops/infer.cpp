#include "popsr/ops/infer.h"

#include <algorithm>
#include <limits>

#include "popsr/base/error.h"
#include "popsr/ops/attributes.h"

namespace popsr {

std::string describe(const InferContext& context, std::size_t input) {
  return to_string(context.type(input).dtype, context.type(input).shape);
}

void require_equal_dtypes(const InferContext& context, std::size_t a, std::size_t b) {
  if (context.type(a).dtype == context.type(b).dtype) return;
  raise<DTypeError>("{}: operands differ in dtype, got {} and {}, expected equal dtypes", context.name(),
                    describe(context, a), describe(context, b));
}

void require_equal_shapes(const InferContext& context, std::size_t a, std::size_t b) {
  if (context.type(a).shape == context.type(b).shape) return;
  raise<ShapeError>("{}: operands differ in shape, got {} and {}, expected equal shapes", context.name(),
                    describe(context, a), describe(context, b));
}

void require_one_element(const InferContext& context, std::size_t input) {
  if (!context.has(input) || num_elements(context.type(input).shape) == 1) return;
  raise<ShapeError>("{}: factor is not a scalar, got {}, expected one element", context.name(),
                    describe(context, input));
}

Shape common_meta_shape(const InferContext& context) {
  Shape common;
  for (std::size_t i = 0; i < context.op.inputs.size(); ++i) {
    if (!context.has(i)) continue;
    const Shape& meta = context.tensor(i).meta_shape;
    if (meta.empty() || meta == common) continue;
    if (!common.empty()) {
      raise<ShapeError>(
          "{}: operands are shards of different shapes, got {} and {}, expected equal meta shapes",
          context.name(), to_string(common), to_string(meta));
    }
    common = meta;
  }
  return common;
}

std::vector<OutputDef> same_as_input(const InferContext& context) {
  return {{context.type(0), common_meta_shape(context)}};
}

std::vector<OutputDef> of_given_shape(const InferContext& context) {
  return {{{context.type(0).dtype, context.get(kShape)}, {}}};
}

std::vector<OutputDef> broadcast_binary(const InferContext& context) {
  require_equal_dtypes(context, 0, 1);
  Shape shape = broadcast_shapes(context.name(), context.type(0).shape, context.type(1).shape);
  return {{{context.type(0).dtype, std::move(shape)}, common_meta_shape(context)}};
}

std::vector<OutputDef> broadcast_binary_inplace(const InferContext& context) {
  std::vector<OutputDef> outputs = broadcast_binary(context);
  if (outputs[0].type.shape != context.type(0).shape) {
    raise<ShapeError>(
        "{}: result does not fit into the first operand, got {} and {}, expected a result of {}",
        context.name(), describe(context, 0), describe(context, 1), to_string(context.type(0).shape));
  }
  return outputs;
}

std::vector<OutputDef> all_same(const InferContext& context) {
  if (context.op.inputs.empty()) raise<GraphError>("{}: no operands, expected at least one", context.name());
  for (std::size_t i = 1; i < context.op.inputs.size(); ++i) {
    require_equal_dtypes(context, 0, i);
    require_equal_shapes(context, 0, i);
  }
  return same_as_input(context);
}

void check_ipu(const InferContext& context, std::string_view what, std::int64_t ipu) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (ipu >= 0 && ipu <= kMost) return;
  raise<AttributeValueError>("{}: {} is not an IPU, got {}, expected 0 to {}", context.name(), what, ipu,
                             kMost);
}

std::vector<std::int64_t> normalize_axes(std::string_view op, const std::vector<std::int64_t>& axes,
                                         std::size_t rank) {
  std::vector<std::int64_t> result;
  for (const std::int64_t axis : axes) result.push_back(normalize_axis(op, axis, rank));
  std::ranges::sort(result);
  if (const auto twice = std::ranges::adjacent_find(result); twice != result.end()) {
    raise<AttributeValueError>("{}: axis given twice, got {}, expected different axes", op, *twice);
  }
  return result;
}

OpDef unary_op(std::string_view name, DTypeSet dtypes, KernelAspect kernel, InputGradFn grad,
               Rounding rounding) {
  return {.name = name,
          .inputs = {{"t", dtypes}},
          .infer = same_as_input,
          .kernel = kernel,
          .grad = per_input({grad}),
          .numerics = {.rounding = rounding}};
}

OpDef inplace_form(OpDef def, std::string_view name) {
  def.name = name;
  def.grad = {.missing = def.grad.missing, .refuses = def.grad.refuses};
  def.memory.effects = {{0, 0}};
  return def;
}

GradValue zero_gradient(Grad& g) { return g.zeros_like_input(0); }

}  // namespace popsr
