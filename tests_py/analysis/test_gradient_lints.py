"""Lints L10 and L11 on random training steps, right and wrong ones, beside finite differences of their losses."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest

import popsr
from popsr.testing import check_gradients
from tests_py.analysis.parallel_steps import AT_TOTALS, MISTAKES, ParallelStep, Reduction

ROUNDS = 4  # of lints and repairs
MANY = 10_000
NO_PARTS = AT_TOTALS[0]
"""Another function, whose gradients no single sum makes right; lints are asked for, no advice is followed."""


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
    check_right(MANY)


@pytest.mark.slow
def test_many_wrong_steps_have_one() -> None:
    """Prints, for each mistake, the steps and those that have a lint."""
    drawn, found, missed = Counter[str](), Counter[str](), list[str]()
    for step in wrong_steps(MANY):
        assert step.mistake is not None
        drawn[step.mistake] += 1
        if lints_of(step.make().ir):
            found[step.mistake] += 1
        else:
            missed.append(name_of(step))
    print_counts(drawn, found)
    print("\n".join(missed))
    assert found.total() >= 0.99 * drawn.total()


@pytest.mark.slow
def test_right_steps_and_advice_beside_finite_differences() -> None:
    """Prints, for each mistake, the steps and those whose gradients are right after the advice."""
    for seed in range(MANY // 50):
        step = ParallelStep(seed, wrong=False).make()
        assert check_gradients(step.ir, step.losses, step.gradients, step.inputs, scale=step.scale).ok, seed
    drawn, repaired, left = Counter[str](), Counter[str](), list[str]()
    for each in wrong_steps(MANY // 10):
        if each.mistake is None or each.mistake == NO_PARTS or not lints_of(each.make().ir):
            continue
        drawn[each.mistake] += 1
        if follow(each):
            repaired[each.mistake] += 1
        else:
            left.append(f"{name_of(each)}, {each.repairs}")
    print_counts(drawn, repaired)
    print("\n".join(left))
    assert repaired.total() >= 0.99 * drawn.total()


def print_counts(of: Counter[str], found: Counter[str]) -> None:
    """A line for each mistake, and all."""
    print()
    for mistake in MISTAKES:
        print(f"{mistake:45}{of[mistake]:7}{found[mistake]:7}")
    print(f"{'all':45}{of.total():7}{found.total():7}", flush=True)


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
    if "identical_inputs(" in advice and group:
        step.repairs.fork = group[0]
    elif lint.code == "L10" and advice.startswith("leave out the sum of gradients"):
        step.repairs.fork, step.repairs.total = "", True
    elif lint.code == "L11" and lint.tensor is not None:
        how: Reduction = "mean" if "'mean', ir" in advice else "add"
        when = "in place" if "in place" in advice else "leave out" if "leave out" in advice else "before"
        if when != "leave out" and not group:
            return False
        step.repairs.gradients[lint.tensor.name] = (when, how, group[0] if group else "")
    else:
        return False
    return True


def follow(step: ParallelStep) -> bool:
    """Follow advice until no lint is left; true if gradients are right then, up to one factor."""
    for _ in range(ROUNDS):
        found = lints_of(step.make().ir)
        if not found:
            break
        if not any([repair(step, lint) for lint in found]):  # noqa: C419 - all of them
            return False
    made = step.make()
    if lints_of(made.ir):
        return False
    try:
        return check_gradients(made.ir, made.losses, made.gradients, made.inputs, scale=None).ok
    except popsr.errors.GradientError:
        return False


@pytest.mark.parametrize(
    "step", [step for step in wrong_steps(70) if step.mistake != NO_PARTS], ids=name_of
)
def test_advice_makes_gradients_right(step: ParallelStep) -> None:
    assert follow(step), step.repairs
