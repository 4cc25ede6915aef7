// Shape of a product: NumPy's matmul rules turned into plain matrices and strides.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/base/layout/strided_view.h"

namespace popsr {

/// Shapes of lhs and rhs as the product reads them: transposed if requested, 1-D operands made 2-D.
struct MatmulOperands {
  Shape lhs, rhs;
  bool lhs_is_vector = false, rhs_is_vector = false;
};
/// Applies transpose_*, which swap the last two axes; 1-D operands ignore them.
MatmulOperands matmul_operands(const Shape& lhs, const Shape& rhs, bool transpose_lhs, bool transpose_rhs);

/// Shape of the product; ShapeError prefixed with `op` if the operands do not fit.
Shape matmul_output_shape(std::string_view op, const MatmulOperands& operands);

/// Matrices of an operand, or of the result, in memory; strides and offsets count elements.
struct MatmulSide {
  std::int64_t row = 0, column = 0;
  std::vector<std::int64_t> offsets;  ///< Offset of each matrix.
};

/// Geometry of one block of the op: `items` products of m x k and k x n matrices.
struct MatmulGeometry {
  std::int64_t m = 0, n = 0, k = 0, items = 1;
  MatmulSide lhs, rhs, out;

  /// True if lhs and the result are dense and one rhs serves all rows, so that blocks adjacent in memory
  /// may be computed as one product with more rows.
  bool stacks() const {
    return items == 1 && lhs.row == k && lhs.column == 1 && out.row == n && lhs.offsets[0] == 0;
  }
};
/// Geometry of a product. Batch axes of lhs become rows where rhs has none; a product does not depend on
/// the number of its rows. Operands and result, of the op's shapes, are views of memory; nullopt if the
/// kernels do not support their strides. Dense tensors are always supported.
std::optional<MatmulGeometry> matmul_geometry(const StridedView& lhs, const StridedView& rhs,
                                              const StridedView& out, bool transpose_lhs, bool transpose_rhs);

}  // namespace popsr
