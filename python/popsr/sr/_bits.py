"""The random numbers themselves."""

from __future__ import annotations

import numpy as np

from popsr import _core
from popsr._support.host.arguments import read_int
from popsr._support.text.entry_points import public
from popsr.sr._call import REQUIRED, Key, read_key

__all__ = ["uniform_bits"]


@public
def uniform_bits(
    key: Key = REQUIRED, n: int = REQUIRED, offset: int = 0
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The numbers U of elements ``offset`` to ``offset + n - 1`` of any operation under ``key``.

    Args:
        key: a key.
        n: how many.
        offset: the first.
    Returns:
        uint64 ``[n]``. Element i of a result goes away from zero iff ``U[i] / 2**64`` is below the chance of that.
    Raises:
        TypeError: ``key`` is not a key.
        ValueError: ``n`` or ``offset`` is negative, or too large.
    Source:
        ARS-7 of Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
    Example:
        >>> sr.uniform_bits(sr.Key(0), 2)
        array([16121744390866430816,  4238788238038044149], dtype=uint64)
    """
    key = read_key("uniform_bits", key)
    n = read_int("uniform_bits: n", n, 0)
    return _core.sr.uniform_bits(key, n, read_int("uniform_bits: offset", offset, 0, 2**64 - n))
