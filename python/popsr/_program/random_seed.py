"""Seeds on the host: what programs are fed to draw with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from popsr._support.host.arguments import read_int, require_memory
from popsr._support.text.entry_points import public, public_call
from popsr.errors import AttributeValueError

__all__ = ["MAX_UINT64", "create_seeds", "two_uint32_to_uint64", "uint64_to_two_uint32"]

MAX_UINT64 = 2**64 - 1
_MAX_SEED = 2**1024
_BYTES_A_SEED = 48  # while they are made


@public_call
def create_seeds(
    seed: int,
    offset: int = 0,
    batches_per_step: int = 1,
    gradient_accumulation_factor: int = 1,
    replicas: int = 1,
) -> np.ndarray[Any, Any]:
    """Seeds for every use of a step, from one number: draws of ``numpy.random.default_rng(seed + offset)``.

    Args:
        seed: the number.
        offset: added to it, such as the number of the step.
        batches_per_step: extent of the first dimension.
        gradient_accumulation_factor: extent of the second.
        replicas: extent of the third.
    Returns:
        uint32 array ``[batches_per_step, gradient_accumulation_factor, replicas, 2]`` without dimensions of extent
        1: each draw as its high and low word.
    Raises:
        ArgumentTypeError: not an int.
        AttributeValueError: ``seed + offset`` is negative, or an extent less than 1.
    """
    where = "create_seeds"
    total = sum(
        read_int(f"{where}: {name}", value, -MAX_UINT64, _MAX_SEED)
        for name, value in (("seed", seed), ("offset", offset))
    )
    if total < 0:
        raise AttributeValueError(f"{where}: seed + offset is out of range, got {total}, expected 0 or more")
    extents = (
        read_int(f"{where}: batches_per_step", batches_per_step, 1),
        read_int(f"{where}: gradient_accumulation_factor", gradient_accumulation_factor, 1),
        read_int(f"{where}: replicas", replicas, 1),
    )
    require_memory(where, math.prod(extents) * _BYTES_A_SEED)
    draws = np.random.default_rng(total).integers(0, MAX_UINT64, extents, np.uint64, endpoint=True)
    words = np.stack([draws >> np.uint64(32), draws & np.uint64(0xFFFFFFFF)], axis=-1)
    return words.astype(np.uint32).squeeze()


@public
def uint64_to_two_uint32(num: int) -> tuple[int, int]:
    """The high and the low 32 bits.

    Args:
        num: 0 to 2**64 - 1.
    Returns:
        Both words.
    Raises:
        ArgumentTypeError: not an int.
        AttributeValueError: out of range.
    """
    number = read_int("uint64_to_two_uint32: num", num, 0, MAX_UINT64)
    return number >> 32, number & 0xFFFFFFFF


@public
def two_uint32_to_uint64(a: int, b: int) -> int:
    """``a * 2**32 + b``: what ``uint64_to_two_uint32`` takes apart.

    Args:
        a: the high word, 0 to 2**32 - 1.
        b: the low word, likewise.
    Returns:
        The number.
    Raises:
        ArgumentTypeError: not an int.
        AttributeValueError: out of range.
    """
    high, low = (
        read_int(f"two_uint32_to_uint64: {name}", word, 0, 2**32 - 1) for name, word in (("a", a), ("b", b))
    )
    return high << 32 | low
