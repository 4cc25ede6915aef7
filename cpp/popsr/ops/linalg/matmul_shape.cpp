#include "popsr/ops/linalg/matmul_shape.h"

#include <algorithm>

#include "popsr/base/error.h"

namespace popsr {
namespace {

Shape batch_of(const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); }

/// Offset of each item's matrix in an operand, whose batch axes broadcast to `batch`.
std::vector<std::int64_t> item_offsets(const Shape& operand, const Shape& batch) {
  const std::int64_t matrix = operand[operand.size() - 2] * operand[operand.size() - 1];
  const Shape strides = broadcast_strides(batch_of(operand), batch);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(num_elements(batch)));
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = batch.size(); d-- > 0; rest /= batch[d])
      offsets[i] += rest % batch[d] * strides[d] * matrix;
  }
  return offsets;
}

}  // namespace

MatmulOperands matmul_operands(const Shape& lhs, const Shape& rhs, bool transpose_lhs, bool transpose_rhs) {
  MatmulOperands operands{lhs, rhs, lhs.size() == 1, rhs.size() == 1};
  if (operands.lhs_is_vector) operands.lhs.insert(operands.lhs.begin(), 1);
  if (operands.rhs_is_vector) operands.rhs.push_back(1);
  const auto swap_last = [](Shape& shape) { std::swap(shape[shape.size() - 2], shape[shape.size() - 1]); };
  if (transpose_lhs && lhs.size() > 1) swap_last(operands.lhs);
  if (transpose_rhs && rhs.size() > 1) swap_last(operands.rhs);
  return operands;
}

Shape matmul_output_shape(std::string_view op, const MatmulOperands& operands) {
  Shape shape = broadcast_shapes(op, batch_of(operands.lhs), batch_of(operands.rhs));
  if (!operands.lhs_is_vector) shape.push_back(operands.lhs[operands.lhs.size() - 2]);
  if (!operands.rhs_is_vector) shape.push_back(operands.rhs.back());
  return shape;
}

MatmulGeometry matmul_geometry(const Shape& lhs, const Shape& rhs, bool transpose_lhs, bool transpose_rhs) {
  const MatmulOperands operands = matmul_operands(lhs, rhs, transpose_lhs, transpose_rhs);
  const Shape batch = broadcast_shapes("matmul", batch_of(operands.lhs), batch_of(operands.rhs));
  const bool a_swapped = transpose_lhs && !operands.lhs_is_vector;
  const bool b_swapped = transpose_rhs && !operands.rhs_is_vector;
  MatmulGeometry g;
  g.m = operands.lhs[operands.lhs.size() - 2];
  g.k = operands.lhs.back();
  g.n = operands.rhs.back();
  g.a_row = a_swapped ? 1 : g.k;
  g.a_col = a_swapped ? g.m : 1;
  g.b_row = b_swapped ? 1 : g.n;
  g.b_col = b_swapped ? g.k : 1;
  const bool shares_rhs = num_elements(batch_of(operands.rhs)) == 1;
  if (shares_rhs && !a_swapped) {
    g.m *= num_elements(batch);
    g.a_offset = g.b_offset = {0};
  } else {
    g.items = num_elements(batch);
    g.a_offset = item_offsets(operands.lhs, batch);
    g.b_offset = item_offsets(operands.rhs, batch);
  }
  return g;
}

}  // namespace popsr
