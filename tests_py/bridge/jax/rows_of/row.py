"""One row: a small function that has a primitive, and what to call it with; values that rows draw."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["EDGES", "Row", "device_grid", "flags", "floats", "ints", "words"]

_RNG = np.random.default_rng(20)


@dataclass(frozen=True)
class Row:
    """A function that has a primitive.

    Attributes:
        primitive: its name.
        function: the function.
        args: its arguments.
        sizes: the mesh, for collectives.
        specs: of arguments and of results.
        tolerance: 0: the same bits.
    """

    primitive: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    sizes: Mapping[str, int] | None = None
    specs: Any = None
    tolerance: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


def floats(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32) -> Any:
    return _RNG.uniform(low, high, shape).astype(dtype)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int32) -> Any:
    return _RNG.integers(low, high, shape).astype(dtype)


def words(*shape: int) -> Any:
    return _RNG.integers(0, 2**32, shape, dtype=np.uint32)


def flags(*shape: int) -> Any:
    return _RNG.integers(0, 2, shape).astype(bool)


EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 0.5, -2.5], np.float32)


@functools.cache
def device_grid() -> Any:
    """The mesh, made before a step is traced."""
    from tests_py.bridge.jax.compare import devices

    return devices({"data": 2, "model": 2})
