"""Loops whose trip count depends on data."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

from popsr.bridge.jax import from_jax
from tests_py.bridge.jax.cut_rows import CUT, W, X


def agreed(w: Any, x: Any) -> Any:
    most = lax.pmax(x.sum(), "data")
    return lax.while_loop(lambda c: c.sum() < most, lambda c: c * 2, w), most


def of_data(w: Any, x: Any) -> Any:
    w = lax.while_loop(lambda c: c.sum() < x.sum(), lambda c: c * 2, w)
    return w, lax.pmax(x.sum(), "data")


def test_a_state_stays_equal_where_the_condition_is() -> None:
    step = from_jax(agreed, W, X, **CUT)
    assert step.prove().ok
    np.testing.assert_array_equal(step.run()["w"], np.full((4, 4, 4), 16, np.float32))


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the state drifts
def test_a_state_drifts_where_the_condition_varies() -> None:
    step = from_jax(of_data, W, X, **CUT)
    (drifting,) = step.prove().drifting
    assert drifting.path == "w"
    assert drifting.cause is not None
    assert "may leave while_loop at different times" in drifting.cause.text
    expected = []
    for rows in X.reshape(4, 2, 4):
        w = W
        while w.sum() < rows.sum():
            w = w * 2
        expected.append(w)
    np.testing.assert_array_equal(step.run()["w"], expected)


def newton(w: Any, x: Any) -> Any:
    """Square roots to a tolerance of all replicas, as an adaptive solver does."""
    mean = lax.pmean(x, "data")[:1] + w

    def error(c: Any) -> Any:
        return jnp.abs(c * c - mean).max()

    root = lax.while_loop(lambda c: error(c) > 1e-4, lambda c: 0.5 * (c + mean / c), mean)
    return root, lax.pmean(x.sum(), "data")


def test_a_solver_with_a_tolerance_has_jaxs_values() -> None:
    step = from_jax(newton, W, X, **CUT)
    assert step.prove().ok
    mean = X.reshape(4, 2, 4).mean(0)[:1] + W
    np.testing.assert_allclose(step.run()["w"][2], np.sqrt(mean), rtol=1e-5)


def test_a_loop_that_is_differentiated_forward_has_jaxs_values() -> None:
    def f(x: Any) -> Any:
        def root(a: Any) -> Any:
            c = lax.while_loop(lambda c: jnp.abs(c * c - a).max() > 1e-3, lambda c: 0.5 * (c + a / c), a)
            return c.sum()

        return jax.jvp(root, (x,), (jnp.ones_like(x),))[1]

    x = np.array([2.0, 3.0, 5.0], np.float32)
    np.testing.assert_allclose(from_jax(f, x).run()["result"], f(x), rtol=1e-5)


def body(c: Any) -> Any:
    d = jnp.sin(c)
    return d * 2


def looped(x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() > 1, body, x)


def test_ops_of_a_loop_are_at_the_lines_of_its_body() -> None:
    step = from_jax(looped, X)
    found: dict[str, int] = {}
    graphs = [op.called_graphs[0] for op in step.ir.main_graph.ops if op.kind == "while_loop"]
    while graphs:
        for op in graphs.pop().ops:
            graphs += op.called_graphs
            found[op.kind] = int(op.location.rpartition(":")[2])
    _, first = inspect.getsourcelines(body)
    assert (found["sin"] - first, found["mul"] - first) == (1, 2)
