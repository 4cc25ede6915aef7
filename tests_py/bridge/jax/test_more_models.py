"""Nine further models: one step as JAX computes it, a proof, and everything drifting without the means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax.sharding import PartitionSpec as P

from popsr.bridge.jax import from_jax
from tests_py.bridge.jax.compare import devices, difference
from tests_py.bridge.jax.more_models import MODELS, train

IN, OUT = (P(), P(), P("data")), (P(), P(), P())


@pytest.mark.share(5)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("replicas", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_one_step(name: str, replicas: int) -> None:
    loss, params, batch = MODELS[name](np.random.default_rng(5))
    momentum = jax.tree.map(np.zeros_like, params)
    args = params, momentum, batch
    options: dict[str, Any] = {"in_specs": IN, "out_specs": OUT, "check_vma": False}
    step = from_jax(train(loss), *args, mesh={"data": replicas}, **options)
    mapped = jax.shard_map(train(loss), mesh=devices({"data": replicas}), **options)
    want = jax.jit(mapped)(*args)
    step.restart(check=True)
    got = step.run()
    assert difference(want[2], got["result[2]"]) <= 1e-5
    for number, argument in enumerate(("params", "momentum")):
        for path, leaf in jax.tree_util.tree_leaves_with_path(want[number]):
            rows = got[argument + jax.tree_util.keystr(path)]
            assert difference(leaf, rows[0]) <= 1e-5, path
    assert step.prove().ok


@pytest.mark.parametrize("name", MODELS)
def test_without_the_means(name: str) -> None:
    loss, params, batch = MODELS[name](np.random.default_rng(5))
    args = params, jax.tree.map(np.zeros_like, params), batch
    f = train(loss, forgets=True)
    step = from_jax(f, *args, mesh={"data": 4}, in_specs=IN, out_specs=OUT, check_vma=False)
    proof = step.prove()
    assert len(proof.drifting) == len(proof.pending) == len(step.states)
    assert {str(each.pending.groups) for each in proof.states if each.pending} == {"{0,1,2,3}"}


@pytest.mark.parametrize("name", MODELS)
def test_one_sum_among_means(name: str) -> None:
    loss, params, batch = MODELS[name](np.random.default_rng(5))
    path = jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(params)[-1][0])
    args = params, jax.tree.map(np.zeros_like, params), batch
    f = train(loss, summed=path)
    step = from_jax(f, *args, mesh={"data": 4}, in_specs=IN, out_specs=OUT, check_vma=False)
    [lint] = step.prove().pending
    assert path in lint.text
    assert "is updated with 4 times the gradient" in lint.text
