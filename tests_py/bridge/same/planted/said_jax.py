"""Verdict of ``popsr.prove(..., like="one device")`` on a step of JAX, in the names of the table."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import popsr
from tests_py.bridge.same.planted.cases import Bug, Program, Right, wrong_lines
from tests_py.bridge.same.planted.truth_jax import names_of

__all__ = ["Said", "at_right_line", "said"]


@dataclass(frozen=True)
class Said:
    """A verdict.

    Attributes:
        differing: names of the states and results that differ.
        unknown: reasons, by name, of those of which nothing is known.
        place: line from which the step differs, and what is wrong there; empty if none is named.
        repair: the change with which all are the same; empty if none is said.
        in_step: True if no state drifts.
        seconds: processor time of the proof.
    """

    differing: frozenset[str]
    unknown: dict[str, str]
    place: str
    repair: str
    in_step: bool
    seconds: float


def name_of(path: str) -> str:
    """A state's name in the table."""
    return "loss" if path.startswith("result") else re.sub(r"\['(\w+)'\]", r".\1", path)


def said(program: Program, exact: bool) -> Said:
    """The verdict about a step; it is of all states and results."""
    start = time.process_time()
    proof = popsr.prove(program.step, *program.args, like="one device", exact=exact, **program.options)
    seconds = time.process_time() - start
    same = proof.same
    assert same is not None
    found = {name_of(each.path): each for each in same.values}
    assert {*found} == {*names_of(program)}
    differing = frozenset(name for name, each in found.items() if each.verdict == "differs")
    unknown = {name: each.reason for name, each in found.items() if each.verdict == "unknown"}
    assert same.ok == (not differing and not unknown)
    place, repair = (str(each or "") for each in (same.place, same.repair))
    return Said(differing, unknown, place, repair, not proof.drifting, seconds)


def at_right_line(right: Right, bug: Bug, place: str) -> bool:
    """True if a place names one of the bug's marked lines: its own, or the one before which a collective is missing."""
    return any(re.search(rf"{re.escape(file)}:{line}\b", place) for file, line in wrong_lines(right, bug))
