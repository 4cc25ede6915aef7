"""Windows that slide over dimensions: a slice for each place of the window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from popsr.bridge.jax.shape import strided
from popsr.tensor import Tensor

__all__ = ["window_slices"]


def window_slices(
    a: Tensor,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int] | None,
    shape: Sequence[int],
) -> Iterator[Tensor]:
    """For each place of the window, in ascending order, what it sees at all positions."""
    steps = [1] * len(window) if dilation is None else [int(step) for step in dilation]
    for place in itertools.product(*(range(int(extent)) for extent in window)):
        starts = [index * step for index, step in zip(place, steps, strict=True)]
        stops = [
            start + (extent - 1) * int(stride) + 1
            for start, extent, stride in zip(starts, shape, strides, strict=True)
        ]
        yield strided(a, starts, stops, [int(stride) for stride in strides])
