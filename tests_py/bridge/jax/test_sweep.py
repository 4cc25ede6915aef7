"""A slice of the sweep over all surfaces of JAX; ``python -m tests_py.bridge.jax.sweep`` runs more of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from popsr.bridge.jax import _importer
from popsr.bridge.jax._rules import table as _rules
from tests_py.bridge.jax.sweep.judge import BATCH, Tally, sweep
from tests_py.bridge.jax.sweep.steps import random_step


def judged(seeds: Any, count: int = 4, wide: bool = False) -> Tally:
    tally = Tally()
    sweep([(list(seeds), count, wide)], tally)
    return tally


@pytest.mark.share(2)
@pytest.mark.parametrize(("count", "wide"), [(4, False), (8, False), (8, True)])
def test_no_claim_is_broken(count: int, wide: bool) -> None:
    tally = judged(range(BATCH), count, wide)
    assert not tally.faults
    assert tally.programs == BATCH
    assert tally.claims > 100
    assert tally.claims / tally.equal > 0.7


def test_the_same_seed_is_the_same_step() -> None:
    assert str(random_step(7, 8, False).jaxpr) == str(random_step(7, 8, False).jaxpr)


def _constant_index(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = dataclasses.replace(
        _rules.RULES["axis_index"], function=lambda equation: [np.asarray(0, np.int32)]
    )
    monkeypatch.setitem(_rules.RULES, "axis_index", rule)


def _numbers_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that replicas differ in are taken for one."""
    monkeypatch.setattr(_importer, "known_rows", lambda rows, labels: rows[0])


def _no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction over parts of an axis is taken for one over all."""
    from popsr.bridge.jax._rules import collectives as _collectives

    monkeypatch.setattr(
        _collectives,
        "_group",
        lambda equation, axes: equation.importer.spread.group([*equation.importer.spread.sizes]),
    )


def _gaps_are_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins are read from nothing."""
    from popsr.bridge._step import builder as _builder
    from popsr.bridge._step import opaque as _opaque

    known = _opaque.opaque
    monkeypatch.setattr(_builder, "opaque", lambda inputs, outputs, everywhere: known((), outputs, False))


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "index": _constant_index,
    "rows": _numbers_by_value,
    "groups": _no_groups,
    "gaps": _gaps_are_constants,
}


@pytest.mark.share(2)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_false_claim_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    for first in range(0, 10 * BATCH, BATCH):
        if any(fault.startswith("FALSE") for fault in judged(range(first, first + BATCH)).faults):
            return
    raise AssertionError("no fault is found")


@pytest.mark.slow
def test_many_steps() -> None:
    first = int(os.environ.get("POPSR_FUZZ_SEED", "1000"))
    tally = Tally()
    for turn in range(int(os.environ.get("POPSR_FUZZ_PROGRAMS", "500")) // BATCH):
        seeds = range(first + turn * BATCH, first + (turn + 1) * BATCH)
        sweep([(seeds, (4, 8)[turn % 2], turn % 4 == 3)], tally)
    print(tally)
    assert not tally.faults
    assert tally.claims / tally.equal >= 0.85
