"""References to mutable arrays beside JAX: values where they are made, states where they are arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from popsr.bridge.jax import from_jax
from popsr.errors import UnsupportedError
from tests_py.bridge.jax.compare import both, devices, difference
from tests_py.bridge.jax.cut_rows import CUT, W, X

pytestmark = pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="needs JAX with new_ref")


def whole(w: Any, x: Any) -> Any:
    r = jax.new_ref(w)
    r[...] += lax.pmean(x.sum(), "data")
    return jax.freeze(r)


def parts(w: Any, x: Any) -> Any:
    r = jax.new_ref(w)
    r[1] = x[0]
    r[1:3, 0] = r[1:3, 1] * 2
    r[lax.axis_index("data")] += 1.0
    return lax.pmean(r[...], "data")


def control(w: Any, x: Any) -> Any:
    r = jax.new_ref(w)

    def turn(k: Any, c: Any) -> Any:
        r[k] = r[k] * 2 + c
        return c + x.sum()

    def row(c: Any, y: Any) -> Any:
        r[...] += y
        return c, r[0, 0]

    total = lax.fori_loop(0, 3, turn, 0.0)
    _, seen = lax.scan(row, total, x[:, 0])
    lax.cond(x.sum() > 2, lambda: r.__setitem__((0, 0), 3.0), lambda: None)
    jax.jit(lambda r: r.__setitem__((1, 2), 7.0))(r)
    return lax.pmean(jax.freeze(r) + seen.sum(), "data")


def added(w: Any, x: Any) -> Any:
    from jax._src.state.primitives import ref_addupdate

    r = jax.new_ref(w)
    ref_addupdate(r, (slice(0, 2),), r[2:] * 3)
    return lax.pmean(jax.freeze(r) * x.sum(), "data")


@pytest.mark.parametrize("f", [whole, parts, control, added])
def test_the_values_are_those_of_jax(f: Any) -> None:
    step, want, got = both(f, (W, X), {"data": 4}, ((P(), P("data")), P()))
    assert step.prove().ok
    assert all(difference(mine, its) < 1e-5 for mine, its in zip(want, got, strict=True))


def test_references_beside_the_check_of_what_varies() -> None:
    step, want, got = both(whole, (W, X), {"data": 4}, ((P(), P("data")), P()), check_vma=True)
    assert step.prove().ok
    assert all(difference(mine, its) < 1e-5 for mine, its in zip(want, got, strict=True))


def own(w: Any, x: Any) -> Any:
    r = jax.new_ref(w)
    r[0] = x[0]
    return jax.freeze(r), lax.pmean(x.sum(), "data")


def test_what_is_written_differs_where_it_differs() -> None:
    assert [each.path for each in from_jax(own, W, X, **CUT).prove().drifting] == ["w"]


def written(averaged: bool) -> Any:
    mesh = devices({"data": 4})

    def inner(x: Any) -> Any:
        return lax.pmean(x.sum(0), "data") if averaged else x.sum(0)

    def step(r: Any, x: Any) -> Any:
        change = jax.shard_map(inner, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False)(x)
        r[...] = r[...] - change
        return change.sum()

    return jax.jit(step)


def test_a_reference_that_is_an_argument_is_a_state() -> None:
    r = jax.new_ref(jax.device_put(W, NamedSharding(devices({"data": 4}), P())))
    step = from_jax(written(True), r, X)
    assert step.prove().ok
    assert step.argument("r").role == "state"
    written(True)(r, X)
    assert difference(np.asarray(r[...]), step.run()["r"][0]) < 1e-5
    assert "r" in {each.path for each in from_jax(written(False), r, X).prove().drifting}


def test_a_map_writes_to_a_reference() -> None:
    mesh = devices({"data": 4})

    def step(r: Any, x: Any) -> None:
        def inner(r: Any, x: Any) -> None:
            r[...] = r[...] - x.sum()

        jax.shard_map(inner, mesh=mesh, in_specs=(P(), P("data")), out_specs=None, check_vma=False)(r, x)

    proof = from_jax(jax.jit(step), jax.new_ref(jnp.asarray(W)), X).prove()
    assert [each.path for each in proof.drifting] == ["r"]


def test_a_reference_that_a_step_closes_over_is_refused() -> None:
    r = jax.new_ref(jnp.asarray(W))

    def step(x: Any) -> Any:
        r[...] = r[...] - x.sum()
        return x

    with pytest.raises(UnsupportedError, match="a reference that is not its argument"):
        from_jax(step, X)
