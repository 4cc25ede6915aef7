"""Changes of a step that were tried: each is made on the traced program, which is proved again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr.analysis._axes import shown_axes
from popsr.bridge._advice._edited import Insertion, can_copy, edited
from popsr.bridge._advice._gradients import Proved, data_rows, gradient_insertions, partial_insertions
from popsr.bridge._advice._seeds import is_mean_loss, loss_groups
from popsr.bridge._step.paths import named_paths
from popsr.errors import Error

if TYPE_CHECKING:
    from popsr.bridge._step.arguments import Step

__all__ = ["Advice", "Variant", "advice_for", "is_whole_loss"]

_MOST_OPS = 30_000
"""Ops of a program that is copied and proved again."""

_MOST_CHANGES = 2
"""Changes of the importer that are made together."""

_WRONG = frozenset(["L1", "L6", "L7", "L10", "L11"])
"""Lints that advice may not bring."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of a step that its importer knows.

    Attributes:
        text: the change, as a sentence that says what to do.
        made: makes the step with the change, from a proof of the step; None where it cannot help. It may raise what the
            framework raises.
        takes_means: True if the change takes the means of all gradients over all replicas, so that it is tried where
            these were put in with success. Its text is then of all that is changed.
    """

    text: str
    made: Callable[[Proved], Step | None]
    takes_means: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """A change with which the whole step is proved right; ``str`` says what to do.

    Attributes:
        text: what to do, at the user's lines.
        step: the step with the change.
        collectives: all-reduces that the change adds to the program.
        nbytes: bytes on one replica that they reduce.
    """

    text: str
    step: Step = field(repr=False, compare=False)
    collectives: int = 0
    nbytes: int = 0

    def __str__(self) -> str:
        return self.text


def advice_for(proof: Proved) -> tuple[Advice, ...]:
    """The smallest change that makes a step right, of those that were tried; empty when none is known to.

    Args:
        proof: of a step that is not right.
    """
    step = proof.step
    if step.gaps or step.ir._core.num_ops > _MOST_OPS:
        return ()
    try:
        found = next(_right_changes(proof), None)
    except Error:  # nothing is advised of what could not be tried
        found = None
    return () if found is None else (found,)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A step with changes of its importer: what they say, and the proof of it."""

    texts: tuple[str, ...]
    proof: Proved


def _right_changes(proof: Proved) -> Iterator[Advice]:
    """Changes with which the step is right, the smallest first."""
    before = [_Reading((), proof)]
    for _ in range(_MOST_CHANGES + 1):
        changed = [*_changed(before)]
        yield from (
            Advice("; ".join(each.texts), each.proof.step) for each in changed if _is_right(each, proof)
        )
        for each in before:
            yield from _with_insertions(each, proof)
        before = changed


def _changed(before: Sequence[_Reading]) -> Iterator[_Reading]:
    """Readings with one change more."""
    seen: set[frozenset[str]] = set()
    for each in before:
        for variant in each.proof.step.variants:
            texts = (*each.texts, variant.text)
            if len(texts) > _MOST_CHANGES or variant.takes_means or frozenset(texts) in seen:
                continue
            made = _made(variant, each.proof)
            if made is not None:
                seen.add(frozenset(texts))
                yield _Reading(texts, made)


def _made(variant: Variant, proof: Proved) -> Proved | None:
    """The proof of a step with a change; None where it is refused, or writes other states."""
    try:
        step = variant.made(proof)
    except Exception:  # refused by the framework, so no cure
        return None
    if step is None or _written(step) != _written(proof.step):
        return None
    return _proof_of(step, proof)


def _written(step: Step) -> Counter[tuple[object, ...]]:
    """Types and shapes of the states that a step writes."""
    return Counter(
        (each.dtype.name, each.shape)
        for each in step.states
        if each.result is not None and each.result is not each.source
    )


def _with_insertions(reading: _Reading, before: Proved) -> Iterator[Advice]:
    """Readings with all-reduces put in."""
    proof = reading.proof
    if not can_copy(proof.step.ir):
        return
    seen: list[frozenset[Insertion]] = []
    tried = [gradient_insertions(proof), partial_insertions(proof)]
    tried.append([*itertools.chain.from_iterable(tried)])
    for each in sorted(filter(None, tried), key=lambda found: _size(proof, found)):
        insertions = frozenset(insertion for insertion, _ in each)
        if insertions in seen:
            continue
        seen.append(insertions)
        made = edited(proof.step, [insertion for insertion, _ in each])
        if _is_right(_Reading((), _proof_of(made, proof)), before):
            text = "; ".join((*reading.texts, _text(proof, each)))
            for other in _of_the_same(reading, [insertion for insertion, _ in each], before):
                yield Advice(f"{other.text}. Or {text}", other.step)
            yield Advice(text, made, *_size(proof, each))


def _of_the_same(reading: _Reading, insertions: Sequence[Insertion], before: Proved) -> Iterator[Advice]:
    """Changes of the importer that take the same means over all replicas."""
    if any(each.kind != "mean" or each.group.num_groups != 1 for each in insertions):
        return
    for variant in reading.proof.step.variants:
        made = _made(variant, reading.proof) if variant.takes_means else None
        if made is not None and _is_right(_Reading((), made), before):
            yield Advice(variant.text, made.step)


def is_whole_loss(proof: Proved) -> bool:
    """True if the loss is a mean over all data already: what is differentiated is the loss of all replicas.

    The sums that JAX adds to gradients with ``check_vma=True`` are right of such a loss, and too large of others.

    Args:
        proof: of the step.
    """
    step = proof.step
    data = [each.grouping.partition for each in step.arguments if each.role == "data"]
    apart = [each for each in data if each.num_blocks > 1]
    if not apart:
        return True
    derivatives = step.derivatives
    groups = loss_groups(step.ir, proof.facts, derivatives)
    if groups is None or any(groups.join(each).num_blocks > 1 for each in apart):
        return False
    made = [t for op in derivatives for t in Op(step.ir, op).outputs]
    return is_mean_loss(step.ir, proof.facts, derivatives, [t._id for t in made], data_rows(step), 1)


def _proof_of(step: Step, before: Proved) -> Proved:
    """A proof with the rounding of the one before."""
    rounding = before.step.ir.options.enable_stochastic_rounding
    made: Proved = cast("Any", step).prove(stochastic_rounding=rounding)
    return made


def _is_right(reading: _Reading, before: Proved) -> bool:
    """True if all is proved of a step, and nothing about it is suspicious that was not so before.

    Broadcasts of what replicas hold already are part of wrappers, and change nothing.
    """
    proof = reading.proof
    if not proof.ok:
        return False
    known = {(lint.code, lint.location) for lint in before.lints}
    new = (lint for lint in proof.lints if lint.code in _WRONG and (lint.code, lint.location) not in known)
    return all(lint.op is not None and lint.op.kind == "replicated_broadcast" for lint in new)


def _size(proof: Proved, each: Sequence[tuple[Insertion, Sequence[str]]]) -> tuple[int, int]:
    """Number of all-reduces, and bytes that they reduce."""
    tensors = [proof.step.ir._tensor(insertion.tensor) for insertion, _ in each]
    return len(tensors), sum(t.nelms * t.dtype.as_numpy().itemsize for t in tensors)


def _text(proof: Proved, each: Sequence[tuple[Insertion, Sequence[str]]]) -> str:
    """A clause for each kind, groups and line of what to do."""
    clauses: dict[tuple[str, str, str, str, bool], list[str]] = {}
    for insertion, paths in each:
        kind = "mean" if insertion.kind == "mean" else "sum"
        made = Op(proof.step.ir, proof.step.ir._core.tensor(insertion.tensor).producer or 0).location
        key = (
            kind,
            shown_axes(insertion.group.partition, proof.step.axes),
            made,
            insertion.location,
            bool(paths),
        )
        clauses.setdefault(key, []).extend(p for p in paths if p not in clauses.get(key, ()))
    texts = []
    for (kind, groups, made, used, is_gradient), paths in clauses.items():
        whose = f"gradient of {named_paths(paths)}" if is_gradient else "product"
        texts.append(
            f"take the {kind} over {groups} of the {whose}, made at {short_place(made)}, before "
            f"{short_place(used)}"
        )
    return "; ".join(texts)
