"""Reading of arguments that belong to a program: tensors, axes of tensors, groups of replicas.

Values of the host are read by :mod:`popsr._support.host.arguments`; the classes of errors are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from popsr import dtypes
from popsr._program.building.append import foreign_tensor
from popsr._program.state import _context
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_int, read_items, read_number
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ShapeError

__all__ = [
    "check_floats",
    "read_axis",
    "read_floats",
    "read_labels",
    "read_scalar",
    "read_shape_of",
    "read_tensor",
    "read_tensor_list",
]

_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def read_tensor(where: str, name: str, value: Any) -> Tensor:
    """A tensor of the current graph.

    Raises:
        TypeError: it is not a tensor.
        ValueError: it is of another graph.
    """
    t = read_a(f"{where}: {name}", value, Tensor)
    graph = _context.graph_of(where)
    if t._ir is not graph._ir or t._graph_id != graph._id:
        raise foreign_tensor(f"{where}: {name}", t, graph)
    return t


def read_floats(where: str, name: str, value: Any, rank: int | None = None) -> Tensor:
    """A tensor of floats, of some rank.

    Raises:
        TypeError: it is not a tensor, or not of floats.
        ValueError: it is of another graph, or of another rank.
    """
    t = read_tensor(where, name, value)
    check_floats(where, name, t.dtype)
    if rank is not None and t.rank != rank:
        raise ShapeError(f"{where}: {name} has another rank, got shape {t.shape}, expected {rank} axes")
    return t


def check_floats(where: str, name: str, kind: dtypes.dtype) -> None:
    """Check that a dtype is of floats.

    Raises:
        TypeError: it is not.
    """
    if kind not in _FLOATS:
        raise DTypeError(
            f"{where}: {name} is not of floats, got {kind.name}, expected float16, bfloat16, float32 or float64"
        )


def read_labels(
    where: str, name: str, value: Any, shape: tuple[int, ...], *, any_shape: bool = False
) -> Tensor:
    """A tensor of integers of a shape; with ``any_shape`` of any that has as many elements.

    Raises:
        TypeError: it is not a tensor, or not of integers.
        ValueError: it is of another graph, or of another shape.
    """
    t = read_tensor(where, name, value)
    if not t.dtype.is_int:
        raise DTypeError(f"{where}: {name} are not integers, got {t.dtype.name}, expected int32 or uint32")
    if any_shape and t.nelms == math.prod(shape):
        return t
    return read_shape_of(where, name, t, shape)


def read_shape_of(where: str, name: str, t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor if it has the shape.

    Raises:
        ValueError: it has not.
    """
    if t.shape != shape:
        raise ShapeError(f"{where}: {name} has another shape, got {t.shape}, expected {shape}")
    return t


def read_scalar(where: str, name: str, value: Any) -> float | Tensor:
    """A number, or a tensor of one element.

    Raises:
        TypeError: it is neither.
        ValueError: a tensor of several elements, or of another graph.
    """
    if isinstance(value, Tensor):
        if value.nelms != 1:
            raise ShapeError(
                f"{where}: {name} is not a scalar, got shape {value.shape}, expected one element"
            )
        return read_tensor(where, name, value)
    return read_number(f"{where}: {name}", value)


def read_axis(where: str, axis: Any, shape: Sequence[int]) -> int:
    """An axis of a shape, counted from the front.

    Raises:
        ArgumentTypeError: it is not an int.
        AttributeValueError: there is no such axis.
    """
    number = read_int(f"{where}: axis", axis)
    if not -len(shape) <= number < len(shape):
        raise AttributeValueError(
            f"{where}: axis is out of range, got {number}, expected one of shape {tuple(shape)}"
        )
    return number % len(shape)


def read_tensor_list(where: str, name: str, values: Any) -> list[Any]:
    """A list of tensors; the op that takes them checks each.

    Raises:
        ArgumentTypeError: it is not an iterable, or a tensor.
        AttributeValueError: there are too many.
    """
    if isinstance(values, Tensor) or not is_a(values, Iterable):
        raise ArgumentTypeError(
            f"{where}: {name} is not a Tensor list, got {shown(values)}, expected a list of Tensors"
        )
    return list(read_items(where, name, values, kind="Tensors"))
