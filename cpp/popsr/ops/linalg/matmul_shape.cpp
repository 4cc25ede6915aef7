#include "popsr/ops/linalg/matmul_shape.h"

#include <algorithm>

#include "popsr/base/error.h"

namespace popsr {
namespace {

Shape batch_of(const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); }

/// A matrix for each item of the batch, as it lies in memory.
struct Matrices : StridedView {
  // The axes of `shape`: batch, rows, columns.
  std::int64_t rows() const { return shape[shape.size() - 2]; }
  std::int64_t row() const { return strides[shape.size() - 2]; }
  std::int64_t column() const { return strides.back(); }
  std::int64_t items() const { return num_elements(batch_of(shape)); }
};

/// A view of two axes at least; `vector`: the place of the axis that a vector lacks.
Matrices matrices(const StridedView& view, bool is_vector, std::size_t lacking, bool transpose) {
  Matrices m{view};
  if (is_vector) {
    // An axis of extent 1 may have any stride: this one makes a dense matrix of a dense vector.
    m.shape.insert(m.shape.end() - static_cast<std::ptrdiff_t>(lacking), 1);
    m.strides.insert(m.strides.end() - static_cast<std::ptrdiff_t>(lacking),
                     lacking == 0 ? 1 : view.shape.back());
  }
  if (transpose && !is_vector) {
    std::swap(m.shape[m.shape.size() - 2], m.shape.back());
    std::swap(m.strides[m.strides.size() - 2], m.strides.back());
  }
  return m;
}

/// Offset of each item's matrix in an operand, whose batch axes broadcast to `batch`.
std::vector<std::int64_t> item_offsets(const Matrices& operand, const Shape& batch) {
  const std::size_t own = operand.shape.size() - 2, missing = batch.size() - own;
  Shape strides(batch.size(), 0);
  for (std::size_t d = 0; d < own; ++d) {
    if (operand.shape[d] != 1) strides[missing + d] = operand.strides[d];
  }
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(num_elements(batch)), operand.offset);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = batch.size(); d-- > 0; rest /= batch[d]) offsets[i] += rest % batch[d] * strides[d];
  }
  return offsets;
}

/// True if the rows of all items follow one another at one distance.
bool is_one_matrix(const Matrices& m) {
  std::int64_t distance = m.row() * m.rows();
  for (std::size_t d = m.shape.size() - 2; d-- > 0; distance *= m.shape[d]) {
    if (m.shape[d] != 1 && m.strides[d] != distance) return false;
  }
  return true;
}

/// Rows or columns are contiguous, or there is nothing to read.
bool is_readable(const Matrices& m) {
  return num_elements(m.shape) == 0 || (m.column() == 1 && m.row() >= 1) || (m.row() == 1 && m.column() >= 1);
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

std::optional<MatmulGeometry> matmul_geometry(const StridedView& lhs, const StridedView& rhs,
                                              const StridedView& out, bool transpose_lhs,
                                              bool transpose_rhs) {
  const MatmulOperands operands = matmul_operands(lhs.shape, rhs.shape, transpose_lhs, transpose_rhs);
  const Shape batch = broadcast_shapes("matmul", batch_of(operands.lhs), batch_of(operands.rhs));
  const Matrices a = matrices(lhs, operands.lhs_is_vector, 1, transpose_lhs);
  const Matrices b = matrices(rhs, operands.rhs_is_vector, 0, transpose_rhs);
  Matrices c{{.shape = batch, .strides = {}, .offset = out.offset}};
  c.shape.push_back(a.rows());
  c.shape.push_back(b.shape.back());
  c.strides = row_major_strides(c.shape);
  const bool has_vector = operands.lhs_is_vector || operands.rhs_is_vector;
  if (!has_vector) {
    c.strides = out.strides;
  } else if (out.offset != 0 || out.strides != row_major_strides(out.shape)) {
    return std::nullopt;
  }
  if (!is_readable(a) || !is_readable(b) || c.column() != 1 || c.row() < c.shape.back()) return std::nullopt;
  MatmulGeometry g{.m = a.rows(),
                   .n = b.shape.back(),
                   .k = a.shape.back(),
                   .lhs = {a.row(), a.column(), {a.offset}},
                   .rhs = {b.row(), b.column(), {b.offset}},
                   .out = {c.row(), c.column(), {c.offset}}};
  if (b.items() == 1 && a.column() == 1 && is_one_matrix(a) && is_one_matrix(c)) {
    g.m *= num_elements(batch);
  } else {
    g.items = num_elements(batch);
    g.lhs.offsets = item_offsets(a, batch);
    g.rhs.offsets = item_offsets(b, batch);
    g.out.offsets = item_offsets(c, batch);
  }
  return g;
}

}  // namespace popsr
