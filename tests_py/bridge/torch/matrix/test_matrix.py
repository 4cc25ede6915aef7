"""The matrix of models, parallelism and optimisers: claims hold on ranks of gloo, and the page says what is read."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

pytest.importorskip("torch")

from tests_py.bridge.torch.matrix.cells import CELLS, COVERING, PLANTS, Cell
from tests_py.bridge.torch.matrix.judging import Outcome, judged
from tests_py.bridge.torch.matrix.models import MODELS
from tests_py.bridge.torch.matrix.optimizers import OPTIMIZERS
from tests_py.bridge.torch.matrix.parallel import PARALLEL
from tests_py.bridge.torch.matrix.table import ON_PAGE, entry, state_of, table

SLICE = [
    next(cell for cell in COVERING[row * len(OPTIMIZERS) + row % 5 :] if cell.model == "MLP")
    for row in range(len(PARALLEL))
]
"""A cell of the smallest model for each kind of parallelism."""


def check(outcome: Outcome) -> None:
    assert not outcome.raised, (outcome.cell, outcome.raised)
    assert not outcome.false, (outcome.cell, outcome.false)


@pytest.mark.share(6)
@pytest.mark.parametrize("cell", SLICE, ids="{0.parallel}, {0.optimizer}".format)
def test_cell(cell: Cell) -> None:
    (outcome,) = judged([cell])
    check(outcome)
    assert not outcome.alarms
    rows = [line.strip("| ").split(" | ") for line in ON_PAGE.written().splitlines()]
    shown = [row[1 + list(OPTIMIZERS).index(cell.optimizer)] for row in rows if row[0] == cell.parallel]
    assert shown == [entry(cell, state_of(outcome.text))], "run python -m tests_py.bridge.torch.matrix"


@pytest.mark.share(3)
@pytest.mark.parametrize("plant", PLANTS[1:])
def test_planted_bug(plant: str) -> None:
    """Plants drift on the ranks of some cells, which are not "ok" then."""
    cells = [dataclasses.replace(cell, plant=plant) for cell in SLICE[:: 2 * len(PLANTS)]]
    outcomes = judged(cells)
    for outcome in outcomes:
        check(outcome)
    assert any(outcome.drifts for outcome in outcomes)


def test_pairs() -> None:
    found = {frozenset(pair) for c in CELLS for pair in itertools.combinations(vars(c).values(), 2)}
    axes = [list(MODELS), list(PARALLEL), list(OPTIMIZERS)]
    for one, other in itertools.combinations(axes, 2):
        assert not [pair for pair in itertools.product(one, other) if frozenset(pair) not in found]


@pytest.mark.slow
def test_whole() -> None:
    outcomes = judged(CELLS)
    for outcome in outcomes:
        check(outcome)
    assert ON_PAGE.written() == table([outcome.text for outcome in outcomes])


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS[1:])
def test_planted_bugs(plant: str) -> None:
    for outcome in judged(dataclasses.replace(cell, plant=plant) for cell in CELLS):
        check(outcome)
