"""Steps of JAX beside themselves on one device: right ones are the same, those that are wrong alike are not."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
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
from popsr.bridge import Proof, Sameness
from tests_py.bridge.jax.compare import devices
from tests_py.bridge.same.transformer import BATCH, OPTIONS, PARAMS, WRONG, Lines, step_of

W = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
X = np.arange(32, dtype=np.float32).reshape(8, 4) / 8
ENGINES = [pytest.param(True, id="exact"), pytest.param(False, id="float64")]


def beside(step: Any, *args: Any, exact: bool, like: Any = "one device", **options: Any) -> Proof:
    with warnings.catch_warnings():
        warnings.simplefilter("error", popsr.ReplicaWarning)
        return popsr.prove(step, *args, like=like, exact=exact, **options)


def same(proof: Proof) -> Sameness:
    assert proof.same is not None
    return proof.same


def verdicts(proof: Proof) -> dict[str, str]:
    return {each.path: each.verdict for each in same(proof).values}


def differing(proof: Proof) -> set[str]:
    """Paths of values that differ."""
    return {each.path for each in same(proof).differing}


@pytest.mark.parametrize("exact", ENGINES)
def test_a_right_transformer_is_the_same(exact: bool) -> None:
    proof = beside(step_of(Lines()), PARAMS, *BATCH, exact=exact, **OPTIONS)
    assert proof.ok
    assert same(proof).ok
    assert set(verdicts(proof)) == {*(f"params['{name}']" for name in PARAMS), "result[1]"}
    assert "same training as one device" in repr(proof)
    assert all(each.draws >= 1 for each in same(proof).values)


# Values that the wrong line has no way to.
SPARED = {
    "sum of means": {"result[1]"},
    "scaled by the heads of a replica": set[str](),
    "no sum in the backward pass": {"params['up']", "params['down']", "result[1]"},
    "sum in both passes": {"result[1]"},
    "mean of partial outputs": set[str](),
    "sum over the batch of a replica": set[str](),
}


# The line that is named, and what is said of it. Code of a backward pass is at the call of its function.
PLACES = {
    "sum of means": ("lines.of_gradients(g, ", "2 times the value of one device"),
    "scaled by the heads of a replica": ("/ np.sqrt(WIDTH // heads)", "another result"),
    "no sum in the backward pass": ("(copy(a) if lines.copied else a)", "the sum over model is missing"),
    "sum in both passes": ("h = h + reduce(jax.nn.gelu(", "4 times the value of one device"),
    "mean of partial outputs": ("return lines.of_outputs(t, ", "1/2 times the value of one device"),
    "sum over the batch of a replica": ("lines.of_gradients(g, ", "1/2 times the value of one device"),
}


# The change that makes it right.
CHANGES = {
    "sum of means": "a mean for the sum over data at ",
    "scaled by the heads of a replica": ", as on one device",
    "mean of partial outputs": "a sum for the mean over model at ",
}


@functools.cache
def proof_of_wrong(name: str, exact: bool) -> Proof:
    """The proof of a transformer with a wrong line, made once for the tests that look at it."""
    return beside(step_of(WRONG[name]), PARAMS, *BATCH, exact=exact, **OPTIONS)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", WRONG)
def test_the_line_is_named(name: str) -> None:
    proof = proof_of_wrong(name, True)
    place = same(proof).place
    assert place is not None
    assert place.location.rpartition(":")[0].endswith("transformer.py")
    line, text = PLACES[name]
    assert line in place.source
    assert text in place.text
    assert any(f"departs from one device at {place}" in each for each in proof.problems)
    assert CHANGES.get(name, "") in str(same(proof).repair)


@pytest.mark.share(5)
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("name", WRONG)
def test_a_line_that_is_wrong_alike_is_found(name: str, exact: bool) -> None:
    """Most of these steps are in step."""
    proof = proof_of_wrong(name, exact)
    assert proof.verdict == "not ok"
    assert same(proof).verdict == "differs"
    assert "from one device" in same(proof).problems[0]
    assert differing(proof) == {*(f"params['{name}']" for name in PARAMS), "result[1]"} - SPARED[name]


# Data parallelism


def sgd(reduce: Callable[[Any], Any], loss: Callable[[Any], Any]) -> Any:
    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(lambda w: loss((x @ w) ** 2))(w)
        return w - 0.1 * reduce(g), lax.pmean(value, "data")

    return step


def mean(t: Any) -> Any:
    return lax.pmean(t, "data")


def total(t: Any) -> Any:
    return lax.psum(t, "data")


DATA: dict[str, Any] = {
    "mesh": {"data": 4},
    "in_specs": (P(), P("data")),
    "out_specs": P(),
    "check_vma": False,
}
DATA_PARALLEL = [
    ("mean of means", sgd(mean, jnp.mean), set()),
    ("sum of means", sgd(total, jnp.mean), {"w"}),
    ("sum of sums", sgd(total, jnp.sum), {"result[1]"}),
    ("mean of sums", sgd(mean, jnp.sum), {"w", "result[1]"}),
    ("loss scaled by the global batch", sgd(total, lambda t: t.sum() / X.shape[0]), {"result[1]"}),
    ("loss scaled by the batch of a replica", sgd(total, lambda t: t.sum() / t.shape[0]), {"w"}),
    ("no reduction", sgd(lambda t: t, jnp.mean), {"w"}),
    ("norm of a part", sgd(lambda t: mean(t / jnp.sqrt((t * t).sum())), jnp.mean), {"w"}),
    ("norm of all", sgd(lambda t: mean(t) / jnp.sqrt((mean(t) ** 2).sum()), jnp.mean), set()),
]


@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize(("step", "wrong"), [pytest.param(*each[1:], id=each[0]) for each in DATA_PARALLEL])
def test_data_parallelism(step: Any, wrong: set[str], exact: bool) -> None:
    proof = beside(step, W, X, exact=exact, **DATA)
    assert differing(proof) == wrong
    assert set(verdicts(proof).values()) <= {"same", "differs"}
    assert same(proof).ok == (not wrong)


FORMS = {
    "mesh and specs": lambda step: (step, (W, X), DATA),
    "mesh of JAX": lambda step: (step, (W, X), {**DATA, "mesh": jax.sharding.AbstractMesh((4,), ("data",))}),
    "shard_map inside": lambda step: (shard_mapped(step), (W, X), {}),
    "jitted": lambda step: (jax.jit(shard_mapped(step)), (W, X), {}),
    "rows": lambda step: (
        step,
        (W, X.reshape(4, 2, 4)),
        {"replicas": 4, "axis_name": "data", "in_axes": (None, 0)},
    ),
    "rows of weights": lambda step: (
        step,
        (np.stack([W] * 4), X.reshape(4, 2, 4)),
        {"replicas": 4, "axis_name": "data", "replicated": ["w"]},
    ),
    "shapes": lambda step: (
        step,
        (jax.ShapeDtypeStruct(W.shape, W.dtype), jax.ShapeDtypeStruct(X.shape, X.dtype)),
        DATA,
    ),
}


# Meshes that are not given to popsr.


def whole(w: Any, x: Any) -> Any:
    """One program, which the compiler shards."""
    value, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
    return w - 0.1 * g, value


def outside(mesh: Any, reduce: Any) -> Any:
    """A loss that is mapped, in a step that is not."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            part = lambda x, w: reduce(((x @ w) ** 2).sum())  # noqa: E731
            return jax.shard_map(part, **{**DATA, "mesh": mesh, "in_specs": (P("data"), P())})(x, w)

        value, g = jax.value_and_grad(loss)(w)
        return w - 0.1 * g, value

    return step


def on_meshes() -> dict[str, tuple[Any, Any, bool]]:
    mesh, grid = devices({"data": 4}), devices({"data": 2, "model": 2})
    rows = NamedSharding(mesh, P("data"))
    explicit = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    right = sgd(mean, jnp.mean)
    placed = jax.device_put(X, NamedSharding(explicit, P("data")))
    partial = jax.shard_map(right, **{**DATA, "mesh": grid, "axis_names": {"data"}})
    return {
        "shardings of jit": (jax.jit(whole, in_shardings=(NamedSharding(mesh, P()), rows)), X, True),
        "shardings of arrays": (whole, jax.device_put(X, rows), True),
        "constraints": (lambda w, x: whole(w, lax.with_sharding_constraint(x, rows)), X, True),
        "inside of a whole step": (jax.jit(outside(mesh, total)), X, True),
        "mean inside of a whole step": (jax.jit(outside(mesh, mean)), X, False),
        "explicit axes": (jax.jit(jax.shard_map(right, **{**DATA, "mesh": explicit})), placed, True),
        "axes of the compiler": (jax.jit(partial), X, True),
    }


MESHES = [
    "shardings of jit",
    "shardings of arrays",
    "constraints",
    "inside of a whole step",
    "mean inside of a whole step",
    "explicit axes",
    "axes of the compiler",
]


@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("name", MESHES)
def test_meshes_of_the_step(name: str, exact: bool) -> None:
    step, x, right = on_meshes()[name]
    assert same(beside(step, W, x, exact=exact, names=["w", "x"])).ok == right


@pytest.mark.parametrize("exact", ENGINES)
def test_the_mesh_that_is_set(exact: bool) -> None:
    options = {name: value for name, value in DATA.items() if name != "mesh"}
    with jax.set_mesh(devices({"data": 4})):
        for reduce in (mean, total):
            step = jax.jit(jax.shard_map(sgd(reduce, jnp.mean), **options))
            assert same(beside(step, W, X, exact=exact, names=["w", "x"])).ok == (reduce is mean)


def shard_mapped(step: Any) -> Any:
    options = {**DATA, "mesh": jax.sharding.AbstractMesh((4,), ("data",))}
    return jax.shard_map(step, **options)


@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_step(form: str, exact: bool) -> None:
    for step, wrong in ((sgd(mean, jnp.mean), set()), (sgd(total, jnp.mean), {"w"})):
        read, args, options = FORMS[form](step)
        names = {} if form.startswith(("rows", "mesh", "shapes")) else {"names": ["w", "x"]}
        proof = beside(read, *args, exact=exact, **options, **names)
        assert differing(proof) == wrong, proof.same
        assert proof.ok == (not wrong), proof


@pytest.mark.parametrize("exact", ENGINES)
def test_a_jitted_step_is_not_changed_by_being_read(exact: bool) -> None:
    """JAX keeps nothing that it traced for one device."""
    mesh = devices({"data": 4})
    f = jax.jit(jax.shard_map(sgd(mean, jnp.mean), **{**DATA, "mesh": mesh}))
    before = f.lower(W, X).as_text()
    assert beside(f, W, X, names=["w", "x"], exact=exact).ok
    np.testing.assert_allclose(f(W, X)[0], W - 0.1 * jax.grad(lambda w: ((X @ w) ** 2).mean())(W), rtol=1e-5)
    assert f.lower(W, X).as_text() == before
    assert (dict(mesh.shape), mesh.size, mesh.devices.shape) == ({"data": 4}, 4, (4,))


@pytest.mark.parametrize("exact", ENGINES)
def test_sizes_that_the_step_reads_of_its_mesh_are_ones(exact: bool) -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("data",))

    def scaled(by: Callable[[], Any]) -> Any:
        return shard_mapped(sgd(lambda t: total(t) / by(), jnp.mean))

    sizes = (
        lambda: mesh.shape["data"],
        lambda: mesh.size,
        lambda: mesh.axis_sizes[0],
        lambda: dict(mesh.shape_tuple)["data"],
        lambda: lax.axis_size("data"),
    )
    for size in sizes:
        assert beside(scaled(size), W, X, names=["w", "x"], exact=exact).ok
    assert differing(beside(scaled(lambda: 4), W, X, names=["w", "x"], exact=exact)) == {"w"}


# Tensor parallelism


def mlp(of_outputs: Callable[[Any], Any], norm: Callable[[Any], Any] | None = None) -> Any:
    """A step of two layers; with ``norm`` gradients are divided by the root of that sum of squares of their norms."""

    def step(w1: Any, w2: Any, x: Any) -> Any:
        def loss(w1: Any, w2: Any) -> Any:
            return (of_outputs(jax.nn.relu(x @ w1) @ w2) ** 2).mean()

        value, (g1, g2) = jax.value_and_grad(loss, (0, 1))(w1, w2)
        if norm is not None:
            size = jnp.sqrt(norm(jnp.linalg.norm(g1) ** 2 + jnp.sqrt((g2 * g2).sum()) ** 2))
            g1, g2 = g1 / size, g2 / size
        return w1 - 0.1 * g1, w2 - 0.1 * g2, value

    return step


def psum(t: Any) -> Any:
    return lax.psum(t, "model")


MLP: dict[str, Any] = {"mesh": {"model": 2}, "in_specs": (P(None, "model"), P("model"), P())}
MLPS = [
    ("right", mlp(psum), (P(None, "model"), P("model"), P()), True),
    ("sum twice", mlp(lambda t: psum(psum(t))), (P(None, "model"), P("model"), P()), False),
    ("mean", mlp(lambda t: lax.pmean(t, "model")), (P(None, "model"), P("model"), P()), False),
    ("norms of parts", mlp(psum, psum), (P(None, "model"), P("model"), P()), True),
    ("norms of a part", mlp(psum, lambda t: t), (P(None, "model"), P("model"), P()), False),
]


@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize(("step", "specs", "right"), [pytest.param(*each[1:], id=each[0]) for each in MLPS])
def test_tensor_parallelism(step: Any, specs: Any, right: bool, exact: bool) -> None:
    proof = beside(step, W, W.T.copy(), X, exact=exact, out_specs=specs, **MLP)
    assert same(proof).ok == right, proof.same


@pytest.mark.parametrize("exact", ENGINES)
def test_a_missing_sum_of_partial_products(exact: bool) -> None:
    specs = (P(None, "model"), P("model"), P())
    proof = beside(mlp(lambda t: t), W, W.T.copy(), X, exact=exact, out_specs=specs, check_vma=False, **MLP)
    assert verdicts(proof) == dict.fromkeys(["w1", "w2", "result[2]"], "differs")


@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize(("spec", "right"), [(P("data"), True), (P(None, "data"), False)])
def test_specs_of_results(spec: Any, right: bool, exact: bool) -> None:
    """A result is joined as its spec says: an axis that it does not lie along joins other elements."""

    def step(w: Any, x: Any) -> Any:
        return w + lax.psum((x @ w).sum(), "data"), x @ w

    options = {**DATA, "out_specs": (P(), spec)}
    data = X.reshape(4, 2, 4).transpose(1, 0, 2).reshape(8, 4)
    proof = beside(step, W, data, exact=exact, **options)
    assert (verdicts(proof)["result[1]"] == "same") == right


@pytest.mark.parametrize("exact", ENGINES)
def test_adam(exact: bool) -> None:
    """Moments and counts are states: two steps tell them apart."""

    def step(w: Any, m: Any, v: Any, count: Any, x: Any, right: bool = True) -> Any:
        g = jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
        count = count + 1
        first = mean(g)
        second = mean(g) ** 2 if right else mean(g**2)
        m, v = 0.9 * m + 0.1 * first, 0.99 * v + 0.01 * second
        scale = jnp.sqrt(v / (1 - 0.99 ** count.astype(jnp.float32))) + 1e-8
        return w - 0.1 * m / scale, m, v, count

    def wrong(w: Any, m: Any, v: Any, count: Any, x: Any) -> Any:
        return step(w, m, v, count, x, False)

    args = (W, np.zeros_like(W), np.zeros_like(W), np.int32(0), X)
    updates = {n: n for n in range(4)}
    options = {**DATA, "in_specs": (P(), P(), P(), P(), P("data")), "updates": updates}
    names = ["w", "m", "v", "count", "x"]
    assert set(verdicts(beside(step, *args, exact=exact, names=names, **options)).values()) == {"same"}
    proof = beside(wrong, *args, exact=exact, **options)
    assert differing(proof) == {"w", "v"}


@pytest.mark.parametrize("exact", ENGINES)
def test_a_count_that_goes_on(exact: bool) -> None:
    """A use of a count of steps is compared in two of them."""

    def step(w: Any, count: Any, x: Any, wrong: bool = False) -> Any:
        g = jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
        late = jnp.where(count > 0, total(g), mean(g)) if wrong else mean(g)
        return w - 0.1 * late, count + 1

    options = {**DATA, "in_specs": (P(), P(), P("data")), "updates": {0: 0, 1: 1}}
    for wrong in (False, True):
        f = functools.partial(step, wrong=wrong)
        proof = beside(f, W, np.int32(0), X, exact=exact, names=["w", "count", "x"], **options)
        assert [(each.path, each.steps) for each in same(proof).differing] == [("w", 2)][: int(wrong)]


def clipped(norm: Callable[[Any], Any]) -> Any:
    """A step whose gradients are clipped to a norm of 1."""

    def step(w: Any, x: Any) -> Any:
        g = mean(jax.grad(lambda w: ((x @ w) ** 2).mean())(w))
        return w - 0.1 * g * jnp.minimum(1.0, 1.0 / norm(g))

    return step


@pytest.mark.parametrize("exact", ENGINES)
def test_clipping(exact: bool) -> None:
    """Both sides of a comparison of two numbers count, as one draw takes one of them."""
    right = clipped(lambda g: jnp.sqrt((g * g).sum()))
    wrong = clipped(lambda g: jnp.sqrt(total((g * g).sum())))
    assert same(beside(right, W, X, exact=exact, **DATA)).ok
    assert differing(beside(wrong, W, X, exact=exact, **DATA)) == {"w"}
