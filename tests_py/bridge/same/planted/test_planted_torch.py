"""torch's own answer on each planted bug: which states differ from one rank's, and that ranks stay in step."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests_py.bridge.same.planted.cases import WRONG, Bug, Right, check_table, ids, matching
from tests_py.bridge.same.planted.torch_table import BUGS, STEPS
from tests_py.bridge.same.planted.truth_torch import names_of, truth


def test_the_table() -> None:
    check_table(STEPS)
    assert len(BUGS) >= 25


@pytest.mark.parametrize("right", STEPS, ids=[right.name for right in STEPS])
def test_right_steps(right: Right) -> None:
    found = truth(right.make())
    assert found.in_step
    assert not found.wrong(0), found
    assert not found.wrong(1), found


@pytest.mark.parametrize("pair", BUGS, ids=ids(BUGS))
def test_bugs(pair: tuple[Right, Bug]) -> None:
    """Ranks are in step; the states that the table names are wrong by much, others are right."""
    right, bug = pair
    program = right.make(bug.name)
    found = truth(program, steps=1)
    assert found.in_step
    assert found.wrong() == found.wrong(beyond=WRONG) == matching(bug.wrong, names_of(program)), found
