"""Loads from and stores to remote buffers. They happen in program order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from popsr._program.building.emit import emit_op, tensor
from popsr._program.context import _context
from popsr._program.tensor import Tensor
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr._support.host.arguments import read_int, read_int64s, read_name
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError, OutOfRangeError
from popsr.ops._facts import public_op

__all__ = ["remote_load", "remote_load_", "remote_store"]


def _attrs(where: str, remote_buffer: RemoteBuffer, offset: int | Tensor) -> dict[str, Any]:
    if not isinstance(remote_buffer, RemoteBuffer):
        raise ArgumentTypeError(f"{where}: not a RemoteBuffer, got {shown(remote_buffer)}")
    if remote_buffer._ir is not _context.graph_of(where).ir:
        raise GraphError(
            f"{where}: remote buffer of another Ir, got {shown(remote_buffer)}, expected one of the current Ir"
        )
    if isinstance(offset, Tensor):
        return {"remote_buffer": remote_buffer._id}
    return {"remote_buffer": remote_buffer._id, "entry": _read_entry(where, remote_buffer, offset)}


def _read_entry(where: str, remote_buffer: RemoteBuffer, offset: int) -> int:
    try:
        return read_int(f"{where}: offset", offset)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{where}: offset is not an int or Tensor, got {shown(offset)}, expected one of them"
        ) from None
    except AttributeValueError:  # the core checks what has 64 bits
        raise OutOfRangeError(
            f"{where}: offset is outside the buffer, got {shown(offset)}, expected 0 to "
            f"{remote_buffer.entries - 1} of remote buffer {remote_buffer.remote_buffer_id}"
        ) from None


@public_op
def remote_load(remote_buffer: RemoteBuffer, offset: int | Tensor, name: str | None = None) -> Tensor:
    """Load an entry of a remote buffer.

    Args:
        remote_buffer: the buffer.
        offset: number of the entry: an int, or an integer tensor of one element, per replica.
        name: name of the tensor. Default: the op's name with ``_out``.
    Returns:
        Tensor of the buffer's shape and dtype, with its meta shape.
    Raises:
        OutOfRangeError: no such entry; for a tensor when the program runs.
        GraphError: the buffer is of another Ir.
    Example:
        >>> def round_trip(t):
        ...     buffer = popsr.remote_buffer(t.shape, t.dtype, entries=2)
        ...     ops.remote_store(buffer, 1, t)
        ...     return ops.remote_load(buffer, 1)
        >>> evaluate(round_trip, [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    attrs = _attrs("remote_load", remote_buffer, offset)
    name = None if name is None else read_name("remote_load", name)
    return emit_op("remote_load", {"offset": tensor(offset)}, attrs, name=name)[1][0]


@public_op
def remote_load_(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> Tensor:
    """Load an entry of a remote buffer into an existing tensor.

    Args:
        remote_buffer: the buffer.
        offset: number of the entry: an int, or an integer tensor of one element, per replica.
        t: tensor of the buffer's shape and dtype; overwritten.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: ``t`` has another shape or dtype than the buffer.
        OutOfRangeError: no such entry; for a tensor when the program runs.
        GraphError: the buffer is of another Ir.
    Example:
        >>> def overwrite(t):
        ...     buffer = popsr.remote_buffer(t.shape, t.dtype, entries=1)  # zeros
        ...     return ops.remote_load_(buffer, 0, t)
        >>> evaluate(overwrite, [1.0, 2.0])
        array([0., 0.], dtype=float32)
    """
    attrs = _attrs("remote_load_", remote_buffer, offset)
    inputs = {"t": t, "offset": tensor(offset)}
    return emit_op("remote_load_", inputs, attrs)[1][0]


@public_op
def remote_store(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> None:
    """Store a tensor into an entry of a remote buffer.

    Args:
        remote_buffer: the buffer.
        offset: number of the entry: an int, or an integer tensor of one element, per replica.
        t: tensor of the buffer's shape and dtype.
    Raises:
        ShapeError: ``t`` has another shape or dtype than the buffer.
        OutOfRangeError: no such entry; for a tensor when the program runs.
        GraphError: the buffer is of another Ir.
    Example:
        >>> def round_trip(t):
        ...     buffer = popsr.remote_buffer(t.shape, t.dtype, entries=2)
        ...     ops.remote_store(buffer, 1, t)
        ...     return ops.remote_load(buffer, 1)
        >>> evaluate(round_trip, [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    attrs = _attrs("remote_store", remote_buffer, offset)
    emit_op("remote_store", {"t": t, "offset": tensor(offset)}, attrs)


def multiply_tuple(tup: Iterable[int]) -> int:
    """The product of the extents of a shape; 1 for a scalar's."""
    tup = read_int64s("multiply_tuple", "tup", tup)
    return math.prod(tup)
