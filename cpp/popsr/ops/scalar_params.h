// Scalars that a program gives as a number or as a tensor of one element: an attribute and an optional input
// of one name.
#pragma once

#include <string_view>

#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"

namespace popsr {

/// AttributeValueError when the scalar is given twice, or not at all though it is required; ShapeError when
/// the tensor has not one element.
void check_scalar(const InferContext& context, std::string_view name, std::size_t input, bool is_required);

/// Is it a tensor, or a number that is not 0?
bool may_be_nonzero(const InferContext& context, std::string_view name, std::size_t input);

/// Is it the number 0?
bool is_zero(const Op& op, std::string_view name);

/// The scalar as a parameter of an elementwise kernel.
ScalarParam scalar_param(const EvalSpec& spec, std::string_view name, std::size_t input, double absent);

/// An input for the tensor form, of any dtype of numbers.
InputDef scalar_input(std::string_view name);

}  // namespace popsr
