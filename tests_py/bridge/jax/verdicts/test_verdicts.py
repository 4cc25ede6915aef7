"""Verdicts of steps of JAX whose replicas stay in step: which of them are ok."""

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
from popsr.errors import OutOfStepError
from popsr.testing import assert_in_step
from tests_py.bridge.jax.compare import devices

RNG = np.random.default_rng(0)
PARAMS: dict[str, Any] = {
    "scale": np.ones(8, np.float32),
    "up": RNG.normal(size=(8, 16)).astype(np.float32),
    "down": RNG.normal(size=(16, 8)).astype(np.float32),
}
CUT = {"scale": P(), "up": P(None, "model"), "down": P("model", None)}
X = RNG.normal(size=(8, 8)).astype(np.float32)
MESH = {"data": 2, "model": 2}
GRID: dict[str, Any] = {"mesh": MESH, "in_specs": (CUT, P("data")), "out_specs": CUT}

Reduce = Callable[[Any], Any]


def block_loss(p: Any, x: Any) -> Any:
    """A block of a transformer's kind: hidden units over ``model``, a skip around it."""
    h = x * p["scale"]
    return jnp.mean((h + lax.psum(jnp.tanh(h @ p["up"]) @ p["down"], "model")) ** 2)


def over_data(g: Any) -> Any:
    return lax.pmean(g, "data")


def mended(reduce: Any) -> Reduce:
    """Means over ``data``, and another reduction over ``model`` of what is not cut."""
    return lambda g: {**over_data(g), "scale": reduce(over_data(g["scale"]), "model")}


def block_step(reduce: Reduce, loss: Any = block_loss) -> Any:
    def step(p: Any, x: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, reduce(jax.grad(loss)(p, x)))

    return step


def whole_loss(p: Any, x: Any) -> Any:
    return over_data(block_loss(p, x))


FIXES: dict[str, tuple[Any, bool, str, set[str]]] = {
    "none": (block_step(over_data), False, "not ok", {"L6", "L7", "L11"}),
    "mean over all": (block_step(lambda g: lax.pmean(g, ("data", "model"))), False, "suspicious", {"L7"}),
    "mean of the replicated": (block_step(mended(lax.pmean)), False, "suspicious", {"L6"}),
    "sum of the replicated": (block_step(mended(lax.psum)), False, "suspicious", {"L6"}),
    "check_vma": (block_step(lambda g: g, whole_loss), True, "ok", set()),
    "a mean beside check_vma": (block_step(over_data), True, "suspicious", {"L6"}),
}


def scales(step: Any, check_vma: bool) -> dict[str, float]:
    """Updates as they run on JAX's devices, as multiples of those of the loss of the whole batch."""

    def plain(p: Any) -> Any:
        h = X * p["scale"]
        return jnp.mean((h + jnp.tanh(h @ p["up"]) @ p["down"]) ** 2)

    right = jax.grad(plain)(PARAMS)
    run = jax.shard_map(
        step, mesh=devices(MESH), in_specs=GRID["in_specs"], out_specs=CUT, check_vma=check_vma
    )
    new = jax.jit(run)(PARAMS, X)
    moved = {name: (PARAMS[name] - np.asarray(new[name])) / 0.1 for name in PARAMS}
    return {
        name: float(np.vdot(moved[name], right[name]) / np.vdot(right[name], right[name])) for name in PARAMS
    }


@pytest.mark.parametrize("name", FIXES)
def test_only_the_right_fix_of_a_missing_sum_is_ok(name: str) -> None:
    """JAX's own updates are those of the whole batch exactly where the verdict is ok."""
    step, check_vma, verdict, codes = FIXES[name]
    proof = popsr.prove(step, PARAMS, X, check_vma=check_vma, **GRID)
    assert proof.verdict == verdict
    assert bool(proof) is proof.ok is (verdict == "ok")
    assert {lint.code for lint in proof.suspicious} <= codes
    assert bool(proof.problems) is (verdict != "ok")
    if name != "none":
        found = scales(step, check_vma)
        right = all(abs(each - 1) < 1e-3 for each in found.values())
        assert right is proof.ok, found
    if verdict != "ok":
        with pytest.raises(OutOfStepError):
            assert_in_step(step, PARAMS, X, check_vma=check_vma, **GRID)
    if verdict == "suspicious":
        assert assert_in_step(step, PARAMS, X, check_vma=check_vma, allow=codes, **GRID).suspicious


W = np.ones((4, 2), np.float32)
ROWS = np.ones((8, 4), np.float32)


def sgd(loss: Any, reduce: Reduce = over_data, metric: Reduce = over_data) -> Any:
    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, x)
        return w - 0.1 * reduce(g), metric(value)

    return step


def local(w: Any, x: Any) -> Any:
    return jnp.mean((x @ w) ** 2)


def of_rows(w: Any, x: Any) -> Any:
    """A loss for each column, which is averaged over the replicas before the mean of the columns."""
    return jnp.mean(over_data(jnp.mean((x @ w) ** 2, 0)))


def of_sums(w: Any, x: Any) -> Any:
    """The loss of the whole batch, from a sum and a count."""
    return lax.psum(jnp.sum((x @ w) ** 2), "data") / lax.psum(jnp.ones(()) * x.shape[0], "data")


def of_all(w: Any, x: Any) -> Any:
    """A contrastive loss."""
    mine = local(w, x)
    return mine - jnp.log(lax.psum(jnp.exp(mine), "data"))


def total(g: Any) -> Any:
    return lax.psum(g, "data")


DATA: dict[str, tuple[Any, str]] = {
    "means": (sgd(local), "ok"),
    "an averaged loss": (sgd(lambda w, x: over_data(local(w, x))), "ok"),
    "an averaged loss of columns": (sgd(of_rows), "ok"),
    "a loss from a sum and a count": (sgd(of_sums), "ok"),
    "that loss, gradients summed": (sgd(of_sums, total), "suspicious"),
    "an averaged loss, gradients summed": (sgd(lambda w, x: over_data(local(w, x)), total), "suspicious"),
    "a loss of each replica over a sum of all": (sgd(of_all, total), "ok"),
    "a metric averaged twice": (sgd(local, metric=lambda v: over_data(over_data(v))), "ok"),
    "a metric summed twice": (sgd(local, metric=lambda v: total(total(v))), "suspicious"),
    "a gradient averaged twice": (sgd(local, lambda g: over_data(over_data(g))), "suspicious"),
    "largest of what is equal": (sgd(local, lambda g: over_data(g) * lax.pmax(jnp.ones(()), "data")), "ok"),
}


@pytest.mark.parametrize("name", DATA)
def test_reductions_of_what_is_equal(name: str) -> None:
    step, verdict = DATA[name]
    proof = popsr.prove(
        step, W, ROWS, mesh={"data": 4}, in_specs=(P(), P("data")), out_specs=(P(), P()), check_vma=False
    )
    assert proof.verdict == verdict, str(proof)


def test_a_scalar_sum_of_parts_of_a_cut_weight_is_suspicious() -> None:
    """Its transpose is a sum: without a later mean the weight's gradient is as many times too large."""

    def step(w: Any, x: Any) -> Any:
        g = jax.grad(lambda w: lax.psum(jnp.sum(x @ w), "model"))(w)
        return w - 0.1 * g

    specs: dict[str, Any] = {
        "mesh": {"model": 2},
        "in_specs": (P("model", None), P(None, "model")),
        "out_specs": P("model", None),
    }
    proof = popsr.prove(step, W, ROWS, check_vma=False, **specs)
    assert proof.verdict == "suspicious"
    assert popsr.prove(step, W, ROWS, check_vma=True, **specs).ok


def test_causes_stand_above_the_table_in_all_forms() -> None:
    step, _, _, _ = FIXES["sum of the replicated"]
    proof: Proof = popsr.prove(step, PARAMS, X, check_vma=False, **GRID)
    [cause] = proof.problems
    assert cause.startswith("L6 test_verdicts.py:")
    assert "gradients are 2 times too large where no mean follows" in cause
    text = str(proof)
    assert text.index("suspicious:") < text.index(cause) < text.index("declared")
    html = proof._repr_html_()
    assert html.index("suspicious:") < html.index("L6 test_verdicts.py:") < html.index("<table>")
