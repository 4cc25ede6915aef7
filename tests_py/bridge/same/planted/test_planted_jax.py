"""JAX's own answer on each planted bug: which states differ from one device's, and that replicas stay in step."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

import popsr
from tests_py.bridge.same.planted.cases import WRONG, Bug, Right, check_table, ids, matching
from tests_py.bridge.same.planted.jax_table import BUGS, BY_NAME, ONE_OF_EACH_KIND, STEPS
from tests_py.bridge.same.planted.truth_jax import names_of, truth


def check_right(right: Right) -> None:
    found = truth(right.make())
    assert found.in_step
    assert not found.wrong(0), found
    assert not found.wrong(1), found


def check_bug(right: Right, bug: Bug) -> None:
    """Replicas are in step; the states that the table names are wrong by much, others are right."""
    program = right.make(bug.name)
    found = truth(program, steps=1)
    assert found.in_step
    assert found.wrong() == found.wrong(beyond=WRONG) == matching(bug.wrong, names_of(program)), found


def test_the_table() -> None:
    """Each bug has its lines and a name of its own, each line a bug, each kind a bug."""
    assert len(BY_NAME) == len(STEPS) >= 12
    assert len(BUGS) >= 35
    check_table(STEPS)


@pytest.mark.share(4)
@pytest.mark.parametrize("pair", ONE_OF_EACH_KIND, ids=[bug.kind for _, bug in ONE_OF_EACH_KIND])
def test_a_bug_of_each_kind(pair: tuple[Right, Bug]) -> None:
    check_bug(*pair)


@pytest.mark.parametrize("name", ["ring attention"])
def test_right_steps(name: str) -> None:
    check_right(BY_NAME[name])


@pytest.mark.slow
@pytest.mark.parametrize("right", STEPS, ids=[right.name for right in STEPS])
def test_all_right_steps(right: Right) -> None:
    check_right(right)


@pytest.mark.slow
@pytest.mark.parametrize("pair", BUGS, ids=ids(BUGS))
def test_all_bugs(pair: tuple[Right, Bug]) -> None:
    """Also: the replicas stay in step, which ``popsr.prove`` says without a word about one device."""
    check_bug(*pair)
    program = pair[0].make(pair[1].name)
    proof = popsr.prove(program.step, *program.args, **program.options)
    assert not proof.drifting
