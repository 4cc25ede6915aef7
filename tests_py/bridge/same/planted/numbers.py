"""Random arrays of steps, by seed."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["draw", "integers"]


def draw(seed: int, **shapes: tuple[int, ...]) -> dict[str, Any]:
    """Random arrays by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) * 0.5 for name, shape in shapes.items()}


def integers(seed: int, below: int, *shape: int) -> Any:
    """Random integers from 0."""
    return np.random.default_rng(seed).integers(0, below, shape).astype(np.int32)
