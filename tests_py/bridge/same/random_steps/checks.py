"""Verdicts on random steps and their mutants, beside JAX's own answer in float64."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from tests_py.bridge.same.planted.cases import WRONG, Program
from tests_py.bridge.same.planted.mutate_jax import mutant, mutations
from tests_py.bridge.same.planted.said_jax import said
from tests_py.bridge.same.planted.truth_jax import truth
from tests_py.bridge.same.random_steps.drawing import drawn

__all__ = ["Outcome", "check_mutant", "check_right"]


_SCALES = (0.3, 0.1, 0.03, 0.01)


def scaled(program: Program, scale: float) -> Program:
    """The step with other numbers; those that are not floats stay."""
    args = jax.tree.map(lambda a: a * scale if np.issubdtype(a.dtype, np.floating) else a, program.args)
    return dataclasses.replace(program, args=args)


class Outcome(NamedTuple):
    """Findings about a step.

    Attributes:
        outcome: a word or two.
        text: what is to be looked at; empty if all is as it should be.
    """

    outcome: str
    text: str = ""


def check_right(seed: int, ask: bool) -> Outcome:
    """A right step: the verdict must be "same".

    Args:
        seed: of the step.
        ask: whether JAX is asked, too, where the verdict is as it should be.
    """
    program, words = drawn(seed)
    try:
        verdict = said(program, exact=True)
    except Exception as error:
        return Outcome("right: error", f"{type(error).__name__}: {error}; {words}")
    if verdict.unknown:
        return Outcome("right: unknown", f"{sorted({*verdict.unknown.values()})}; {words}")
    if not verdict.differing and not ask:
        return Outcome("right: same")
    wrong = truth(program, steps=1).wrong()
    if verdict.differing != wrong:
        kind = "right: ALARM" if not wrong else "right: FALSE"
        return Outcome(
            kind, f"said {sorted(verdict.differing)} {verdict.place}, JAX {sorted(wrong)}; {words}"
        )
    if wrong:
        return Outcome("generator is wrong", f"{sorted(wrong)} {verdict.place}; {words}")
    return Outcome("right: same, as JAX")


def check_mutant(seed: int) -> Outcome:
    """A right step with one change: what differs is what differs in JAX."""
    program, words = drawn(seed)
    changes = mutations(program)
    if not changes:
        return Outcome("mutant: none")
    change = changes[int(np.random.default_rng(seed).integers(len(changes)))]
    changed, words = mutant(program, change), f"{change}; {words}"
    try:
        verdict = said(changed, exact=True)
    except Exception as error:
        return Outcome("mutant: error", f"{type(error).__name__}: {error}; {words}")
    try:
        found = truth(changed, steps=1, like=program)
    except AssertionError as error:
        return Outcome("mutant: no answer", f"{error}; {words}")
    wrong, much = found.wrong(), found.wrong(beyond=WRONG)
    if verdict.unknown:
        return Outcome("mutant: unknown", f"{sorted({*verdict.unknown.values()})}; {words}")
    for scale in _SCALES:
        if not verdict.differing - wrong:
            break
        # A norm that is clipped, or not, on these numbers hides what others show.
        wrong |= truth(scaled(changed, scale), steps=1, like=scaled(program, scale)).wrong()
    if verdict.differing == wrong:
        return Outcome("mutant: found" if wrong else "mutant: equivalent")
    missed = wrong - verdict.differing
    kind = "MISSED" if missed and not verdict.differing else "other states"
    missed_text = f"missed {sorted(missed)} (much {sorted(missed & much)})"
    return Outcome(f"mutant: {kind}", f"{missed_text}, too many {sorted(verdict.differing - wrong)}; {words}")
