"""Findings about what speaks against a step: one for each mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from popsr._program.building.location import short_place
from popsr._support.text.annotations import Annotation
from popsr._support.text.one_line import one_line
from popsr.analysis import Lint
from popsr.analysis._drift import short_partition
from popsr.bridge._step.arguments import Step
from popsr.bridge._step.paths import named_paths, named_patterns
from popsr.bridge._step.values import Cause, ProvedValue
from popsr.replicas import Partition

__all__ = ["difference_findings", "lint_findings", "undeclared_finding"]

_EXPLAINED = 16
"""Values of the same groups that are explained in the text; ``explain`` does it for all."""


def lint_findings(lints: Iterable[Lint], step: Step) -> list[Annotation]:
    """A finding for each code and line of the program: the first lint, its scopes, and how many more there are.

    Args:
        lints: of a step.
        step: the step.
    """
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for each in lints:
        texts, scopes = found.setdefault((each.code, each.location), ([], []))
        if each.text not in texts:
            texts.append(each.text)
        scope = "" if each.op is None else step.names.scope(each.op)
        if scope and scope not in scopes:
            scopes.append(scope)
    return [
        Annotation(
            code,
            f"{code} {short_place(place)}{f' in {named_patterns(scopes, 2)}' if scopes else ''}: {texts[0]}"
            f"{f' (and {len(texts) - 1} more at this line)' if texts[1:] else ''}",
            place,
        )
        for (code, place), (texts, scopes) in found.items()
    ]


def difference_findings(values: Sequence[ProvedValue]) -> list[Annotation]:
    """A finding for each mistake that makes values differ.

    Args:
        values: those that are not proved equal.
    """
    return [_problem(*found) for found in _by_cause(values)]


def _by_cause(values: Sequence[ProvedValue]) -> Iterator[tuple[list[ProvedValue], list[Cause]]]:
    """Values that one mistake makes differ, with its causes; those whose gradient is not summed first.

    A sum that is missing at a line is one mistake, whatever tells the parts apart. Others are alike if they differ
    from one line on, for a cause of one kind. No cause is told of values beyond the first of their groups.
    """
    found: dict[tuple[object, ...], tuple[list[ProvedValue], list[Cause]]] = {}
    asked: dict[tuple[Partition, Partition], int] = {}
    for each in values:
        groups = (each.declared, each.proved)
        asked[groups] = asked.get(groups, 0) + 1
        cause = each.cause if asked[groups] <= _EXPLAINED else None
        key: object = None if cause is None else (cause.kind, cause.location)
        if each.pending is not None:
            key = each.pending.mended
        alike, causes = found.setdefault((key, *groups), ([], []))
        alike.append(each)
        if cause is not None and cause not in causes:
            causes.append(cause)
    yield from sorted(found.values(), key=lambda each: each[0][0].pending is None)


def _problem(values: Sequence[ProvedValue], causes: Sequence[Cause]) -> Annotation:
    """A finding about the values that one mistake makes differ, or of which no cause is told here."""
    first = values[0]
    cause = "explain(path) says why" if not causes else str(_merged(causes, values))
    place = (causes[0].mended or causes[0].location or causes[0].written) if causes else ""
    return Annotation(
        "drift", f"{_names(values)} {_differ(first, 's' if len(values) == 1 else '')}: {cause}", place
    )


def _differ(value: ProvedValue, ending: str) -> str:
    """``differs over model {0,2}{1,3}``, where it should not; of other partitions both groups."""
    if value.held is not None:
        apart = value.shown_proved.removeprefix("differs ")
        return f"differ{ending} {apart}, declared {value.shown_declared}"
    axes = value.axes
    proved, declared = (
        None if axes is None else axes.split_axes(each) for each in (value.proved, value.declared)
    )
    if axes is None or proved is None or declared is None or not set(declared) < set(proved):
        return (
            f"differ{ending} inside groups: declared {short_partition(value.declared)}, proved "
            f"{short_partition(value.proved)}"
        )
    if not declared:
        return f"differ{ending} over {value.shown_proved.removeprefix('differs over ')}"
    over = ", ".join(name for name in proved if name not in declared)
    return f"differ{ending} over {over}, declared {value.shown_declared}"


def _merged(causes: Sequence[Cause], values: Sequence[ProvedValue]) -> Cause:
    """Causes of one line as one, which says how many there are, and where else values are made."""
    scopes = [*dict.fromkeys(each.scope for each in values)]
    if not all(scopes):  # the line of the first is not in the scope of another
        scopes = [scope for scope in scopes[:1] if scope]
    first = causes[0]
    count = len({each.text for each in causes}) - 1
    places = [*dict.fromkeys(short_place(each.mended or each.written) for each in causes)][1:]
    more = f" (and {count} more)" if count else ""
    left = f" and {len(places) - 2} more" if len(places) > 2 else ""
    likewise = f"likewise at {', '.join(places[:2])}{left}" if places else ""
    if first.suggestion:
        likewise = f"{first.suggestion} ({likewise})" if likewise else first.suggestion
    return replace(
        first,
        text=one_line(first.text, 140) + more,
        suggestion=likewise,
        scope=named_patterns(scopes, 2),
    )


def undeclared_finding(values: Sequence[ProvedValue]) -> Annotation:
    """The finding about the states that start apart.

    Args:
        values: those states.
    """
    return Annotation(
        "undeclared",
        f"{_names(values)}: initial values differ between ranks: a proof over groups of their values, "
        f"{values[0].shown_declared}, says nothing: declare groups= if they are to differ, else start from "
        "equal ones (one seed, dist.broadcast or DistributedDataParallel)",
    )


def _names(values: Sequence[ProvedValue]) -> str:
    return named_paths([each.path for each in values])
