"""Product of a dense tensor and a constant sparse matrix.

A matrix with more than one element in 128 becomes a dense constant: the product is ``ops.matmul``'s. With fewer,
the columns of the operand that meet an element are gathered, multiplied and summed, in time and memory in proportion to
the elements. For 256 x 1,024 times 1,024 x 1,024 on one thread both take about the same time at one element in 100, and
gathering a sixth of it at one in 1,000.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.operands import read_floats
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import read_int, read_number
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.ops._operands import widened
from popsr.errors import ArgumentTypeError, AttributeValueError, MissingPackageError, ShapeError
from popsr.ops.utils import cast_if_needed
from popsr.utils import as_array

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["dense_const_sparse_matmul", "random_sparse"]

_DENSE_BELOW = 128  # elements of the matrix for each one that is not zero


@public
def random_sparse(dense: np.ndarray[Any, Any], density: float = 0.5) -> csr_matrix:
    """A sparse matrix that keeps some elements of a dense one, drawn by NumPy's global generator.

    Args:
        dense: a matrix; not changed.
        density: the share of its elements that stay, from 0 to 1, rounded to a number of elements.
    Returns:
        scipy's ``csr_matrix`` of the shape and dtype of ``dense``.
    Raises:
        ImportError: scipy is not installed.
        ValueError: ``dense`` is not a matrix, or a density out of range.
    """
    where = "random_sparse"
    matrix = as_array(where, dense)
    if matrix.ndim != 2:
        raise ShapeError(f"{where}: dense is not a matrix, got shape {matrix.shape}, expected two axes")
    density = read_number(f"{where}: density", density)
    if not 0 <= density <= 1:
        raise AttributeValueError(f"{where}: density is out of range, got {shown(density)}, expected 0 to 1")
    try:
        sparse = importlib.import_module("scipy.sparse")
    except ImportError:
        raise MissingPackageError(f"{where}: scipy is not installed, expected it for a csr_matrix") from None
    kept = np.random.permutation(matrix.size)[: round(density * matrix.size)]  # noqa: NPY002 - seeded as programs do
    rows, columns = np.unravel_index(np.sort(kept), matrix.shape)
    return sparse.csr_matrix((matrix[rows, columns], (rows, columns)), shape=matrix.shape)


@public
@transactional
def dense_const_sparse_matmul(lhs: Tensor, rhs: csr_matrix, output_cols: int) -> Tensor:
    """``lhs @ rhs`` with a sparse matrix that becomes a part of the program.

    Elements that it lacks count as zeros. Whether a zero gives NaN beside an infinity depends on how the product is
    computed, and so on how many elements there are.

    Args:
        lhs: floats ``[..., k]``, at least two axes.
        rhs: ``[k, output_cols]``: scipy's ``csr_matrix``, or what has its ``toarray`` and ``shape``.
        output_cols: number of columns of ``rhs``.
    Returns:
        Tensor ``[..., output_cols]`` of the dtype of ``lhs``. Differentiable to ``lhs``.
    Raises:
        TypeError: ``lhs`` is not a tensor of floats, or ``rhs`` no sparse matrix.
        ValueError: shapes do not fit, another ``output_cols``, or ``lhs`` is of another graph.
    """
    where = "dense_const_sparse_matmul"
    if read_floats(where, "lhs", lhs).rank < 2:
        raise ShapeError(
            f"{where}: lhs has too few axes, got shape {lhs.shape}, expected [..., k] with two or more"
        )
    if not callable(getattr(rhs, "toarray", None)):
        raise ArgumentTypeError(
            f"{where}: rhs is not a sparse matrix, got {type(rhs).__name__}, expected a csr_matrix"
        )
    shape = (lhs.shape[-1], read_int(f"{where}: output_cols", output_cols, 0))
    if tuple(rhs.shape) != shape:
        raise ShapeError(f"{where}: rhs has another shape, got {tuple(rhs.shape)}, expected {shape}")
    matrix = rhs.toarray()
    if np.count_nonzero(matrix) * _DENSE_BELOW > matrix.size or not matrix.any():
        return ops.matmul(lhs, constant(matrix, lhs.dtype, "sparse_rhs"))
    return _gathered_product(lhs, matrix)


def _gathered_product(lhs: Tensor, matrix: np.ndarray[Any, Any]) -> Tensor:
    """Products of single elements, summed by column of the matrix in ascending order of its rows; rounded once."""
    rows, columns = np.nonzero(matrix)
    wide = widened(lhs)
    operand = ops.transpose(ops.reshape(wide, (-1, lhs.shape[-1])))
    factors = constant(matrix[rows, columns][:, np.newaxis], wide.dtype, "sparse_rhs")
    terms = ops.gather(operand, constant(rows, dtypes.int32), 0) * factors
    sums = ops.scatter_reduce(
        terms, constant(columns, dtypes.int32), "sum", axis=0, axis_size=matrix.shape[1]
    )
    return cast_if_needed(ops.reshape(ops.transpose(sums), (*lhs.shape[:-1], matrix.shape[1])), lhs.dtype)
