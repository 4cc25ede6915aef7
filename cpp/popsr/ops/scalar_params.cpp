#include "popsr/ops/scalar_params.h"

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"

namespace popsr {

void check_scalar(const InferContext& context, const ScalarOperand& scalar, bool is_required) {
  const std::string_view name = scalar.attr.name;
  const bool is_tensor = context.has(scalar.input);
  const bool is_constant = context.find(scalar.attr).has_value();
  if (is_tensor && is_constant) {
    raise<AttributeValueError>("{}: {} is given twice, got a number and a tensor, expected one of them",
                               context.name(), name);
  }
  if (is_required && !is_tensor && !is_constant) {
    raise<AttributeValueError>("{}: {} is missing, got neither a number nor a tensor, expected one of them",
                               context.name(), name);
  }
  if (is_tensor && num_elements(context.type(scalar.input).shape) != 1) {
    raise<ShapeError>("{}: {} is not a scalar, got {}, expected one element", context.name(), name,
                      describe(context, scalar.input));
  }
}

bool may_be_nonzero(const InferContext& context, const ScalarOperand& scalar) {
  return context.has(scalar.input) || context.find(scalar.attr).value_or(0.0) != 0.0;
}

bool is_zero(const Op& op, const ScalarOperand& scalar) {
  const auto number = op.find(scalar.attr);
  return number && *number == 0.0;
}

ScalarParam scalar_param(const EvalSpec& spec, const ScalarOperand& scalar, double absent) {
  if (scalar.input < spec.inputs.size() && spec.inputs[scalar.input]) return {.input = scalar.input};
  return {.value = spec.op.find(scalar.attr).value_or(absent)};
}

InputDef scalar_input(const ScalarOperand& scalar) {
  return {.name = scalar.attr.name, .dtypes = kNumbers, .optional = true};
}

AttrDef scalar_attr(const ScalarOperand& scalar) { return optional(scalar.attr); }

}  // namespace popsr
