"""Parameters in parts: the numbers of the elements that a rank has, and tensors laid out as a parameter."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.sr._runs import Runs, runs_of

__all__ = [
    "Part",
    "as_parameter",
    "as_replica",
    "check_alike",
    "gathered",
    "is_cut",
    "is_elsewhere",
    "is_laid_out",
    "local",
    "part_of",
    "whole",
]

_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_Index = npt.NDArray[np.int64]


class Part(NamedTuple):
    """The elements of a parameter that a rank has.

    Attributes:
        offset: numbers of its elements: their positions in the whole, flattened in C order.
        held: for each axis the positions along it, None if all.
        shape: of the part.
    """

    offset: int | Runs
    held: tuple[_Index | None, ...]
    shape: tuple[int, ...]

    def of(self, x: Any) -> Any:
        """The part of a tensor with the shape of the whole parameter."""
        bits = _bits(x)
        for axis, index in enumerate(self.held):
            if index is not None:
                bits = bits.index_select(axis, torch.from_numpy(index))
        return bits.view(x.dtype)


def is_laid_out(x: Any) -> bool:
    """True of a DTensor."""
    return hasattr(x, "placements")


def is_cut(p: Any) -> bool:
    """True of a DTensor of which ranks have parts."""
    return is_laid_out(p) and not all(each.is_replicate() for each in p.placements)


def is_elsewhere(p: Any) -> bool:
    """True of a DTensor over ranks of which this is none."""
    return is_laid_out(p) and p.device_mesh.get_coordinate() is None


def local(x: Any) -> Any:
    """The part of this rank, once it has arrived; a value that is no DTensor as it is."""
    if not is_laid_out(x):
        return x
    part = x.to_local()
    return part.wait() if hasattr(part, "wait") else part


def whole(x: Any) -> Any:
    """All of a DTensor, gathered from all ranks of its mesh; a value that is no DTensor as it is."""
    if not is_laid_out(x):
        return x
    if x.dtype.itemsize > 1:
        return x.full_tensor()
    laid_out = _laid_out(local(x).view(torch.uint8), x, x.placements)  # collectives do not know narrow floats
    return laid_out.full_tensor().view(x.dtype)


def gathered(op: str, p: Any, part: Part) -> Any:
    """All of a parameter, which may be its memory.

    Raises:
        ArgumentTypeError: torch puts the parts together in another way than it cuts them.
    """
    strided = [each.dim for each in p.placements if type(each).__name__ == "_StridedShard"]
    w = None if len(strided) > len(set(strided)) else whole(p.detach())
    if w is None or not torch.equal(_bits(part.of(w)), _bits(local(p.detach()))):
        raise ArgumentTypeError(
            f"{op}: torch cannot gather a parameter, got placements {shown(str(tuple(p.placements)))}, expected others:"
            " its parts are put together in another way than they are cut"
        )
    return w


def _bits(x: Any) -> Any:
    return x.view(_CARRIERS[x.dtype.itemsize])  # of narrow floats torch has no selections and comparisons


def as_parameter(x: Any, p: Any) -> Any:
    """This rank's part of a tensor as a DTensor that is laid out as its parameter."""
    return _laid_out(x, p, p.placements)


def as_replica(x: Any, p: Any) -> Any:
    """A tensor that all ranks of a parameter's mesh have as a DTensor."""
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(x, p.device_mesh, [Replicate()] * p.device_mesh.ndim, run_check=False)


def _laid_out(x: Any, like: Any, placements: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        x, like.device_mesh, placements, run_check=False, shape=like.shape, stride=like.stride()
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


def part_of(op: str, p: Any) -> Part:
    """This rank's part of a DTensor.

    Raises:
        ArgumentTypeError: it is laid out in a way for which torch does not say what lies where.
    """
    mesh, placements = p.device_mesh, tuple(p.placements)
    part = _part(op, tuple(p.shape), placements, tuple(mesh.shape), tuple(mesh.get_coordinate()))
    got = tuple(local(p).shape)
    if got != part.shape:
        raise ArgumentTypeError(
            f"{op}: the part of a parameter is not that of its placements, got shape {got} of {tuple(p.shape)} as "
            f"{shown(str(placements))}, expected {part.shape}"
        )
    return part


@functools.lru_cache(maxsize=256)
def _part(
    op: str, shape: tuple[int, ...], placements: tuple[Any, ...], mesh: Sequence[int], place: Sequence[int]
) -> Part:
    held: list[_Index | None] = [None] * len(shape)
    for placement, parts, which in zip(placements, mesh, place, strict=True):
        if placement.is_replicate():
            continue
        groups = _groups(op, placement, placements)
        axis = placement.dim % len(shape)
        index = held[axis]
        before = np.arange(shape[axis]) if index is None else index
        cut = [_chunk(_chunk(before, groups, k), parts, which) for k in range(groups)]
        held[axis] = np.concatenate(cut)
    extents = tuple(n if index is None else len(index) for n, index in zip(shape, held, strict=True))
    return Part(runs_of(shape, tuple(held)), tuple(held), extents)


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


def _chunk(index: _Index, parts: int, which: int) -> _Index:
    """One of the parts that ``torch.chunk`` cuts; the last ones may be smaller or empty."""
    size = -(-len(index) // parts)
    return index[which * size : (which + 1) * size]
