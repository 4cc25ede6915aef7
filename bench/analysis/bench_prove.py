"""Cost of proofs of a JAX training step of 10,000 equations: 200 weights, in step or drifting."""

import os
import statistics
import time

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import numpy as np
import pytest

from bench.record import at_most, duration

LAYERS, REPETITIONS = 200, 5


def network(reduced):
    """A deep residual network, whose gradients are averaged or not."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def loss_of(weights, x):
        for w in weights:
            for _ in range(3):
                x = jnp.tanh(x @ w) + 0.5 * x
        return jnp.mean(x**2)

    def step(weights, x):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        if reduced:
            gradients = lax.pmean(gradients, "data")
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], lax.pmean(loss, "data")

    return step


def read(reduced):
    """The step as a program that nothing was asked about."""
    from jax.sharding import PartitionSpec as P

    from popsr.bridge.jax import from_jax

    weights, x = [np.ones((4, 4), np.float32)] * LAYERS, np.ones((8, 4), np.float32)
    specs = {"mesh": {"data": 4}, "in_specs": (P(), P("data")), "out_specs": (P(), P())}
    return from_jax(network(reduced), weights, x, check_vma=False, **specs)


@pytest.mark.parametrize("reduced", [True, False], ids=["in-step", "drifting"])
def test_prove(record, reduced):
    pytest.importorskip("jax")
    import jax

    args = [np.ones((4, 4), np.float32)] * LAYERS, np.ones((2, 4), np.float32)
    traced = jax.make_jaxpr(network(reduced), axis_env=[("data", 4)])(*args)
    times = {"`prove`": [], "`proof.ok`": [], "the first cause": [], "`print`": []}
    for _ in range(REPETITIONS):
        step = read(reduced)
        start = time.perf_counter()
        proof = step.prove()
        proved = time.perf_counter()
        assert proof.ok is reduced
        asked = time.perf_counter()
        _ = None if reduced else proof.drifting[0].cause
        caused = time.perf_counter()
        str(proof)
        for name, seconds in zip(
            times, (proved - start, asked - proved, caused - asked, time.perf_counter() - caused), strict=True
        ):
            times[name].append(seconds)
    what = "all weights in step" if reduced else f"all {len(proof.drifting)} weights drift"
    case = f"{len(traced.jaxpr.eqns):,} equations in {step.ir._core.num_ops:,} ops, {what}"
    for name, seconds in times.items():
        cells = {"best": duration(min(seconds)), "median": duration(statistics.median(seconds))}
        goal = at_most(0.05, min(seconds), duration) if name == "`prove`" else {}
        record("A training step of JAX with 200 weights", case, name, **cells, **goal)
    assert min(times["`prove`"]) <= 0.05
