"""The first element in which two ranks differ, found block by block."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._support.host.frameworks import framework
from popsr._support.text.differences import bits_text
from popsr.guard._keys import BLOCK_BYTES
from popsr.guard.torch._hash import WHERE, block_of, row_blocks
from popsr.guard.torch._items import Item
from popsr.guard.torch._ranks import Ranks

__all__ = ["Located", "locate"]


@dataclass(frozen=True, slots=True)
class Located:
    """Differing elements of two ranks.

    Attributes:
        element: index of the first in the whole value; None where none is known.
        values: both, or what differs of them.
        count: elements that differ; None where that is not known.
        size: elements of each.
    """

    element: tuple[int, ...] | None
    values: tuple[str, str]
    count: int | None
    size: int


def locate(ranks: Ranks, item: Item, pair: tuple[int, int]) -> Located:
    """Compare the value of two ranks byte by byte; all ranks call it and get the same.

    Hashes of blocks come first, and only blocks that differ are sent: a rank holds two at a time.
    """
    parts = [each.decode() for each in ranks.gather_bytes(item.part.encode())]
    first, other = pair
    # Other ranks may hold parts of another shape: all go by what the first of the two says.
    told = ranks.gather_bytes(_layout(item))[first].decode()
    shape, offset, itemsize, dtype = _read_layout(told)
    size = int(np.prod(shape, dtype=np.int64))
    if parts[first] != parts[other]:
        return Located(None, (parts[first], parts[other]), None, size)
    differing = _differing_blocks(ranks, item, pair, -(-size * itemsize // BLOCK_BYTES))
    found: tuple[int, tuple[str, str]] | None = None
    count = 0
    for block in differing:
        length = min(BLOCK_BYTES, size * itemsize - block * BLOCK_BYTES)
        a, b = (_block(ranks, item, rank, block, length) for rank in pair)
        rows = np.flatnonzero((a != b).reshape(-1, itemsize).any(1))
        count += len(rows)
        if found is None and len(rows):
            at = slice(rows[0] * itemsize, (rows[0] + 1) * itemsize)
            values = (_value(a[at], dtype), _value(b[at], dtype))
            found = block * BLOCK_BYTES // itemsize + int(rows[0]), values
    if found is None:
        return Located(None, ("bytes that changed", "between hash and comparison"), None, size)
    index = tuple(int(each) for each in np.unravel_index(found[0], shape)) if shape else ()
    if offset is not None:
        index = tuple(i + begin for i, begin in zip(index, offset, strict=True))
    return Located(index, found[1], count, size)


def _layout(item: Item) -> bytes:
    local = item.local
    dtype = str(local.dtype).removeprefix("torch.")
    return repr((tuple(local.shape), item.offset, local.element_size(), dtype)).encode()


def _read_layout(text: str) -> tuple[tuple[int, ...], tuple[int, ...] | None, int, str]:
    shape, offset, itemsize, dtype = ast.literal_eval(text)
    return shape, offset, itemsize, dtype


def _differing_blocks(ranks: Ranks, item: Item, pair: tuple[int, int], count: int) -> list[int]:
    torch = framework(WHERE, "torch")
    hashes = torch.zeros(count, dtype=torch.int64)
    if ranks.rank in pair:
        sums = [(rows * _odd(rows)).sum() for _, rows in row_blocks(item.local)]
        hashes = torch.stack(sums).cpu() if sums else hashes
    a, b = (ranks.share(rank, hashes.clone()) for rank in pair)
    return [int(each) for each in torch.nonzero(a != b)[:, 0]]


def _odd(rows: Any) -> Any:
    """Odd numbers, so that one row that differs makes the sum differ."""
    torch = framework(WHERE, "torch")
    return torch.arange(len(rows), device=rows.device) * 0x5851F42D4C957F2D * 2 + 1


def _block(ranks: Ranks, item: Item, rank: int, block: int, length: int) -> Any:
    torch = framework(WHERE, "torch")
    is_mine = ranks.rank == rank
    data = block_of(item.local, block).clone() if is_mine else torch.empty(length, dtype=torch.uint8)
    return ranks.share(rank, data).numpy()


def _value(data: Any, dtype: str) -> str:
    """Bits of an element, with the value if the dtype has a number for it."""
    torch = framework(WHERE, "torch")
    try:
        value = torch.from_numpy(data.copy()).view(getattr(torch, dtype)).item()
    except (RuntimeError, NotImplementedError, ValueError):
        value = None
    return bits_text(data.tobytes(), value)
