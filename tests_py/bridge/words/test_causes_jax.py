"""One mistake of a sharded model of JAX is told once, in the names of its mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.jax as bridge
from popsr.bridge import Proof

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

MESH = {"data": 2, "model": 2}
WIDTH = 8
BLOCK = {"norm": P(), "up": P(None, "model"), "down": P("model")}


def model(layers: int) -> tuple[Any, Any]:
    """Parameters and specs of layers that are cut over ``model``."""
    block = {"norm": jnp.ones(WIDTH), "up": jnp.ones((WIDTH, 16)), "down": jnp.ones((16, WIDTH))}
    params = {"emb": jnp.ones((4, WIDTH)), "blocks": [block] * layers}
    return params, {"emb": P(), "blocks": [BLOCK] * layers}


def loss_of(params: Any, x: Any) -> Any:
    h = params["emb"][x]
    for each in params["blocks"]:
        up = jnp.tanh(h * each["norm"] @ each["up"])
        h = h + jax.lax.psum(up @ each["down"], "model")
    return (h**2).mean()


def proved(layers: int, optimizer: Any, mesh: dict[str, int] = MESH, **options: Any) -> Proof:
    """A step that averages gradients over ``data``: those of what all have in common lack their sum over ``model``."""
    params, specs = model(layers)
    state = optimizer.init(params)
    of_state = optax.tree_map_params(
        optimizer, lambda _, spec: spec, state, specs, transform_non_params=lambda _: P()
    )

    def step(params: Any, state: Any, x: Any) -> Any:
        grads = jax.lax.pmean(jax.grad(loss_of)(params, x), "data")
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    x = np.zeros((mesh["data"] * 2,), np.int32)
    return popsr.prove(
        step, params, state, x,
        mesh=mesh, in_specs=(specs, of_state, P("data")), out_specs=(specs, of_state), check_vma=False, **options,
    )  # fmt: skip


@pytest.mark.parametrize("layers", [2, 9])
def test_a_missing_sum_of_all_layers_is_one_line(layers: int) -> None:
    proof = proved(layers, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1)))
    assert len(proof.drifting) == 3 * (layers + 1)  # the sharded ones do not
    [text] = proof.problems
    assert text.startswith(
        "'params['blocks'][*]['norm']', 'params['emb']', 'state[1][0].mu['blocks'][*]['norm']'"
    )
    assert f"({3 * (layers + 1)} values) differ over model {{0,2}}{{1,3}}: " in text
    assert " is not linear in it: a later sum is wrong; replicas differ as" in text
    assert (
        text.index("part of its gradient, made at")
        < text.index("replicas differ as")
        < text.index("is sharded over model")
    )
    assert len(text) < 490  # of the 500 that a text of an error has


def test_groups_are_axes_in_all_tables() -> None:
    proof = proved(1, optax.sgd(0.1))
    w = proof.value("params['blocks'][0]['up']")
    assert (w.shown_declared, w.shown_proved) == ("sharded over model {0,2}{1,3}",) * 2
    norm = proof.value("params['blocks'][0]['norm']")
    assert (norm.shown_declared, norm.shown_proved) == (
        "equal over data, model",
        "differs over model {0,2}{1,3}",
    )
    assert str(norm).startswith(
        "params['blocks'][0]['norm'] float32[8]: declared equal over data, model, proved differs over model {0,2}{1,3}"
    )
    assert "sharded over data {0,1}{2,3}" in str(proof.step)
    for text in (str(proof), str(proof.step)):
        assert "equal over data, model" in text
    [why] = {lint.text for lint in proof.lints if lint.code == "L2" and "'params['emb']'" in lint.text}
    assert "a run leaves it equal over data {0,2}{1,3}" in why


def test_explanations_have_the_axes() -> None:
    why = proved(1, optax.sgd(0.1)).explain("params['emb']")
    assert why is not None
    assert why.root is not None
    assert why.root.text == "'params['blocks'][0]['up']' is declared equal over data {0,2}{1,3}"
    assert why.root.text in str(why)


def test_the_page_has_the_axes(tmp_path: Any) -> None:
    file = tmp_path / "proof.html"
    proved(1, optax.sgd(0.1)).save_html(file)
    text = file.read_text()
    for words in ("differs over model {0,2}{1,3}", "sharded over model {0,2}{1,3}", "equal over data, model"):
        assert words in text


def test_many_replicas_are_told_in_few_words() -> None:
    proof = proved(1, optax.sgd(0.1), {"data": 16, "model": 8})
    [text] = proof.problems
    assert " differ over model: " in text
    assert "is sharded over model, at" in text
    assert len(text) < 330


def test_a_step_without_a_mesh_has_no_axes() -> None:
    step = bridge.from_jax(lambda w, x: w + x.sum(), np.zeros(1), np.ones(1), replicas=2)
    assert step.axes is None


def test_an_axis_of_pmap_is_one_of_the_user() -> None:
    w, x = np.zeros(2, np.float32), np.zeros((4, 2), np.float32)
    proof = popsr.prove(lambda w, x: w + x, w, x, replicas=4, axis_name="batch", in_axes=(None, 0))
    assert proof.problems[0].startswith(
        "'w' differs over batch: stream 'x' gives each replica data of its own"
    )


def test_a_dropped_unit_does_not_hide_a_missing_sum() -> None:
    def step(w: Any, key: Any, x: Any) -> Any:
        own = jax.random.fold_in(key, jax.lax.axis_index("data"))
        g = jax.grad(lambda w: (w * jax.random.bernoulli(own, 0.5, w.shape) * x.sum(0)).sum())(w)
        return w - g, jax.random.split(key)[0]

    key = jax.random.key_data(jax.random.key(0))

    def typed(w: Any, key: Any, x: Any) -> Any:
        w, key = step(w, jax.random.wrap_key_data(key), x)
        return w, jax.random.key_data(key)

    w, x = np.zeros(2, np.float32), np.zeros((4, 2), np.float32)
    proof = popsr.prove(
        typed,
        w,
        key,
        x,
        mesh={"data": 2},
        in_specs=(P(), P(), P("data")),
        out_specs=(P(), P()),
        check_vma=False,
    )
    [text] = proof.problems
    assert text.startswith("'w' differs over data: each replica has a part of its gradient, made at ")


@pytest.mark.parametrize(
    ("twice", "text"), [(False, "in 'block_*/mlp' each replica"), (True, " in 'block_*/mlp': ")]
)
def test_causes_say_the_named_scopes(twice: bool, text: str) -> None:
    """Gradients that nobody averages, and sums of what ``model`` holds equal already."""

    def loss_of(weights: Any, x: Any) -> Any:
        for number, w in enumerate(weights):
            with jax.named_scope(f"block_{number}"), jax.named_scope("mlp"):
                x = jnp.tanh(x @ w)
                x = jax.lax.psum(x, "model") if twice else x
        return (x**2).mean()

    def step(weights: Any, x: Any) -> Any:
        grads = jax.grad(loss_of)(weights, x)
        change = jax.lax.pmean(grads, "data") if twice else grads
        return (jax.tree.map(jnp.subtract, weights, change),)

    proof = popsr.prove(
        step, [np.ones((4, 4), np.float32)] * 3, np.ones((4, 4), np.float32),
        mesh=MESH, in_specs=(P(), P("data")), out_specs=P(), check_vma=False,
    )  # fmt: skip
    assert proof.verdict == ("suspicious" if twice else "not ok")
    assert text in proof.problems[0]
