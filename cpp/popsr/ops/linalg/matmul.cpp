// matmul: NumPy's matrix product, and the products of scaled float8 and of bytes.
#include <utility>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/linalg/matmul_integer.h"
#include "popsr/ops/linalg/matmul_kernel.h"
#include "popsr/ops/linalg/matmul_shape.h"
#include "popsr/ops/math/pow2scale.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr std::size_t kLhs = 0, kRhs = 1;
constexpr DTypeSet kBytes = {DType::kInt8, DType::kUInt8};

constexpr Attr<double> kAvailableMemory{"available_memory_proportion"};
constexpr Attr<DType> kOutputType{"output_type"};

/// Partial sums are float32 (float64 for float64) whatever is asked for: the attribute is checked only.
enum class Partials : std::uint8_t { kFloat16, kFloat32 };
constexpr Choice<Partials> kPartials[] = {{"float32", Partials::kFloat32},
                                          {"float16", Partials::kFloat16},
                                          {"float", Partials::kFloat32},
                                          {"half", Partials::kFloat16}};
constexpr ChoiceAttr<Partials> kPartialsType{"partials_type", kPartials};

DType output_dtype(const InferContext& context) {
  const auto dtype = context.find(kOutputType);
  if (dtype && !kFloating.contains(*dtype)) {
    raise<DTypeError>(
        "{}: output_type is not a floating type, got {}, expected float16, bfloat16, float32 or float64",
        context.name(), info(*dtype).name);
  }
  return dtype.value_or(context.type(0).dtype);
}

Shape product_shape(const InferContext& context, bool transpose_lhs, bool transpose_rhs) {
  const Shape& lhs = context.type(0).shape;
  const Shape& rhs = context.type(1).shape;
  if (lhs.empty() || rhs.empty()) {
    raise<ShapeError>("{}: operand is a scalar, got {} @ {}, expected at least one dimension", context.name(),
                      describe(context, kLhs), describe(context, kRhs));
  }
  const MatmulOperands operands = matmul_operands(lhs, rhs, transpose_lhs, transpose_rhs);
  if (operands.lhs.back() != operands.rhs[operands.rhs.size() - 2]) {
    raise<ShapeError>("{}: inner dimensions differ, got {} @ {}, expected lhs.shape[-1] == rhs.shape[-2]",
                      context.name(), describe(context, kLhs), describe(context, kRhs));
  }
  return matmul_output_shape(context.name(), operands);
}

std::vector<OutputDef> infer_matmul(const InferContext& context) {
  require_equal_dtypes(context, kLhs, kRhs);
  Shape shape = product_shape(context, context.get(kTransposeLhs), context.get(kTransposeRhs));
  return {{{output_dtype(context), std::move(shape)}}};
}

std::vector<OutputDef> infer_matmul_pow2scaled(const InferContext& context) {
  require_scalar_scale(context, kMatmulScale);
  return {{{DType::kFloat16, product_shape(context, false, false)}}};
}

std::vector<OutputDef> infer_matmul_integer(const InferContext& context) {
  Shape shape = product_shape(context, false, false);
  if (context.has(kLhsZero)) {
    require_equal_dtypes(context, kLhs, kLhsZero);
    require_one_element(context, kLhsZero);
  }
  if (context.has(kRhsZero)) {
    require_equal_dtypes(context, kRhs, kRhsZero);
    const Shape& rhs = context.type(kRhs).shape;
    const Shape& zero = context.type(kRhsZero).shape;
    const std::int64_t columns = rhs.size() > 1 ? rhs.back() : 1;
    if (zero != Shape{columns} && num_elements(zero) != 1) {
      raise<ShapeError>("{}: rhs_zero does not match, got {} for {}, expected one number or shape {}",
                        context.name(), describe(context, kRhsZero), describe(context, kRhs),
                        to_string(Shape{columns}));
    }
  }
  return {{{DType::kInt32, std::move(shape)}}};
}

// Gradient

std::int64_t elements_of(const Shape& shape, std::size_t axes) {
  return num_elements(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axes)));
}

/// `t` emitted, with that shape.
GradValue reshaped(Grad& g, const GradValue& t, const Shape& shape) {
  return t.type().shape == shape ? t : g.reshape(t, shape).now();
}

GradValue product(Grad& g, const GradValue& lhs, const GradValue& rhs, bool transpose_lhs,
                  bool transpose_rhs) {
  return g.call("matmul", {lhs, rhs}, {kTransposeLhs(transpose_lhs), kTransposeRhs(transpose_rhs)}).now();
}

/// C = op(A) @ op(B), each of which may be transposed on reading, is differentiated on operands of at least
/// two axes: d op(A) = dC @ op(B)^T, d op(B) = op(A)^T @ dC; where A was transposed, dA = (d op(A))^T = op(B)
/// @ dC^T.
struct MatmulGrad {
  Grad& g;
  bool transpose_lhs, transpose_rhs;
  Shape lhs, rhs;  ///< Stored shapes with at least two axes.
  GradValue dc = {};

  GradValue a() { return reshaped(g, g.x(kLhs), lhs); }
  GradValue b() { return reshaped(g, g.x(kRhs), rhs); }

  GradValue lhs_gradient() {
    const GradValue full =
        transpose_lhs ? product(g, b(), dc, transpose_rhs, true) : product(g, dc, b(), false, !transpose_rhs);
    return g.sum_to(full, lhs);
  }
  GradValue rhs_gradient() {
    if (rhs.size() == 2 && lhs.size() > 2 && !transpose_lhs) return flat_rhs_gradient();
    const GradValue full =
        transpose_rhs ? product(g, dc, a(), true, transpose_lhs) : product(g, a(), dc, !transpose_lhs, false);
    return g.sum_to(full, rhs);
  }
  /// All rows of a batch against one rhs: one product instead of a sum of products.
  GradValue flat_rhs_gradient() {
    const std::int64_t rows = elements_of(lhs, lhs.size() - 1);
    const GradValue flat_a = reshaped(g, a(), {rows, lhs.back()});
    const GradValue flat_dc = reshaped(g, dc, {rows, dc.type().shape.back()});
    return transpose_rhs ? product(g, flat_dc, flat_a, true, false)
                         : product(g, flat_a, flat_dc, true, false);
  }
};

void matmul_grad(Grad& g) {
  if (!g.dy() || !(g.differentiates(kLhs) || g.differentiates(kRhs))) return;
  MatmulGrad grad{g, g.get(kTransposeLhs), g.get(kTransposeRhs), g.in_type(kLhs).shape,
                  g.in_type(kRhs).shape};
  const bool lhs_is_vector = grad.lhs.size() == 1;
  const bool rhs_is_vector = grad.rhs.size() == 1;
  if (lhs_is_vector) grad.lhs.insert(grad.lhs.begin(), 1), grad.transpose_lhs = false;
  if (rhs_is_vector) grad.rhs.push_back(1), grad.transpose_rhs = false;
  const DType dtype = g.in_type(kLhs).dtype;
  grad.dc = g.dy().type().dtype == dtype ? g.dy() : g.cast(g.dy(), dtype);
  Shape shape = grad.dc.type().shape;
  if (rhs_is_vector) shape.push_back(1);
  if (lhs_is_vector) shape.insert(shape.end() - 1, 1);
  grad.dc = reshaped(g, grad.dc, shape);
  if (g.differentiates(kLhs)) g.set(kLhs, reshaped(g, grad.lhs_gradient(), g.in_type(kLhs).shape));
  if (g.differentiates(kRhs)) g.set(kRhs, reshaped(g, grad.rhs_gradient(), g.in_type(kRhs).shape));
}

// FLOPs

/// A multiplication and an addition for each element of the product and of the contracted axis.
template <bool may_transpose>
std::vector<FlopTerm> matmul_flops(const Ir& ir, const Op& op) {
  const Shape& lhs = ir.tensor(op.inputs[kLhs]).type.shape;
  bool transposed = false;
  if constexpr (may_transpose) transposed = op.get(kTransposeLhs) && lhs.size() > 1;
  const std::int64_t contracted = transposed ? lhs[lhs.size() - 2] : lhs.back();
  return {{num_elements(ir.tensor(op.outputs[0]).type.shape), 2 * contracted}};
}

}  // namespace

std::vector<OpDef> matmul_ops() {
  return {
      {.name = "matmul",
       .inputs = {{"lhs", kFloating}, {"rhs", kFloating}},
       .attrs = {optional(kAvailableMemory), optional(kOutputType), optional(kPartialsType),
                 internal(kTransposeLhs, false), internal(kTransposeRhs, false)},
       .infer = infer_matmul,
       .kernel = {.eval = matmul_kernel,
                  .product = matmul_product,
                  .rows = matmul_rows,
                  .supports_views = matmul_supports_views,
                  .flops = matmul_flops<true>},
       .grad = {.rule = matmul_grad},
       .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kEach}},
      {.name = "matmul_pow2scaled",
       .inputs = {{"lhs", kFloat8}, {"rhs", kFloat8}, log2_scale_input()},
       .attrs = {optional(kAvailableMemory)},
       .infer = infer_matmul_pow2scaled,
       .kernel = {.eval = matmul_pow2scaled_kernel, .flops = matmul_flops<false>},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce},
      {.name = "matmul_integer",
       .inputs = {{"lhs", kBytes},
                  {"rhs", kBytes},
                  {.name = "lhs_zero", .dtypes = kBytes, .optional = true},
                  {.name = "rhs_zero", .dtypes = kBytes, .optional = true}},
       .infer = infer_matmul_integer,
       .kernel = {.eval = matmul_integer_kernel,
                  .supports_views = matmul_integer_supports_views,
                  .flops = matmul_flops<false>}},
  };
}

}  // namespace popsr
