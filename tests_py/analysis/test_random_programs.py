"""Random programs of all axes over the public interface: the same bits however they run, and no false claim.

    POPSR_FUZZ_PROGRAMS=20000 POPSR_FUZZ_SEED=7 pytest -m slow tests_py/analysis/test_random_programs.py -s

sweeps; each sweep also shows that it finds what is wrong on purpose.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import _core
from tests_py.support.programs.bit_judge import BitJudge, Found, Outcome, Tally, judge, program_of
from tests_py.support.programs.random_programs import Step, shrink

PROGRAMS = 320
# Op, and what is wrong with it.
DEFECTS = (
    ("replicated_all_reduce", "of the first input"),
    ("replicated_broadcast", "of the first input"),
    ("host_load", "equal everywhere"),
    ("add", "of the first input"),
    ("replicated_reduce_scatter", "equal everywhere"),
    ("replicated_all_reduce_", "meets nobody"),
    ("dropout", "of the first input"),
)


def fails(seed: int, steps: list[Step], **options: Any) -> str:
    """Faults found in the program; empty if there are none."""
    axes, _ = program_of(seed)
    try:
        judge(axes, steps, seed, **options)
    except (Found, popsr.Error) as found:
        return str(found) or repr(found)
    return ""


def judge_program(seed: int) -> Tally:
    """Raises with the shortest program that is wrong."""
    axes, steps = program_of(seed)
    try:
        return judge(axes, steps, seed)
    except (Found, popsr.Error):
        short = shrink(steps, lambda shorter: bool(fails(seed, shorter)))
        raise AssertionError(f"program {seed} of {axes}, steps {short}: {fails(seed, short)}") from None


def judge_programs(seeds: range) -> dict[str, Tally]:
    """By rounding mode."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for seed in seeds:
        tallies[program_of(seed)[0].rounding].add(judge_program(seed))
    return tallies


def hunt(op: str, defect: str, seeds: range) -> int | None:
    """The first program whose run shows the defect."""
    for seed in seeds:
        axes, steps = program_of(seed)
        if fails(seed, steps, core=_core.Ir.with_defect(axes.replicas, op, defect)):
            return seed
    return None


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    for rounding, tally in judge_programs(range(part, PROGRAMS, 4)).items():
        assert tally.values > 5 * tally.programs, rounding
        assert tally.pairs > 5 * tally.programs, rounding  # not all is different everywhere
        assert 3 * (tally.refused + tally.stopped) < tally.programs + 3, rounding


@pytest.mark.parametrize(("op", "defect"), DEFECTS)
def test_defects_are_found(op: str, defect: str) -> None:
    seed = hunt(op, defect, range(400))
    assert seed is not None
    assert not fails(seed, program_of(seed)[1])


class Tampering(BitJudge):
    """Changes one bit of what the last way gives."""

    def run(self, session: popsr.Session, run: int) -> Outcome:
        outcome = super().run(session, run)
        if self.tally.sessions == 1 + len(self.ways()):
            for values in (*outcome.outputs, *outcome.variables):
                if values.size:
                    values.reshape(-1)[-1] ^= 1
                    break
        return outcome


def test_one_wrong_bit_is_found() -> None:
    found = [fails(seed, program_of(seed)[1], judged=Tampering) for seed in range(8)]
    assert sum("differs from that without sharing" in text for text in found) >= 6, found


@pytest.mark.slow
def test_many_random_programs() -> None:
    count = int(os.environ.get("POPSR_FUZZ_PROGRAMS", "3000"))
    first = int(os.environ.get("POPSR_FUZZ_SEED", "1000000"))
    tallies = judge_programs(range(first, first + count))
    op, defect = DEFECTS[first % len(DEFECTS)]
    assert hunt(op, defect, range(first, first + 2000)) is not None, f"canary {op} {defect}"
    for rounding, tally in sorted(tallies.items()):
        figures = ", ".join(f"{value} {name}" for name, value in vars(tally).items())
        print(f"{rounding}: {figures}, 0 differing bits, 0 false claims")


def test_programs_are_the_same_in_every_process() -> None:
    """Seeds name programs: a failure can be looked at again."""
    axes, steps = program_of(3)
    assert (axes, steps) == program_of(3)
    assert np.isscalar(axes.stores)
