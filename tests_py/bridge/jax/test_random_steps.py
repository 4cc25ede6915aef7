"""Random functions beside JAX on four simulated devices: the same numbers, and no claim that JAX's numbers break.

POPSR_FUZZ_PROGRAMS=10000 POPSR_FUZZ_SEED=7 pytest -m slow tests_py/bridge/jax/test_random_steps.py -s
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax.extend.core import jaxpr_as_fun

import popsr
from popsr.bridge import BridgedStep
from popsr.bridge.jax import from_jax, primitives
from tests_py.bridge.jax.compare import difference, primitives_of
from tests_py.bridge.jax.coverage import registry
from tests_py.bridge.jax.random_steps import RandomStep, random_step

REPLICAS = 4
TOLERANCE = 1e-4  # of the greatest number: six moves amplify the last bits of the first
BATCH = 20
# XLA takes most of the time: a module for many steps, compiled without what makes it fast.
QUICK = {"xla_llvm_disable_expensive_passes": True, "xla_cpu_use_fusion_emitters": False}


@dataclass
class Tally:
    """Counts of a run.

    Attributes:
        steps: functions that JAX ran.
        executed: functions that popsr ran too; the others have a primitive that it lacks.
        claims: claims that two replicas agree in a value, all of which hold in JAX's numbers.
        drawn: by primitive the functions that have it.
    """

    steps: int = 0
    executed: int = 0
    claims: int = 0
    drawn: collections.Counter[str] = field(default_factory=collections.Counter)


def by_jax(steps: Sequence[RandomStep]) -> list[list[Any]]:
    """The values of each step, a row for each replica, run by JAX on its devices."""
    mapped = [jaxpr_as_fun(step.jaxpr) for step in steps]

    def together(args: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [f(*each) for f, each in zip(mapped, args, strict=True)]

    found = jax.jit(together, compiler_options=QUICK)([step.args for step in steps])
    return [[np.asarray(leaf).reshape(REPLICAS, 4, 4) for leaf in values] for values in found]


def judge(step: RandomStep, want: list[Any], tally: Tally) -> None:
    """Compare values, and check each claim that replicas agree on the numbers of both."""
    read = from_jax(jaxpr_as_fun(step.jaxpr), *step.args, roles={}, updates={}, unsupported="conservative")
    got = None if read.gaps else by_popsr(read)
    facts = popsr.analysis.analyze(read.ir)
    for number, (result, mine) in enumerate(zip(read.results, want, strict=True)):
        if got is not None:
            theirs = got[result.path].reshape(mine.shape)
            assert difference(mine, theirs) <= TOLERANCE, f"value {number}"
        for block in facts.partition(result.tensor).blocks:
            for replica in block[1:]:
                assert mine[replica].tobytes() == mine[block[0]].tobytes(), (
                    f"value {number} on {block[0]}, {replica}"
                )
                tally.claims += 1
    tally.steps += 1
    tally.executed += got is not None


def by_popsr(read: BridgedStep) -> dict[str, Any]:
    """The values of popsr, which compares replicas with what it proved on the way."""
    read.restart(check=True)
    return read.run()


def drawn(step: RandomStep) -> set[str]:
    """The primitives of a step."""
    return set(primitives_of(step.jaxpr.jaxpr))


def run(seeds: Iterable[int]) -> Tally:
    """Judge steps, batch after batch."""
    tally, before = Tally(), jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        for batch in batches(seeds):
            steps = [random_step(seed) for seed in batch]
            for seed, step, want in zip(batch, steps, by_jax(steps), strict=True):
                tally.drawn.update(drawn(step))
                try:
                    judge(step, want, tally)
                except Exception as error:
                    error.add_note(f"random_step({seed}): {', '.join(step.moves)}")
                    raise
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
    return tally


def batches(seeds: Iterable[int]) -> Iterable[tuple[int, ...]]:
    left = iter(seeds)
    return iter(lambda: tuple(itertools.islice(left, BATCH)), ())


def test_random_steps() -> None:
    tally = run(range(BATCH))
    assert tally.claims > 50
    assert tally.executed > BATCH // 2


# Of the mesh outside, of other forms of keys, and of JAX's own rules.
NOT_DRAWN = {
    "all_gather_invariant",
    "closed_call",
    "iota_2x32_shape",
    "layout_constraint",
    "reshard",
    "sharding_constraint",
    "threefry2x32",
}


def test_every_primitive_is_drawn() -> None:
    seen: set[str] = set()
    wanted = ({*primitives()} & {*registry()[1]}) - NOT_DRAWN
    for seed in range(1000):
        seen |= drawn(random_step(seed))
        if seen >= wanted:
            return
    assert seen >= wanted


@pytest.mark.slow
def test_many_random_steps() -> None:
    first = int(os.environ.get("POPSR_FUZZ_SEED", "1000"))
    count = int(os.environ.get("POPSR_FUZZ_PROGRAMS", "500"))
    tally = run(range(first, first + count))
    print(f"{tally.steps} random steps, {tally.executed} run by popsr too, {tally.claims} claims hold")
    print(", ".join(f"{name} {times}" for name, times in sorted(tally.drawn.items())))
    assert tally.claims > count


def test_a_wrong_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that takes the index of the replica for a constant would be caught."""
    from popsr.bridge.jax._rules import table as _rules

    def constant_index(equation: Any) -> Any:
        return equation.constant(np.int32(0), np.dtype(np.int32))

    broken = _rules.Rule(constant_index, False, "collectives")
    monkeypatch.setitem(_rules.RULES, "axis_index", broken)
    seed = next(seed for seed in range(1000) if "axis_index" in drawn(random_step(seed)))
    with pytest.raises(AssertionError):
        run(range(seed, seed + 1))
