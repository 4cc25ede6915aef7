"""Copies between the devices of a replica, and between the two tile sets of a device."""

from __future__ import annotations

from popsr._program.building.emit import emit, emit_op
from popsr._program.building.placement import find_place, ipu_copy_attributes
from popsr._program.context import _context
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a
from popsr.ops._facts import public_op

__all__ = ["io_tile_copy", "ipu_copy"]


@public_op
def ipu_copy(t: Tensor, destination: int | None, source: int | None = None) -> Tensor:
    """A copy of a tensor on another device of the replica. Gradients do not cross it.

    Args:
        t: the operand, any dtype and shape.
        destination: number of the IPU of the result. None, which ``Context.ipu_id`` is outside ``popsr.ipu``: the one
            that ops are made on now.
        source: number of the IPU of ``t``. Default: where it is.
    Returns:
        Tensor of the shape and dtype of ``t``, with its bits.
    Raises:
        TypeError: ``destination`` or ``source`` is neither None nor an int.
        ValueError: no source is given and ``t`` is nowhere yet; a negative number.
    Example:
        >>> evaluate(ops.ipu_copy, [1.0, 2.0], destination=1, source=0)
        array([1., 2.], dtype=float32)
    """
    return emit("ipu_copy", {"t": t}, **ipu_copy_attributes(t, destination, source))


@public_op
def io_tile_copy(t: Tensor) -> Tensor:
    """A copy of a tensor on the other tile set of its device. Gradients do not cross it.

    From io tiles to compute tiles where ``t`` is on io tiles, else from compute tiles to io tiles.

    Args:
        t: the operand, any dtype and shape. Where it is nowhere yet, it is taken to be on compute tiles of the
            current IPU.
    Returns:
        Tensor of the shape and dtype of ``t``, with its bits.
    Example:
        >>> evaluate(ops.io_tile_copy, [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    found = find_place(t) if is_a(t, Tensor) else None
    ipu, tiles = (_context.ipu_id or 0, "compute") if found is None else found
    return emit_op("io_tile_copy", {"t": t}, {}, place=(ipu, tiles == "compute"))[1][0]
