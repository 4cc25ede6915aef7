"""A step beside a step for one device, and what cannot be compared."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from popsr import errors
from popsr.bridge.jax import from_jax
from popsr.testing import assert_in_step, assert_same_training
from tests_py.bridge.same.test_one_device import (
    DATA,
    ENGINES,
    W,
    X,
    beside,
    mean,
    same,
    sgd,
    shard_mapped,
    verdicts,
)

ROWS: dict[str, Any] = {"replicas": 4, "axis_name": "data", "in_axes": (None, 0)}


def alone(w: Any, x: Any) -> Any:
    """The step for one device."""
    value, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    return w - 0.1 * g, value


def faster(w: Any, x: Any) -> Any:
    """Another training: a larger rate."""
    value, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    return w - 0.2 * g, value


@pytest.mark.parametrize("exact", ENGINES)
def test_a_reference(exact: bool) -> None:
    step = sgd(mean, jnp.mean)
    assert beside(step, W, X, like=alone, exact=exact, **DATA).ok
    assert beside(step, W, X.reshape(4, 2, 4), like=alone, exact=exact, **ROWS).ok
    assert beside(from_jax(step, W, X, **DATA), like=alone, exact=exact).ok
    of_ones = jax.sharding.AbstractMesh((1,), ("data",))
    mapped = jax.shard_map(step, **{**DATA, "mesh": of_ones})
    assert beside(step, W, X, like=mapped, exact=exact, **DATA).ok
    proof = beside(step, W, X, like=faster, exact=exact, **DATA)
    assert verdicts(proof) == {"w": "differs", "result[1]": "same"}
    assert f"'w' differs from the reference ({same(proof).engine})" in same(proof).problems[0]


def test_a_reference_that_was_read() -> None:
    step = sgd(mean, jnp.mean)
    assert beside(step, W, X, like=from_jax(alone, W, X), exact=False, **DATA).ok
    assert not beside(step, W, X, like=from_jax(faster, W, X), exact=False, **DATA).ok


CHOICES = {
    "minimum": lambda n, c: jnp.minimum(1.0, c / n),
    "where": lambda n, c: jnp.where(n > c, c / n, 1.0),
    "clip": lambda n, c: jnp.clip(n, None, c) / n,
    "sign": lambda n, c: 1 + jnp.sign(n - c),
    "greatest of two": lambda n, c: 1 / jnp.max(jnp.stack([n / c, jnp.float32(1)])),
    "sort of three": lambda n, c: 1 + jnp.sort(jnp.stack([n, jnp.float32(c), 2 * n]))[0],
}
"""Factors of gradients that are one number, on one side of a comparison or on the other."""


@pytest.mark.parametrize("limit", [1.0, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("name", CHOICES)
def test_both_sides_of_a_choice_are_drawn(name: str, limit: float) -> None:
    """A step that clips is not the same as one that does not, of which a draw may see the same side alone."""

    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        g = lax.pmean(g, "data")
        return w - 0.1 * g * CHOICES[name](jnp.sqrt((g**2).sum()), limit), lax.pmean(value, "data")

    proof = beside(step, W, X, like=alone, exact=True, **DATA)
    assert verdicts(proof)["w"] == "differs"


def nested(exp: Any, depth: int, mean: Any, total: Any) -> Any:
    """A step with exps inside of each other."""

    def step(w: Any, x: Any) -> Any:
        y = w
        for _ in range(depth):
            y = exp(-y * y, y)
        return w - mean(x.mean()) * y, total(x.sum())

    return step


PLAIN, APART, WRONG = (
    lambda a, b: jnp.exp(a + b),
    lambda a, b: jnp.exp(a) * jnp.exp(b),
    lambda a, b: jnp.exp(a) * jnp.exp(-b),
)


@pytest.mark.parametrize(
    ("exp", "depth", "verdict"),
    [
        pytest.param(APART, 1, "same", id="law"),
        pytest.param(WRONG, 1, "differs", id="wrong"),
        pytest.param(APART, 6, "same", id="law-6"),
        pytest.param(WRONG, 6, "differs", id="wrong-6"),
        pytest.param(PLAIN, 14, "same", id="equal-14"),
        pytest.param(APART, 14, "same", id="law-14"),
        pytest.param(WRONG, 14, "differs", id="wrong-14"),
    ],
)
def test_exps_inside_of_exps(exp: Any, depth: int, verdict: str) -> None:
    """Inside of more than 11 others, equal values are drawn anew."""
    step = nested(exp, depth, lambda t: lax.pmean(t, "data"), lambda t: lax.psum(t, "data"))
    reference = nested(PLAIN, depth, lambda t: t, lambda t: t)
    proof = beside(step, W / 4, X, like=reference, exact=True, **{**DATA, "out_specs": (P(), P())})
    assert verdicts(proof)["w"] == verdict


def test_what_an_op_without_exact_meaning_reaches_is_unknown() -> None:
    """Other values are compared."""

    def of(reduce: Any) -> Any:
        def step(w: Any, v: Any, x: Any) -> Any:
            counted = lax.pmean((x @ w).astype(jnp.int32).astype(jnp.float32).mean(), "data")
            return w - counted, v - reduce((x**2).mean(), "data") * v, lax.pmean(x.mean(), "data")

        return step

    options = {"mesh": DATA["mesh"], "in_specs": (P(), P(), P("data")), "out_specs": (P(), P(), P())}
    right, wrong = (beside(of(each), W, W, X, exact=True, **options) for each in (lax.pmean, lax.psum))
    assert verdicts(right) == {"w": "unknown", "v": "same", "result[2]": "same"}
    assert verdicts(wrong) == {"w": "unknown", "v": "differs", "result[2]": "same"}
    assert right.verdict == "unknown"
    assert not right.ok
    (found,) = same(right).unknown
    assert "digits are not known, got op 'cast' at" in found.reason
    assert "exact=False compares in float64" in found.reason


@pytest.mark.parametrize("exact", ENGINES)
def test_a_reference_that_returns_less(exact: bool) -> None:
    proof = beside(sgd(mean, jnp.mean), W, X, like=lambda w, x: (alone(w, x)[0],), exact=exact, **DATA)
    assert verdicts(proof) == {"w": "same", "result[1]": "unknown"}
    assert proof.verdict == "unknown"
    assert not proof.ok
    assert same(proof).unknown[0].reason == "the reference returns no result[1]"


REFUSED = [
    ("another word", "two devices", errors.Error, "like is no such choice|expected one of|'one device'"),
    ("a number", 4, errors.ArgumentTypeError, "like is not a step, got 4, expected 'one device'"),
    (
        "a state that is not updated",
        lambda w, x: (w[:2], w.sum()),
        errors.Error,
        "new value of state 'w' does not fit",
    ),
    (
        "several replicas",
        shard_mapped(sgd(mean, jnp.mean)),
        errors.ReplicaError,
        "like is a step of several replicas, got 4",
    ),
    (
        "other states",
        from_jax(lambda v, x: v + x.sum(), W + 1, X),
        errors.UnknownNameError,
        "like has no state of that path, got 'w', expected one of \\['v'\\]",
    ),
    (
        "other shapes",
        from_jax(alone, W, X[:4]),
        errors.ShapeError,
        r"data 'x' has another shape in like, got \[4, 4\]",
    ),
    (
        "other roles",
        from_jax(lambda w, x: w.sum() + x.sum(), W, X),
        errors.AttributeValueError,
        "'w' is state of the step, got data",
    ),
]


@pytest.mark.parametrize(("like", "kind", "text"), [pytest.param(*each[1:], id=each[0]) for each in REFUSED])
def test_references_that_are_refused(like: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        beside(sgd(mean, jnp.mean), W, X, like=like, exact=False, **DATA)


def test_steps_that_cannot_be_read_once_more() -> None:
    with pytest.raises(errors.UnsupportedError, match="expected a step of JAX"):
        popsr.prove(popsr.Ir(), like="one device")


# Unknown values, with the reason


def of_four(w: Any, x: Any) -> Any:
    """A step that counts on two rows on a replica."""
    return w - 0.1 * mean(
        jnp.stack([x[0], x[1]]).reshape(2, 4)[:, :2].sum() * w + x.reshape(2, 4).sum()
    ), x.sum()


def sorts(w: Any, x: Any) -> Any:
    return w - mean(jnp.linalg.svd(x[:2, :2])[1].sum()) * w, lax.pmean(x.sum(), "data")


def own_rows(w: Any, x: Any) -> Any:
    return w - x.mean()


UNKNOWN = [
    (
        "a shape of the mesh",
        of_four,
        (W, X),
        DATA,
        "cannot be read on one device: TypeError: cannot reshape array",
    ),
    ("an op that popsr lacks", sorts, (W, X), {**DATA, "unsupported": "conservative"}, "popsr lacks svd"),
    (
        "states with rows",
        own_rows,
        (np.stack([W] * 4), X.reshape(4, 2, 4)),
        {"replicas": 4, "axis_name": "data"},
        "state that has a row for each replica, got 'w'",
    ),
    (
        "integers of a shape",
        lambda w, n: w * lax.psum(n.sum(), "data"),
        (W, jax.ShapeDtypeStruct((8,), np.int32)),
        DATA,
        "'n' is integers of a shape alone",
    ),
    (
        "results of another shape",
        lambda w, x: (w, x.sum(1)[:1]),
        (W, X),
        {**DATA, "out_specs": (P(), P("data"))},
        "result[1] is [4] where one device returns [1]",
    ),
    ("undefined values", lambda w, x: (w + jnp.nan, x.sum()), (W, X), DATA, "infinite or undefined"),
]


@pytest.mark.parametrize(
    ("step", "args", "options", "reason"),
    [pytest.param(*each[1:], id=each[0].replace(" ", "-")) for each in UNKNOWN],
)
def test_what_is_unknown(step: Any, args: Any, options: Any, reason: str) -> None:
    proof = beside(step, *args, exact=False, **options)
    assert not proof.ok
    assert not same(proof).ok
    assert "w" in {each.path for each in same(proof).unknown} | {each.path for each in proof.step.arguments}
    assert any(reason in text for text in proof.problems), proof


def test_a_step_that_reads_its_rank() -> None:
    """The first rank does more: allowed where it makes no difference, found where it does."""

    def step(w: Any, x: Any, right: bool) -> Any:
        first = lax.axis_index("data") == 0
        g = jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
        extra = jnp.where(first, w.sum(), 0.0)
        return w - 0.1 * lax.pmean(g, "data") - (0.0 if right else 1.0) * lax.pmean(extra, "data")

    for right in (True, False):
        proof = beside(lambda w, x, r=right: step(w, x, r), W, X, exact=False, names=["w", "x"], **DATA)
        assert same(proof).ok == right


# Texts and pages


def test_all_forms_of_a_proof(tmp_path: Path) -> None:
    wrong = beside(sgd(lambda t: lax.psum(t, "data"), jnp.mean), W, X, exact=False, **DATA)
    assert bool(wrong) is False
    assert wrong.advice == ()
    assert (
        repr(wrong)
        == "Proof[not ok: 1 state on 4 replicas, none drifts, compared with one device: 1 differs]"
    )
    line = "'w' differs from one device (float64): by"
    assert line in str(wrong)
    assert line in wrong.sentences[0]
    wrong.save_html(tmp_path / "proof.html")
    page = (tmp_path / "proof.html").read_text()
    assert "Beside one device (float64)" in page
    assert "differs from one device" in page
    assert "differs" in str(wrong.same)
    assert "<table>" in same(wrong)._repr_html_()
    right = beside(sgd(mean, jnp.mean), W, X, exact=False, **DATA)
    assert repr(right.same) == "Sameness[same training as one device, float64]"
    assert popsr.prove(sgd(mean, jnp.mean), W, X, **DATA).same is None


def test_assertions() -> None:
    right, wrong = sgd(mean, jnp.mean), sgd(lambda t: lax.psum(t, "data"), jnp.mean)
    assert assert_same_training(right, W, X, **DATA).ok
    assert assert_same_training(right, W, X, like=alone, exact=False, **DATA).ok
    assert assert_in_step(wrong, W, X, **DATA).ok
    for check in (
        assert_same_training,
        lambda *a, **o: assert_in_step(*a, like="one device", exact=False, **o),
    ):
        with pytest.raises(errors.OutOfStepError, match="'w' differs from one device") as caught:
            check(wrong, W, X, **DATA)
        assert caught.value.proof.same.verdict == "differs"


def test_integers_are_kept_and_named() -> None:
    def step(w: Any, n: Any) -> Any:
        return w - 0.1 * lax.pmean(w[n].mean(), "data")

    for numbers, warned in ((np.arange(8, dtype=np.int32) % 4, False), (np.zeros(8, np.int32), True)):
        proof = beside(step, W, numbers, exact=False, **DATA)
        assert same(proof).ok
        assert any("for these integers and truth values: 'n'" in text for text in proof.sentences)
        assert any("one number everywhere" in text for text in proof.sentences) == warned


def test_noise_is_off() -> None:
    """Masks that each rank draws with a key of its own are no difference from one device; a wrong sum beside one is."""

    def step(w: Any, key: Any, x: Any, reduce: Any = mean) -> Any:
        key = jax.random.fold_in(key, lax.axis_index("data"))
        noise = jax.random.normal(key, w.shape) + jax.random.uniform(key, w.shape)

        def loss(w: Any) -> Any:
            keep = jax.random.bernoulli(key, 0.9, x.shape)
            return ((jnp.where(keep, x / 0.9, 0) @ w) ** 2).mean()

        return w - 0.1 * reduce(jax.grad(loss)(w) + noise)

    options = {**DATA, "in_specs": (P(), P(), P("data"))}
    for reduce, right in ((mean, True), (lambda t: lax.psum(t, "data"), False)):
        f = functools.partial(step, reduce=reduce)
        proof = beside(f, W, jax.random.key(0), X, exact=False, names=["w", "key", "x"], **options)
        assert same(proof).ok == right, proof
        assert any("random numbers are off" in text for text in proof.sentences)
        assert not any("random numbers are off" in text for text in proof.step.notes)
