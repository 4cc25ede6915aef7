"""Copies between the tiles of a device that compute and those that exchange."""

from __future__ import annotations

from popsr._args import is_a
from popsr._emit import emit_op
from popsr._places import find_place
from popsr.context import _context
from popsr.tensor import Tensor

__all__ = ["io_tile_copy"]


def io_tile_copy(t: Tensor) -> Tensor:
    """A copy of a tensor on the other tile set of its device. Gradients do not cross it.

    From io tiles to compute tiles where ``t`` is on io tiles, else from compute tiles to io tiles.

    Args:
        t: the operand, any dtype and shape. Where it is nowhere yet, it is taken to be on compute tiles of the
            current IPU.
    Returns:
        Tensor of the shape and dtype of ``t``, with its bits.
    """
    found = find_place(t) if is_a(t, Tensor) else None
    ipu, tiles = (_context.ipu_id or 0, "compute") if found is None else found
    return emit_op("io_tile_copy", {"t": t}, {}, place=(ipu, tiles == "compute"))[1][0]
