// Common parts of the infer and gradient rules of several families.
#pragma once

#include <string>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

/// "f32[4, 8]" of an input, for messages.
std::string describe(const InferContext& context, std::size_t input);

/// DTypeError / ShapeError unless the two inputs agree.
void require_equal_dtypes(const InferContext& context, std::size_t a, std::size_t b);
void require_equal_shapes(const InferContext& context, std::size_t a, std::size_t b);
/// ShapeError unless the input, when present, has one element.
void require_one_element(const InferContext& context, std::size_t input);

/// The meta shape of a value made element by element from the inputs: the one that is not empty. ShapeError
/// when two of them differ.
Shape common_meta_shape(const InferContext& context);

/// One output of the type of input 0, with the common meta shape.
std::vector<OutputDef> same_as_input(const InferContext& context);
/// One output of the dtype of input 0 and the shape that is an attribute: gradients of operands.
std::vector<OutputDef> of_given_shape(const InferContext& context);
/// One output from inputs 0 and 1 of equal dtypes, by NumPy broadcasting.
std::vector<OutputDef> broadcast_binary(const InferContext& context);
/// The same; input 1 must broadcast to the shape of input 0, which holds the result.
std::vector<OutputDef> broadcast_binary_inplace(const InferContext& context);
/// One output of the type of input 0; all inputs must have that dtype and shape.
std::vector<OutputDef> all_same(const InferContext& context);

/// AttributeValueError unless it is a number of a device.
void check_ipu(const InferContext& context, std::string_view what, std::int64_t ipu);

/// Ascending axes without duplicates (AttributeValueError); negative ones count from the end.
std::vector<std::int64_t> normalize_axes(std::string_view op, const std::vector<std::int64_t>& axes,
                                         std::size_t rank);

/// An op of one input "t" whose output has its type, and the gradient of that input.
OpDef unary_op(std::string_view name, DTypeSet dtypes, KernelAspect kernel, InputGradFn grad,
               Rounding rounding);
/// The form of an op that writes its result into input 0; it has no gradient.
OpDef inplace_form(OpDef def, std::string_view name);

/// For ops of one input that are constant almost everywhere: zeros.
GradValue zero_gradient(Grad& g);

}  // namespace popsr
