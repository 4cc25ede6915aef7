"""Checks of a session: lints that are errors or warnings, and claims that are compared."""

from __future__ import annotations

from collections.abc import Container, Iterable
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from popsr import _core
from popsr._session.replica_warnings import is_first_warning, warn
from popsr._support.host.arguments import read_items
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.analysis._drift import drift_text
from popsr.analysis._explanation import Lint, lint_of
from popsr.errors import ArgumentTypeError, AttributeValueError, ReplicaError

if TYPE_CHECKING:
    from popsr._program.ir import Ir
    from popsr._program.tensor import Variable
    from popsr._support.records import Divergence

__all__ = [
    "GroupLint",
    "Place",
    "check_lints",
    "read_check",
    "read_strict",
    "report_break",
    "stream_lints",
]

_STRICT = ("L1", "L2", "L3", "labels")


def read_check(check: object) -> float:
    """The share of ops whose claims are compared; 0 for none."""
    if isinstance(check, (bool, np.bool_)):
        return float(check)
    if not isinstance(check, Real):
        raise ArgumentTypeError(
            f"Session: check is not a number, got {shown(check)}, expected a bool or 0 <= check <= 1"
        )
    if not 0 <= float(check) <= 1:
        raise AttributeValueError(
            f"Session: check is not a share, got {shown(check)}, expected a bool or 0 <= check <= 1"
        )
    return float(check)


def read_strict(strict: object) -> frozenset[str]:
    """Codes of what is an error: lints, and labels that are none of the classes."""
    if isinstance(strict, (bool, np.bool_)):
        return frozenset(_STRICT if strict else ())
    if isinstance(strict, str) or not isinstance(strict, Iterable):
        raise ArgumentTypeError(
            f"Session: strict is not a bool, got {shown(strict)}, expected a bool or some of {list(_STRICT)}"
        )
    codes = read_items("Session", "strict", strict, kind="codes of lints")
    if not all(isinstance(code, str) and code in _STRICT for code in codes):
        raise AttributeValueError(
            f"Session: strict is not about these lints, got {shown(list(codes))}, expected some of {list(_STRICT)}"
        )
    return frozenset(codes)


def check_lints(
    ir: Ir, facts: _core.PartitionAnalysis, errors: frozenset[str], *, known: Container[int] = ()
) -> dict[int, Place]:
    """Refuse or warn of a program with lints L1 or L2, or L3 of a stream; of a variable L3 is one once it is read.

    Args:
        ir: the program.
        facts: what a session takes for granted.
        errors: codes of lints that are errors.
        known: variables of which is known that they drift: no warning of L2.
    Returns:
        Where each variable that drifts is written last.
    Raises:
        ReplicaError: the first lint that is an error.
    """
    explainer = _core.Explainer(facts)
    lints, drifts = explainer.session_lints(), explainer.drifts()
    harmful = [drift for drift in drifts if not drift.overwritten]
    refused = [lint for lint in lints if f"L{lint.code}" in errors]
    if refused:
        raise _refused(lint_of(ir, refused[0]))
    if harmful and "L2" in errors:
        raise _refused(lint_of(ir, min(harmful, key=lambda drift: drift.op).lint()))
    for lint in (lint_of(ir, each) for each in lints):
        warn(ir, lint.code, lint.location, lint.text)
    at_line: dict[str, list[_core.Drift]] = {}
    for drift in sorted(harmful, key=lambda drift: drift.op):
        if drift.variable not in known:
            at_line.setdefault(drift.location, []).append(drift)
    for location, found in at_line.items():
        if is_first_warning(ir, "L2", location):
            warn(ir, "L2", location, drift_text(ir, found))
    return {drift.variable: Place(drift.location, drift.overwritten) for drift in drifts}


def report_break(
    ir: Ir, broken: list[tuple[int, int, int, str]], before: dict[int, Place], now: dict[int, Place]
) -> None:
    """Warn, at the lines of streams whose rows were equal in earlier runs, of what is no longer proved.

    Args:
        ir: the program.
        broken: stream, two replicas and how their rows differ.
        before: variables that drifted in earlier runs.
        now: variables that drift from now on.
    """
    lost = [ir._tensor(id_).id for id_, place in now.items() if id_ not in before and not place.overwritten]
    if not lost or not broken:
        return
    more = f" and {len(lost) - 1} more variable{'' if len(lost) == 2 else 's'}" if len(lost) > 1 else ""
    for id_, r, s, text in broken:
        stream = ir._stream_cache[id_]
        warn(
            ir,
            "L2",
            stream.location,
            f"rows of stream '{one_line(stream.tensor_id, 60)}' were equal in earlier runs, now {text}: "
            f"'{one_line(lost[0], 60)}'{more} drift{'' if more else 's'}, proved equal before; feed replicas {r} and "
            f"{s} the same, or declare the stream with replicated_stream_mode='equal' to refuse such data",
        )


def stream_lints(ir: Ir, facts: _core.PartitionAnalysis, equal: list[int], large: list[int]) -> list[Lint]:
    """L13: larger streams whose rows were equal in every run, of which a declaration would prove more.

    Args:
        ir: the program.
        facts: a session's.
        equal: small streams that they take as equal.
        large: streams whose rows were equal in every run.
    """
    drifting = {drift.variable for drift in _core.Explainer(facts).drifts() if not drift.overwritten}
    lints = []
    for id_ in large if drifting else ():
        declared = _core.PartitionAnalysis(
            ir._core, facts.seed_rules, [(each, None) for each in (*equal, id_)]
        )
        left = {drift.variable for drift in _core.Explainer(declared).drifts()}
        proved = [ir._tensor(variable).id for variable in sorted(drifting - left)]
        if not proved:
            continue
        stream = ir._stream_cache[id_]
        more = f" and {len(proved) - 1} more" if len(proved) > 1 else ""
        text = (
            f"rows of stream '{one_line(stream.tensor_id, 60)}' were equal in every run so far: declared with "
            f"replicated_stream_mode='equal' it would prove that '{one_line(proved[0], 60)}'{more} stay equal"
        )
        lints.append(Lint("L13", None, None, stream.location, len(proved), "variables", text))
    return lints


def _refused(lint: Lint) -> ReplicaError:
    return ReplicaError(
        f"Session: lint {lint.code} is an error with strict, got {lint.location}: {lint.text}, expected a program "
        f"without it: {lint.help}"
    )


class Place(NamedTuple):
    """The last write, in a run, of a variable that drifts.

    Attributes:
        location: ``file:line``.
        overwritten: every run overwrites the variable before it reads what the run before left.
    """

    location: str
    overwritten: bool


class GroupLint:
    """L3: the host gets the value of the first member of a group, and other members hold another one.

    Args:
        ir: the program.
        drifts: its variables that drift.
        strict: it is an error.
    """

    def __init__(self, ir: Ir, drifts: dict[int, Place], strict: bool) -> None:
        self._ir = ir
        self._drifts = drifts
        self._strict = strict

    @property
    def drifts(self) -> dict[int, Place]:
        """Variables that drift."""
        return self._drifts

    def report(
        self, where: str, variable: Variable, found: Divergence, *, asked: bool = True, may_raise: bool = True
    ) -> None:
        """Raise ReplicaError if strict and ``may_raise``; else warn, at the line of the last write in a run.

        Args:
            where: what reads the variable.
            variable: the variable.
            found: where its replicas differ.
            asked: the caller named the variable; else all are saved, and one that every run overwrites first does
                not matter.
            may_raise: with strict.
        """
        place = self._drifts.get(variable._id) or Place(
            self._ir._core.location_of_variable(variable._id), False
        )
        if place.overwritten and not asked:
            return
        first, other, element = found
        text = f"replicas {first} and {other} of one group of '{variable.id}' differ at element {element}"
        if self._strict and may_raise:
            raise ReplicaError(
                f"{where}: one value per group is read back, got {text}, expected equal replicas or "
                "retrieval_mode='all_replicas'"
            )
        grouping = variable.replica_grouping
        unseen = grouping.num_replicas - grouping.num_groups
        warn(
            self._ir,
            "L3",
            place.location,
            f"{where}: one value per group is read back, but {text}; the value of replica {first} stands for its "
            f"group and {unseen} of {grouping.num_replicas} replicas are not seen: all-reduce what updates it, group "
            "its replicas otherwise, or read all of them with replicas='all'",
        )
