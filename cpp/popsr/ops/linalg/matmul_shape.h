// The shape of a product: NumPy's matmul rules turned into plain matrices and strides.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/base/strided_view.h"

namespace popsr {

/// lhs and rhs as the product reads them: transposed where asked for, 1-D operands made 2-D.
struct MatmulOperands {
  Shape lhs, rhs;
  bool lhs_is_vector = false, rhs_is_vector = false;
};
/// transpose_* swap the last two axes; 1-D operands ignore them.
MatmulOperands matmul_operands(const Shape& lhs, const Shape& rhs, bool transpose_lhs, bool transpose_rhs);

/// The shape of the product; ShapeError prefixed with `op` when the operands do not fit.
Shape matmul_output_shape(std::string_view op, const MatmulOperands& operands);

/// One block of the op as `items` products of m x k and k x n matrices. All strides and offsets count
/// elements.
struct MatmulGeometry {
  std::int64_t m = 0, n = 0, k = 0, items = 1;
  std::int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
  std::int64_t c_row = 0;
  std::vector<std::int64_t> a_offset, b_offset, c_offset;  ///< Per item.
  bool is_possible = true;  ///< False if strides of views are none that a product can have.

  /// Rows of lhs are contiguous and all share one rhs, as are those of the result: blocks may be stacked to one
  /// tall product.
  bool stacks() const { return items == 1 && a_row == k && a_col == 1 && c_row == n && a_offset[0] == 0; }
};
/// Batch axes of lhs become rows where rhs has none; a product does not depend on how many rows it has. Operands
/// and result, of the shapes that the op has, are views of memory.
MatmulGeometry matmul_geometry(const StridedView& lhs, const StridedView& rhs, const StridedView& out,
                               bool transpose_lhs, bool transpose_rhs);

}  // namespace popsr
