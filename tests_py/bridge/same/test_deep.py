"""Steps whose exps lie inside of more others than there are fields: values that are equal are drawn anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr._support.fields import Numbers, same
from popsr.bridge._same._compare import _confirmed
from popsr.bridge._same._fresh import _Fresh
from popsr.bridge._same._parts import blocks_of
from popsr.bridge._same._values import SameValue

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
P = jax.sharding.PartitionSpec


def attended(q: Any, k: Any, v: Any, axis: str, *, rescaled: bool = True) -> Any:
    """Attention to keys that go around a ring, with an online softmax."""
    size = lax.axis_size(axis)
    top = jnp.full(q.shape[:-1], -jnp.inf)
    total, out = jnp.zeros(q.shape[:-1]), jnp.zeros_like(q)
    for turn in range(size):
        scores = q @ k.T
        most = jnp.maximum(top, scores.max(-1))
        weights, factor = jnp.exp(scores - most[:, None]), jnp.exp(top - most)
        if not rescaled and turn == size - 1:
            factor = jnp.ones_like(factor)
        total = total * factor + weights.sum(-1)
        out = out * factor[:, None] + weights @ v
        top = most
        if turn + 1 < size:
            k, v = (lax.ppermute(t, axis, [(i, (i + 1) % size) for i in range(size)]) for t in (k, v))
    return out / total[:, None]


def step_of(wrong: int | None = None) -> Any:
    """A step of layers of attention, of which one may lack a factor."""

    def loss_of(params: Any, x: Any) -> Any:
        for number, layer in enumerate(params):
            q, k, v = (x @ layer[i] for i in range(3))
            x = x + attended(q, k, v, "seq", rescaled=number != wrong)
        return lax.psum(jnp.sum(x * x), "seq")

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(loss_of)(params, x)
        return jax.tree.map(lambda w, g: w - 0.1 * lax.psum(g, "seq") / lax.axis_size("seq"), params, grads)

    return step


def proof_of(layers: int, ranks: int, wrong: int | None = None) -> Any:
    params = [np.ones((3, 2, 2), np.float32) * 0.5] * layers
    x = np.ones((ranks * 2, 2), np.float32)
    cut = [P()] * layers
    return popsr.prove(
        step_of(wrong),
        params,
        x,
        mesh={"seq": ranks},
        in_specs=(cut, P("seq")),
        out_specs=cut,
        check_vma=False,
        like="one device",
    )


SIZES = [
    (2, 16),
    (12, 2),
    pytest.param(24, 2, marks=pytest.mark.slow),
    pytest.param(48, 2, marks=pytest.mark.slow),
]


@pytest.mark.share(2)
@pytest.mark.parametrize(("layers", "ranks"), SIZES)
def test_right_steps_are_the_same(layers: int, ranks: int) -> None:
    found = proof_of(layers, ranks).same
    assert found.verdict == "same", found
    assert any("drawn anew" in note for note in found.notes) is (layers > 11)


WRONG = [(12, 11), *(pytest.param(24, wrong, marks=pytest.mark.slow) for wrong in (0, 11, 23))]


@pytest.mark.parametrize(("layers", "wrong"), WRONG)
def test_a_wrong_layer_is_never_the_same(layers: int, wrong: int) -> None:
    found = proof_of(layers, 2, wrong).same
    assert found.verdict == "differs", found
    assert all(each.verdict == "differs" for each in found.values)


VERDICTS = [
    # Exactly, with fresh values, in float64, and in all.
    ("same", False, "differs", "same"),
    ("unknown", True, "same", "unknown"),
    ("differs", True, "same", "same"),
    ("differs", True, "unknown", "unknown"),
    ("differs", True, "differs", "differs"),
    ("differs", False, "same", "unknown"),
    ("differs", False, "differs", "differs"),
]


@pytest.mark.parametrize(("exactly", "is_same_afresh", "in_float64", "expected"), VERDICTS)
def test_float64_is_asked_beside_fresh_values(
    exactly: Any, is_same_afresh: bool, in_float64: Any, expected: str
) -> None:
    def value(verdict: Any) -> SameValue:
        return SameValue("w", "state", verdict, "why")

    (found,) = _confirmed([value(exactly)], {"w"} if is_same_afresh else set(), [value(in_float64)])
    assert found.verdict == expected
    assert found.ok is (expected == "same")
    if exactly == "differs" and expected == "unknown":
        assert "exps inside of 11 others" in found.reason


def test_blocks_of_an_array() -> None:
    whole = np.arange(24).reshape(4, 6)
    assert [whole[block].tolist() for block in blocks_of((4, 6), (2, 6), 8)] == [
        whole[:2].tolist(),
        whole[2:].tolist(),
    ]
    for part, most in (((4, 4), 8), ((1, 6), 3), ((24,), 8), ((0, 6), 8)):
        assert not [*blocks_of((4, 6), part, most)]


def test_fresh_values_stand_for_equal_ones_and_their_blocks() -> None:
    value, anew = Numbers.draw((4, 2), "value", 0).exp(), Numbers.draw((4, 2), "fresh", 0)
    fresh = _Fresh(2)
    fresh.add(value, anew)
    assert same(fresh.of(value), anew).all()
    assert same(fresh.of(value + value - value), anew).all()
    assert same(fresh.of(value[2:]), anew[2:]).all()
    other = Numbers.draw((4, 2), "other", 0).exp()
    for each in (other, value[1:3], value[1:2], value.transpose([1, 0])):
        assert fresh.of(each) is each


def test_a_block_at_two_places_has_no_fresh_value() -> None:
    half = Numbers.draw((1, 2), "half", 0).exp()
    value = Numbers.concat([half, half])
    fresh = _Fresh(2)
    fresh.add(value, Numbers.draw((2, 2), "fresh", 0))
    assert fresh.of(half) is half
    assert fresh.of(value) is not value
