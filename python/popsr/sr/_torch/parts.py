"""Parameters in parts: the numbers of the elements that a rank has, and tensors laid out as a parameter."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.sr._runs import Runs, runs_of

__all__ = ["as_parameter", "check_alike", "is_laid_out", "local", "numbers_of"]


def is_laid_out(x: Any) -> bool:
    """True of a DTensor."""
    return hasattr(x, "placements")


def local(x: Any) -> Any:
    """The part of this rank, once it has arrived; a value that is no DTensor as it is."""
    if not is_laid_out(x):
        return x
    part = x.to_local()
    return part.wait() if hasattr(part, "wait") else part


def as_parameter(x: Any, p: Any) -> Any:
    """The part of this rank as a DTensor that is laid out as a parameter."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        x, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride()
    )


def check_alike(op: str, what: str, x: Any, p: Any, remedy: str) -> None:
    """Raise unless a tensor is laid out as its parameter is.

    Raises:
        ArgumentTypeError: it is not.
    """
    placements, mesh = getattr(x, "placements", None), getattr(x, "device_mesh", None)
    if placements is None or tuple(placements) != tuple(p.placements) or mesh != p.device_mesh:
        got = "a local tensor" if placements is None else str(tuple(placements))
        also = "" if placements is None or mesh == p.device_mesh else " of another mesh"
        raise ArgumentTypeError(
            f"{op}: {what} is laid out otherwise than its parameter, got {shown(got)}{also}, expected "
            f"{shown(str(tuple(p.placements)))}: {remedy}"
        )


def numbers_of(op: str, p: Any) -> int | Runs:
    """Numbers of the elements of this rank's part of a DTensor: their positions in the whole, flattened in C order.

    Raises:
        ArgumentTypeError: it is laid out in a way for which torch does not say what lies where.
    """
    mesh, shape = p.device_mesh, tuple(p.shape)
    place = mesh.get_coordinate()
    if place is None:  # a rank outside of the mesh has no elements
        return 0
    offset, expected = _numbers(op, shape, tuple(p.placements), tuple(mesh.shape), tuple(place))
    got = tuple(local(p).shape)
    if got != expected:
        raise ArgumentTypeError(
            f"{op}: the part of a parameter is not that of its placements, got shape {got} of {shape} as "
            f"{shown(str(tuple(p.placements)))}, expected {expected}"
        )
    return offset


@functools.lru_cache(maxsize=256)
def _numbers(
    op: str, shape: tuple[int, ...], placements: tuple[Any, ...], mesh: Sequence[int], place: Sequence[int]
) -> tuple[int | Runs, tuple[int, ...]]:
    """The numbers and shape of a part."""
    held: list[npt.NDArray[np.int64] | None] = [None] * len(shape)
    for placement, parts, which in zip(placements, mesh, place, strict=True):
        if placement.is_replicate():
            continue
        groups = _groups(op, placement, placements)
        axis = placement.dim % len(shape)
        index = held[axis]
        whole = np.arange(shape[axis]) if index is None else index
        cut = [_chunk(_chunk(whole, groups, k), parts, which) for k in range(groups)]
        held[axis] = np.concatenate(cut)
    got = [extent if index is None else len(index) for extent, index in zip(shape, held, strict=True)]
    return runs_of(shape, tuple(held)), tuple(got)


def _groups(op: str, placement: Any, placements: tuple[Any, ...]) -> int:
    """Number of equal groups of an axis of each of which a rank has a part.

    Raises:
        ArgumentTypeError: the placement is neither of torch's two kinds of shards.
    """
    from torch.distributed.tensor.placement_types import Shard, _StridedShard

    if type(placement) is Shard:
        return 1
    if type(placement) is _StridedShard:
        return int(placement.split_factor)
    raise ArgumentTypeError(
        f"{op}: elements of a parameter have no numbers, got placements {shown(str(placements))}, expected "
        "Replicate and Shard"
    )


def _chunk(index: npt.NDArray[np.int64], parts: int, which: int) -> npt.NDArray[np.int64]:
    """One of the parts that ``torch.chunk`` cuts; the last ones may be smaller or empty."""
    size = -(-len(index) // parts)
    return index[which * size : (which + 1) * size]
