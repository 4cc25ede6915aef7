"""The forms of steps that are read, their names, roles, groups and lines."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import popsr
from popsr.bridge.jax import from_jax
from tests_py.bridge.jax.compare import devices

W = np.arange(8, dtype=np.float32).reshape(4, 2)
X = np.arange(32, dtype=np.float32).reshape(8, 4) / 8
GRID = {"data": 2, "model": 2}


def sgd(w: Any, x: Any) -> Any:
    loss, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    return w - 0.1 * lax.pmean(g, "data"), lax.pmean(loss, "data")


def mapped(f: Any, in_specs: Any, out_specs: Any, sizes: Any = None, **options: Any) -> Any:
    return jax.shard_map(
        f, mesh=devices(sizes or {"data": 4}), in_specs=in_specs, out_specs=out_specs, **options
    )


SGD: dict[str, Any] = {"in_specs": (P(), P("data")), "out_specs": (P(), P())}


def test_all_forms_of_a_step_are_one_program() -> None:
    """A mesh and specs, a jitted shard_map, one inside of other code, pmap-style replicas: the same new weights."""
    whole = mapped(sgd, *SGD.values(), check_vma=False)

    @jax.jit
    def outer(w: Any, x: Any) -> Any:
        return whole(w * 1.0, x)

    steps = {
        "sizes": from_jax(sgd, W, X, mesh={"data": 4}, check_vma=False, **SGD),
        "mesh": from_jax(sgd, W, X, mesh=devices({"data": 4}), check_vma=False, **SGD),
        "jit": from_jax(jax.jit(whole), W, X),
        "inside": from_jax(outer, W, X),
        "replicas": from_jax(sgd, W, X.reshape(4, 2, 4), replicas=4, axis_name="data", in_axes=(None, 0)),
    }
    want = jax.jit(whole)(W, X)
    for name, step in steps.items():
        assert step.ir.replication_factor == 4, name
        assert step.prove().ok
        assert step.argument("w").role == "state", name
        assert step.argument("x").role == "data", name
        np.testing.assert_allclose(step.run()["w"][0], want[0], rtol=1e-6)


OF_A_MAP = pytest.mark.skipif(not hasattr(jax, "make_user_context"), reason="needs JAX with nested maps")


@OF_A_MAP
def test_a_step_that_jax_maps_itself() -> None:
    f = jax.pmap(sgd, axis_name="data", in_axes=(None, 0), out_axes=(None, None))
    step = from_jax(f, W, X.reshape(4, 2, 4))
    assert step.ir.replication_factor == 4
    assert step.prove().ok


def local_sgd(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)


@pytest.mark.parametrize("form", [pytest.param("pmap", marks=OF_A_MAP), "rows"])
def test_rows_that_are_declared_equal(form: str) -> None:
    """As ``pmap`` keeps parameters: a row for each device."""
    rows, batches = np.stack([W] * 4), X.reshape(4, 2, 4)

    def read(f: Any, **options: Any) -> Any:
        if form == "pmap":
            return from_jax(jax.pmap(f, axis_name="data"), rows, batches, **options)
        return from_jax(f, rows, batches, replicas=4, axis_name="data", **options)

    assert str(read(local_sgd).prove().states[0].declared) == "{0}{1}{2}{3}"
    proof = read(local_sgd, replicated=["w"]).prove()
    assert [each.path for each in proof.drifting] == ["w"]
    assert len(proof.pending) == 1
    right = read(lambda w, x: sgd(w, x)[0], replicated=["w"])
    assert right.prove().ok
    want = jax.pmap(lambda w, x: sgd(w, x)[0], axis_name="data")(rows, batches)
    np.testing.assert_allclose(right.run()["w"].reshape(rows.shape), want, rtol=1e-6)


def test_state_and_data_lie_as_the_specs_say() -> None:
    def step(w: Any, x: Any) -> Any:
        y = lax.psum(x @ w, "model")
        return w * 2, lax.pmean(y, "data")

    read = from_jax(
        step, W, X, mesh=GRID, in_specs=(P("model"), P("data", "model")), out_specs=(P("model"), P())
    )
    w, x = read.argument("w"), read.argument("x")
    assert (w.shape, str(w.grouping.partition)) == ((2, 2), "{0,2}{1,3}")
    assert (x.shape, str(x.grouping.partition)) == ((4, 2), "{0}{1}{2}{3}")
    assert read.prove().ok
    got = read.run()
    np.testing.assert_allclose(got["result[1]"], (X[:4] @ W + X[4:] @ W) / 2, rtol=1e-6)
    np.testing.assert_array_equal(got["w"], [2 * W[:2], 2 * W[2:], 2 * W[:2], 2 * W[2:]])


def test_other_data_than_the_example() -> None:
    read = from_jax(sgd, W, X, mesh={"data": 4}, **SGD)
    one = read.run()["result[1]"]
    read.restart()
    two = read.run({"x": jnp.asarray(X) * 2})["result[1]"]
    np.testing.assert_allclose(two, 4 * one, rtol=1e-5)


def test_states_follow_from_results() -> None:
    """Trees with the shapes and dtypes of a result; a single float is a loss; ``updates`` decides where it is given."""

    def step(params: Any, count: Any, scale: Any, x: Any) -> Any:
        return params, count + 1, scale * x.sum()

    args = ({"w": W}, np.int32(3), np.float32(1), X)
    kinds = {each.path: each.role for each in from_jax(step, *args).arguments}
    assert kinds == {"params['w']": "state", "count": "state", "scale": "data", "x": "data"}
    read = from_jax(step, *args, updates={2: 2})
    assert read.argument("scale").role == "state"
    assert read.argument("count").role == "data"
    read = from_jax(step, *args, roles={"x": "constant", "params": "state"})
    assert read.argument("x").role == "constant"


def test_states_go_on_from_run_to_run() -> None:
    read = from_jax(lambda count, x: (count + 1, x.sum()), np.int32(3), X)
    assert [int(read.run()["count"]) for _ in range(3)] == [4, 5, 6]


def test_shapes_alone_are_enough_for_a_proof() -> None:
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (W, X)]
    step = from_jax(sgd, *shapes, mesh={"data": 1024}, in_specs=(P(), P()), out_specs=(P(), P()))
    assert step.ir.replication_factor == 1024
    assert step.prove().ok


def test_names() -> None:
    step = from_jax(lambda w, x: (w, {"loss": x.sum()}), [W, W], X, names=["weights", "batch"])
    assert [each.path for each in step.arguments] == ["weights[0]", "weights[1]", "batch"]
    assert [each.path for each in step.results] == ["result[1]['loss']"]


def test_keys_of_random_bits_are_arguments() -> None:
    step = from_jax(lambda key, x: (x, jax.random.key_data(key)), jax.random.key(5), X)
    assert step.argument("key").shape == (2,)
    kept = from_jax(lambda key, x: (key, x.sum()), jax.random.key(5), X)
    assert kept.argument("key").role == "state"
    np.testing.assert_array_equal(kept.run()["key"], [0, 5])


def test_arrays_that_change_their_cut_outside() -> None:
    """Results of one shard_map go into another with other specs: gathered and cut again."""
    one = mapped(lambda x: x * 2, P("data"), P("data"), GRID)
    two = mapped(lambda x: x + lax.axis_index("model"), P(None, "model"), P(None, "model"), GRID)

    def f(x: Any) -> Any:
        return two(one(x) + 1), one(x)

    step = from_jax(f, X, roles={}, updates={})
    want = jax.jit(f)(X)
    got = step.run()
    np.testing.assert_array_equal(got["result[0]"], want[0])
    np.testing.assert_array_equal(got["result[1]"], want[1])


@OF_A_MAP
def test_nested_shard_map() -> None:
    mesh = devices(GRID)

    def inner(x: Any) -> Any:
        return lax.psum(x, "model") + lax.axis_index("data")

    def outer(x: Any) -> Any:
        nested = jax.shard_map(inner, in_specs=P(None, "model"), out_specs=P(), axis_names={"model"})
        return nested(x) * 2

    f = jax.shard_map(outer, mesh=mesh, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})
    step = from_jax(f, X, roles={}, updates={})
    np.testing.assert_array_equal(step.run()["result"], jax.jit(f)(X))


def test_pjit_without_shard_map_is_the_same_on_all_replicas() -> None:
    sharding = NamedSharding(devices(GRID), P("data", "model"))
    f = jax.jit(lambda x: x @ x.T, in_shardings=sharding)
    step = from_jax(f, X, replicas=4)
    assert step.ir.replication_factor == 4
    np.testing.assert_allclose(step.run()["result"], X @ X.T, rtol=1e-6)


def helper(x: Any) -> Any:
    y = jax.nn.relu(x)
    return jax.nn.relu(y + 1)


def test_ops_are_at_the_lines_of_the_user() -> None:
    """Also those of functions of jax that are traced once and called from several lines."""
    step = from_jax(helper, X)
    _, first = inspect.getsourcelines(helper)
    found = [(op.kind, int(op.location.rpartition(":")[2]) - first) for op in step.ir.main_graph.ops]
    assert [line for kind, line in found if kind == "maximum"] == [1, 2]
    assert all("test_steps.py" in op.location for op in step.ir.main_graph.ops)


def test_prove_reads_functions() -> None:
    proof = popsr.prove(sgd, W, X, mesh={"data": 4}, check_vma=False, **SGD)
    assert proof.ok


def test_a_large_loop_is_one_graph() -> None:
    step = from_jax(lambda x: lax.fori_loop(0, 1000, lambda i, c: c * 0.5, x), X)
    assert step.ir._core.num_ops < 40


def test_a_branch_on_a_varying_predicate_makes_the_state_drift() -> None:
    def f(w: Any, x: Any) -> Any:
        return lax.cond(x.sum() > 3, lambda w: w * 2, lambda w: w + 1, w), lax.pmean(x.sum(), "data")

    step = from_jax(f, W, X, mesh={"data": 4}, check_vma=False, **SGD)
    assert [each.path for each in step.prove().drifting] == ["w"]


def test_a_branch_on_an_agreed_predicate_keeps_the_state() -> None:
    def f(w: Any, x: Any) -> Any:
        agreed = lax.pmean(x.sum(), "data")
        return lax.cond(agreed > 3, lambda w: w * 2, lambda w: w + 1, w), agreed

    assert from_jax(f, W, X, mesh={"data": 4}, check_vma=False, **SGD).prove().ok


def body(i: Any, c: Any) -> Any:
    d = jnp.sin(c)
    return d * 2


def looped(x: Any) -> Any:
    return lax.fori_loop(0, 5, body, x)


def test_ops_of_a_loop_are_at_the_lines_of_its_body() -> None:
    step = from_jax(looped, X)
    (graph,) = {op.called_graphs[0] for op in step.ir.main_graph.ops if op.kind == "repeat"}
    _, first = inspect.getsourcelines(body)
    found = {op.kind: int(op.location.rpartition(":")[2]) - first for op in graph.ops}
    assert (found["sin"], found["mul"]) == (1, 2)
