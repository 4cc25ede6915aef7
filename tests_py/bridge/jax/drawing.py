"""Drawing values for the moves of random steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

__all__ = ["ARGUMENTS", "AXES", "COLUMNS", "ROWS", "Move", "exact", "pick", "tamed"]

ROWS, COLUMNS = 4, 4
ARGUMENTS = 4
AXES: list[Any] = ["a", "b", ("a", "b"), ("b", "a")]
Move = Callable[[np.random.Generator, list[Any]], Any]


def tamed(x: Any) -> Any:
    """Numbers that stay small; integers wrap."""
    return x % 23 if x.dtype == jnp.int32 else jnp.tanh(x)


def pick(rng: np.random.Generator, pool: list[Any], dtype: Any = None) -> Any:
    fitting = [x for x in pool if dtype is None or x.dtype == dtype]
    return fitting[rng.integers(len(fitting))]


def exact(pool: list[Any]) -> list[Any]:
    """Values without rounding errors, for what jumps: the arguments, and all integers."""
    return [x for number, x in enumerate(pool) if number < ARGUMENTS or x.dtype == jnp.int32]
