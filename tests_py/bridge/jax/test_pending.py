"""Gradients in steps of JAX: sums that are missing, and multiples that do not fit the others'."""

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
from popsr.bridge import Proof

PARAMS = {"a": np.ones((4, 4), np.float32), "b": np.zeros(4, np.float32), "c": np.ones((4, 1), np.float32)}
X = np.ones((8, 4), np.float32)


def local_loss(p: Any, x: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ p["a"] + p["b"]) @ p["c"]) ** 2)


def averaged_loss(p: Any, x: Any) -> Any:
    return lax.pmean(local_loss(p, x), "data")


def proved(reduce: Callable[[Any], Any], loss: Any = local_loss, check_vma: bool = False) -> Proof:
    def step(p: Any, x: Any) -> Any:
        g = reduce(jax.grad(loss)(p, x))
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, g)

    specs: dict[str, Any] = {"mesh": {"data": 4}, "in_specs": (P(), P("data")), "out_specs": P()}
    return popsr.prove(step, PARAMS, X, check_vma=check_vma, updates={0: 0}, **specs)


def mean(g: Any) -> Any:
    return lax.pmean(g, "data")


def total(g: Any) -> Any:
    return lax.psum(g, "data")


def test_a_gradient_without_its_sum_is_pending() -> None:
    proof = proved(lambda g: {**mean(g), "b": g["b"]})
    value = proof.value("p['b']")
    assert value.pending is not None
    assert (value.pending.shape, str(value.pending.groups), value.pending.nonlinear) == (
        (4,),
        "{0,1,2,3}",
        "",
    )
    assert value.pending.made.startswith(__file__)
    [lint] = proof.pending
    assert lint.code == "L11"
    assert lint.text.startswith(
        "'p['b']' depends on a part of a sum: each replica has a part of its gradient"
    )
    assert proof.value("p['a']").pending is None
    assert len(proof.problems) == 1  # once, with the drift
    assert "each replica has a part of" in proof.problems[0]
    assert repr(proof) == "Proof[not ok: 3 states on 4 replicas, 1 drifts, 1 pending sum]"
    assert "pending" in str(proof)


def test_a_function_of_a_part_that_is_not_linear() -> None:
    """Of a norm of local gradients no later sum helps."""

    def clipped(g: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(g)))
        return jax.tree.map(lambda leaf: leaf / norm, mean(g))

    value = proved(clipped).value("p['a']")
    assert value.pending is not None
    assert value.pending.nonlinear
    assert value.cause is not None
    assert "is not linear in it" in value.cause.suggestion


def test_a_sum_over_pairs_leaves_a_part() -> None:
    def in_pairs(g: Any) -> Any:
        return jax.tree.map(lambda leaf: lax.psum(leaf, "data", axis_index_groups=[[0, 1], [2, 3]]), g)

    value = proved(in_pairs).value("p['a']")
    assert value.pending is not None
    assert value.pending.nonlinear == ""
    assert str(value.proved) == "{0,1}{2,3}"


def test_drift_from_elsewhere_has_no_pending_sum() -> None:
    proof = proved(lambda g: {**mean(g), "b": mean(g)["b"] + lax.axis_index("data")})
    assert [each.path for each in proof.drifting] == ["p['b']"]
    assert proof.pending == ()


RIGHT: dict[str, Any] = {
    "means": (mean, local_loss, False),
    "sums": (total, local_loss, False),
    "means of an averaged loss": (mean, averaged_loss, False),
    "by JAX": (lambda g: g, averaged_loss, True),
    "sums that are divided": (lambda g: {**mean(g), "b": total(g)["b"] / 4}, local_loss, False),
    "divided before they are summed": (
        lambda g: {**mean(g), "b": total(jax.tree.map(lambda x: x / 4, g))["b"]},
        local_loss,
        False,
    ),
    "a factor that may be a rate": (lambda g: {**mean(g), "b": total(g)["b"] * 0.25}, local_loss, False),
    "rates of their own": (lambda g: {**total(g), "b": total(g)["b"] * 0.25}, local_loss, False),
    "shards": (
        lambda g: {**mean(g), "a": lax.all_gather(lax.psum_scatter(g["a"], "data") / 4, "data")},
        local_loss,
        False,
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_steps_are_silent(case: str) -> None:
    proof = proved(*RIGHT[case])
    assert proof.ok
    assert proof.pending == ()


def test_a_sum_that_is_shown_is_not_compared() -> None:
    """A norm of summed gradients, and a mean that is kept beside the sum of the same gradient."""

    def step(p: Any, kept: Any, x: Any) -> Any:
        g = jax.grad(local_loss)(p, x)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, p, mean(g))
        return new, kept + total(g["b"]), jnp.sqrt(jnp.sum(total(g["a"]) ** 2))

    specs: dict[str, Any] = {"mesh": {"data": 4}, "in_specs": (P(), P(), P("data")), "out_specs": P()}
    kept = np.zeros(4, np.float32)
    assert popsr.prove(step, PARAMS, kept, X, check_vma=False, updates={0: 0, 1: 1}, **specs).ok


def test_a_loss_over_values_of_all_replicas_may_be_summed() -> None:
    """A contrastive loss: its sum over replicas is inside, and is not the loss."""

    def loss(p: Any, x: Any) -> Any:
        mine = local_loss(p, x)
        return mine - jnp.log(lax.psum(jnp.exp(mine), "data"))

    assert proved(total, loss).ok


def test_updates_that_may_be_skipped_are_compared() -> None:
    def step(p: Any, x: Any) -> Any:
        g = jax.grad(local_loss)(p, x)
        g = {**mean(g), "b": total(g["b"])}
        finite = jnp.isfinite(mean(x.sum()))
        new = jax.tree.map(lambda p, g: p - 0.1 * g, p, g)
        return lax.cond(finite, lambda: new, lambda: p)

    specs: dict[str, Any] = {"mesh": {"data": 4}, "in_specs": (P(), P("data")), "out_specs": P()}
    [lint] = popsr.prove(step, PARAMS, X, check_vma=False, updates={0: 0}, **specs).pending
    assert "'p['b']' is updated with 4 times" in lint.text


def test_one_sum_among_means() -> None:
    [lint] = proved(lambda g: {**mean(g), "b": total(g["b"])}).pending
    assert lint.code == "L11"
    assert "'p['b']' is updated with 4 times the gradient" in lint.text
    assert lint.location.startswith(__file__)


def test_one_mean_among_sums() -> None:
    proof = proved(lambda g: {**total(g), "b": mean(g["b"])})
    [lint] = proof.pending
    assert "'p['b']' is updated with 1/4 of the gradient" in lint.text
    assert proof.verdict == "suspicious"
    assert proof.problems == (f"L11 test_pending.py:{lint.location.rpartition(':')[2]}: {lint.text}",)


def test_sums_of_the_gradients_of_an_averaged_loss() -> None:
    proof = proved(total, averaged_loss)
    assert len(proof.pending) == 3
    assert all("4 times the gradient of the loss" in lint.text for lint in proof.pending)


def test_two_backward_passes_may_differ() -> None:
    """A generator and a discriminator, say."""

    def step(p: Any, q: Any, x: Any) -> Any:
        gp, gq = mean(jax.grad(local_loss)(p, x)), total(jax.grad(lambda q: local_loss(q, x * 2))(q))
        return jax.tree.map(lambda p, g: p - g, p, gp), jax.tree.map(lambda q, g: q - g, q, gq)

    specs: dict[str, Any] = {"mesh": {"data": 4}, "in_specs": (P(), P(), P("data")), "out_specs": (P(), P())}
    proof = popsr.prove(step, PARAMS, PARAMS, X, check_vma=False, updates={0: 0, 1: 1}, **specs)
    assert proof.ok


@pytest.mark.parametrize(("reduce", "lints"), [(lax.psum, 0), (lax.pmean, 1)])
def test_products_with_weights_that_are_cut(reduce: Any, lints: int) -> None:
    def step(w: Any, x: Any) -> Any:
        y = reduce((x @ w.astype(jnp.float32)) * 2, "model")
        return w, y

    specs: dict[str, Any] = {
        "mesh": {"model": 2},
        "in_specs": (P("model", None), P(None, "model")),
        "out_specs": (P("model"), P()),
    }
    proof = popsr.prove(
        step, np.ones((4, 2), np.float32), np.ones((3, 4), np.float32), check_vma=False, **specs
    )
    assert len(proof.pending) == lints
    assert proof.ok is (lints == 0)


def test_an_ensemble_may_be_averaged() -> None:
    """Weights that are cut by members are whole for each."""

    def step(w: Any, x: Any) -> Any:
        return w, lax.pmean(x @ w[0], "members")

    specs: dict[str, Any] = {
        "mesh": {"members": 4},
        "in_specs": (P("members"), P()),
        "out_specs": (P("members"), P()),
    }
    assert popsr.prove(step, np.ones((4, 4, 2), np.float32), X, check_vma=False, **specs).ok
