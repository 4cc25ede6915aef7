"""Follow the advice about wrong steps, and compare with the right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr.bridge._step.arguments import Step
from tests_py.bridge.advice.drawing import Recipe, read, whole

__all__ = ["Followed", "differences", "follow"]


@dataclass(frozen=True)
class Followed:
    """The outcome of a wrong step.

    Attributes:
        recipe: the step.
        state: "unseen" if it is proved right, "silent" without advice, "right" or "wrong" if advice was followed.
        text: the advice, and what differs.
    """

    recipe: Recipe
    state: str
    text: str = ""


def follow(recipe: Recipe) -> Followed:
    """Prove a wrong step, follow the advice if there is some, and run both steps."""
    proof = read(recipe).prove()
    lints = {lint.code for lint in proof.lints}
    if proof.ok and not lints & {"L6", "L7", "L10", "L11"}:
        return Followed(recipe, "unseen")
    if not proof.advice:
        return Followed(recipe, "silent")
    advice = proof.advice[0]
    found = differences(advice.step, read(recipe.right))
    return Followed(recipe, "wrong" if found else "right", f"{advice}: {found}" if found else str(advice))


def differences(one: Step, other: Step) -> list[str]:
    """States that two steps leave with other values."""
    mine, theirs = one.run(), other.run()
    return [each.path for each in one.states if not _close(mine[each.path], theirs[each.path])]


def unlike_whole(recipe: Recipe) -> list[str]:
    """States that the right step leaves with other values than one replica with all data and weights."""
    step = read(recipe.right)
    found, expected = step.run(), whole(recipe)
    wrong = []
    for each in step.states:
        value, mine = np.asarray(expected[each.path]), np.asarray(found[each.path])
        rows = mine if mine.ndim > value.ndim else mine[None]
        axis = next((n for n in range(value.ndim) if rows.shape[1 + n] != value.shape[n]), None)
        parts = [value] if axis is None else np.split(value, value.shape[axis] // rows.shape[1 + axis], axis)
        if not all(any(_close(row, part) for part in parts) for row in rows):
            wrong.append(each.path)
    return wrong


def _close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=2e-4, atol=2e-6))
