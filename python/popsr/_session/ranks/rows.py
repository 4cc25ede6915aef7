"""Rows of a variable for the one rank that writes them to a file, sent by the ranks that have them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from popsr._session.ranks.ranks import Ranks
from popsr._session.rows import Array
from popsr._support.host import message_sizes

__all__ = ["Piece", "one_writer", "rows_for_writer"]

Piece = tuple[int, int, Array | None]
"""The rank that has it, its bytes, and on that rank these."""


class _Part(NamedTuple):
    """A part of a piece that is sent at once, or the whole of one that the writer has."""

    rank: int
    nbytes: int
    data: Array | None


@contextlib.contextmanager
def one_writer(ranks: Ranks | None, where: str, path: Path, step: int) -> Iterator[bool]:
    """True inside on the one rank that writes a file; all ranks leave the block when it is written.

    Args:
        ranks: in a call of all of them; None without others.
        where: the call.
        path: of the file.
        step: of the session.
    Raises:
        RankError: ranks write elsewhere, or at another step.
    """
    if ranks is None:
        yield True
        return
    ranks.agree(where, [("the path", str(path)), ("the step", str(step))])
    yield ranks.rank == 0
    ranks.agree(f"the end of {where}", [])


def rows_for_writer(ranks: Ranks, pieces: Sequence[Piece]) -> Iterator[Array]:
    """The bytes of the pieces in order, on the rank that writes; the others send theirs and yield nothing.

    The writer receives a chunk at a time, and all ranks agree before each, so that an error of writing ends the call
    on all of them.

    Args:
        ranks: all of them make this call.
        pieces: of one variable.
    """
    is_writer = ranks.rank == 0
    parts = list(_parts(pieces))
    room = np.empty(0, np.uint8)
    if is_writer:
        sizes = [sum(part.nbytes for part in chunk if part.rank) for chunk in _chunks(parts)]
        room = np.empty(max(sizes, default=0), np.uint8)
    for chunk in _chunks(parts):
        if any(part.rank for part in chunk):
            ranks.agree("rows of a checkpoint", [])
            ranks.send_to_first([(part.rank, part.nbytes, part.data) for part in chunk if part.rank], room)
        begin = 0
        for part in chunk if is_writer else ():
            if part.rank:
                yield room[begin : begin + part.nbytes]
                begin += part.nbytes
            elif part.data is not None:
                yield part.data


def _parts(pieces: Iterable[Piece]) -> Iterator[_Part]:
    for rank, nbytes, data in pieces:
        if rank == 0:
            yield _Part(rank, nbytes, data)
            continue
        for begin in range(0, nbytes, message_sizes.MESSAGE_BYTES):
            end = min(begin + message_sizes.MESSAGE_BYTES, nbytes)
            yield _Part(rank, end - begin, None if data is None else data[begin:end])


def _chunks(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Parts one after the other, of which at most a chunk is sent."""
    chunk: list[_Part] = []
    sent = 0
    for part in parts:
        more = part.nbytes if part.rank else 0
        if chunk and sent + more > message_sizes.MESSAGE_BYTES:
            yield chunk
            chunk, sent = [], 0
        chunk.append(part)
        sent += more
    if chunk:
        yield chunk
