"""What the ops share: checks of their arguments before anything is added, and arithmetic in wide types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr import dtypes
from popsr._emit import emit_op, tensor
from popsr.context import _context
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    GraphError,
    ReplicaError,
    ShapeError,
)
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping
from popsr.tensor import Tensor
from popsr.utils import is_a, read_choice

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
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"{where}: {name} is not a Tensor, got {_one_line(value)}, expected a Tensor")
    if value not in _context.graph:
        raise GraphError(
            f"{where}: {name} is of another graph, got '{value.id}' of {value._graph!r}, expected {_context.graph!r}"
        )
    return value


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


def read_labels(where: str, name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """A tensor of integers of a shape.

    Raises:
        TypeError: it is no tensor, or not of integers.
        ValueError: it is of another graph, or of another shape.
    """
    t = read_tensor(where, name, value)
    if not t.dtype.is_int:
        raise DTypeError(f"{where}: {name} are no integers, got {t.dtype.name}, expected int32 or uint32")
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
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"{where}: {name} is no number, got {_one_line(value)}, expected a number or a Tensor"
        ) from None


def _one_line(value: Any) -> str:
    """Type and value; arrays print on several lines."""
    return f"{type(value).__name__} {' '.join(repr(value).split())}"


def read_axis(where: str, axis: Any, shape: Sequence[int]) -> int:
    """An axis of a shape, counted from the front.

    Raises:
        TypeError: it is no int.
        ValueError: there is no such axis.
    """
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ArgumentTypeError(f"{where}: the axis is not an int, got {axis!r}, expected an int")
    if not -len(shape) <= axis < len(shape):
        raise AttributeValueError(f"{where}: the axis is out of range, got {axis} for shape {tuple(shape)}")
    return int(axis) % len(shape)


def read_group(where: str, group: ReplicaGrouping | None) -> ReplicaGrouping:
    """The groups; None is one of all replicas.

    Raises:
        TypeError: it is no grouping.
        ValueError: it is of another number of replicas.
    """
    ir = _context.ir
    if group is None:
        return ir.replica_grouping()
    if not is_a(group, ReplicaGrouping):
        raise ArgumentTypeError(f"{where}: group is not a ReplicaGrouping, got {group!r}")
    if group.num_replicas != ir.replication_factor:
        raise ReplicaError(
            f"{where}: group is of another number of replicas, got {group.num_replicas}, "
            f"expected {ir.replication_factor}"
        )
    return group


def read_op(where: str, op: Any, choices: Sequence[str]) -> Any:
    """The name of a reduction.

    Raises:
        TypeError: it is no str.
        ValueError: it is none of the names.
    """
    if not is_a(op, str):
        raise ArgumentTypeError(f"{where}: op is not a str, got {op!r}, expected one of {', '.join(choices)}")
    return read_choice(where, "op", op, choices)


def widened(t: Tensor) -> Tensor:
    """The tensor in the type that sums are kept in: float64 as it is, everything else as float32."""
    return t if t.dtype == dtypes.float64 else cast_if_needed(t, dtypes.float32)
