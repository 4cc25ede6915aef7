// Common parts of the infer and gradient rules of several families.
#pragma once

#include <string>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

/// Text of an input's type for messages, such as "f32[4, 8]".
std::string describe(const InferContext& context, std::size_t input);

/// Throws DTypeError or ShapeError unless the two inputs agree.
void require_equal_dtypes(const InferContext& context, std::size_t a, std::size_t b);
void require_equal_shapes(const InferContext& context, std::size_t a, std::size_t b);
/// Throws ShapeError unless the input, if present, has one element.
void require_one_element(const InferContext& context, std::size_t input);

/// Meta shape of a value computed element by element from the inputs: the one that is not empty. ShapeError
/// if two of them differ.
Shape common_meta_shape(const InferContext& context);

/// One output of the type of input 0, with the common meta shape.
std::vector<OutputDef> same_as_input(const InferContext& context);
/// One output of the dtype of input 0 and the shape given by an attribute: for gradients of operands.
std::vector<OutputDef> of_given_shape(const InferContext& context);
/// One output from inputs 0 and 1 of equal dtypes, by NumPy broadcasting.
std::vector<OutputDef> broadcast_binary(const InferContext& context);
/// Variant of broadcast_binary that writes into input 0: input 1 must broadcast to the shape of input 0.
std::vector<OutputDef> broadcast_binary_inplace(const InferContext& context);
/// One output of the type of input 0; all inputs must have that dtype and shape.
std::vector<OutputDef> all_same(const InferContext& context);

/// Throws AttributeValueError unless the value is a number of a device.
void check_ipu(const InferContext& context, std::string_view what, std::int64_t ipu);

/// Axes in ascending order, without duplicates (AttributeValueError); negative ones count from the end.
std::vector<std::int64_t> normalize_axes(std::string_view op, const std::vector<std::int64_t>& axes,
                                         std::size_t rank);

/// Definition of an op with one input "t" whose output has its type, and with the gradient of that input.
OpDef unary_op(std::string_view name, DTypeSet dtypes, KernelAspect kernel, InputGradFn grad,
               Rounding rounding);
/// Variant of an op that writes its result into input 0; it has no gradient.
OpDef inplace_form(OpDef def, std::string_view name);

/// Gradient of zeros, for ops of one input that are constant almost everywhere.
GradValue zero_gradient(Grad& g);

}  // namespace popsr
