"""Verdict of ``popsr.prove(..., like="one device")`` on each planted bug of JAX, beside JAX's own answer."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("jax")

from tests_py.bridge.same.planted.cases import (
    Bug,
    Program,
    Right,
    check_lines,
    check_words,
    ids,
    kinds_not_said,
    matching,
)
from tests_py.bridge.same.planted.jax_table import BUGS, STEPS
from tests_py.bridge.same.planted.mutate_jax import Mutation, mutant, mutations
from tests_py.bridge.same.planted.said_jax import said
from tests_py.bridge.same.planted.truth_jax import names_of, truth

EXACT = [pytest.param(True, id="exact")]
ENGINES = [*EXACT, pytest.param(False, id="float64")]


def verdicts(program: Program, exact: bool) -> tuple[set[str], dict[str, str]]:
    """Names of what differs, and of what is unknown with the reason."""
    verdict = said(program, exact)
    return {*verdict.differing}, verdict.unknown


@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("name", ["halos", "experts"])
def test_right_steps(name: str, exact: bool) -> None:
    right = next(each for each in STEPS if each.name == name)
    assert verdicts(right.make(), exact) == (set(), {})


@pytest.mark.slow
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("right", STEPS, ids=[right.name for right in STEPS])
def test_all_right_steps(right: Right, exact: bool) -> None:
    assert verdicts(right.make(), exact) == (set(), {})


@pytest.mark.slow
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("pair", BUGS, ids=ids(BUGS))
def test_all_bugs(pair: tuple[Right, Bug], exact: bool) -> None:
    """The states differ that do in JAX."""
    program = pair[0].make(pair[1].name)
    assert verdicts(program, exact) == (truth(program, steps=1).wrong(), {})


# Texts of the place, and of the change if one is right, for each way in which a line is found.
SAID = {
    ("schedule", "steps counted by ranks"): ("same operands", "1 for 2 at"),
    ("capacity of experts", "capacity of local rows"): ("another integer", "2 for 1 at"),
    ("capacity of experts", "places counted on each rank"): ("another integer", ""),
    ("halos", "borders exchanged"): ("same operands", ""),
    ("halos", "no borders"): ("same operands", ""),
    ("ring attention", "mask of local positions"): ("same operands", ""),
    ("pipeline", "labels one late"): (", called at jax_stages.py:", ""),
    ("exchanged heads", "scaled by exchanged heads"): (", called at jax_more.py:", "0.7071 for 0.5 at"),
    ("experts", "ranks against experts"): ("same operands", "nothing done at"),
    ("sharded weights", "rotated parts"): ("same operands", "nothing done at"),
    ("sharded weights", "divided by copies"): ("2 times the value", "1/2 times what is made at"),
    ("experts", "auxiliary loss of local shares"): ("the sum over expert is missing, before", ""),
    ("experts", "experts not divided"): ("a change there", "1/2 times what is made at"),
    ("experts", "router loss on each rank"): ("a change there", "no sum over expert at"),
    ("sharded weights", "gathered without the sum of gradients"): ("113, called at jax_shards.py:128", ""),
    ("unequal labels", "largest count"): ("is missing, before", "the mean over data of what is made at"),
    ("convolution", "mean of the local rows"): ("", "4 for 2 at"),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("pair", SAID, ids=": ".join)
def test_what_is_said_of_a_line(pair: tuple[str, str]) -> None:
    check_words(said, BUGS, pair, *SAID[pair])


OTHERS = kinds_not_said(BUGS, SAID)


@pytest.mark.share(2)
@pytest.mark.parametrize("exact", EXACT)
@pytest.mark.parametrize("pair", OTHERS, ids=[bug.kind for _, bug in OTHERS])
def test_a_bug_of_each_kind(pair: tuple[Right, Bug], exact: bool) -> None:
    right, bug = pair
    program = right.make(bug.name)
    assert verdicts(program, exact) == (matching(bug.wrong, names_of(program)), {})


@pytest.mark.slow
def test_nine_of_ten_are_named_at_a_marked_line() -> None:
    check_lines(said, BUGS)


def check_mutant(program: Program, mutation: Mutation, exact: bool) -> None:
    changed = mutant(program, mutation)
    found = truth(changed, steps=1, like=program)
    assert verdicts(changed, exact) == (found.wrong(), {}), mutation


@pytest.mark.parametrize("exact", EXACT)
def test_mutants_of_one_step(exact: bool) -> None:
    """One change of each kind of collective, and of one constant."""
    program = next(right for right in STEPS if right.name == "sharded moments").make()
    seen = set()
    for mutation in mutations(program):
        kind = mutation.primitive
        if kind not in seen:
            seen.add(kind)
            check_mutant(program, mutation, exact)
    assert len(seen) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("right", STEPS, ids=[right.name for right in STEPS])
def test_all_mutants(right: Right, exact: bool) -> None:
    """All mutants, or each so many: POPSR_MUTANTS=10."""
    program = right.make()
    for mutation in mutations(program)[:: int(os.environ.get("POPSR_MUTANTS", "1"))]:
        check_mutant(program, mutation, exact)
