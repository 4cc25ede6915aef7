"""Random ops that draw the same numbers: those for which torch's generator is in the same state.

Activation checkpoints rely on it: they compute dropout a second time, and put the generator back before.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

from popsr.bridge.torch._notes import note_of, noted

__all__ = ["Draws", "draw_of", "kept_generator"]

_KEY = "popsr_draw"


class Draws:
    """Notes with each random op of a trace the state of torch's generator, which fake tensors leave as it is."""

    def __init__(self) -> None:
        """Before the first op."""
        self._count = 0

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside, nodes are of one random op; the generator goes on as if it had drawn."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            state = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
            torch.rand(1)
        self._count += 1
        with noted(_KEY, (state, self._count)):
            yield


def draw_of(node: Any) -> tuple[str, int] | None:
    """State of the generator, and number of the op that a node comes from; None if no trace noted it."""
    found: tuple[str, int] | None = note_of(node, _KEY)
    return found


@contextlib.contextmanager
def kept_generator() -> Iterator[None]:
    """Leave torch's generator as it is."""
    import torch

    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
