"""Exact meanings run on float64 in place of residues: what they compute can be compared with what the ops compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from popsr._support.fields import numbers
from popsr._support.fields._random import key_of

Array = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[float])


def _erf_inv(x: Array) -> Array:
    from statistics import NormalDist

    return np.vectorize(lambda v: NormalDist().inv_cdf((v + 1) / 2) / math.sqrt(2), otypes=[float])(x)


FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "exp": np.exp,
    "sqrt": np.sqrt,
    "log": np.log,
    "cbrt": np.cbrt,
    "sigmoid": lambda x: np.tanh(x / 2) / 2,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "erf_inv": _erf_inv,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round even": np.rint,
    "round away": lambda x: np.trunc(x + np.copysign(0.5, x)),
}


class FloatChain:
    """The arithmetic of a chain of fields with one row of floats."""

    def __init__(self) -> None:
        self._functions = {key_of(name): function for name, function in FUNCTIONS.items()}

    def add(self, _: int, a: Array, b: Array) -> Array:
        return a + b

    def sub(self, _: int, a: Array, b: Array) -> Array:
        return a - b

    def mul(self, _: int, a: Array, b: Array) -> Array:
        return a * b

    def negate(self, _: int, a: Array) -> Array:
        return -a

    def inverse(self, _: int, a: Array) -> Array:
        return np.where(a == 0, 0.0, 1 / np.where(a == 0, 1, a))

    def power(self, _: int, a: Array, exponents: Array) -> Array:
        return np.where(
            (a == 0) & (exponents < 0), 0.0, np.where(a == 0, 1e-300, a) ** exponents.astype(float)
        ) * np.where((a == 0) & (exponents > 0), 0.0, 1.0)

    def random(self, _: int, key: int, parity: int, a: Array) -> Array:
        del parity
        return np.asarray(self._functions[key](a)) if key in self._functions else np.full_like(a, np.nan)

    def sum(self, _: int, a: Array) -> Array:
        return a.sum(-1)

    def matmul(self, _: int, a: Array, b: Array) -> Array:
        return a @ b

    def scatter_add(self, _: int, to: Array, places: Array, a: Array) -> Array:
        out = to.copy()
        inside = (places >= 0) & (places < to.shape[1])
        rows = np.arange(len(out))[:, None]
        np.add.at(out, (rows, places[inside]), a[:, inside])
        return out

    def order_keys(self, _: int, key: int, a: Array) -> Array:
        del key
        return a

    def small_fractions(self, _: int, a: Array) -> Array:
        """Numerators and denominators of multiples of 2 ** -20."""
        scaled = np.nan_to_num(a) * 2.0**20
        known = (scaled == np.rint(scaled)) & (np.abs(scaled) < 2**52)
        return np.stack([np.where(known, scaled, 0), np.where(known, 2.0**20, 0)]).astype(np.int64)


def _lifted(values: Array, primes: tuple[int, ...]) -> Array:
    del primes
    return values.astype(np.float64)[None]


@contextmanager
def float_numbers() -> Iterator[None]:
    """Numbers are float64 inside."""
    with (
        mock.patch.object(numbers, "CHAIN", FloatChain()),
        mock.patch.object(numbers, "lifted", _lifted),
        mock.patch.object(numbers, "_ZERO", 0.0),
        np.errstate(all="ignore"),
    ):
        numbers.constant.cache_clear()
        try:
            yield
        finally:
            numbers.constant.cache_clear()


def values_of(number: Any) -> Array:
    """Return numbers or arrays as floats."""
    if not isinstance(number, numbers.Numbers):
        return np.asarray(number)
    values = np.asarray(number.residues[0], np.float64)
    return values if number.huge is None else np.where(number.huge == 0, values, number.huge)
