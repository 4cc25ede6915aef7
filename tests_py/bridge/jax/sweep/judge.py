"""Claims about random steps beside the bits of JAX, and the reasons of equal values that are not proved."""

from __future__ import annotations

import argparse
import collections
import itertools
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

import popsr
from popsr.bridge.jax import _traced, from_jax
from tests_py.bridge.jax.sweep.steps import STATES, RandomStep, on_devices, random_step, wide_numbers

__all__ = ["Tally", "main", "sweep"]

RUNS, PASSES = 2, 3
BATCH = 20
ARGUMENTS = 5


@dataclass
class Tally:
    """Counts of a sweep.

    Attributes:
        programs: steps that JAX ran.
        wide: those with 64 bits.
        values: results and states that were compared.
        claims: pairs of replicas that are claimed equal.
        comparisons: comparisons of buffers, claims times passes.
        equal: pairs that are equal in all passes.
        gapped: programs with primitives that popsr lacks.
        not_compiled: programs that XLA fails to compile.
        gaps: primitives that were analysed by their operands alone, by programs.
        reasons: pairs that are equal and not proved, by reason.
        faults: false claims and errors, each with the seed.
    """

    programs: int = 0
    wide: int = 0
    values: int = 0
    claims: int = 0
    comparisons: int = 0
    equal: int = 0
    gapped: int = 0
    not_compiled: int = 0
    gaps: collections.Counter[str] = field(default_factory=collections.Counter)
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)
    examples: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds: collections.Counter[str] = collections.Counter()
        for reason, pairs in self.reasons.items():
            kinds[reason.partition(":")[0]] += pairs
        left = ", ".join(f"{kind} {pairs / max(self.equal, 1):.1%}" for kind, pairs in kinds.most_common())
        head = (
            f"{self.programs} programs ({self.wide} with 64 bits, {self.gapped} with primitives that popsr lacks, "
            f"{self.not_compiled} that XLA fails to compile left out), "
            f"{self.values} values, {self.claims} claims, {self.comparisons} comparisons, {len(self.faults)} faults; "
            f"of {self.equal} equal pairs {self.claims / max(self.equal, 1):.1%} proved; others: {left}"
        )
        rows = [f"  {n:6} {kind}  {self.examples.get(kind, '')}" for kind, n in self.reasons.most_common(70)]
        lacks = ", ".join(f"{name} {n}" for name, n in self.gaps.most_common(40))
        return "\n".join([head, *rows, f"lacks: {lacks}", *self.faults])


def judge(step: RandomStep, passes: Sequence[Sequence[Any]], tally: Tally) -> None:
    """Compare each claim with the buffers of all passes."""
    known = step.jaxpr, [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in step.jaxpr.out_avals], ""
    with wide_numbers(step.wide), mock.patch.object(_traced, "traced_twice", return_value=known):
        read = from_jax(
            jaxpr_as_fun(step.jaxpr),
            *step.args,
            roles={},
            updates={number: number for number in range(STATES)},
            unsupported="conservative",
        )
    facts = popsr.analysis.analyze(read.ir)
    states = [each for each in read.arguments if each.role == "state"]
    tensors = [each.tensor for each in states] + [each.tensor for each in read.results]
    tally.programs += 1
    tally.wide += step.wide
    tally.gapped += bool(read.gaps)
    tally.gaps.update({gap.op for gap in read.gaps})
    replicas = int(np.prod([*step.sizes.values()]))
    pairs = [*itertools.combinations(range(replicas), 2)]
    bits = [[[row.tobytes() for row in value] for value in values] for values in passes]
    partitions = [facts.partition(t).labels for t in tensors if t is not None]
    assert len(partitions) == len(bits[0])
    same = [
        {(r, s) for r, s in pairs if all(values[number][r] == values[number][s] for values in bits)}
        for number in range(len(partitions))
    ]
    for number in range(STATES):  # states also before the first pass
        same[number] = {pair for pair in same[number] if _same_part(step, number, pair)}
    proved = [{(r, s) for r, s in pairs if labels[r] == labels[s]} for labels in partitions]
    for number, (true, claimed) in enumerate(zip(same, proved, strict=True)):
        tally.values += 1
        tally.claims += len(claimed)
        tally.comparisons += len(claimed) * len(bits)
        tally.equal += len(true)
        if claimed - true:
            made = step.made[ARGUMENTS + number - STATES] if number >= STATES else "state"
            tally.faults.append(
                f"FALSE seed={step.seed} devices={replicas} wide={step.wide} value {number} ({made}): "
                f"{sorted(claimed - true)}"
            )
        place = number - STATES + ARGUMENTS if number >= STATES else step.taken[number]
        for pair in true - claimed:
            reason, at = _reason(step, place, pair, same, proved, 0)
            tally.reasons[reason] += 1
            tally.examples.setdefault(reason, f"seed={step.seed} devices={replicas} value {at} {pair}")


_EXCHANGES = ("reduction", "moved", "place", "control", "functions", "random")


def _reason(
    step: RandomStep, place: int, pair: tuple[int, int], same: list[Any], proved: list[Any], depth: int
) -> tuple[str, int]:
    """Why a pair is equal and not proved, and the value where that begins.

    By chance where operands differ; by what devices sent where the move is between them; from an operand that is equal
    and not proved the reason of that; else the proof is lost in the move.
    """
    if place < STATES and step.taken[place] != place and depth < 9:
        return _reason(step, step.taken[place], pair, same, proved, depth + 1)
    if place < ARGUMENTS:
        return "argument", place
    made = step.made[place]
    assert made is not None
    equal = [_of(step, operand, same, pair) for operand in made.operands]
    if not all(equal):
        kind = "exchange" if made.move.partition(":")[0] in _EXCHANGES else "chance"
        return f"{kind}: {made.move}", place - ARGUMENTS + STATES
    for operand in made.operands:
        if not _of(step, operand, proved, pair) and depth < 9:
            return _reason(step, operand, pair, same, proved, depth + 1)
    return f"lost: {made.move}", place - ARGUMENTS + STATES


def _of(step: RandomStep, place: int, sets: list[Any], pair: tuple[int, int]) -> bool:
    """Whether a pair is in the set of a value; of data by their specs."""
    if place >= ARGUMENTS:
        return pair in sets[place - ARGUMENTS + STATES]
    if place < STATES:
        return pair in sets[place]
    return _same_part(step, place, pair)


def _same_part(step: RandomStep, place: int, pair: tuple[int, int]) -> bool:
    """Whether two devices are given the same part of an argument."""
    cut = [
        name for entry in step.specs[place] for name in ((entry,) if isinstance(entry, str) else entry or ())
    ]
    at = [np.unravel_index(replica, [*step.sizes.values()]) for replica in pair]
    return all(at[0][k] == at[1][k] for k, name in enumerate(step.sizes) if name in cut)


def sweep(batches: Iterable[tuple[Sequence[int], int, bool]], tally: Tally) -> None:
    """Judge batches of seeds on so many devices, with or without 64 bits."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        for seeds, count, wide in batches:
            steps = []
            for seed in seeds:
                try:
                    steps.append(random_step(seed, count, wide))
                except Exception as error:
                    tally.faults.append(f"UNTRACED seed={seed} devices={count} wide={wide}: {error!r:.200}")
            for step, passes in _passes(steps, wide, tally):
                try:
                    judge(step, passes, tally)
                except Exception as error:
                    last = traceback.format_exc().splitlines()[-3:]
                    tally.faults.append(
                        f"ERROR seed={step.seed} devices={count} wide={wide}: {error!r:.300} {last}"
                    )
            jax.clear_caches()
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _passes(steps: Sequence[RandomStep], wide: bool, tally: Tally) -> list[tuple[RandomStep, Any]]:
    """Steps with their values on the devices, without those that XLA fails to compile."""
    try:
        with wide_numbers(wide):
            return [*zip(steps, on_devices(steps, RUNS, PASSES), strict=True)]
    except jax.errors.JaxRuntimeError:
        if len(steps) > 1:
            return [pair for step in steps for pair in _passes([step], wide, tally)]
        tally.not_compiled += 1
        return []


def main() -> None:
    """Print the counts of a sweep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=200)
    given = parser.parse_args()
    tally, began = Tally(), time.process_time()
    for number in range(0, given.programs, BATCH):
        seeds = range(given.seed + number, given.seed + min(number + BATCH, given.programs))
        turn = number // BATCH
        before = len(tally.faults)
        sweep([(seeds, (4, 8)[turn % 2], turn % 4 == 3)], tally)
        for fault in tally.faults[before:]:
            print(fault, flush=True)
        if turn % 25 == 24:
            print(str(tally).splitlines()[0], f"{time.process_time() - began:.0f} s", flush=True)
    print(tally, f"{time.process_time() - began:.0f} s of processor time", sep="\n")
