"""Random functions beside JAX on four simulated devices: the same numbers, and no claim that JAX's numbers break.

POPSR_FUZZ_PROGRAMS=10000 POPSR_FUZZ_SEED=7 pytest -m slow tests_py/bridge/jax/test_random_steps.py -s
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax.sharding import PartitionSpec as P

import popsr
from popsr.bridge.jax import from_jax
from tests_py.bridge.jax.compare import devices, difference, primitives_of
from tests_py.bridge.jax.random_steps import MESH, RandomStep, random_step

REPLICAS = 4
TOLERANCE = 1e-5


def judge(step: RandomStep) -> int:
    """Number of claims that two replicas agree, all of which hold in both runs."""
    out = P(("a", "b"))
    options: dict[str, Any] = {"in_specs": step.specs, "out_specs": out, "check_vma": False}
    read = from_jax(step.function, *step.args, mesh=MESH, roles={}, updates={}, **options)
    mapped = jax.jit(jax.shard_map(step.function, mesh=devices(MESH), **options))
    want = [np.asarray(leaf).reshape(REPLICAS, *[4, 4]) for leaf in jax.tree.leaves(mapped(*step.args))]
    read.restart(check=True)
    got = read.run()
    facts = popsr.analysis.analyze(read.ir)
    claims = 0
    for number, (result, mine) in enumerate(zip(read.results, want, strict=True)):
        theirs = got[result.path].reshape(mine.shape)
        assert difference(mine, theirs) <= TOLERANCE, f"value {number}"
        for block in facts.partition(result.tensor).blocks:
            for replica in block[1:]:
                assert mine[replica].tobytes() == mine[block[0]].tobytes(), (
                    f"value {number} on {block[0]}, {replica}"
                )
                claims += 1
    return claims


def run(seeds: range) -> int:
    claims = 0
    for seed in seeds:
        step = random_step(seed)
        try:
            claims += judge(step)
        except Exception as error:
            error.add_note(f"random_step({seed}): {', '.join(step.moves)}")
            raise
    return claims


def test_random_steps() -> None:
    assert run(range(12)) > 50


@pytest.mark.slow
def test_many_random_steps() -> None:
    first = int(os.environ.get("POPSR_FUZZ_SEED", "1000"))
    count = int(os.environ.get("POPSR_FUZZ_PROGRAMS", "500"))
    claims = run(range(first, first + count))
    print(f"{count} random steps, {claims} claims hold")
    assert claims > count


def test_a_wrong_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that takes the index of the replica for a constant would be caught."""
    from popsr.bridge.jax import _rules

    def constant_index(equation: Any) -> Any:
        return equation.constant(np.int32(0), np.dtype(np.int32))

    broken = _rules.Rule(constant_index, False, "collectives")
    monkeypatch.setitem(_rules.RULES, "axis_index", broken)
    seed = next(seed for seed in range(1000) if asks_for_its_index(random_step(seed)))
    with pytest.raises(AssertionError):
        run(range(seed, seed + 1))


def asks_for_its_index(step: RandomStep) -> bool:
    mesh = jax.sharding.AbstractMesh(tuple(MESH.values()), tuple(MESH))
    options: dict[str, Any] = {"in_specs": step.specs, "out_specs": P(("a", "b")), "check_vma": False}
    jaxpr = jax.make_jaxpr(jax.shard_map(step.function, mesh=mesh, **options))(*step.args).jaxpr
    return "axis_index" in primitives_of(jaxpr)
