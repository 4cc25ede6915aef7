"""Steps that the compiler shards, beside the buffers of JAX's own devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
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
from popsr.errors import ReplicaError
from tests_py.bridge.jax.compare import difference

AxisType: Any = getattr(jax.sharding, "AxisType", None)
pytestmark = pytest.mark.skipif(AxisType is None, reason="needs JAX with kinds of axes")
IN_A_MESH = pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs JAX with set_mesh")
SIZES = {"data": 2, "model": 2}
KEPT = "sharded by the compiler over data=2, model=2"


def mesh_of(kind: Any = None, sizes: dict[str, int] = SIZES) -> Any:
    kind = AxisType.Auto if kind is None else kind
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(kind,) * len(sizes))


def named(*spec: Any, mesh: Any = None) -> Any:
    return NamedSharding(mesh_of() if mesh is None else mesh, P(*spec))


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def weights() -> Any:
    return {"a": numbers(4, 8), "b": numbers(8, 2)}


SPECS = {"a": P(None, "model"), "b": P("model", None)}
DATA = (numbers(8, 4), numbers(8, 2))


def loss(w: Any, x: Any, y: Any) -> Any:
    return ((jax.nn.relu(x @ w["a"]) @ w["b"] - y) ** 2).mean()


def plain(w: Any, x: Any, y: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(w, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), value


def constrained(w: Any, x: Any, y: Any) -> Any:
    return plain(w, lax.with_sharding_constraint(x, named("data")), y)


def abstract(w: Any, x: Any, y: Any) -> Any:
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    return plain(w, lax.with_sharding_constraint(x, NamedSharding(mesh, P("data"))), y)


def of_specs(w: Any, x: Any, y: Any) -> Any:
    return plain(w, lax.with_sharding_constraint(x, P("data")), y)


def explicit(w: Any, x: Any, y: Any) -> Any:
    def of(w: Any) -> Any:
        hidden = jnp.einsum("ij,jk->ik", x, w["a"], out_sharding=P("data", "model"))
        out = jnp.einsum("ij,jk->ik", hidden, w["b"], out_sharding=P("data", None))
        return ((out - y) ** 2).mean()

    value, grads = jax.value_and_grad(of)(w)
    kept = jax.tree.map(lambda g, p: jax.sharding.reshard(g, jax.typeof(p).sharding.spec), grads, w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, kept), value


def put(mesh: Any) -> tuple[Any, ...]:
    placed = jax.tree.map(lambda a, spec: jax.device_put(a, NamedSharding(mesh, spec)), weights(), SPECS)
    return placed, *(jax.device_put(a, NamedSharding(mesh, P("data"))) for a in DATA)


def shapes() -> tuple[Any, ...]:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (weights(), *DATA))


def jitted_with_shardings(f: Any) -> Any:
    mesh = mesh_of()
    of_weights = jax.tree.map(lambda spec: NamedSharding(mesh, spec), SPECS)
    data = NamedSharding(mesh, P("data"))
    return jax.jit(
        f, in_shardings=(of_weights, data, data), out_shardings=(of_weights, NamedSharding(mesh, P()))
    )


@dataclass
class Case:
    """A step, what it is traced with, and how its weights lie."""

    step: Callable[[], Any]
    args: Callable[[], tuple[Any, ...]]
    cut: bool = True
    within: Callable[[], Any] = field(default=contextlib.nullcontext)

    @property
    def marks(self) -> list[Any]:
        return [] if self.within is contextlib.nullcontext else [IN_A_MESH]


CASES: dict[str, Case] = {
    "arrays on a mesh": Case(lambda: jax.jit(plain), lambda: put(mesh_of())),
    "donated": Case(lambda: jax.jit(plain, donate_argnums=0), lambda: put(mesh_of())),
    "in_shardings": Case(lambda: jitted_with_shardings(plain), lambda: (weights(), *DATA)),
    "shapes and in_shardings": Case(lambda: jitted_with_shardings(plain), shapes),
    "a constraint": Case(lambda: jax.jit(constrained), lambda: (weights(), *DATA), cut=False),
    "a constraint and arrays": Case(lambda: jax.jit(constrained), lambda: put(mesh_of())),
    "an abstract mesh": Case(lambda: jax.jit(abstract), lambda: (weights(), *DATA), cut=False),
    "a spec in a mesh": Case(
        lambda: jax.jit(of_specs),
        lambda: (weights(), *DATA),
        cut=False,
        within=lambda: jax.set_mesh(mesh_of()),
    ),
    "explicit axes": Case(
        lambda: jax.jit(explicit),
        lambda: put(mesh_of(AxisType.Explicit)),
        within=lambda: jax.set_mesh(mesh_of(AxisType.Explicit)),
    ),
}


WITHOUT_DEVICES = ("an abstract mesh", "shapes and in_shardings")


NAMES = [pytest.param(name, marks=case.marks) for name, case in CASES.items()]


@pytest.mark.parametrize("name", NAMES)
def test_a_sharding_changes_no_value(name: str) -> None:
    case = CASES[name]
    with case.within():
        proof = popsr.prove(case.step(), *case.args())
    assert proof.ok
    assert not proof.lints
    assert str(proof).count(KEPT) == 1
    declared = {str(each.declared) for each in proof.states}
    assert declared == ({"{0,2}{1,3}"} if case.cut else {"{0,1,2,3}"})


@pytest.mark.parametrize("name", [each for each in NAMES if each.values[0] not in WITHOUT_DEVICES])
def test_runs_give_what_jax_computes(name: str) -> None:
    case = CASES[name]
    with case.within():
        step = from_jax(case.step(), *case.args())
        (new, value) = case.step()(*case.args())
    found = step.run()
    assert difference(np.asarray(value), found["result[1]"]) < 1e-5
    for key, array in new.items():
        rows, groups = found[f"w['{key}']"], step.argument(f"w['{key}']").grouping.groups
        parts = _parts(array)
        for members in groups:
            assert all(parts[member].tobytes() == parts[members[0]].tobytes() for member in members)
            if rows[members[0]].shape == parts[members[0]].shape:
                assert difference(parts[members[0]], rows[members[0]]) < 1e-5


def _parts(array: Any) -> list[Any]:
    """The part on each device, in the order of the mesh."""
    return [
        np.asarray(each.data) for each in sorted(array.addressable_shards, key=lambda each: each.device.id)
    ]


# Maps inside


def mapped(averaged: bool, check: bool = False) -> Any:
    def gradient(w: Any, x: Any, y: Any) -> Any:
        grads = jax.grad(loss)(w, x, y)
        return jax.tree.map(lambda g: lax.pmean(g, "data"), grads) if averaged else grads

    def step(w: Any, x: Any, y: Any) -> Any:
        specs = (P(), P("data"), P("data"))
        x = lax.with_sharding_constraint(x, named("data"))
        grads = jax.shard_map(gradient, mesh=mesh_of(), in_specs=specs, out_specs=P(), check_vma=check)(
            w, x, y
        )
        new = jax.tree.map(lambda p, g: p - 0.1 * g, w, grads)
        return jax.tree.map(lambda p, spec: lax.with_sharding_constraint(p, named(*spec)), new, SPECS)

    return jax.jit(step)


def test_a_map_inside_is_analysed_with_its_replicas() -> None:
    proof = popsr.prove(mapped(averaged=True), weights(), *DATA)
    assert proof.ok
    assert KEPT in str(proof)
    proof = popsr.prove(mapped(averaged=False), weights(), *DATA)
    assert not proof.ok
    assert {str(each.proved) for each in proof.drifting} == {"{0,1}{2,3}"}
    assert "stream 'x'" in str(proof)


def reshard_of_copies(w: Any) -> Any:
    """The map returns parts along data that differ over model, and what is outside takes them for copies."""
    parts = jax.shard_map(
        lambda v: v + lax.axis_index("model").astype(np.float32),
        mesh=mesh_of(),
        in_specs=P("data"),
        out_specs=P("data"),
        check_vma=False,
    )(w)
    return lax.with_sharding_constraint(parts * 2, named("model"))


def test_the_compiler_may_use_any_of_what_it_takes_for_copies() -> None:
    """On the devices the parts that are to be equal over data then differ; without the map they are equal."""
    w = jax.device_put(numbers(4, 4), named("model"))
    parts = _parts(jax.jit(reshard_of_copies, out_shardings=named("model"))(w))
    assert parts[0].tobytes() != parts[2].tobytes()
    proof = popsr.prove(jax.jit(reshard_of_copies, out_shardings=named("model")), w, updates={0: 0})
    assert not proof.ok
    assert [each.path.partition(" at ")[0] for each in proof.unequal] == ["output 0 of shard_map"]


def test_a_map_whose_results_are_the_steps_has_no_copies_but_these() -> None:
    f = jax.shard_map(
        lambda w, x: (w + x.sum(), x),
        mesh=mesh_of(),
        in_specs=(P(), P("data")),
        out_specs=(P(), P("data")),
        check_vma=False,
    )
    step = from_jax(jax.jit(f), numbers(4, 4), DATA[0])
    assert not step.expected
    assert not step.notes


def test_meshes_of_other_sizes_are_refused() -> None:
    small = mesh_of(sizes={"data": 2})

    def step(w: Any) -> Any:
        w = lax.with_sharding_constraint(w, named("data"))
        return lax.with_sharding_constraint(w, NamedSharding(small, P("data")))

    with pytest.raises((ReplicaError, ValueError), match="devices"):
        from_jax(jax.jit(step), numbers(4, 4))


@IN_A_MESH
def test_parts_of_a_sum_that_the_compiler_has_are_the_sum() -> None:
    mesh = mesh_of(AxisType.Explicit)

    def step(w: Any, x: Any) -> Any:
        product = jnp.einsum("ij,jk->ik", x.T, x, out_sharding=P(unreduced={"data"}))
        return w + jax.sharding.reshard(product, P())

    with jax.set_mesh(mesh):
        x = jax.device_put(DATA[0], NamedSharding(mesh, P("data")))
        read, want = from_jax(step, numbers(4, 4), x), jax.jit(step)(numbers(4, 4), x)
    assert read.prove().ok
    assert difference(np.asarray(want), read.run()["w"][0]) < 1e-5


@IN_A_MESH
def test_parts_of_a_sum_that_a_map_returns_are_a_gap() -> None:
    mesh = mesh_of(AxisType.Explicit)

    def step(w: Any, x: Any) -> Any:
        add = jax.shard_map(
            lambda w, x: w * x.sum(), in_specs=(P(), P("data")), out_specs=P(unreduced={"data"})
        )
        return w + jax.sharding.reshard(add(w, x), P())

    with jax.set_mesh(mesh):
        x = jax.device_put(DATA[0], NamedSharding(mesh, P("data")))
        read = from_jax(step, numbers(4, 4), x, unsupported="conservative")
    assert read.gaps
    assert not read.prove().ok
