"""Random programs with branches: values, memory, streams, claims and deadlocks against replicas run one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors
from popsr.analysis import analyze
from tests_py.support.helpers import Array, assert_same_bits
from tests_py.support.programs import Rounding
from tests_py.support.programs.branches import (
    EXACT,
    STEPS,
    Data,
    Deadlock,
    Emitter,
    Replica,
    Step,
    mixed_choices,
    run_together,
)

# Random programs drift as it happens.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")

MODES: list[dict[str, Any]] = [{}, {"dedup": False}, {"check": True}, {"num_threads": 3}]
RUNS = 2


class Expected:
    """Expected outputs and variables of each run; None for a run that deadlocks, which is the last one."""

    def __init__(self, data: Data) -> None:
        self.streams = [data.streams() for _ in range(RUNS)]
        self.runs: list[tuple[list[Array], list[Array]] | None] = []
        self.mixed = 0
        self.exact = True
        replicas = [Replica(data, rank) for rank in range(data.n)]
        for streams in self.streams:
            try:
                run_together(replicas, streams)
            except Deadlock:
                self.runs.append(None)
                return
            finally:
                self.mixed += mixed_choices(replicas)
                greatest = max(replica.greatest for replica in replicas)
                self.exact = data.rounding == "off" or 2 * data.n * greatest <= EXACT
            pools = zip(*(replica.pool for replica in replicas), strict=True)
            stored = np.stack([replica.stored for replica in replicas], axis=1)
            variables = [np.stack([replica.variables[i].value for replica in replicas]) for i in range(2)]
            self.runs.append(([stored, *map(np.stack, pools)], variables))


def check_mode(emitter: Emitter, expected: Expected, options: dict[str, Any]) -> None:
    session = popsr.Session(emitter.ir, **options)
    for i, (streams, result) in enumerate(zip(expected.streams, expected.runs, strict=False)):
        if result is None:
            with pytest.raises(errors.ReplicaError, match="disagree about taking part"):
                emitter.run(session, streams)
            return
        for what, got, expect in zip(
            ("stored", "variables"), emitter.run(session, streams), result, strict=True
        ):
            for at, (a, b) in enumerate(zip(got, expect, strict=True)):
                assert_same_bits(a, b, f"{what} {at} in run {i} with {options}\n{emitter.ir}")


def check_facts(emitter: Emitter, expected: Expected) -> int:
    """Claims about the tensors of the main graph; returns how many pairs were claimed equal."""
    facts = analyze(emitter.ir)
    claims = [facts.partition(t) for t in (*emitter.pool, *emitter.variables)]
    for result in expected.runs:
        if result is None:
            continue
        (_, *pool), variables = result
        for claim, rows in zip(claims, [*pool, *variables], strict=True):
            for block in claim.blocks:
                assert all(np.array_equal(rows[block[0]], rows[r]) for r in block), f"{claim}\n{emitter.ir}"
    return sum(len(block) - 1 for claim in claims for block in claim.blocks)


def check(n: int, seed: int, steps: list[Step], rounding: Rounding = "off") -> tuple[Expected, int]:
    data = Data(n, steps, seed, rounding)
    expected, emitter = Expected(data), Emitter(data)
    if not expected.exact:
        return expected, 0
    claimed = check_facts(emitter, expected)
    for options in MODES:
        check_mode(emitter, expected, options)
    return expected, claimed


PROGRAMS = {"n": st.sampled_from([2, 3, 4, 6, 8]), "seed": st.integers(0, 9999), "steps": STEPS}
ROUNDING = st.sampled_from(["off", "popart", "off", "partition", "identical"])


@given(**PROGRAMS, rounding=ROUNDING)
@settings(max_examples=80, derandomize=True, deadline=None, database=None)
def test_random_programs_with_branches(n: int, seed: int, steps: list[Step], rounding: Rounding) -> None:
    check(n, seed, steps, rounding)


@pytest.mark.slow
@given(**PROGRAMS, rounding=ROUNDING)
@settings(max_examples=10000, derandomize=True, deadline=None, database=None)
def test_many_random_programs_with_branches(n: int, seed: int, steps: list[Step], rounding: Rounding) -> None:
    check(n, seed, steps, rounding)


def test_random_programs_are_worth_running() -> None:
    """Conditions part replicas, some programs get stuck and most do not, and much is claimed equal."""
    counts = {"programs": 0, "mixed": 0, "stuck": 0, "claimed": 0}

    @given(**PROGRAMS)
    @settings(max_examples=60, derandomize=True, deadline=None, database=None)
    def count(n: int, seed: int, steps: list[Step]) -> None:
        data = Data(n, steps, seed)
        expected = Expected(data)
        counts["programs"] += 1
        counts["mixed"] += expected.mixed > 0
        counts["stuck"] += None in expected.runs
        counts["claimed"] += check_facts(Emitter(data), expected)

    count()
    assert counts["mixed"] > 0.4 * counts["programs"], counts
    assert 0 < counts["stuck"] < 0.4 * counts["programs"], counts
    assert counts["claimed"] > 2 * counts["programs"], counts
