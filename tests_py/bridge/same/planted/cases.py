"""The form of a step with planted bugs that are alike on all replicas, and where its wrong lines stand.

A bug's line ends with ``# wrong: name of the bug``; a line may stand for several bugs, and a bug in several lines.
"""

from __future__ import annotations

import ast
import fnmatch
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

__all__ = [
    "EQUAL", "WRONG", "Bug", "Kind", "Program", "Right", "Said", "Truth", "at_own_line", "at_right_line",
    "check_lines", "check_table", "check_words", "ids", "kinds_not_said", "matching", "part_of",
]  # fmt: skip

Kind = Literal[
    "tied weights",
    "sequence-parallel norm",
    "router and auxiliary loss",
    "context mask and positions",
    "vocabulary-parallel cross entropy",
    "accumulation and loss scale",
    "clipping norm",
    "grouped-query heads",
    "sharded optimiser",
    "frozen and unused weights",
    "batch norm",
    "weight decay on shards",
    "checkpointed layers",
    "unequal numbers of labels",
    "local number of heads",
    "sums in both passes",
    "mean versus sum",
    "neighbours and stages",
]


#: Bounds of a difference, as a part of the update: what is less is rounding, what is more is wrong.
EQUAL, WRONG = 1e-9, 1e-3


@dataclass(frozen=True, eq=False)
class Program:
    """A step of JAX with global arguments.

    Attributes:
        step: returns the new values of its first arguments, in order, and then its results.
        args: global arguments; states come first.
        mesh: sizes by axis.
        in_specs: as ``shard_map`` takes them.
        out_specs: as ``shard_map`` takes them.
        check_vma: True if JAX follows which values vary.
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: Mapping[str, int]
    in_specs: Any
    out_specs: Any
    check_vma: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Options of ``popsr.prove``."""
        return {
            "mesh": self.mesh,
            "in_specs": self.in_specs,
            "out_specs": self.out_specs,
            "check_vma": self.check_vma,
            "updates": {i: i for i in range(len(self.out_specs) - 1)},
        }


@dataclass(frozen=True)
class Bug:
    """A wrong line that all replicas have.

    Attributes:
        name: of the bug, as the marker of its line says it.
        kind: of the bug.
        wrong: patterns of the states and results that are wrong after one step, apart by blanks.
    """

    name: str
    kind: Kind
    wrong: str


@dataclass(frozen=True)
class Right:
    """A right step and its bugs: ``make()`` is right, ``make(name of the bug)`` is wrong."""

    name: str
    make: Callable[..., Any]
    bugs: tuple[Bug, ...]


def matching(patterns: str, names: Iterable[str]) -> set[str]:
    """Names that one of the patterns matches; each pattern matches at least one."""
    names = list(names)
    for pattern in patterns.split():
        assert fnmatch.filter(names, pattern), f"got no state for {pattern!r} among {names}"
    return {name for name in names for pattern in patterns.split() if fnmatch.fnmatchcase(name, pattern)}


def wrong_lines(right: Right, bug: Bug) -> list[tuple[str, int]]:
    """File and line of each line of a statement that is marked as wrong by this bug, in the function of the step."""
    lines, first = inspect.getsourcelines(right.make)
    file = Path(inspect.getsourcefile(right.make) or "").name
    marked = set()
    for number, line in enumerate(lines, 1):
        marker = re.search(r"# wrong: (.*)$", line)
        if marker is not None and bug.name in marker.group(1).split(", "):
            marked.add(number)
    found = set()
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found |= {*span} if marked & {*span} else set()
    return [(file, first - 1 + number) for number in sorted(found)]


def check_table(steps: Iterable[Right]) -> None:
    """Each bug has a name of its own and lines, and each marked line a bug."""
    for right in steps:
        names = [bug.name for bug in right.bugs]
        source = inspect.getsource(right.make)
        marked = {name for text in re.findall(r"# wrong: (.*)", source) for name in text.split(", ")}
        assert len({*names}) == len(names), right.name
        assert {*names} == marked, right.name
        assert all(f'"{name}"' in source for name in names), right.name
        assert all(wrong_lines(right, bug) for bug in right.bugs), right.name


@dataclass(frozen=True)
class Truth:
    """Distance of a step from itself on one device.

    Attributes:
        deviations: after each step, by state or result: the greatest difference on any device, as a part of the
            update, or of the loss itself.
        in_step: True if devices that share a value have one value of it.
    """

    deviations: list[dict[str, float]]
    in_step: bool

    def wrong(self, step: int = 0, beyond: float = EQUAL) -> set[str]:
        """Names of what differs after so many steps and one."""
        return {name for name, each in self.deviations[step].items() if each > beyond}


def part_of(difference: float, whole: float) -> float:
    """A difference as a part of an update; of no update every difference is infinitely large."""
    if not np.isfinite(difference):
        return float("inf")
    return float(difference / whole) if whole else (0.0 if difference == 0 else float("inf"))


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
        names: of all states and results.
    """

    differing: frozenset[str]
    unknown: dict[str, str]
    place: str
    repair: str
    in_step: bool
    seconds: float
    names: frozenset[str]

    @classmethod
    def of(cls, proof: Any, name_of: Callable[[str], str], names: Iterable[str], seconds: float) -> Said:
        """The verdict of a proof about all states and results, which have these names in the table."""
        same = proof.same
        found = {name_of(each.path): each for each in same.values}
        assert {*found} == {*names}
        differing = frozenset(name for name, each in found.items() if each.verdict == "differs")
        unknown = {name: each.reason for name, each in found.items() if each.verdict == "unknown"}
        assert same.ok == (not differing and not unknown)
        place, repair = (str(each or "") for each in (same.place, same.repair))
        return cls(differing, unknown, place, repair, not proof.drifting, seconds, frozenset(found))


def at_right_line(right: Right, bug: Bug, place: str) -> bool:
    """True if a place names one of the bug's marked lines.

    A place is a line, the one that calls it if the function is shared, and one before which a collective is missing.
    """
    return any(re.search(rf"{re.escape(file)}:{line}\b", place) for file, line in wrong_lines(right, bug))


def at_own_line(right: Right, bug: Bug, place: str) -> bool:
    """True if it does so without the line that calls."""
    return at_right_line(right, bug, re.sub(r", called at [^ ]+:\d+", "", place))


def check_words(
    said: Callable[..., Said],
    bugs: Iterable[tuple[Right, Bug]],
    names: tuple[str, str],
    place: str,
    change: str,
) -> None:
    """The wrong states differ; texts are in the place of a bug, and in the change that makes it right, if one is said.

    Args:
        said: gives the verdict about a program.
        bugs: all bugs.
        names: those of the step and of the bug.
        place: text of the place, which names a marked line.
        change: text of the change; empty if none is said.
    """
    right, bug = next(pair for pair in bugs if (pair[0].name, pair[1].name) == names)
    verdict = said(right.make(bug.name), exact=True)
    assert verdict.differing == matching(bug.wrong, verdict.names)
    assert not verdict.unknown
    assert at_right_line(right, bug, verdict.place), verdict.place
    assert place in verdict.place
    assert change in verdict.repair
    assert bool(change) == bool(verdict.repair)


def kinds_not_said(
    pairs: Iterable[tuple[Right, Bug]], said: Iterable[tuple[str, str]]
) -> list[tuple[Right, Bug]]:
    """The first bug of each kind of which no text is tested, which tests its states too."""
    pairs, said = list(pairs), set(said)
    seen = {bug.kind for right, bug in pairs if (right.name, bug.name) in said}
    first = {bug.kind: (right, bug) for right, bug in reversed(pairs)}
    return [first[kind] for kind in get_args(Kind) if kind in first and kind not in seen]


def check_lines(said: Callable[..., Said], bugs: Iterable[tuple[Right, Bug]]) -> None:
    """Nine of ten bugs are named at a marked line."""
    named = [at_right_line(*pair, said(pair[0].make(pair[1].name), exact=True).place) for pair in bugs]
    assert sum(named) >= 0.9 * len(named)


def ids(pairs: Iterable[tuple[Right, Bug]]) -> list[str]:
    """Names of tests, each of a bug in a step."""
    return [f"{right.name}: {bug.name}" for right, bug in pairs]
