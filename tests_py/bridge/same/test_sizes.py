"""Steps of large shapes are compared at smaller sizes if they are the same program there, and are right at both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from popsr.bridge import Sameness
from popsr.bridge._same._sizes import choices
from popsr.bridge.jax._sizes import shrunk as _shrunk

ROWS, TOKENS, WIDTH = 32, 64, 18
MESH = {"data": 4, "model": 2}
Factor = Callable[[Any], Any]
"""Numbers by which the values of a part [rows, tokens, width] are multiplied."""


def shape(*sizes: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


def prove(
    step: Any, args: Any, specs: Any, results: Any, like: Any = "one device", **options: Any
) -> Sameness:
    found = popsr.prove(
        step, *args, mesh=MESH, in_specs=specs, out_specs=results, check_vma=False, like=like, **options
    ).same
    assert found is not None
    return found


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is large."""
    monkeypatch.setattr(_shrunk, "_LARGE", 0)
    monkeypatch.setattr(_shrunk, "_OWN", 0)


# Sequences in parts: tokens are cut along "model", and a factor of positions is right or wrong


def sequence_step(factor: Factor) -> Any:
    def loss_of(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w) * factor(x))

    def step(w: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(w, x)
        return w - 0.1 * lax.pmean(gradient, ("data", "model")), lax.pmean(loss, ("data", "model"))

    return step


def sequence(factor: Factor, **options: Any) -> Sameness:
    args = shape(WIDTH, WIDTH), shape(ROWS, TOKENS, WIDTH)
    return prove(sequence_step(factor), args, (P(), P("data", "model")), (P(), P()), **options)


def inner(x: Any) -> Any:
    """Positions in a part."""
    return jnp.arange(x.shape[1])


def outer(x: Any) -> Any:
    """Positions in the whole."""
    return lax.axis_index("model") * x.shape[1] + inner(x)


def column(t: Any) -> Any:
    return t.astype(np.float32)[:, None]


def shifted(x: Any) -> Any:
    for _ in range(20):
        x = jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return x


RIGHT: dict[str, Factor] = {
    "nothing": lambda x: 1.0,
    "a part of the width": lambda x: 1 / np.sqrt(x.shape[2]),
    "positions": lambda x: jnp.cos(column(outer(x)) * 200.0 ** (-jnp.arange(x.shape[2]) / x.shape[2])),
    "a mask of positions": lambda x: column(2 * outer(x) >= lax.axis_size("model") * x.shape[1]),
    "halves": lambda x: jnp.concatenate([x[..., : x.shape[2] // 2], -x[..., x.shape[2] // 2 :]], -1),
    "an array of the program": lambda x: (
        np.triu(np.ones((x.shape[2], x.shape[2]), np.float32)).sum(0, keepdims=True) * 0 + 1
    ),
    "a mask of the program": lambda x: x @ np.tril(np.ones((x.shape[2], x.shape[2]), np.float32)),
}

WRONG: dict[str, Factor] = {
    "a mask by a part": lambda x: column(outer(x) >= x.shape[1]),
    "a window": lambda x: column(inner(x) < 20),
    "a window of floats": lambda x: column(inner(x).astype(np.float32) * (1 / 20) < 1),
    "a window by steps": lambda x: column(
        sum((inner(x) - 2 * n >= 0).astype(np.int32) for n in range(8, 12))
    ),
    "a window by small steps": lambda x: column(jnp.sign(steps(inner(x), 10))),
    "a remainder": lambda x: column(inner(x) % 20),
    "a quotient": lambda x: column(inner(x) // 20),
    "a quotient of floats": lambda x: jnp.floor(column(inner(x)) / 20),
    "a root": lambda x: column(jnp.sqrt(jnp.sqrt(jnp.sqrt(inner(x).astype(np.float32)))) < 1.45),
    "a count": lambda x: column(jnp.cumsum(jnp.ones(x.shape[1], np.int32)) <= 20),
    "a branch on a size": lambda x: 2.0 if x.shape[1] > 40 else 1.0,
    "a branch on a part": lambda x: 0.5 if x.shape[1] > 20 and lax.axis_size("model") > 1 else 1.0,
    "the least of a size": lambda x: 1 / min(x.shape[1], 40),
    "a rounded size": lambda x: x.shape[1] // 10,
    "an array of the program": lambda x: (np.arange(x.shape[1]) < 20).astype(np.float32)[:, None],
    "a table of the program": lambda x: np.maximum(np.arange(x.shape[1]) - 20.0, 0).astype(np.float32)[
        :, None
    ],
    "a slice": lambda x: x[:, :20].sum(),
    "the 20th": lambda x: x[:, 20 % x.shape[1]].sum(),
    "a loop": lambda x: lax.fori_loop(
        0, 20, lambda i, t: t + x[:, jnp.minimum(i, x.shape[1] - 1)].sum(), 0.0
    ),
    "a loop over a size": lambda x: lax.fori_loop(
        0, x.shape[1], lambda i, t: t + jnp.where(i >= 20, 1.0, 0.0), 0.0
    ),
    "elements that move": lambda x: shifted(x),
    "a logarithm of a size": lambda x: np.log2(x.shape[1]),
    "a size in a loop": lambda x: sum(1.0 for _ in range(x.shape[1])),
}


def steps(t: Any, count: int) -> Any:
    """Two less, but not below zero, so many times."""
    for _ in range(count):
        t = jnp.maximum(t - 2, 0)
    return t


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_step_is_the_same_at_smaller_sizes(name: str, shrunk: None) -> None:
    found = sequence(RIGHT[name])
    assert found.verdict == "same", found.problems
    assert {*found.sizes} == {ROWS, TOKENS, WIDTH}
    assert all(max(small) < large for large, small in found.sizes.items())


@pytest.mark.share(3)
@pytest.mark.parametrize("name", WRONG)
def test_a_step_that_is_wrong_at_its_own_sizes_alone_is_not_the_same(name: str, shrunk: None) -> None:
    assert sequence(WRONG[name]).verdict != "same"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_truth_at_own_sizes(name: str) -> None:
    is_right = name in RIGHT and name not in WRONG
    found = sequence((RIGHT if is_right else WRONG)[name])
    assert not found.sizes
    assert found.verdict in ({"same"} if is_right else {"differs", "unknown"}), found.problems


# Choices of sizes


@pytest.mark.share(2)
@pytest.mark.parametrize("count", [6, 17, pytest.param(40, marks=pytest.mark.slow)])
def test_smaller_sizes_are_independent(count: int) -> None:
    """Products of few sizes differ between the choices: sizes for which no such ratio is left keep their value."""
    cuts = {1000 * n + n * n % 7: 2 for n in range(1, count + 1)}
    found = list(choices(cuts, [2, 4], lambda sizes: sum(sizes.get(n, n) for n in cuts)))
    assert found
    for sizes in found:
        assert len(sizes.distinct.sizes) > 5
        one, other = sizes.small
        assert [*one] == [*other]
        for small in sizes.small:
            assert all(new < size for size, new in small.items())
            assert len({*small.values()}) == len(small)
        if len(one) == len(sizes.distinct.primes):
            ratios = [Fraction(one[size], other[size]) for size in one]
            pairs = itertools.combinations_with_replacement(range(len(ratios)), 2)
            products = [ratios[a] * ratios[b] for a, b in pairs]
            assert len({*products}) == len(products)


# Integers that are known by their shape


WORDS = 96
Loss = Callable[[Any, Any, Any], Any]


def words(loss: Loss, x: Any = None, **options: Any) -> Sameness:
    """A step of a table, whose columns are cut along "model", and of words and labels along "data"."""

    def step(table: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(table, x, y)
        return table - 0.1 * lax.pmean(gradient, "data"), lax.psum(lax.pmean(value, "data"), "model")

    integers = shape(ROWS, dtype=np.int32)
    args = shape(WORDS, WIDTH), integers if x is None else x, integers
    cut = P(None, "model")
    return prove(step, args, (cut, P("data"), P("data")), (cut, P()), **options)


def picked(table: Any, x: Any, y: Any) -> Any:
    here = (y[:, None] == jnp.arange(table.shape[0])) * 1.0
    return jnp.mean(jnp.sum(jnp.tanh(table[x]) * (here @ table), -1))


def computed(x: Any, table: Any) -> Any:
    return (x * 2) % table.shape[0]


def summed(table: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(table[x]).sum(-1))


def branched(table: Any, x: Any, y: Any) -> Any:
    """The last of three branches computes words; no run takes it."""
    found = lax.switch(jnp.max(y) & 1, [lambda: x - x, lambda: x - x, lambda: computed(x, table)])
    return picked(table, x, y) + summed(table, found)


def passed(table: Any, x: Any, y: Any) -> Any:
    """Words are computed in one pass, and are positions two passes later."""

    def body(carry: Any, _: Any) -> Any:
        words, before, total = carry
        return (computed(x, table), words, total + summed(table, before)), None

    (_, _, total), _ = lax.scan(body, (x - x, x - x, 0.0), None, length=4)
    return picked(table, x, y) + total


INTEGERS: dict[str, tuple[Loss, str]] = {
    "words": (picked, "same"),
    "labels that do not count": (lambda t, x, y: picked(t, x, jnp.where(y != -1, y, 0)), "same"),
    "a mean of labels that count": (
        lambda t, x, y: jnp.sum(t[x].sum(-1) * (t[y].sum(-1) * (y != -1))) / jnp.sum(y != -1),
        "differs",
    ),
    "labels of a number": (lambda t, x, y: picked(t, x, jnp.where(y != -100, y, 0)), "unknown"),
    "words that are computed": (lambda t, x, y: picked(t, (x * 2) % t.shape[0], y), "unknown"),
    "words below a number": (lambda t, x, y: picked(t, jnp.minimum(x, 20), y), "unknown"),
    "words that are computed in a branch": (branched, "unknown"),
    "words that are computed passes before": (passed, "unknown"),
    "no use": (lambda t, x, y: jnp.mean(t[x] * jnp.tanh(y * 1.0)[:, None]), "unknown"),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_drawn_where_it_is_known_what_they_are_positions_in(name: str, shrunk: None) -> None:
    loss, verdict = INTEGERS[name]
    found = words(loss)
    assert found.verdict == verdict, found.problems
    if verdict == "same":
        assert any("x is drawn from 0 to below" in note for note in found.notes)


def test_integers_that_are_given_keep_a_step_from_smaller_sizes(shrunk: None) -> None:
    found = words(picked, np.arange(ROWS, dtype=np.int32))
    assert found.verdict == "unknown"
    assert "integers of x are given as an array" in found.problems[0]


def test_a_reference_with_a_size_as_a_number_is_doubted(shrunk: None) -> None:
    def reference(scale: Factor) -> Any:
        def step(w: Any, x: Any) -> Any:
            loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w)) * scale(x))(w)
            return w - 0.1 * gradient, loss

        return step

    def of_tokens(x: Any) -> float:
        return 1 / (2 * x.shape[1])

    assert sequence(of_tokens, like=reference(lambda x: 1 / x.shape[1])).verdict == "same"
    found = sequence(of_tokens, like=reference(lambda x: 1 / TOKENS))
    assert found.verdict == "unknown"
    assert "may be a size" in found.problems[0]


def test_a_step_that_cannot_be_read_on_one_device_says_so(shrunk: None) -> None:
    found = sequence(lambda x: x.reshape(-1, TOKENS // 2, WIDTH).reshape(x.shape[0], TOKENS // 2, WIDTH))
    assert found.verdict == "unknown"
    assert "cannot be read on one device" in found.problems[0]


def test_a_step_of_many_floats_takes_no_memory() -> None:
    """Four terabytes of weights, of which no page is touched."""
    many = shape(1 << 20, 1 << 20)
    found = prove(
        sequence_step(lambda x: 1.0),
        (many, shape(ROWS, TOKENS, 1 << 20)),
        (P(), P("data", "model")),
        (P(), P()),
    )
    assert found.verdict == "same"
    assert {*found.sizes} == {1 << 20, ROWS, TOKENS}
    assert "at smaller sizes" in str(found)
