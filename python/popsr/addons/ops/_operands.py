"""What the ops share: checks of their arguments before anything is added, and arithmetic in wide types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from popsr import dtypes
from popsr._host import arguments
from popsr._host.arguments import is_a, read_a, read_choice, read_int
from popsr._program.emit import emit_op, foreign_tensor, tensor
from popsr._text.shown import shown
from popsr.context import _context
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    ReplicaError,
    ShapeError,
)
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping
from popsr.tensor import Tensor

__all__ = [
    "check_floats",
    "check_labels",
    "read_axis",
    "read_floats",
    "read_group",
    "read_labels",
    "read_number",
    "read_op",
    "read_shape_of",
    "read_tensor",
    "widened",
]

_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def check_labels(
    labels: Tensor, classes: int, group: ReplicaGrouping | None = None, ignored: Tensor | None = None
) -> None:
    """Let sessions say so when a label is none of the classes.

    Args:
        labels: integers; of the members of a group each less by the number of classes on the members before it.
        classes: classes of each member.
        group: the replicas that share out the classes. Default: each replica has all of them.
        ignored: a label that does not count.
    """
    group = _context.ir.replica_grouping(group_size=1) if group is None else group
    inputs = {"labels": labels, "ignored": tensor(ignored)}
    emit_op("check_labels", inputs, {"classes": classes, "group": group}, outputs=0)


def read_tensor(where: str, name: str, value: Any) -> Tensor:
    """A tensor of the current graph.

    Raises:
        TypeError: it is no tensor.
        ValueError: it is of another graph.
    """
    t = read_a(f"{where}: {name}", value, Tensor)
    graph = _context.graph_of(where)
    if t not in graph:
        raise foreign_tensor(f"{where}: {name}", t, graph)
    return t


def read_floats(where: str, name: str, value: Any, rank: int | None = None) -> Tensor:
    """A tensor of floats, of some rank.

    Raises:
        TypeError: it is no tensor, or not of floats.
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
        TypeError: it is no tensor, or not of integers.
        ValueError: it is of another graph, or of another shape.
    """
    t = read_tensor(where, name, value)
    if not t.dtype.is_int:
        raise DTypeError(f"{where}: {name} are no integers, got {t.dtype.name}, expected int32 or uint32")
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


def read_number(where: str, name: str, value: Any) -> float | Tensor:
    """A number, or a tensor of one element.

    Raises:
        TypeError: it is neither.
        ValueError: a tensor of several elements, or of another graph.
    """
    if isinstance(value, Tensor):
        if value.nelms != 1:
            raise ShapeError(f"{where}: {name} is no scalar, got shape {value.shape}, expected one element")
        return read_tensor(where, name, value)
    return arguments.read_number(f"{where}: {name}", value)


def read_axis(where: str, axis: Any, shape: Sequence[int]) -> int:
    """An axis of a shape, counted from the front.

    Raises:
        TypeError: it is no int.
        ValueError: there is no such axis.
    """
    number = read_int(f"{where}: the axis", axis)
    if not -len(shape) <= number < len(shape):
        raise AttributeValueError(f"{where}: the axis is out of range, got {number} for shape {tuple(shape)}")
    return number % len(shape)


def read_group(where: str, group: ReplicaGrouping | None) -> ReplicaGrouping:
    """The groups; None is one of all replicas.

    Raises:
        TypeError: it is no grouping.
        ValueError: it is of another number of replicas.
    """
    ir = _context.graph_of(where).ir
    if group is None:
        return ir.replica_grouping()
    if not is_a(group, ReplicaGrouping):
        raise ArgumentTypeError(f"{where}: group is not a ReplicaGrouping, got {shown(group)}")
    if group.num_replicas != ir.replication_factor:
        raise ReplicaError(
            f"{where}: group is of another number of replicas, got {group.num_replicas}, "
            f"expected {ir.replication_factor}"
        )
    return group


def read_op(where: str, op: Any, choices: Sequence[str]) -> Any:
    """The name of a reduction.

    Raises:
        ValueError: it is none of the names.
    """
    return read_choice(where, "op", op, choices)


def widened(t: Tensor) -> Tensor:
    """The tensor in the type that sums are kept in: float64 as it is, everything else as float32."""
    return t if t.dtype == dtypes.float64 else cast_if_needed(t, dtypes.float32)
