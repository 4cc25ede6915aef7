// matmul: NumPy's matrix product, and that of scaled float8. Internal attributes transpose_lhs and
// transpose_rhs swap the last two axes of an operand on reading, so that gradients need no transposed copies.
#include <algorithm>
#include <array>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/linalg/matmul_kernel.h"
#include "popsr/ops/linalg/matmul_shape.h"
#include "popsr/ops/math/pow2scale.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

/// Partial sums are float32 (float64 for float64) whatever is asked for: the attribute is checked only.
void check_partials(const InferContext& context) {
  constexpr std::array<std::string_view, 4> kNames = {"float", "half", "float32", "float16"};
  const auto partials = context.op.optional_attr<std::string>("partials_type");
  if (!partials || partials->empty() || std::ranges::find(kNames, *partials) != kNames.end()) return;
  raise<AttributeValueError>("{}: unknown partials_type, got '{}', expected float32 or float16",
                             context.name(), *partials);
}

DType output_dtype(const InferContext& context) {
  const auto dtype = context.op.optional_attr<DType>("output_type");
  if (dtype && !kFloating.contains(*dtype)) {
    raise<DTypeError>(
        "{}: output_type is no floating type, got {}, expected float16, bfloat16, float32 or float64",
        context.name(), info(*dtype).name);
  }
  return dtype.value_or(context.type(0).dtype);
}

Shape product_shape(const InferContext& context, bool transpose_lhs, bool transpose_rhs) {
  const Shape& lhs = context.type(0).shape;
  const Shape& rhs = context.type(1).shape;
  if (lhs.empty() || rhs.empty()) {
    raise<ShapeError>("{}: operand is a scalar, got {} @ {}, expected at least one dimension", context.name(),
                      describe(context, 0), describe(context, 1));
  }
  const MatmulOperands operands = matmul_operands(lhs, rhs, transpose_lhs, transpose_rhs);
  if (operands.lhs.back() != operands.rhs[operands.rhs.size() - 2]) {
    raise<ShapeError>("{}: inner dimensions differ, got {} @ {}, expected lhs.shape[-1] == rhs.shape[-2]",
                      context.name(), describe(context, 0), describe(context, 1));
  }
  return matmul_output_shape(context.name(), operands);
}

std::vector<OutputDef> infer_matmul(const InferContext& context) {
  require_equal_dtypes(context, 0, 1);
  check_partials(context);
  Shape shape =
      product_shape(context, context.op.attr<bool>("transpose_lhs"), context.op.attr<bool>("transpose_rhs"));
  return {{{output_dtype(context), std::move(shape)}}};
}

std::vector<OutputDef> infer_matmul_pow2scaled(const InferContext& context) {
  require_scalar_scale(context, kMatmulScale);
  return {{{DType::kFloat16, product_shape(context, false, false)}}};
}

// --- gradient
// ----------------------------------------------------------------------------------------------------

std::int64_t elements_of(const Shape& shape, std::size_t axes) {
  return num_elements(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axes)));
}

TensorId reshaped(GradContext& g, TensorId t, const Shape& shape) {
  if (g.type(t).shape == shape) return t;
  return g.emit("reshape", {t}, {{"shape", shape}});
}

TensorId product(GradContext& g, TensorId lhs, TensorId rhs, bool transpose_lhs, bool transpose_rhs) {
  return g.emit("matmul", {lhs, rhs}, {{"transpose_lhs", transpose_lhs}, {"transpose_rhs", transpose_rhs}});
}

/// C = op(A) @ op(B), each of which may be transposed on reading, is differentiated on operands of at least
/// two axes: d op(A) = dC @ op(B)^T, d op(B) = op(A)^T @ dC; where A was transposed, dA = (d op(A))^T = op(B)
/// @ dC^T.
struct MatmulGrad {
  GradContext& g;
  bool transpose_lhs, transpose_rhs;
  Shape lhs, rhs;  ///< Stored shapes with at least two axes.
  TensorId dc = kNone;

  TensorId a() { return reshaped(g, g.in(0), lhs); }
  TensorId b() { return reshaped(g, g.in(1), rhs); }

  TensorId lhs_gradient() {
    const TensorId full =
        transpose_lhs ? product(g, b(), dc, transpose_rhs, true) : product(g, dc, b(), false, !transpose_rhs);
    return g.sum_to(full, lhs);
  }
  TensorId rhs_gradient() {
    if (rhs.size() == 2 && lhs.size() > 2 && !transpose_lhs) return flat_rhs_gradient();
    const TensorId full =
        transpose_rhs ? product(g, dc, a(), true, transpose_lhs) : product(g, a(), dc, !transpose_lhs, false);
    return g.sum_to(full, rhs);
  }
  /// All rows of a batch against one rhs: one product instead of a sum of products.
  TensorId flat_rhs_gradient() {
    const std::int64_t rows = elements_of(lhs, lhs.size() - 1);
    const TensorId flat_a = reshaped(g, a(), {rows, lhs.back()});
    const TensorId flat_dc = reshaped(g, dc, {rows, g.type(dc).shape.back()});
    return transpose_rhs ? product(g, flat_dc, flat_a, true, false)
                         : product(g, flat_a, flat_dc, true, false);
  }
};

void grad_matmul(GradContext& g) {
  if (g.cotangent(0) == kNone || !(g.wants(0) || g.wants(1))) return;
  MatmulGrad grad{g, g.op().attr<bool>("transpose_lhs"), g.op().attr<bool>("transpose_rhs"),
                  g.in_type(0).shape, g.in_type(1).shape};
  const bool lhs_is_vector = grad.lhs.size() == 1;
  const bool rhs_is_vector = grad.rhs.size() == 1;
  if (lhs_is_vector) grad.lhs.insert(grad.lhs.begin(), 1), grad.transpose_lhs = false;
  if (rhs_is_vector) grad.rhs.push_back(1), grad.transpose_rhs = false;
  grad.dc = g.cotangent(0);
  if (g.type(grad.dc).dtype != g.in_type(0).dtype) {
    grad.dc = g.emit("cast", {grad.dc}, {{"data_type", g.in_type(0).dtype}});
  }
  Shape shape = g.type(grad.dc).shape;
  if (rhs_is_vector) shape.push_back(1);
  if (lhs_is_vector) shape.insert(shape.end() - 1, 1);
  grad.dc = reshaped(g, grad.dc, shape);
  if (g.wants(0)) g.set(0, reshaped(g, grad.lhs_gradient(), g.in_type(0).shape));
  if (g.wants(1)) g.set(1, reshaped(g, grad.rhs_gradient(), g.in_type(1).shape));
}

}  // namespace

std::vector<OpDef> matmul_ops() {
  return {
      {.name = "matmul",
       .inputs = {{"lhs", kFloating}, {"rhs", kFloating}},
       .attrs = {optional("available_memory_proportion", AttrType::kFloat),
                 optional("output_type", AttrType::kDType), optional("partials_type", AttrType::kString),
                 internal("transpose_lhs", AttrType::kBool, false),
                 internal("transpose_rhs", AttrType::kBool, false)},
       .infer = infer_matmul,
       .kernel = {.eval = matmul_kernel, .product = matmul_product, .rows = matmul_rows},
       .grad = {.rule = grad_matmul},
       .numerics = kRoundsOnce},
      {.name = "matmul_pow2scaled",
       .inputs = {{"lhs", kFloat8}, {"rhs", kFloat8}, log2_scale_input()},
       .attrs = {optional("available_memory_proportion", AttrType::kFloat)},
       .infer = infer_matmul_pow2scaled,
       .kernel = {.eval = matmul_pow2scaled_kernel},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
