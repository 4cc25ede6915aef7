"""Steps of JAX that call installed packages: lines are the user's, scopes those of ``jax.named_scope``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr.bridge.jax as bridge
from popsr._program.op import Op
from popsr.errors import UnsupportedOpsError
from tests_py.bridge.words.library import installed, line_of

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

LIBRARY = """
import jax


def layer(w, x):
    return jax.numpy.tanh(w * x)


def apply(function, *args):
    return function(*args)


def update(params, grads):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def odd(x):
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((2,), x.dtype), x[0])
"""
W, X = {"w": np.ones(2, np.float32)}, np.ones((4, 2), np.float32)


def read(step: Any, *args: Any) -> Any:
    return bridge.from_jax(
        step, *args, replicas=2, axis_name="data", in_axes=(None, *[0] * (len(args) - 1)), roles={"x": "data"}
    )


def places(step: Any) -> set[str]:
    ops = (Op(step.ir, number) for number in range(step.ir._core.num_ops))
    return {op.location for op in ops if op.kind not in ("copy_var_update_", "host_load", "host_store")}


@pytest.mark.parametrize("site", ["site-packages", "dist-packages"])
def test_ops_of_a_library_are_at_the_line_that_calls_it(tmp_path: Path, site: str) -> None:
    library = installed(tmp_path, site, f"jax_{site[:4]}", LIBRARY)

    def own(w: Any, x: Any) -> Any:
        return w * x  # callback

    def step(params: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            h = library.layer(p["w"], x)  # layer
            return library.apply(own, p["w"], h).sum()  # apply

        return library.update(params, jax.grad(loss)(params))  # update

    made = read(step, W, X[:2])
    found = places(made)
    assert not [place for place in found if "package" in place.rsplit("tests_py", 1)[-1]]
    for text in ("layer", "callback", "update"):
        assert line_of(__file__, text) in found
    proof = made.prove()
    assert proof.value("params['w']").written == line_of(__file__, "update")


def test_updates_of_optax_are_at_the_line_of_the_user() -> None:
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1))
    state = optimizer.init(W)

    def step(params: Any, state: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: (p["w"] * x).sum())(params)
        updates, state = optimizer.update(grads, state, params)  # optimizer
        return optax.apply_updates(params, updates), state  # updates

    made = bridge.from_jax(step, W, state, X[:2], replicas=2, axis_name="data", in_axes=(None, None, 0))
    assert {Path(place.rpartition(":")[0]).name for place in places(made)} == {Path(__file__).name}
    proof = made.prove()
    assert proof.value("params['w']").written == line_of(__file__, "updates")
    [text] = proof.problems
    used = Path(line_of(__file__, "optimizer")).name
    assert f"used at {used}, which is not linear in it: a later sum is wrong" in text


def test_an_unsupported_op_names_both_lines(tmp_path: Path) -> None:
    library = installed(tmp_path, "site-packages", "jax_odd", LIBRARY)

    def step(params: Any, x: Any) -> Any:
        return {"w": params["w"] + library.odd(x)}  # odd

    with pytest.raises(UnsupportedOpsError) as caught:
        read(step, W, np.ones((2, 2, 2), np.float32))
    [note] = [each for each in caught.value.__notes__ if each.startswith("pure_callback")]
    assert note == f"pure_callback at {line_of(__file__, 'odd')} (in package/jax_odd.py:18)"


def scopes(step: Any) -> set[str]:
    names = (Op(step.ir, n).outputs for n in range(step.ir._core.num_ops))
    return {each[0].name.rpartition("/")[0] for each in names if each}


def test_named_scopes_are_scopes_of_ops() -> None:
    def layer(w: Any, x: Any) -> Any:
        with jax.named_scope("inner"):
            return jax.jit(lambda t: jax.numpy.tanh(t * w))(x)

    def step(params: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            with jax.named_scope("block"):
                h = layer(p["w"], x)
                with jax.named_scope("loop"):
                    h = jax.lax.scan(lambda c, _: (layer(p["w"], c), None), h, None, length=3)[0]
            return h.sum()

        with jax.named_scope("update"):
            return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params))

    found = scopes(read(step, W, X[:2]))
    assert {"block/inner", "block/loop/inner", "update"} <= {
        each.removeprefix("update/") for each in found
    } | {"update"}
    assert "update" in found
    assert not [each for each in found if each.count("block") > 1]


def test_scopes_are_bounded() -> None:
    def step(params: Any, x: Any) -> Any:
        with jax.named_scope("s" * 1000), jax.named_scope("t"):
            y = params["w"] * x
            for n in range(20):
                y = jax.named_call(lambda t: t + 1, name=f"n{n}")(y)
        deep = y
        for n in range(20):
            with jax.named_scope(f"d{n}"):
                deep = deep * 2
        return {"w": deep.sum(0) if deep.ndim > 1 else deep}

    names = [
        Op(step_.ir, n).outputs for step_ in [read(step, W, X[:2])] for n in range(step_.ir._core.num_ops)
    ]
    assert max(len(each[0].name) for each in names if each) < 400
    assert any(each[0].name.startswith("s" * 40 + "/t/") for each in names if each)
