"""Gather and scatter of windows, with the meaning of XLA: the indices are corners of windows on any axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_ints
from popsr.ops._facts import public_op

__all__ = ["gather_general", "scatter_general"]


def _dims(
    op: str,
    offset_dims: Iterable[int],
    index_map: Iterable[int],
    collapsed_dims: Iterable[int],
    operand_batching_dims: Iterable[int],
    indices_batching_dims: Iterable[int],
) -> dict[str, tuple[int, ...]]:
    given = {
        "offset_dims": offset_dims,
        "index_map": index_map,
        "collapsed_dims": collapsed_dims,
        "operand_batching_dims": operand_batching_dims,
        "indices_batching_dims": indices_batching_dims,
    }
    return {name: read_ints(op, name, axes) for name, axes in given.items()}


@public_op
def gather_general(
    t: Tensor,
    indices: Tensor,
    *,
    slice_sizes: Iterable[int],
    offset_dims: Iterable[int],
    index_map: Iterable[int],
    collapsed_dims: Iterable[int] = (),
    operand_batching_dims: Iterable[int] = (),
    indices_batching_dims: Iterable[int] = (),
    mode: Literal["clip", "fill", "check"] = "clip",
    fill_value: float = 0.0,
) -> Tensor:
    """Windows of a tensor at the corners that the last axis of the indices holds. An addition of popsr.

    The other axes of the indices are the batch: the result has a window for each of its elements.

    Args:
        t: the operand.
        indices: corners on the last axis, in integers.
        slice_sizes: extents of a window, for each axis of ``t``; 1 on axes that are left out of the result.
        offset_dims: axes of the result that span a window, ascending; the others are the batch.
        index_map: for each number of a corner, the axis of ``t`` that it counts along.
        collapsed_dims: axes of ``t`` that are left out, ascending.
        operand_batching_dims: axes of ``t`` that go along with the batch, ascending; they are left out too.
        indices_batching_dims: for each of those, the axis of the indices that it goes along with.
        mode: of windows that do not lie in ``t``. "clip": they are moved inside. "fill": all their elements are
            ``fill_value``. "check": an error when the program runs.
        fill_value: converted as ``cast`` does.
    Returns:
        Tensor of the dtype of ``t``; the batch, and the window at ``offset_dims``.
    Raises:
        ValueError: axes are out of range, given twice or not ascending, or an axis has two roles.
        ShapeError: the sizes, the corners or the batching axes do not match the operands.
        OutOfRangeError: a window lies outside, with mode "check".
    Source:
        The gather of XLA's operation semantics; the last axis of the indices is their ``index_vector_dim``.
    Example:
        >>> rows, at = np.arange(12.0, dtype=np.float32).reshape(4, 3), np.array([[2], [0]], np.int32)
        >>> dims = {"offset_dims": (1,), "index_map": (0,), "collapsed_dims": (0,)}
        >>> evaluate(ops.gather_general, rows, at, slice_sizes=(1, 3), **dims)
        array([[6., 7., 8.],
               [0., 1., 2.]], dtype=float32)
    """
    dims = _dims(
        "gather_general",
        offset_dims,
        index_map,
        collapsed_dims,
        operand_batching_dims,
        indices_batching_dims,
    )
    sizes = read_ints("gather_general", "slice_sizes", slice_sizes)
    inputs = {"t": t, "indices": indices}
    return emit("gather_general", inputs, slice_sizes=sizes, mode=mode, fill_value=fill_value, **dims)


@public_op
def scatter_general(
    t: Tensor,
    indices: Tensor,
    updates: Tensor,
    *,
    offset_dims: Iterable[int],
    index_map: Iterable[int],
    collapsed_dims: Iterable[int] = (),
    operand_batching_dims: Iterable[int] = (),
    indices_batching_dims: Iterable[int] = (),
    reduction: Literal["sum", "mul", "min", "max", "none"] = "sum",
    mode: Literal["clip", "drop", "check"] = "drop",
) -> Tensor:
    """Reduce windows into a tensor at the corners that the last axis of the indices holds. An addition of popsr.

    Windows that meet at an element are reduced in the C order of the batch, so duplicates have one result. Narrow
    floats are reduced as float32 and rounded once. A least or greatest element that occurs several times receives
    the whole gradient each time; "mul" has no gradient: asking for one is an error.

    Args:
        t: what is reduced into.
        indices: corners on the last axis, in integers; the other axes are the batch.
        updates: a window for each element of the batch, of the dtype of ``t``.
        offset_dims: axes of ``updates`` that span a window, ascending; the others are the batch.
        index_map: for each number of a corner, the axis of ``t`` that it counts along.
        collapsed_dims: axes of ``t`` that windows lack, ascending.
        operand_batching_dims: axes of ``t`` that go along with the batch, ascending; windows lack them too.
        indices_batching_dims: for each of those, the axis of the indices that it goes along with.
        reduction: "sum", "mul", "min" or "max" with what is there; "none": the last window stays.
        mode: of windows that do not lie in ``t``. "drop": they are left out. "clip": they are moved inside.
            "check": an error when the program runs.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ValueError: axes are out of range, given twice or not ascending, or an axis has two roles.
        ShapeError: the updates, the corners or the batching axes do not match the operands.
        DTypeError: ``updates`` has another dtype, or sums and products of bool are asked for.
        OutOfRangeError: a window lies outside, with mode "check".
    Source:
        The scatter of XLA's operation semantics, whose order of duplicates is open; here it is fixed.
    Example:
        >>> at, new = np.array([[2], [0], [2]], np.int32), np.array([1.0, 5.0, 2.0], np.float32)
        >>> evaluate(ops.scatter_general, [0.0] * 4, at, new, offset_dims=(), index_map=(0,), collapsed_dims=(0,))
        array([5., 0., 3., 0.], dtype=float32)
    """
    dims = _dims(
        "scatter_general",
        offset_dims,
        index_map,
        collapsed_dims,
        operand_batching_dims,
        indices_batching_dims,
    )
    inputs = {"t": t, "indices": indices, "updates": updates}
    return emit("scatter_general", inputs, reduction=reduction, mode=mode, **dims)
