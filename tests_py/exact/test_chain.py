"""Arithmetic of residues against Python's integers."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from popsr._support.fields._chain import CHAIN, PRIMES, TOP, _root

FIELDS = range(len(PRIMES))


def is_prime(n: int) -> bool:
    """Miller and Rabin's test, with bases that decide all 64-bit numbers."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1

    def passes(base: int) -> bool:
        x = pow(base, odd, n)
        return x in (1, n - 1) or any((x := x * x % n) == n - 1 for _ in range(twos - 1))

    return all(passes(base) for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37))


def test_chain_of_primes() -> None:
    assert all(map(is_prime, PRIMES))
    assert all((q - 1) % p == 0 for p, q in itertools.pairwise(PRIMES))
    assert PRIMES[0] > 1 << 36
    assert PRIMES[-1] < 1 << 60
    assert PRIMES[-1] % 8 == 7, "-1 is not a square, so that signs are odd; 2 is one"


def residues(field: int, count: int, rng: random.Random) -> list[int]:
    p = PRIMES[field]
    return [0, 1, p - 1, *(rng.randrange(p) for _ in range(count - 3))]


def row(values: list[int], *shape: int) -> Any:
    return np.array(values, np.uint64).reshape(1, *(shape or (len(values),)))


@pytest.mark.parametrize("field", FIELDS)
def test_arithmetic(field: int) -> None:
    rng, p = random.Random(field), PRIMES[field]
    a, b = residues(field, 40, rng), residues(field, 40, rng)[::-1]
    x, y = row(a), row(b)
    assert CHAIN.add(field, x, y)[0].tolist() == [(u + v) % p for u, v in zip(a, b, strict=True)]
    assert CHAIN.sub(field, x, y)[0].tolist() == [(u - v) % p for u, v in zip(a, b, strict=True)]
    assert CHAIN.mul(field, x, y)[0].tolist() == [u * v % p for u, v in zip(a, b, strict=True)]
    assert CHAIN.negate(field, x)[0].tolist() == [-u % p for u in a]
    assert CHAIN.inverse(field, x)[0].tolist() == [pow(u, -1, p) if u else 0 for u in a]
    exponents = [0, 1, -1, 5, -7, *(rng.randrange(-99, 99) for _ in range(35))]
    expected = [pow(u, e, p) if u or e >= 0 else 0 for u, e in zip(a, exponents, strict=True)]
    assert CHAIN.power(field, x, np.array(exponents))[0].tolist() == expected
    assert CHAIN.sum(field, row(a, 4, 10))[0].tolist() == [sum(a[i : i + 10]) % p for i in range(0, 40, 10)]


@pytest.mark.parametrize("field", FIELDS[:-1])
def test_exp_leads_to_the_next_field(field: int) -> None:
    rng, q = random.Random(field), PRIMES[field + 1]
    root = _root(PRIMES[field], q)
    assert root != 1
    assert pow(root, PRIMES[field], q) == 1
    a = residues(field, 20, rng)
    assert CHAIN.exp(field, row(a))[0].tolist() == [pow(root, u, q) for u in a]


# Batch, rows, sums and columns: whole tiles and parts, single rows and columns, sums that are longer than words hold.
SHAPES = [
    (2, 3, 40, 5),
    (1, 9, 8, 9),
    (1, 4, 300, 8),
    (3, 7, 129, 17),
    (1, 1, 33, 1),
    (1, 40, 9, 1),
    (2, 2, 9, 30),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("field", [0, 6, TOP])
@pytest.mark.parametrize("largest", [False, True])
def test_products_of_matrices(field: int, shape: tuple[int, ...], largest: bool) -> None:
    rng, p = random.Random(field), PRIMES[field]
    count, m, k, n = shape
    a, b = residues(field, count * m * k, rng), residues(field, count * k * n, rng)
    if largest:
        a, b = [p - 1] * len(a), [p - 1] * len(b)
    found = CHAIN.matmul(field, row(a, count, m, k), row(b, count, k, n))[0]
    left, right = np.array(a, object).reshape(count, m, k), np.array(b, object).reshape(count, k, n)
    assert found.tolist() == [(left[i] @ right[i] % p).tolist() for i in range(count)]


def test_operands_in_any_layout() -> None:
    """Transposed, repeated and cut arrays, and those with fewer axes, are as their copies."""
    rng = random.Random(2)
    whole = np.array(residues(0, 2 * 12 * 12, rng) + residues(0, 2 * 12 * 12, rng), np.uint64).reshape(
        2, 2, 12, 12
    )
    layouts = (
        whole,
        whole.transpose(0, 1, 3, 2),
        whole.transpose(0, 2, 1, 3)[:, ::6],
        np.broadcast_to(whole[:, :1, :1], whole.shape),
        whole[:, ::-1, :, ::-1],
    )
    for a, b in itertools.product(layouts, layouts):
        left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
        if a.shape[-1] == b.shape[-2]:
            assert (CHAIN.matmul(0, a, b) == CHAIN.matmul(0, left, right)).all()
        for name in ("add", "sub", "mul") if a.shape == b.shape else ():
            assert (getattr(CHAIN, name)(0, a, b) == getattr(CHAIN, name)(0, left, right)).all()
    for narrow in (whole[:, 0, 0], whole[:, 0, :, :1], whole[:, 0, 0, 0], whole[:, :1]):
        wide = np.broadcast_to(narrow.reshape(2, *[1] * (4 - narrow.ndim), *narrow.shape[1:]), whole.shape)
        for name in ("add", "sub", "mul"):
            function = getattr(CHAIN, name)
            assert (function(0, whole, narrow) == function(0, whole, np.ascontiguousarray(wide))).all()
            assert (function(0, narrow, whole) == function(0, np.ascontiguousarray(wide), whole)).all()


@pytest.mark.parametrize("field", [0, TOP])
def test_scattered_sums(field: int) -> None:
    rng, p = random.Random(field), PRIMES[field]
    places = np.array([0, 3, 0, -1, 4, 3])
    to, values = residues(field, 8, rng), residues(field, 12, rng)
    expected = np.array(to, object).reshape(4, 2)
    for place, value in zip(places, np.array(values, object).reshape(6, 2), strict=True):
        if 0 <= place < 4:
            expected[place] = (expected[place] + value) % p
    assert CHAIN.scatter_add(field, row(to, 4, 2), places, row(values, 6, 2))[0].tolist() == expected.tolist()


def test_random_functions() -> None:
    rng, p = random.Random(1), PRIMES[TOP]
    a = row(residues(TOP, 200, rng))
    minus = CHAIN.negate(TOP, a)
    plain, other = CHAIN.random(TOP, 1, 0, a), CHAIN.random(TOP, 2, 0, a)
    assert (plain != other).all()
    assert (plain < p).all()
    assert len(np.unique(plain)) == a.size
    assert (CHAIN.random(TOP, 1, 1, a) == CHAIN.random(TOP, 1, 1, minus)).all()
    assert (CHAIN.random(TOP, 1, 2, a) == CHAIN.negate(TOP, CHAIN.random(TOP, 1, 2, minus))).all()
    assert CHAIN.random(TOP, 1, 2, a)[0, 0] == 0, "an odd function is 0 at 0"


def test_order_is_that_of_small_fractions_and_odd() -> None:
    fractions = [Fraction(n, d) for n in (-70001, -3, -1, 0, 1, 2, 5, 100000) for d in (1, 2, 3, 7, 4096)]
    p = PRIMES[TOP]
    codes = np.array([f.numerator * pow(f.denominator, -1, p) % p for f in fractions], np.uint64)
    assert CHAIN.order_keys(TOP, 1, codes).tolist() == [float(f) for f in fractions]
    numerators, denominators = CHAIN.small_fractions(TOP, codes)
    assert [Fraction(int(n), int(d)) for n, d in zip(numerators, denominators, strict=True)] == fractions
    drawn = np.array(residues(TOP, 400, random.Random(3)), np.uint64)
    keys, minus = CHAIN.order_keys(TOP, 1, drawn), CHAIN.order_keys(TOP, 1, CHAIN.negate(TOP, drawn[None])[0])
    assert (keys == -minus).all()
    assert 100 < (keys > 0).sum() < 300
    squares = CHAIN.mul(TOP, drawn[None], drawn[None])[0]
    assert (CHAIN.order_keys(TOP, 1, squares) >= 0).all(), "squares are not below 0"
