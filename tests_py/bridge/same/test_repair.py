"""The single change with which a step trains as one device does: it is made on the traced program before it is said."""

from __future__ import annotations

from collections.abc import Callable
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

W = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
X = np.arange(32, dtype=np.float32).reshape(8, 4) / 8
DATA: dict[str, Any] = {
    "mesh": {"data": 4},
    "in_specs": (P(), P("data")),
    "out_specs": P(),
    "check_vma": False,
}
Reduce = Callable[[Any], Any]


def beside(step: Any, *args: Any, **options: Any) -> Sameness:
    proof = popsr.prove(step, *args, like="one device", **options)
    assert proof.same is not None
    return proof.same


def mean(t: Any) -> Any:
    return lax.pmean(t, "data")


def total(t: Any) -> Any:
    return lax.psum(t, "data")


def half(t: Any) -> Any:
    return t / (lax.psum(1, "data") / 2)


def sgd(reduce: Reduce, loss: Reduce) -> Any:
    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(lambda w: loss((x @ w) ** 2))(w)
        g = reduce(g)
        return w - 0.1 * g, lax.pmean(value, "data")

    return step


def at(text: str) -> str:
    """The place of a line in this file."""
    with open(__file__) as lines:
        (number,) = (n for n, line in enumerate(lines, 1) if line.strip() == text)
    return f"test_repair.py:{number}"


SUM, HALF = 'return lax.psum(t, "data")', 'return t / (lax.psum(1, "data") / 2)'
REPAIRS = {
    "sum of means": (sgd(total, jnp.mean), SUM, "a mean for the sum over data at {}"),
    "summed twice": (sgd(lambda t: total(mean(t)), jnp.mean), SUM, "no sum over data at {}"),
    "mean twice": (sgd(lambda t: half(mean(t)), jnp.mean), HALF, "0.5 for 2 at {}, as on one device"),
    "rows of a replica": (
        sgd(total, lambda t: t.sum() / t.shape[0]),
        SUM,
        "a mean for the sum over data at {}",
    ),
}


@pytest.mark.parametrize("name", REPAIRS)
def test_the_change_is_said(name: str) -> None:
    step, line, text = REPAIRS[name]
    same = beside(step, W, X, **DATA)
    assert same.repair is not None
    assert same.place is not None
    assert (same.repair.text, same.repair.source) == (text.format(at(line)), line)
    assert same.place.location == same.repair.location
    assert f"fix, tried: {same.repair}" in same.problems


def test_a_sum_that_is_missing_is_put_in() -> None:
    same = beside(sgd(lambda t: t, jnp.mean), W, X, **DATA)
    assert str(same.repair).startswith("the mean over data of what is used at test_repair.py:")


def test_a_mean_comes_before_a_norm() -> None:
    same = beside(sgd(lambda t: mean(t / jnp.sqrt((t * t).sum())), jnp.mean), W, X, **DATA)
    assert str(same.repair).startswith("the mean over data of what is made at test_repair.py:")


def test_no_change_is_said_where_none_is_right() -> None:
    """Two lines are wrong: the loss and the gradients are means of sums."""
    same = beside(sgd(mean, jnp.sum), W, X, **DATA)
    assert same.verdict == "differs"
    assert same.repair is None
    assert same.problems[-1] == "fix: no single change of those that were tried"


def test_a_right_step_has_no_repair() -> None:
    same = beside(sgd(mean, jnp.mean), W, X, **DATA)
    assert same.ok
    assert same.repair is None
    assert same.place is None


def test_the_place_moves_with_the_change() -> None:
    """A loss by rows of a replica is seen where gradients are summed; the number that a user wrote is changed."""

    def step(w: Any, x: Any) -> Any:
        def loss_of(w: Any) -> Any:
            return ((x @ w) ** 2).sum() / x.shape[0]

        value, g = jax.value_and_grad(loss_of)(w)
        return w - 0.1 * total(g), total(value)

    same = beside(step, W, X, **DATA)
    assert same.place is not None
    assert same.place.source == "return ((x @ w) ** 2).sum() / x.shape[0]"
    assert same.place.text == "a change there makes all the same as on one device"
    assert str(same.repair) == f"8 for 2 at {at(same.place.source)}, as on one device"


def test_one_device_with_a_number_of_its_own() -> None:
    """The constant of one device is tried: 8 rows for the 2 of a replica."""

    def step(w: Any, x: Any) -> Any:
        scale = 1.0 / x.shape[0]
        return w - scale * lax.psum((x @ w).sum(0), "data"), lax.psum(x.sum(), "data")

    same = beside(step, W, X, **DATA)
    assert str(same.repair).startswith("0.125 for 0.5 at test_repair.py:")


def test_the_line_is_in_a_loop() -> None:
    """Bodies of loops are entered: of three layers that are scanned, each takes the sum of equal values once more."""

    def step(w: Any, x: Any) -> Any:
        def layer(h: Any, v: Any) -> Any:
            h = jnp.tanh(h @ v)
            h = lax.psum(h, "model")
            return h, None

        h, _ = lax.scan(layer, x, w)
        return w, lax.pmean(h.sum(), "model")

    options: dict[str, Any] = {"in_specs": (P(), P()), "out_specs": (P(), P()), "check_vma": False}
    same = beside(step, np.ones((3, 4, 4), np.float32), X, mesh={"model": 2}, **options)
    assert same.place is not None
    assert same.place.source == 'h = lax.psum(h, "model")'
    assert str(same.repair) == f"no sum over model at {at(same.place.source)}"


def test_the_call_of_a_shared_function_is_said() -> None:
    """A function that is right for other callers is not what has to change."""

    def scaled(t: Any, by: Any) -> Any:
        return t * by

    def step(w: Any, x: Any) -> Any:
        g = scaled(lax.psum((x @ w).sum(0), "data"), 0.5)
        g = scaled(g, 1.0 * lax.psum(1, "data"))
        return w - g, lax.psum(x.sum(), "data")

    same = beside(step, W, X, **{**DATA, "in_specs": (P(), P("data"))})
    place = same.place
    assert place is not None
    assert place.source == "return t * by"
    assert place.callers
    call = at('g = scaled(g, 1.0 * lax.psum(1, "data"))')
    assert f"called at {call}" in str(place)


def test_large_steps_have_a_verdict_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On some hundred replicas the search takes much longer than the comparison."""
    monkeypatch.setattr("popsr.bridge._same._repair._MOST_VALUES", 40)

    def step(w: Any, x: Any) -> Any:
        return w - lax.psum((x @ w).mean(0), "data"), lax.psum(x.sum(), "data")

    same = beside(step, W, X, **DATA)
    assert (same.verdict, same.place, same.repair) == ("differs", None, None)
    assert "replicas: a smaller mesh may tell it" in same.notes[-1]
    assert "no single change" not in str(same)
