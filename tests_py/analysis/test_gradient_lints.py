"""Lints L10 and L11 on random training steps, right and wrong ones, beside finite differences of their losses."""

from __future__ import annotations

import itertools
import re

import pytest

import popsr
from popsr.testing import check_gradients
from tests_py.analysis.parallel_steps import MISTAKES, ParallelStep, Reduction

ROUNDS = 4  # of lints and repairs


def lints_of(ir: popsr.Ir) -> list[popsr.analysis.Lint]:
    """The lints of gradients."""
    return [lint for lint in popsr.analysis.analyze(ir).warnings if lint.code in ("L10", "L11")]


def wrong_steps(count: int) -> list[ParallelStep]:
    """The first steps with a mistake."""
    drawn = (ParallelStep(seed, wrong=True) for seed in itertools.count())
    return list(itertools.islice((step for step in drawn if step.mistake), count))


def name_of(step: ParallelStep) -> str:
    """Of a row of a table."""
    return f"{step.seed}: {step.mistake}"


def check_right(steps: int) -> None:
    """No right step has a lint."""
    for seed in range(steps):
        found = lints_of(ParallelStep(seed, wrong=False).make().ir)
        assert not found, f"step {seed}: {found[0]}"


def check_wrong(steps: int) -> None:
    """Each wrong step has one."""
    missed = [name_of(step) for step in wrong_steps(steps) if not lints_of(step.make().ir)]
    assert not missed, f"{len(missed)} of {steps} missed, as {missed[:3]}"


def test_right_steps_have_no_lint() -> None:
    check_right(400)


def test_wrong_steps_have_one() -> None:
    check_wrong(400)


@pytest.mark.slow
def test_many_right_steps_have_no_lint() -> None:
    check_right(10_000)


@pytest.mark.slow
def test_many_wrong_steps_have_one() -> None:
    check_wrong(10_000)


def test_each_mistake_is_drawn() -> None:
    assert {step.mistake for step in wrong_steps(200)} == set(MISTAKES)


@pytest.mark.parametrize("seed", range(25))
def test_right_steps_have_the_gradients_of_finite_differences(seed: int) -> None:
    step = ParallelStep(seed, wrong=False).make()
    assert check_gradients(step.ir, step.losses, step.gradients, step.inputs, scale=step.scale).ok


@pytest.mark.parametrize("step", wrong_steps(25), ids=name_of)
def test_wrong_steps_have_other_gradients(step: ParallelStep) -> None:
    made = step.make()
    with pytest.raises(popsr.errors.GradientError):
        check_gradients(made.ir, made.losses, made.gradients, made.inputs, scale=made.scale)


def repair(step: ParallelStep, lint: popsr.analysis.Lint) -> bool:
    """Follow the advice of a lint; False for other advice."""
    advice = lint.text.rpartition("; ")[2]
    group = re.search(r"ir\.replica_grouping\w*\([^)]*\)", advice)
    if lint.code == "L10" and "identical_inputs(" in advice and group:
        step.repairs.fork = group[0]
    elif lint.code == "L10" and advice.startswith("leave out the sum of gradients"):
        step.repairs.fork = ""
    elif lint.code == "L11" and lint.tensor is not None:
        how: Reduction = "mean" if "'mean', ir" in advice else "add"
        when = "in place" if "in place" in advice else "leave out" if "leave out" in advice else "before"
        if when != "leave out" and not group:
            return False
        step.repairs.gradients[lint.tensor.name] = (when, how, group[0] if group else "")
    else:
        return False
    return True


@pytest.mark.parametrize("step", wrong_steps(60), ids=name_of)
def test_advice_makes_gradients_right(step: ParallelStep) -> None:
    """Once no lint is left, gradients are right, up to one factor."""
    for _ in range(ROUNDS):
        found = lints_of(step.make().ir)
        if not found:
            break
        assert any([repair(step, lint) for lint in found]), found[0].text  # noqa: C419 - all of them
    made = step.make()
    assert not lints_of(made.ir)
    assert check_gradients(made.ir, made.losses, made.gradients, made.inputs, scale=None).ok
