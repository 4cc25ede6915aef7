"""Copies between the devices of a replica."""

from __future__ import annotations

from popsr._args import is_a, read_ipu
from popsr._emit import emit
from popsr._places import find_place
from popsr._shown import shown
from popsr.errors import GraphError
from popsr.tensor import Tensor

__all__ = ["ipu_copy"]


def ipu_copy(t: Tensor, destination: int, source: int | None = None) -> Tensor:
    """A copy of a tensor on another device of the replica. Gradients do not cross it.

    Args:
        t: the operand, any dtype and shape.
        destination: number of the IPU of the result.
        source: number of the IPU of ``t``. Default: where it is.
    Returns:
        Tensor of the shape and dtype of ``t``, with its bits.
    Raises:
        TypeError: ``destination`` or ``source`` is no int.
        ValueError: no source is given and ``t`` is nowhere yet; a negative number.
    """
    destination = read_ipu("ipu_copy", "destination", destination)
    if source is not None:
        source = read_ipu("ipu_copy", "source", source)
    elif is_a(t, Tensor):
        place = find_place(t)
        if place is None:
            raise GraphError(
                f"ipu_copy: the IPU of the tensor is unknown, got {shown(t)} that no op makes or takes, expected source"
            )
        source = place[0]
    return emit("ipu_copy", {"t": t}, destination=destination, source=source)
