"""Random training steps: claims hold on real ranks bit by bit, and faults of the bridge are found."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.steps.checking import Outcome, check  # noqa: E402
from tests_py.bridge.torch.steps.drawing import KINDS, draw, tables  # noqa: E402
from tests_py.bridge.torch.steps.mixed import draw_mixed  # noqa: E402
from tests_py.bridge.torch.steps.mixed_rows import FORMS, PARTS, TWO_AXES  # noqa: E402
from tests_py.bridge.torch.steps.mutants import MUTANTS  # noqa: E402
from tests_py.bridge.torch.steps.tracing import Tracer  # noqa: E402


@pytest.fixture(scope="module")
def tracer() -> Iterator[Tracer]:
    made = Tracer(seconds=300)
    yield made
    made.close()


def told(outcome: Outcome) -> str:
    return f"{outcome.failures}\n{outcome.program.options()}\n{outcome.program.text()}"


@pytest.mark.parametrize(("start", "world"), [(0, 2), (100, 4)])
def test_claims_hold_on_ranks(tracer: Tracer, start: int, world: int) -> None:
    outcomes = collections.Counter[str]()
    for seed in range(start, start + 6):
        outcome = check(draw(seed, (world,)), tracer)
        assert not outcome.failures, told(outcome)
        outcomes[outcome.claims.outcome] += 1
    assert outcomes["proved"] >= 2, outcomes


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 15_000, 250))
def test_many_claims_hold_on_ranks(tracer: Tracer, start: int) -> None:
    for seed in range(start, start + 250):
        outcome = check(draw(seed), tracer)
        assert not outcome.failures, told(outcome)


@pytest.mark.share(6)
@pytest.mark.parametrize(("form", "world"), [(form, 4 if form in TWO_AXES else 2) for form in FORMS])
def test_claims_of_mixed_steps_hold_on_ranks(tracer: Tracer, form: str, world: int) -> None:
    # The seeds before draw schedulers on branches of ranks, which are traced 48 times.
    outcome = check(draw_mixed(3, (world,), (form,)), tracer, runs=False)
    assert not outcome.failures, told(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 2_000, 100))
def test_many_claims_of_mixed_steps_hold_on_ranks(tracer: Tracer, start: int) -> None:
    for seed in range(start, start + 100):
        outcome = check(draw_mixed(seed, (2, 2, 4)), tracer, runs=seed % 4 == 0)
        assert not outcome.failures, told(outcome)


def test_every_row_of_mixed_steps_is_drawn() -> None:
    drawn = [draw_mixed(seed, forms=(form,)) for form in FORMS for seed in range(400)]
    text = _flush("\n".join(part for each in drawn for part in each.parts.values()))
    rows = [row for rows in (*PARTS.values(), *FORMS.values()) for row in rows]
    assert not [row for row in rows if _flush(row.partition("{")[0]) not in text]


def _flush(text: str) -> str:
    """Lines without what they are indented by."""
    return re.sub(r"\n *", "\n", text)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", MUTANTS)
def test_fault_is_found(tracer: Tracer, name: str) -> None:
    mutant, tried = MUTANTS[name], 24
    with mutant.in_force():
        pass  # a place that has moved raises here; where a trace has the fault it ends the process
    others = collections.Counter[tuple[str, str]]()
    for seed in range(mutant.seed, mutant.seed + tried):
        tracer.fault = name
        outcome = check(draw(seed, (2,), mutant.kinds, mutant.wrapper), tracer, runs=False)
        tracer.fault = None
        if mutant.fails in outcome.kinds:
            return
        others.update(outcome.failures or [(outcome.claims.outcome, outcome.claims.text)])
    pytest.fail(f"{tried} programs of {mutant.kinds} do not find {name}, but {others}")


def test_every_row_is_drawn() -> None:
    """A row of a table that no seed draws would test nothing."""
    drawn = [draw(seed, kinds=[kind], wrapper="") for kind in KINDS for seed in range(240)]
    text = " ".join(part for each in drawn for one in each.statements for part in (one.setup, one.body))
    flat = re.sub(r"\s+", " ", text)
    rows = [row for table in (*KINDS.values(), *tables().values()) for row in table]
    missing = [row for row in rows if not all(part in flat for part in _fixed_parts(row))]
    assert not missing


def _fixed_parts(row: str) -> list[str]:
    """Text that each program of a row has: between the expressions that are drawn."""
    parts = re.split(r"\$[a-z]+|\n---\n", row)
    return [part for part in (re.sub(r"\s+", " ", each).strip() for each in parts) if len(part) > 3]
