"""The fix: of the changes that are tried on the traced program, one with which the step is the same as one device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from popsr._program.building.location import short_place
from popsr._support.text.frames import source_line
from popsr.bridge._advice._edited import can_copy, edited
from popsr.bridge._exact import ExactRun
from popsr.bridge._same._changes import Changes, Tried
from popsr.bridge._same._exact import Exactly, agrees, given_of_one, ran
from popsr.bridge._same._pairs.pair import UnknownError, pair_of
from popsr.bridge._same._place import callers_of, place_of
from popsr.bridge._same._suspects import Suspects
from popsr.bridge._same._values import Place, Repair, SameValue
from popsr.bridge._step.arguments import Step
from popsr.errors import Error

__all__ = ["cause_of", "too_large"]

_MOST_TRIED, _MOST_OPS = 48, 20_000
"""Changes that are tried, fewer of large programs: and ops that are run in all."""
_MOST_VALUES = 100_000
"""Ops times replicas of a step whose line is looked for."""


def too_large(step: Step) -> str:
    """A note that the line of a difference is not looked for, as in a step of some hundred replicas; else empty."""
    ops, replicas = step.ir._core.num_ops, step.ir.replication_factor
    if ops * replicas <= _MOST_VALUES:
        return ""
    return f"the line is not looked for in {ops} ops on {replicas} replicas: a smaller mesh may tell it"


def cause_of(exactly: Exactly, values: Iterable[SameValue]) -> tuple[Place | None, Repair | None]:
    """The place where values leave those of one device, and the change that makes them the same.

    Both are found on the first draw on which a value differs. The place is that of the change, where there is one.

    Args:
        exactly: the comparison.
        values: what it found.
    """
    if exactly.witness is None:
        return None, None
    paths = [each.path for each in values if each.verdict == "differs"]
    place, suspects = place_of(exactly.pair, paths, *exactly.witness)
    tried = _repaired(exactly, suspects)
    many = exactly.pair.many
    if tried is None:
        return None if _has_stages(many) else place, None
    location = str(many.ir._core.location_of(tried.op))
    repair = Repair(location, source_line(location), tried.text)
    if place is None or short_place(location) not in str(place):
        missing = f"missing: {tried.text}"
        text = missing if tried.insertions else "a change there makes all the same as on one device"
        place = Place(location, repair.source, text, callers_of(many, tried.op))
    return place, repair


def _has_stages(step: Step) -> bool:
    """True if stages run different ops: values that a replica has of other stages' ops lead to wrong lines."""
    return any(each.held is not None for each in step.arguments)


def _repaired(exactly: Exactly, suspects: Suspects) -> Tried | None:
    """The first change with which all values are the same, of a few that are tried; None without one."""
    many = exactly.pair.many
    most = min(_MOST_TRIED, _MOST_OPS // max(1, many.ir._core.num_ops))
    if not most or exactly.pair.unmatched or not can_copy(many.ir):
        return None
    assert exactly.witness is not None
    draw, inputs = exactly.witness
    one = ran(exactly.pair.one, given_of_one(exactly.pair, inputs), draw)
    changes = itertools.islice(Changes(many, exactly.pair.one, suspects).all(), most)
    return next((tried for tried in changes if _is_right(exactly, one, tried)), None)


def _is_right(exactly: Exactly, one: ExactRun, tried: Tried) -> bool:
    """True if all values are the same with a change: on the draw that shows the difference, then on all."""
    assert exactly.witness is not None
    try:
        step = edited(exactly.pair.many, tried.insertions, tried.changes)
        pair = pair_of(step, exactly.pair.one)
        return agrees(pair, one, *exactly.witness) and all(each.ok for each in Exactly(pair).compare())
    except (Error, UnknownError):  # such a program cannot be made, or does not run
        return False
