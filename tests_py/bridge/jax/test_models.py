"""Training steps: the numbers of JAX on simulated devices, and what stays equal."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax.sharding import PartitionSpec as P

from popsr.bridge import BridgedStep
from popsr.bridge.jax import from_jax
from tests_py.bridge.jax import models
from tests_py.bridge.jax.compare import devices, difference

TOLERANCE = 1e-5


def of_jax(f: Any, args: Any, sizes: Any, in_specs: Any, out_specs: Any, check_vma: bool) -> dict[str, Any]:
    """JAX's results on simulated devices, by path."""
    mapped = jax.shard_map(
        f, mesh=devices(sizes), in_specs=in_specs, out_specs=out_specs, check_vma=check_vma
    )
    found = jax.jit(mapped)(*args)
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(found)
    }


def require_same(step: BridgedStep, want: dict[str, Any], name: str) -> None:
    """States are result 0 of the step, the loss result 1."""
    step.restart(check=True)
    got = step.run()
    for path, value in want.items():
        if path == "[1]":
            assert difference(value, got["result[1]"]) <= TOLERANCE
            continue
        argument = step.argument(name + path.removeprefix("[0]"))
        rows = got[argument.path]
        labels = argument.grouping.assignment
        parts = [rows[labels.index(group)] for group in range(argument.grouping.num_groups)]
        for replica, label in enumerate(labels):
            np.testing.assert_array_equal(rows[replica], parts[label], err_msg=path)
        whole = parts[0] if len(parts) == 1 else _joined(value, parts)
        assert difference(value, whole) <= TOLERANCE, path


def _joined(like: Any, parts: list[Any]) -> Any:
    axis = next(i for i, (a, b) in enumerate(zip(like.shape, parts[0].shape, strict=True)) if a != b)
    return np.concatenate(parts, axis)


@pytest.mark.parametrize("replicas", [4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("check_vma", [False, True])
def test_mlp(replicas: int, check_vma: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(16, 6)).astype(np.float32)
    y = rng.integers(0, 4, 16).astype(np.int32)
    args, specs, sizes = (
        (models.mlp_params(), x, y),
        ((P(), P("data"), P("data")), (P(), P())),
        {"data": replicas},
    )
    options: dict[str, Any] = {
        "mesh": sizes,
        "in_specs": specs[0],
        "out_specs": specs[1],
        "check_vma": check_vma,
    }
    step = from_jax(models.mlp_step, *args, **options)
    require_same(step, of_jax(models.mlp_step, args, sizes, *specs, check_vma), "params")
    proof = step.prove()
    # JAX sums gradients itself where it checks what varies: their mean is of equal values, and stays a sum.
    assert proof.verdict == ("suspicious" if check_vma else "ok")
    assert not proof.drifting


@pytest.mark.parametrize("forgotten", [(0, "w"), (1, "b"), (2, "w")])
def test_a_forgotten_mean_of_a_gradient(forgotten: tuple[int, str]) -> None:
    """Exactly that parameter drifts after one step; its gradient makes all others drift from then on."""
    rng = np.random.default_rng(3)
    args = (models.mlp_params(), rng.normal(size=(16, 6)).astype(np.float32), np.zeros(16, np.int32))
    f = functools.partial(models.mlp_step, forgotten=forgotten)
    specs = (P(), P("data"), P("data")), (P(), P())
    step = from_jax(f, *args, mesh={"data": 4}, in_specs=specs[0], out_specs=specs[1], check_vma=False)
    layer, name = forgotten
    drifting = step.prove().drifting
    assert [each.path for each in drifting] == [f"params[{layer}]['{name}']"]
    assert drifting[0].cause is not None
    written = drifting[0].cause.written
    line = inspect.getsourcelines(models.mlp_step)
    update = line[1] + next(i for i, text in enumerate(line[0]) if "p - 0.1 * g" in text)
    assert written.endswith(f"models.py:{update}")


@pytest.mark.parametrize("replicas", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_gpt_with_adamw(replicas: int) -> None:
    args = (models.gpt_state(), *models.tokens(8))
    specs = (models.state_specs(), P("data"), P("data")), (models.state_specs(), P())
    sizes = {"data": replicas}
    step = from_jax(
        models.gpt_step, *args, mesh=sizes, in_specs=specs[0], out_specs=specs[1], check_vma=False
    )
    require_same(step, of_jax(models.gpt_step, args, sizes, *specs, False), "state")
    assert step.prove().ok


@pytest.mark.parametrize("forgotten", ["qkv", "scale2", "down"])
def test_gpt_with_a_forgotten_mean(forgotten: str) -> None:
    args = (models.gpt_state(), *models.tokens(8))
    specs = (models.state_specs(), P("data"), P("data")), (models.state_specs(), P())
    f = functools.partial(models.gpt_step, forgotten=forgotten)
    step = from_jax(f, *args, mesh={"data": 4}, in_specs=specs[0], out_specs=specs[1], check_vma=False)
    drifting = {each.path for each in step.prove().drifting}
    assert drifting == {f"state['{part}']['blocks']['{forgotten}']" for part in ("params", "m", "v")}


TENSOR_PARALLEL: list[Any] = [
    {"data": 2, "model": 2},
    pytest.param({"data": 2, "model": 4}, marks=pytest.mark.slow),
    pytest.param({"model": 2, "data": 4}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("sizes", TENSOR_PARALLEL)
def test_gpt_with_tensor_parallelism(sizes: dict[str, int]) -> None:
    args = (models.gpt_state(), *models.tokens(8))
    states = models.state_specs("model")
    specs = (states, P("data"), P("data")), (states, P())
    step = from_jax(
        models.gpt_parallel_step, *args, mesh=sizes, in_specs=specs[0], out_specs=specs[1], check_vma=True
    )
    require_same(step, of_jax(models.gpt_parallel_step, args, sizes, *specs, True), "state")
    assert step.prove().ok
