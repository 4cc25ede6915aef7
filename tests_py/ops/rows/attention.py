"""Rows of the table of ops for attention; the oracle has all scores at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Row, normal
from tests_py.support.helpers import FLOATS, Array


def _weights(q: Array, k: Array, mask: tuple[Array, ...], is_causal: bool, scale: float | None) -> Array:
    scores = q * q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale) @ np.swapaxes(k, -1, -2)
    for each in mask:
        scores = scores + (np.where(each, 0, -np.inf) if each.dtype == bool else each)
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = e / e.sum(-1, keepdims=True)
    return np.asarray(np.where((scores == -np.inf).all(-1, keepdims=True), 0, weights))


def attention(
    q: Array, k: Array, v: Array, *mask: Array, is_causal: bool = False, scale: float | None = None
) -> Array:
    """By its formula."""
    return _weights(q, k, mask, is_causal, scale) @ v


def _bound(*given: Array, u: Any, is_causal: bool = False, scale: float | None = None) -> Array:
    """Each score is off by a chain of products; each weight by what its score, its row's sum and exp are."""
    q, k, v, *mask = given
    size, keys = q.shape[-1], k.shape[-2]
    factor = size**-0.5 if scale is None else abs(scale)
    score = np.max(np.abs(q) @ np.swapaxes(np.abs(k), -1, -2), initial=0) * factor
    added = sum((np.max(np.abs(each), initial=0, where=np.isfinite(each)) for each in mask), 0.0)
    off = 2 * (2 * (score * (size + 3) + 2 * added) + 2 * score + 8) + keys / 16 + keys
    weights = _weights(q, k, tuple(mask), is_causal, scale)
    return u * off * (weights @ np.abs(v)) + np.finfo(np.float32).tiny


def _bools(*shapes: tuple[int, ...]) -> Draw:
    """As ``normal``, with a mask of bools whose second query sees nothing."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        *operands, mask = normal(*shapes)(rng, name)
        seen = np.asarray(mask > -0.5)
        seen[..., 1, :] = False
        return [*operands, seen]

    return draw


def _infinities(*shapes: tuple[int, ...]) -> Draw:
    """The same as numbers that are added."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        *operands, seen = _bools(*shapes)(rng, name)
        return [*operands, np.where(seen, 0, -np.inf).astype(operands[0].dtype)]

    return draw


# Shapes of queries, keys, values and perhaps a mask; attributes.
_CASES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "": (((3, 4), (5, 4), (5, 2)), {}),
    "heads": (((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5)), {}),
    "causal": (((2, 7, 4), (2, 7, 4), (2, 7, 3)), {"is_causal": True}),
    "causal-fewer-keys": (((9, 4), (5, 4), (5, 3)), {"is_causal": True}),
    "causal-more-keys": (((4, 3), (9, 3), (9, 2)), {"is_causal": True}),
    "scale": (((3, 4), (5, 4), (5, 2)), {"scale": 0.7}),
    "mask": (((2, 3, 4), (2, 5, 4), (2, 5, 2), (3, 5)), {}),
    "mask-of-heads": (((2, 3, 4, 2), (2, 3, 5, 2), (2, 3, 5, 2), (3, 1, 5)), {"scale": 0.5}),
    "mask-of-queries": (((2, 3, 4), (2, 5, 4), (2, 5, 2), (2, 3, 1)), {}),
}
_TILES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "tiles": (((2, 130, 24), (2, 200, 24), (2, 200, 40)), {}),
    "causal-tiles": (((3, 200, 16), (3, 200, 16), (3, 200, 16)), {"is_causal": True}),
    "mask-tiles": (((2, 70, 8), (2, 90, 8), (2, 90, 8), (1, 70, 90)), {"is_causal": True}),
    "one-query": (((4, 1, 32), (4, 300, 32), (4, 300, 32)), {}),
    "no-queries": (((2, 0, 4), (2, 5, 4), (2, 5, 3)), {}),
    "no-keys": (((2, 3, 4), (2, 0, 4), (2, 0, 3)), {}),
}


def _cases() -> Iterator[Case]:
    for label, (shapes, attrs) in _CASES.items():
        yield Case(normal(*shapes), attention, attrs, label, FLOATS, bound=_bound, smooth=True)
    for label, (shapes, attrs) in _TILES.items():
        yield Case(normal(*shapes), attention, attrs, label, FLOATS, bound=_bound)
    hidden = (2, 3, 4), (2, 5, 4), (2, 5, 2), (3, 5)
    yield Case(_bools(*hidden), attention, {}, "bools", FLOATS, bound=_bound, smooth=True)
    yield Case(
        _bools(*hidden), attention, {"is_causal": True}, "causal-bools", FLOATS, bound=_bound, smooth=True
    )
    yield Case(_infinities(*hidden), attention, {}, "infinities", FLOATS, bound=_bound)


def attention_rows() -> dict[str, Row]:
    """Rows by op."""
    return {"attention": Row(tuple(_cases()), "finite", defaults={"scale": None})}
