// Scalars that a program gives as a number or as a tensor of one element: an attribute and an optional
// input of one name.
#pragma once

#include <string_view>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"

namespace popsr {

/// Scalar operand: the attribute of the number, and the optional input of the tensor.
struct ScalarOperand {
  Attr<double> attr;
  std::size_t input;
};

/// Throws AttributeValueError if the scalar is given twice, or not at all though it is required; ShapeError
/// if the tensor has not one element.
void check_scalar(const InferContext& context, const ScalarOperand& scalar, bool is_required);

/// True if it is a tensor, or a number that is not 0.
bool may_be_nonzero(const InferContext& context, const ScalarOperand& scalar);

/// True if it is the number 0.
bool is_zero(const Op& op, const ScalarOperand& scalar);

/// Scalar as a parameter of an elementwise kernel.
ScalarParam scalar_param(const EvalSpec& spec, const ScalarOperand& scalar, double absent);

/// Input for the tensor form, of any dtype of numbers.
InputDef scalar_input(const ScalarOperand& scalar);
/// Attribute for the number.
AttrDef scalar_attr(const ScalarOperand& scalar);

}  // namespace popsr
