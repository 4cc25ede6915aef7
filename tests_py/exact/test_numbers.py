"""Exact numbers: laws, moves, numbers of floats, infinities."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from popsr._support.fields import Numbers, same, select
from popsr._support.fields._chain import TOP
from popsr._support.fields._lift import fraction_of

X, Y, Z = (Numbers.draw((3, 4), name, 0) for name in "xyz")
ONE = X.constant(1)

EQUAL: dict[str, tuple[Callable[[], Numbers], Callable[[], Numbers]]] = {
    "sums in any order": (lambda: (X + Y) + Z, lambda: X + (Z + Y)),
    "products in any order": (lambda: (X * Y) * Z, lambda: X * (Z * Y)),
    "distribution": (lambda: X * (Y - Z), lambda: X * Y - X * Z),
    "quotients": (lambda: X / Y * Y, lambda: X),
    "powers": (lambda: X.power(np.array(3)), lambda: X * X * X),
    "inverse powers": (lambda: X.power(np.array(-2)), lambda: ONE / (X * X)),
    "exp of a sum": (lambda: (X + Y).exp(), lambda: X.exp() * Y.exp()),
    "exp of 0": (lambda: (X - X).exp(), lambda: ONE),
    "exp of exp": (lambda: (X.exp() + Y).exp(), lambda: X.exp().exp() * Y.exp()),
    "sums over axes": (lambda: X.sum([0, 1]), lambda: X.sum([1]).sum([0])),
    "matrices": (
        lambda: (X + Y).reshape((1, 3, 4)).matmul(Z.reshape((1, 4, 3))),
        lambda: (
            X.reshape((1, 3, 4)).matmul(Z.reshape((1, 4, 3)))
            + Y.reshape((1, 3, 4)).matmul(Z.reshape((1, 4, 3)))
        ),
    ),
    "odd functions": (lambda: (-X).random("f", "odd"), lambda: -X.random("f", "odd")),
    "even functions": (lambda: (-X).random("f", "even"), lambda: X.random("f", "even")),
    "functions of equal numbers": (
        lambda: (X.exp() * (-X).exp() + Y).random("f"),
        lambda: (ONE + Y).random("f"),
    ),
}
UNEQUAL: dict[str, tuple[Callable[[], Numbers], Callable[[], Numbers]]] = {
    "exp of a product": (lambda: (X * Y).exp(), lambda: X.exp() * Y.exp()),
    "exp of a sum as a sum": (lambda: (X + Y).exp(), lambda: X.exp() + Y.exp()),
    "functions of sums": (lambda: (X + Y).random("f"), lambda: X.random("f") + Y.random("f")),
    "another function": (lambda: X.random("f"), lambda: X.random("g")),
    "quotients": (lambda: X / Y, lambda: Y / X),
    "another draw": (lambda: X, lambda: Numbers.draw((3, 4), "x", 1)),
    "half": (lambda: X * X.constant(0.5), lambda: X),
}


@pytest.mark.parametrize("law", EQUAL)
def test_equal_functions_are_equal(law: str) -> None:
    a, b = (side() for side in EQUAL[law])
    assert same(a, b).all()


@pytest.mark.parametrize("law", UNEQUAL)
def test_unequal_functions_differ_everywhere(law: str) -> None:
    a, b = (side() for side in UNEQUAL[law])
    assert not same(a, b).any()


def test_fields_of_draws_do_not_depend_on_how_many_there_are() -> None:
    assert (Numbers.draw((2,), "x", 0, 3).residues == Numbers.draw((2,), "x", 0).residues[3:]).all()


def test_exp_beyond_the_last_field_is_a_function() -> None:
    x = Numbers.draw((4,), "x", 0, TOP)
    assert same(x.exp(), x.exp()).all()
    assert not same((x + x).exp(), x.exp() * x.exp()).any()


def test_moves_are_those_of_numpy() -> None:
    def positions(number: Numbers) -> list[int]:
        codes = {code: i for i, code in enumerate(X.residues[-1].reshape(-1).tolist())}
        return [codes[code] for code in number.residues[-1].reshape(-1).tolist()]

    grid = np.arange(12).reshape(3, 4)
    assert positions(X.transpose([1, 0])) == grid.T.reshape(-1).tolist()
    assert positions(X.reshape((2, 6))[1, ::2]) == grid.reshape(2, 6)[1, ::2].tolist()
    assert (
        positions(X[:, None].broadcast_to((3, 2, 4)))
        == np.broadcast_to(grid[:, None], (3, 2, 4)).reshape(-1).tolist()
    )
    assert positions(X.moved(lambda a: np.roll(a, 1, 0))) == np.roll(grid, 1, 0).reshape(-1).tolist()
    assert positions(Numbers.concat([X, X[1:]])) == np.concatenate([grid, grid[1:]]).reshape(-1).tolist()


def test_order() -> None:
    x = Numbers.draw((2000,), "x", 0)
    zero = x.constant(0)
    above = x.above(zero, 0)
    assert 800 < above.sum() < 1200
    assert ((-x).above(zero, 0) == ~above).all()
    assert (above != x.above(zero, 1)).sum() == 0, "signs are those of squares"
    y = Numbers.draw((2000,), "y", 0)
    assert (x.above(y, 0) != x.above(y, 1)).any(), "another draw, another order"
    assert (x.above(y, 0) == ~y.above(x, 0)).all()
    assert x.exp().above(zero, 0).all()
    numbers = Numbers.of(np.array([3.0, -2.0, 0.5, 0.5, 1 / 3]), 0)
    assert numbers.ranks(0).tolist() == [3, 0, 2, 2, 1]


@pytest.mark.parametrize(
    ("value", "dtype", "meant"),
    [
        (0.1, "float32", Fraction(1, 10)),
        (0.1, "float64", Fraction(1, 10)),
        (1 / 3, "float32", Fraction(1, 3)),
        (1 / 3, "float64", Fraction(1, 3)),
        (1 / 768, "float32", Fraction(1, 768)),
        (1e-5, "float32", Fraction(1, 100000)),
        (0.044715, "float64", Fraction(44715, 1000000)),
        (-2.5, "float16", Fraction(-5, 2)),
        (2.0**-30, "float32", Fraction(1, 2**30)),
    ],
)
def test_floats_are_what_they_are_meant_to_be(value: float, dtype: str, meant: Fraction) -> None:
    given = np.dtype(dtype).type(value)
    assert fraction_of(float(given), str(given), dtype) == meant


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_no_two_floats_are_meant_to_be_one_number(dtype: str) -> None:
    start = np.array([0.1, 1 / 3, 1.0, 0.5, 768.0], dtype)
    near = [start]
    for _ in range(20):
        near.append(np.nextafter(near[-1], np.dtype(dtype).type(2)))
    floats = np.unique(np.concatenate(near))
    assert len({fraction_of(float(x), str(x), dtype) for x in floats}) == len(floats)


def test_infinities() -> None:
    low = Numbers.of(np.array([-np.inf, -1e30, np.inf, np.nan, 2.0], np.float32), 0)
    assert low.exp().is_zero().tolist() == [True, True, False, False, False]
    assert (low + ONE).is_undefined().tolist() == [False, False, False, True, False]
    assert same(low, low).tolist() == [True, True, True, False, True]
    assert (low * low.constant(0)).is_undefined().tolist() == [True, False, True, True, False]
    assert (low - low).is_undefined().tolist() == [True, False, True, True, False]
    assert (low[:2] * X[0, :2]).is_undefined().all(), "of what sign it is nobody knows"
    assert (low.constant(1) / low.constant(0)).is_undefined().all()
    some = select(np.array([True, False]), X[0, :2], low[:2])
    assert some.sum([0]).huge is not None
    assert X.above(low[0], 0).all()
    assert not X.above(low[2], 0).any()
