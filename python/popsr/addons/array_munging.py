"""Arrays of the host, cut up for shards and copied for replicas.

Pure NumPy; arrays may be anything that has ``__array__``, such as tensors of torch. Results that only cut or copy have
the dtype of the data, and are new arrays unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from popsr._support.host.arguments import read_call, read_choice, read_int, read_items, read_shape
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError
from popsr.utils import as_array

__all__ = [
    "handle_negative_axis",
    "pad_axis",
    "repeat",
    "repeat_axis",
    "repeat_shard",
    "shard",
    "shard2D",
    "split2D",
    "squeeze_safe",
    "tensor_parallel_input",
    "tensor_parallel_output",
    "unshard",
    "unshard2D",
    "unshard_arrays",
]

Array = np.ndarray[Any, Any]
_MAX_ROWS = 2**22


@public
def shard(x: Array, n: int, axis: int) -> Array:
    """Cut an array into equal parts, stacked on a new first axis.

    Args:
        x: any shape and dtype.
        n: number of parts; divides the extent of ``axis``.
        axis: the axis to cut; negative ones count from the end.
    Returns:
        Array ``[n, ...]``; ``unshard`` puts it together again.
    Raises:
        ShapeError: ``n`` does not divide the extent.
        AttributeValueError: no such axis, or ``n`` is not a positive int.
        ArgumentTypeError: ``x`` is not an array.
    """
    return np.stack(_split("shard", _array("shard", x), n, axis))


@public
def unshard_arrays(xs: list[Array], axis: int) -> Array:
    """Join arrays along an axis.

    Args:
        xs: at least one array; they differ in the extent of ``axis`` at most.
        axis: the axis of an array; negative ones count from the end.
    Returns:
        The joined array.
    Raises:
        ShapeError: no arrays, or shapes that do not fit.
        AttributeValueError: no such axis.
        ArgumentTypeError: something else than arrays.
    """
    where = "unshard_arrays"
    arrays = [_array(where, x) for x in read_items(where, "xs", xs, kind="arrays")]
    if not arrays:
        raise ShapeError(f"{where}: nothing to join, got no arrays, expected at least one")
    at = _axis(where, arrays[0].shape, axis)
    others = {x.shape[:at] + x.shape[at + 1 :] for x in arrays}
    if len(others) > 1 or len({x.ndim for x in arrays}) > 1:
        raise ShapeError(
            f"{where}: shapes differ beside axis {axis}, got {[x.shape for x in arrays]}, expected equal ones"
        )
    return np.concatenate(arrays, at)


@public
def unshard(x: Array, axis: int) -> Array:
    """Join the rows of an array along an axis: the inverse of ``shard``.

    Args:
        x: shards ``[n, ...]``.
        axis: the axis of one shard, not counting the first axis of ``x``; negative ones count from the end.
    Returns:
        The joined array, of one dimension less.
    Raises:
        ShapeError: ``x`` has no rows.
        AttributeValueError: shards have no such axis.
        ArgumentTypeError: ``x`` is not an array.
    """
    x = _array("unshard", x)
    return np.concatenate(_rows("unshard", x), _axis("unshard", x.shape[1:], axis))


@public
def repeat(x: Array, n: int, axis: int = 0) -> Array:
    """Copies of an array on a new axis.

    Args:
        x: any shape and dtype.
        n: number of copies.
        axis: the new axis of the result; negative ones count from its end.
    Returns:
        Array of one more dimension, of extent ``n``.
    Raises:
        AttributeValueError: no such axis, or ``n`` is not a positive int.
        ArgumentTypeError: ``x`` is not an array.
    """
    x = _array("repeat", x)
    count, at = read_int("repeat: n", n, 1), _axis("repeat", (*x.shape, 1), axis)
    return np.repeat(np.expand_dims(x, at), count, at)


@public
def repeat_axis(x: Array, n: int, axis: int = 0) -> Array:
    """Copies of an array, one after another along an axis that it has.

    Args:
        x: any shape but a scalar, any dtype.
        n: number of copies.
        axis: the axis that becomes ``n`` times as long; negative ones count from the end.
    Returns:
        Array of as many dimensions.
    Raises:
        AttributeValueError: no such axis, or ``n`` is not a positive int.
        ArgumentTypeError: ``x`` is not an array.
    """
    count = read_int("repeat_axis: n", n, 1)
    x = _array("repeat_axis", x)
    at = _axis("repeat_axis", x.shape, axis)
    return np.concatenate([x] * count, at)


@public
def split2D(x: Array, n_1: int, n_2: int, axis_1: int, axis_2: int) -> list[list[Array]]:  # noqa: N802 - PopXL's name
    """Cut an array along two axes.

    Args:
        x: any shape and dtype.
        n_1: number of parts along ``axis_1``.
        n_2: number of parts along ``axis_2``.
        axis_1: the axis of the outer list; negative ones count from the end.
        axis_2: the axis of the inner lists.
    Returns:
        ``n_1`` lists of ``n_2`` views of ``x``.
    Raises:
        ShapeError: a number of parts does not divide its extent.
        AttributeValueError: no such axis, twice the same axis, or a number of parts that is not a positive int.
        ArgumentTypeError: ``x`` is not an array.
    """
    return _split2D("split2D", x, n_1, n_2, axis_1, axis_2)


@public
def shard2D(x: Array, n_1: int, n_2: int, axis_1: int, axis_2: int) -> Array:  # noqa: N802 - PopXL's name
    """Cut an array along two axes, with the parts stacked on a new first axis.

    Args:
        x: any shape and dtype.
        n_1: number of parts along ``axis_1``.
        n_2: number of parts along ``axis_2``.
        axis_1: the outer axis: shard ``i * n_2 + j`` is part ``i`` along it.
        axis_2: the inner axis: the same shard is part ``j`` along it.
    Returns:
        Array ``[n_1 * n_2, ...]``; ``unshard2D`` puts it together again.
    Raises:
        ShapeError: a number of parts does not divide its extent.
        AttributeValueError: no such axis, twice the same axis, or a number of parts that is not a positive int.
        ArgumentTypeError: ``x`` is not an array.
    """
    return np.stack([part for row in _split2D("shard2D", x, n_1, n_2, axis_1, axis_2) for part in row])


@public
def unshard2D(x: Array, n_1: int, n_2: int, axis_1: int, axis_2: int) -> Array:  # noqa: N802 - PopXL's name
    """Join shards along two axes: the inverse of ``shard2D``.

    Args:
        x: shards ``[n_1 * n_2, ...]``.
        n_1: number of parts along ``axis_1``.
        n_2: number of parts along ``axis_2``.
        axis_1: the outer axis of one shard, not counting the first axis of ``x``.
        axis_2: the inner axis of one shard.
    Returns:
        The joined array, of one dimension less.
    Raises:
        ShapeError: ``x`` has not ``n_1 * n_2`` rows.
        AttributeValueError: no such axis, twice the same axis, or a number of parts that is not a positive int.
        ArgumentTypeError: ``x`` is not an array.
    """
    where = "unshard2D"
    x = _array(where, x)
    rows = _rows(where, x)
    outer, inner = read_int(f"{where}: n_1", n_1, 1), read_int(f"{where}: n_2", n_2, 1)
    if len(rows) != outer * inner:
        raise ShapeError(f"{where}: not the number of shards, got {len(rows)}, expected {outer * inner}")
    at_1, at_2 = _two_axes(where, x.shape[1:], axis_1, axis_2)
    joined = [np.concatenate(rows[i * inner : (i + 1) * inner], at_2) for i in range(outer)]
    return np.concatenate(joined, at_1)


@public
def repeat_shard(
    x: Array,
    n_repeats: int,
    n_shards: int,
    shard_axis: int,
    sharded_tensor: Literal["contiguous", "strided"] = "contiguous",
) -> Array:
    """Shards of an array, each several times: a row for each of ``n_repeats * n_shards`` replicas.

    Args:
        x: any shape and dtype.
        n_repeats: how many replicas hold each shard.
        n_shards: number of shards; divides the extent of ``shard_axis``.
        shard_axis: the axis to cut; negative ones count from the end.
        sharded_tensor: "contiguous": the shards of a whole tensor are on consecutive replicas, 0, 1, 0, 1, ...;
            "strided": copies of a shard are, 0, 0, ..., 1, 1, ....
    Returns:
        Array ``[n_repeats * n_shards, ...]``.
    Raises:
        ShapeError: ``n_shards`` does not divide the extent.
        AttributeValueError: no such axis, a number that is not a positive int, or unknown ``sharded_tensor``.
        ArgumentTypeError: ``x`` is not an array.
    """
    where = "repeat_shard"
    order = read_choice(where, "sharded_tensor", sharded_tensor, ("contiguous", "strided"))
    repeats = read_int(f"{where}: n_repeats", n_repeats, 1)
    shards = np.stack(_split(where, _array(where, x), n_shards, shard_axis))
    return np.concatenate([shards] * repeats) if order == "contiguous" else np.repeat(shards, repeats, 0)


@public
def tensor_parallel_input(
    input_data: Array, tp: int, rf: int, repeat_fn: Callable[[Array, int], Array] | None = None
) -> Array:
    """Data of a stream of a tensor- and data-parallel program: each sample on ``tp`` consecutive replicas.

    Args:
        input_data: samples ``[n, ...]``.
        tp: replicas that share a sample.
        rf: number of replicas; a multiple of ``tp``.
        repeat_fn: makes the samples of replica ``i`` of the ``tp`` from a copy of ``input_data`` and ``i``.
            Default: they are equal.
    Returns:
        Array ``[transfers, rf, ...]`` with ``n * tp / rf`` transfers, without the first two axes where they are 1: what
        ``Session.run`` expects.
    Raises:
        AttributeValueError: ``tp`` or ``rf`` is not a positive int, or ``tp`` does not divide ``rf``.
        ShapeError: the samples do not fill the replicas, or ``repeat_fn`` returns another number of samples or unequal
            shapes.
        ArgumentTypeError: ``input_data``, or what ``repeat_fn`` returns, is not an array.
    """
    where = "tensor_parallel_input"
    samples = _samples_at_once(where, tp, rf)
    input_data = _array(where, input_data)
    rows = len(_rows(where, input_data))
    if rows % samples != 0:
        raise ShapeError(
            f"{where}: samples do not fill the replicas, got {rows}, expected a multiple of {samples}"
        )
    copies = [input_data] * tp
    if repeat_fn is not None:
        call = read_call(f"{where}: repeat_fn", repeat_fn)
        copies = [_array(where, call(input_data.copy(), i)) for i in range(tp)]
    shapes = sorted({copy.shape for copy in copies})
    if len(shapes) > 1 or shapes[0][:1] != (rows,):
        raise ShapeError(f"{where}: repeat_fn returns other shapes, got {shapes}, expected ({rows}, ...)")
    data = np.stack(copies, 1).reshape(rows // samples, rf, *shapes[0][1:])
    return squeeze_safe(data, (0, 1))


@public
def tensor_parallel_output(
    output_data: Array,
    num_host_transfers: int,
    tp: int,
    rf: int,
    data_shape: tuple[int, ...],
    tp_identical: bool = True,
    true_num_host_transfers: int | None = None,
) -> Array:
    """Samples of what a tensor- and data-parallel program stored: the inverse of ``tensor_parallel_input``.

    Args:
        output_data: ``[num_host_transfers, rf, *data_shape]``, with or without axes of extent 1 among the first two.
        num_host_transfers: how many elements the stream carried.
        tp: replicas that share a sample.
        rf: number of replicas; a multiple of ``tp``.
        data_shape: shape of what one replica stores.
        tp_identical: the replicas that share a sample hold the same result: return the first one's.
        true_num_host_transfers: how many of the transfers to return, from the first. Default: all; fewer where the
            last ones were filled up.
    Returns:
        Array ``[n, *data_shape]``, or ``[n, tp, *data_shape]`` without ``tp_identical``, of ``transfers * rf / tp``
        samples.
    Raises:
        AttributeValueError: ``tp`` or ``rf`` is not a positive int, ``tp`` does not divide ``rf``, or there are fewer
            transfers than ``true_num_host_transfers``.
        ShapeError: the data is not of that shape.
        ArgumentTypeError: ``output_data`` is not an array.
    """
    where = "tensor_parallel_output"
    samples, shape = _samples_at_once(where, tp, rf), read_shape(where, data_shape)
    transfers = read_int(f"{where}: num_host_transfers", num_host_transfers, 1)
    true = transfers if true_num_host_transfers is None else true_num_host_transfers
    kept = read_int(f"{where}: true_num_host_transfers", true, 1, transfers)
    array, expected = _array(where, output_data), (transfers, rf, *shape)
    squeezed = tuple(extent for extent in expected[:2] if extent > 1) + shape
    if array.shape not in (expected, squeezed):
        raise ShapeError(f"{where}: data of another shape, got {array.shape}, expected {squeezed}")
    result = array.reshape(transfers, samples, tp, *shape)[:kept].reshape(kept * samples, tp, *shape)
    return result[:, 0].copy() if tp_identical else result.copy()


@public
def pad_axis(x: Array, n: int, axis: int, value: int | float = 0) -> Array:
    """Fill up an axis at its end.

    Args:
        x: any shape but a scalar, any dtype.
        n: the extent that the axis gets.
        axis: the axis; negative ones count from the end.
        value: what to fill it with.
    Returns:
        Array with ``n`` elements along ``axis``.
    Raises:
        ShapeError: the axis is longer than ``n``.
        AttributeValueError: no such axis, or ``n`` is not an int.
        ArgumentTypeError: ``x`` is not an array.
    """
    x = _array("pad_axis", x)
    at = _axis("pad_axis", x.shape, axis)
    missing = read_int("pad_axis: n", n, 0) - x.shape[at]
    if missing < 0:
        raise ShapeError(f"pad_axis: axis {axis} is too long, got {x.shape[at]}, expected at most {n}")
    return np.pad(x, [(0, missing if i == at else 0) for i in range(x.ndim)], constant_values=value)


@public
def squeeze_safe(x: Array, axis: int | Sequence[int] | None = None) -> Array:
    """Remove axes of extent 1.

    Args:
        x: any shape and dtype.
        axis: the axes to look at; negative ones count from the end. Default: all.
    Returns:
        View of ``x``; axes of another extent stay.
    Raises:
        AttributeValueError: no such axis.
        ArgumentTypeError: ``x`` is not an array.
    """
    x = _array("squeeze_safe", x)
    shape = x.shape
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    looked_at = {_axis("squeeze_safe", shape, each) for each in axes}
    return x.squeeze(tuple(at for at in looked_at if shape[at] == 1))


@public
def handle_negative_axis(x: Array, axis: int) -> int:
    """The number of an axis, counted from the first.

    Args:
        x: any shape and dtype.
        axis: the axis; negative ones count from the end.
    Returns:
        0 to ``x.ndim - 1``.
    Raises:
        AttributeValueError: no such axis.
        ArgumentTypeError: ``x`` is not an array.
    """
    return _axis("handle_negative_axis", _array("handle_negative_axis", x).shape, axis)


# Shared functions


def _array(where: str, x: Any) -> Array:
    """An array, or what has ``__array__``, as torch's tensors have."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, type) or not hasattr(type(x), "__array__"):
        raise ArgumentTypeError(f"{where}: not an array, got {shown(x)}, expected a numpy.ndarray")
    return as_array(where, x)


def _axis(where: str, shape: tuple[int, ...], axis: int) -> int:
    rank = len(shape)
    number = read_int(f"{where}: axis", axis)
    if not -rank <= number < rank:
        expected = f"{-rank} <= axis < {rank}" if rank else "an array that is not a scalar"
        raise AttributeValueError(f"{where}: axis out of range, got {shown(axis)}, expected {expected}")
    return number % rank


def _two_axes(where: str, shape: tuple[int, ...], axis_1: int, axis_2: int) -> tuple[int, int]:
    axes = _axis(where, shape, axis_1), _axis(where, shape, axis_2)
    if axes[0] == axes[1]:
        raise AttributeValueError(f"{where}: one axis twice, got {axis_1} and {axis_2}, expected two axes")
    return axes


def _rows(where: str, x: Array) -> list[Array]:
    if x.ndim == 0 or len(x) == 0:
        raise ShapeError(f"{where}: no rows, got shape {x.shape}, expected (n, ...) with n of 1 or more")
    if len(x) > _MAX_ROWS:
        raise ShapeError(f"{where}: too many rows, got shape {x.shape}, expected at most {_MAX_ROWS}")
    return list(x)


def _split(where: str, x: Array, n: int, axis: int) -> list[Array]:
    at, parts = _axis(where, x.shape, axis), read_int(f"{where}: n", n, 1)
    if x.shape[at] % parts != 0:
        raise ShapeError(
            f"{where}: parts are not equal, got {parts} of extent {x.shape[at]}, expected a divisor"
        )
    return np.split(x, parts, at)


def _split2D(where: str, x: Array, n_1: int, n_2: int, axis_1: int, axis_2: int) -> list[list[Array]]:  # noqa: N802
    x = _array(where, x)
    at_1, at_2 = _two_axes(where, x.shape, axis_1, axis_2)
    return [_split(where, part, n_2, at_2) for part in _split(where, x, n_1, at_1)]


def _samples_at_once(where: str, tp: int, rf: int) -> int:
    replicas, sharing = read_int(f"{where}: rf", rf, 1), read_int(f"{where}: tp", tp, 1)
    if replicas % sharing != 0:
        raise AttributeValueError(
            f"{where}: tp does not divide rf, got {sharing} and {replicas}, expected a divisor"
        )
    return replicas // sharing
