"""Rows of primitives that take floats for their bits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tests_py.bridge.jax.rows_of.row import Row

__all__ = ["bit_rows"]

_RNG = np.random.default_rng(21)
_AS_WORDS = (np.uint8, np.int16, np.uint32, np.float32)


def _edges() -> dict[str, Any]:
    """Floats of each width: zeros, subnormals, infinities, the largest, and random bits without NaN."""
    import ml_dtypes

    found = {}
    for name, word in (("float16", np.uint16), ("bfloat16", np.uint16), ("float32", np.uint32)):
        limits = ml_dtypes.finfo(name)
        drawn = _RNG.integers(0, 1 << 16, (20, 4), np.uint16).view(word).reshape(-1).view(name)
        kept = drawn[np.isfinite(drawn.astype(np.float32))]
        named = [
            0.0,
            -0.0,
            1,
            -1,
            0.5,
            3,
            -2.5,
            np.inf,
            -np.inf,
            limits.max,
            limits.min,
            limits.smallest_normal,
        ]
        tiny = np.array([1, 2, 5], word).view(name)
        found[name] = np.concatenate([np.array(named).astype(name), tiny, -tiny, kept])
    return found


def bit_rows() -> list[Row]:
    """Bitcasts of equal and other widths, the next float, floats of fewer bits."""
    from jax import lax

    edges = _edges()
    u = _RNG.integers(0, 2**32, (3, 4), np.uint32)
    return [
        *(
            Row("bitcast_convert_type", functools.partial(lax.bitcast_convert_type, new_dtype=to), (x,))
            for x in (*edges.values(), u, u.astype(np.uint8).reshape(-1, 4))
            for to in _AS_WORDS
            if np.dtype(to).itemsize <= x.dtype.itemsize
            or np.dtype(to).itemsize == x.dtype.itemsize * x.shape[-1]
        ),
        *(
            Row("nextafter", lax.nextafter, (x, np.full_like(x, to)))
            for x in edges.values()
            for to in (1.5, -np.inf, np.nan)  # not a subnormal: XLA takes two of them for equal
        ),
        *(
            Row(
                "reduce_precision",
                functools.partial(lax.reduce_precision, exponent_bits=e, mantissa_bits=m),
                (x,),
            )
            for x in edges.values()
            for e, m in ((5, 10), (4, 3), (3, 9), (6, 12), (2, 1), (8, 30))
        ),
    ]
