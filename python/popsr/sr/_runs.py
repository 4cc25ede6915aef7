"""Numbers of the elements of a part of an array, which follow each other in runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Runs", "runs_of"]


class Runs:
    """Value of arguments ``offset`` inside of popsr where one number does not do.

    Attributes:
        table: for each run its end, counted in elements of the part in C order, and what is added to such a count for
            the number of an element, modulo 2**64.
    """

    __slots__ = ("table",)

    def __init__(self, firsts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Runs in order, none of them empty."""
        ends = lengths.cumsum()
        self.table = np.stack([ends, firsts - (ends - lengths)], axis=1).view(np.uint64)

    @property
    def words(self) -> tuple[int, int]:
        """Address and number of runs."""
        return self.table.ctypes.data, len(self.table)


def runs_of(shape: tuple[int, ...], held: tuple[npt.NDArray[np.int64] | None, ...]) -> int | Runs:
    """Numbers of a part, as positions in the whole array, flattened in C order.

    Args:
        shape: of the whole array.
        held: for each axis the positions along it that the part has, in order; None: all.
    Returns:
        The number of the first element if all others follow, else the runs.
    """
    firsts, lengths, inner = np.zeros(1, np.int64), np.ones(1, np.int64), 1
    for extent, index in zip(reversed(shape), reversed(held), strict=True):
        if index is None and lengths[0] == inner:  # all that is inside, and so one run
            lengths = lengths * extent
        else:
            index = np.arange(extent) if index is None else index
            if lengths[0] == inner:
                starts = np.flatnonzero(np.diff(index, prepend=-2) != 1)
                firsts, lengths = index[starts] * inner, np.diff(starts, append=len(index)) * inner
            else:
                firsts = (index[:, None] * inner + firsts).reshape(-1)
                lengths = np.tile(lengths, len(index))
        inner *= extent
        if inner == 0 or len(firsts) == 0:
            return 0
    return int(firsts[0]) if len(firsts) == 1 else Runs(firsts, lengths)
