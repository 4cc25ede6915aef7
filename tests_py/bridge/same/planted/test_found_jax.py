"""Verdict of ``popsr.prove(..., like="one device")`` on each planted bug of JAX, beside JAX's own answer."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("jax")

from tests_py.bridge.same.planted.cases import Bug, Program, Right, ids, matching
from tests_py.bridge.same.planted.jax_table import BUGS, ONE_OF_EACH_KIND, STEPS
from tests_py.bridge.same.planted.mutate_jax import Mutation, mutant, mutations
from tests_py.bridge.same.planted.said_jax import said
from tests_py.bridge.same.planted.truth_jax import names_of, truth

EXACT = [pytest.param(True, id="exact")]
ENGINES = [*EXACT, pytest.param(False, id="float64")]


def verdicts(program: Program, exact: bool) -> tuple[set[str], dict[str, str]]:
    """Names of what differs, and of what is unknown with the reason."""
    verdict = said(program, exact)
    return {*verdict.differing}, verdict.unknown


@pytest.mark.parametrize("exact", EXACT)
@pytest.mark.parametrize("pair", ONE_OF_EACH_KIND, ids=[bug.kind for _, bug in ONE_OF_EACH_KIND])
def test_a_bug_of_each_kind(pair: tuple[Right, Bug], exact: bool) -> None:
    right, bug = pair
    program = right.make(bug.name)
    assert verdicts(program, exact) == (matching(bug.wrong, names_of(program)), {})


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
