#include "popsr/ops/scalar_params.h"

#include "popsr/base/error.h"

namespace popsr {

void check_scalar(const InferContext& context, std::string_view name, std::size_t input, bool is_required) {
  const bool is_tensor = context.has(input);
  const bool is_constant = context.op.optional_attr<double>(name).has_value();
  if (is_tensor && is_constant) {
    raise<AttributeValueError>("{}: {} is given twice, got a number and a tensor, expected one of them",
                               context.name(), name);
  }
  if (is_required && !is_tensor && !is_constant) {
    raise<AttributeValueError>("{}: {} is missing, got neither a number nor a tensor, expected one of them",
                               context.name(), name);
  }
  if (is_tensor && num_elements(context.type(input).shape) != 1) {
    raise<ShapeError>("{}: {} is not a scalar, got {}, expected one element", context.name(), name,
                      describe(context, input));
  }
}

bool may_be_nonzero(const InferContext& context, std::string_view name, std::size_t input) {
  return context.has(input) || context.op.optional_attr<double>(name).value_or(0.0) != 0.0;
}

bool is_zero(const Op& op, std::string_view name) {
  const auto number = op.optional_attr<double>(name);
  return number && *number == 0.0;
}

ScalarParam scalar_param(const EvalSpec& spec, std::string_view name, std::size_t input, double absent) {
  if (input < spec.inputs.size() && spec.inputs[input]) return {.input = input};
  return {.value = spec.op.optional_attr<double>(name).value_or(absent)};
}

InputDef scalar_input(std::string_view name) { return {.name = name, .dtypes = kNumbers, .optional = true}; }

}  // namespace popsr
