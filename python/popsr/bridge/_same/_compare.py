"""The comparison of a step with one device: what is read, which engine judges, and what the verdict rests on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from popsr._program.building.location import short_place
from popsr._support.host.arguments import read_choice
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.bridge._same._draws import constant_integers, equal_integers, is_float
from popsr.bridge._same._exact import UNSURE, Exactly
from popsr.bridge._same._float64 import compared_in_float64
from popsr.bridge._same._fresh import Afresh
from popsr.bridge._same._pairs.pair import STEPS, Pair, UnknownError, pair_of
from popsr.bridge._same._repair import cause_of, too_large
from popsr.bridge._same._values import Sameness, SameValue, Verdict, first_few
from popsr.bridge._step.arguments import AT_OWN_SIZES, Reading, Smaller, Step
from popsr.bridge._step.paths import named_paths
from popsr.errors import ArgumentTypeError, Error, ReplicaError, UnsupportedError

__all__ = ["ONE_DEVICE", "sameness_of"]

ONE_DEVICE = "one device"


def sameness_of(step: Step, like: Any, *, exact: bool) -> Sameness:
    """Compare a step with itself on one device, or with a reference.

    Args:
        step: the step.
        like: "one device", or a step for one device.
        exact: by exact arithmetic; else in float64.
    Raises:
        ChoiceError: another word.
        ArgumentTypeError: ``like`` is not a step.
        UnsupportedError: a step that cannot be read once more.
        ReplicaError: a step on one replica beside itself.
        Error: the reference cannot be read, or has other states, data or shapes.
    """
    if isinstance(like, str):
        read_choice("prove", "like", like, (ONE_DEVICE,))
    elif not callable(like) and not hasattr(like, "arguments"):
        raise ArgumentTypeError(
            f"prove: like is not a step, got {shown(like)}, expected 'one device' or a step for one device"
        )
    if step.again is None:
        raise UnsupportedError(
            f"prove: like= with a step that cannot be read once more, got {shown(step)}, expected a step of JAX or "
            "PyTorch"
        )
    if isinstance(like, str) and step.ir.replication_factor == 1:
        raise ReplicaError(
            "prove: like='one device' of a step on one replica, got 1, expected several replicas, or a step as like="
        )
    name = ONE_DEVICE if isinstance(like, str) else "the reference"
    engine: Literal["exact", "float64"] = "exact" if exact else "float64"
    try:
        found: list[Sameness] = []
        for each in _smaller(step, like):
            found.append(_compared(step, like, each, name, engine))
            if not found[-1].ok:
                return found[-1]
    except UnknownError as error:
        return Sameness(name, engine, tuple(_all_unknown(step, str(error))), STEPS)
    return _joined(found)


def _compared(step: Step, like: Any, at: Smaller, name: str, engine: Literal["exact", "float64"]) -> Sameness:
    """The verdict of an engine, at some sizes.

    Raises:
        UnknownError: the two cannot be compared.
    """
    how = Reading(still=True, wide=engine == "float64", sizes=at.sizes, integers=at.integers)
    sizes = {old: (new,) for old, new in (at.sizes or {}).items()}
    pair = pair_of(*_read(step, like, how))
    _require_ops(pair)
    notes = (*at.notes, *_notes(step, pair))
    if engine == "float64":
        values = _in_order(pair, (_doubted(each, at.doubt) for each in compared_in_float64(pair)))
        return Sameness(name, engine, values, STEPS, notes, sizes=sizes)
    exactly = Exactly(pair)
    compared = exactly.compare()
    deep: tuple[str, ...] = ()
    if exactly.is_unsure:
        afresh = Afresh(pair)
        beside = compared_in_float64(pair_of(*_read(step, like, replace(how, wide=True))))
        compared, deep = _confirmed(compared, afresh.same(), beside), tuple(afresh.notes_of_fresh)
    values = _in_order(pair, (_doubted(each, at.doubt) for each in compared))
    large = too_large(pair.many) if exactly.witness else ""
    notes = (*notes, *exactly.notes, *deep, *((large,) if large else ()))
    place, repair = (None, None) if large else cause_of(exactly, values)
    return Sameness(name, engine, values, STEPS, notes, place, repair, sizes)


def _doubted(value: SameValue, why: str) -> SameValue:
    """A value that is unknown if it differs, as it may be right at its own sizes."""
    if value.verdict != "differs" or not why:
        return value
    reason = f"it differs at smaller sizes, where {why}"
    return replace(value, verdict="unknown", reason=reason, replicas=(), steps=0)


def _joined(found: Sequence[Sameness]) -> Sameness:
    """The verdict of several that are the same."""
    notes = dict.fromkeys(note for each in found for note in each.notes)
    sizes = {old: tuple(each.sizes[old][0] for each in found) for old in found[0].sizes}
    return replace(found[0], notes=tuple(notes), sizes=sizes)


def _smaller(step: Step, like: Any) -> Sequence[Smaller]:
    """Smaller sizes at which a large step is compared; none of a step that is compared at its own.

    Raises:
        UnknownError: it is too large, and another program at smaller sizes.
    """
    found = None if step.smaller is None else step.smaller(like)
    if isinstance(found, str):
        raise UnknownError(f"the step is too large, and at smaller sizes another program: {found}")
    return found or [AT_OWN_SIZES]


def _confirmed(
    compared: Iterable[SameValue], afresh: Container[str], beside: Iterable[SameValue]
) -> list[SameValue]:
    """Values, of which those that differ while exps are random functions differ if float64 says so, too.

    They are the same if they are so with fresh values and in float64: fresh values are not related to others as in
    training, where a comparison may take another side. Else they are unknown.
    """
    floats = {each.path: each.verdict for each in beside}
    found = []
    for each in compared:
        if each.verdict == "differs" and floats[each.path] != "differs":
            is_same = each.path in afresh and floats[each.path] == "same"
            verdict: Verdict = "same" if is_same else "unknown"
            each = replace(each, verdict=verdict, reason="" if is_same else UNSURE, replicas=(), steps=0)
        found.append(each)
    return found


def _read(step: Step, like: Any, how: Reading) -> tuple[Step, Step]:
    """The step and its reference.

    Raises:
        UnknownError: the step itself cannot be read on one device.
    """
    assert step.again is not None
    many = step.again(how)
    if hasattr(like, "arguments"):
        if like.again is None:
            raise UnsupportedError(
                f"prove: like is a step that cannot be read once more, got {shown(like)}, expected a step of JAX or "
                "PyTorch"
            )
        return many, like.again(how)
    if not isinstance(like, str):
        return many, step.again(replace(how, alone=True, like=like))
    try:
        return many, step.again(replace(how, alone=True))
    except Exception as error:  # also whatever the framework or the user's code raises with other sizes
        known = isinstance(error, Error)
        text = str(error).partition("\n")[0].removeprefix("prove: ")
        reason = text if known else f"{type(error).__name__}: {text}"
        raise UnknownError(
            f"the step cannot be read on one device: {one_line(reason, 200)}; like= takes a step for one device"
        ) from error


def _require_ops(pair: Pair) -> None:
    """Refuse steps that do not run.

    Raises:
        UnknownError: one of them has ops that popsr lacks.
    """
    gaps = (*pair.many.gaps, *pair.one.gaps)
    if gaps:
        ops = (f"{gap.op} at {short_place(gap.location)}" if gap.location else gap.op for gap in gaps)
        raise UnknownError(f"popsr lacks {first_few(ops)}")


def _in_order(pair: Pair, compared: Iterable[SameValue]) -> tuple[SameValue, ...]:
    """States and results as the step has them, with those that the reference lacks."""
    found = {each.path: each for each in compared}
    unmatched = (SameValue(path, "result", "unknown", why) for path, why in pair.unmatched.items())
    found |= {each.path: each for each in unmatched}
    paths = (*(each.path for each in pair.states), *(each.path for each in pair.many.results))
    return tuple(found[path] for path in dict.fromkeys(paths))


def _all_unknown(step: Step, reason: str) -> Iterable[SameValue]:
    yield from (SameValue(each.path, "state", "unknown", reason) for each in step.states)
    yield from (SameValue(each.path, "result", "unknown", reason) for each in step.results)


def _notes(step: Step, pair: Pair) -> Iterable[str]:
    """Assumptions of the verdict beside those of the proof."""
    yield from (text for text in pair.many.notes if text not in step.notes)
    kept = [each.path for each in pair.arguments if not is_float(each)]
    if kept:
        yield f"same training is said for these integers and truth values: {named_paths(kept)}"
    constant = constant_integers(pair)
    if constant:
        yield (
            f"{named_paths(constant)}: one number everywhere, with which parts of a batch cannot be told apart: "
            "give different ones"
        )
    alike = [path for path in equal_integers(pair) if path not in constant]
    if alike:
        yield f"{named_paths(alike)}: the same on all replicas, where one device has all parts: give different ones"
