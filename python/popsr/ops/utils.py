"""Checks and conversions of arguments, shared by functions that make ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from popsr import dtypes
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_dtype, read_int, read_int64s, read_number
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError, UndefinedValue
from popsr.ops.math.cast import cast

__all__ = [
    "cast_if_needed",
    "check_in_graph",
    "check_tensor_ipu_and_tile_set",
    "convert_optional_dtype",
    "convert_optional_float",
    "convert_optional_int",
    "convert_optional_int64_list",
    "handle_negative_axis",
]


@public
@transactional
def cast_if_needed(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """The tensor in another dtype: itself if it is of that dtype, else a cast.

    Args:
        t: the tensor.
        data_type: the dtype.
    """
    ((_, tensor),) = _named("cast_if_needed", (), {"t": t}).items()
    return tensor if tensor.dtype is read_dtype("cast_if_needed", data_type) else cast(tensor, data_type)


@public
def check_in_graph(graph: Graph, *args: Tensor, **tensors: Tensor) -> None:
    """Check that tensors are of a graph.

    Args:
        graph: the graph.
        *args: tensors that messages call by position.
        **tensors: tensors that messages call by name.
    Raises:
        TypeError: one is not a tensor.
        ValueError: one is of another graph.
    """
    if not is_a(graph, Graph):
        raise ArgumentTypeError(f"check_in_graph: graph is not a Graph, got {shown(graph)}")
    for name, t in _named("check_in_graph", args, tensors).items():
        if t not in graph:
            raise GraphError(
                f"check_in_graph: {name} is of another graph, got {shown(t)}, expected {shown(graph)}"
            )


@public
def check_tensor_ipu_and_tile_set(*args: Tensor, **tensors: Tensor) -> None:
    """Check that tensors are on one IPU and one tile set, as far as these are known.

    Args:
        *args: tensors that messages call by position.
        **tensors: tensors that messages call by name.
    Raises:
        TypeError: one is not a tensor.
        ValueError: two are at different places.
    """
    named = _named("check_tensor_ipu_and_tile_set", args, tensors)
    for what in ("ipu", "tile_set"):
        places = {name: place for name, t in named.items() if (place := _place(t, what)) is not None}
        if len(set(places.values())) > 1:
            raise GraphError(
                f"check_tensor_ipu_and_tile_set: tensors are apart, got {what} {places}, expected one {what}"
            )


@public
def handle_negative_axis(t: Tensor, axis: int) -> int:
    """The axis counted from the front.

    Args:
        t: the tensor.
        axis: one of its axes; negative ones count from the end.
    Raises:
        ValueError: it has no such axis.
    """
    ((_, tensor),) = _named("handle_negative_axis", (), {"t": t}).items()
    number = convert_optional_int(axis)
    if number is None or not -tensor.rank <= number < tensor.rank:
        raise AttributeValueError(
            f"handle_negative_axis: axis is out of range, got {shown(axis)}, expected one of {shown(tensor)}"
        )
    return number % tensor.rank


@public
def convert_optional_float(v: float | None) -> float | None:
    """A number as float; None stays.

    Raises:
        TypeError: it is not a number.
    """
    if v is None:
        return None
    return read_number("convert_optional_float: v", v)


@public
def convert_optional_int(v: int | None) -> int | None:
    """An integer as int; None stays.

    Raises:
        TypeError: it is not an integer.
    """
    if v is None:
        return None
    return read_int("convert_optional_int: v", v)


@public
def convert_optional_dtype(dt: dtypes.dtype | None) -> dtypes.dtype | None:
    """A dtype, or what stands for one; None stays.

    Raises:
        TypeError: it stands for none.
    """
    return None if dt is None else read_dtype("convert_optional_dtype", dt)


@public
def convert_optional_int64_list(l: Iterable[int] | None) -> list[int] | None:  # noqa: E741 - PopXL's name
    """Integers as list of int; None stays.

    Raises:
        TypeError: they are not integers.
        ValueError: one does not fit into 64 bits.
    """
    if l is None:
        return None
    return list(read_int64s("convert_optional_int64_list", "l", l))


def _named(where: str, args: tuple[Any, ...], tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    named = {**{f"tensor {i}": t for i, t in enumerate(args)}, **tensors}
    for name, t in named.items():
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"{where}: {name} is not a Tensor, got {shown(t)}, expected a Tensor")
    return named


def _place(t: Tensor, what: str) -> object:
    try:
        place: object = getattr(t, what)
    except UndefinedValue:
        return None
    return place
