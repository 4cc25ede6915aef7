"""Changes of a step that were tried: each is made on the traced program, which is proved again."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from popsr._program.location import short_place
from popsr.analysis._axes import shown_axes
from popsr.bridge._advice._edited import Insertion, can_copy, copied_step
from popsr.bridge._advice._gradients import Proved, data_rows, gradient_insertions, partial_insertions
from popsr.bridge._advice._seeds import is_mean_loss, loss_groups
from popsr.bridge._derivatives import Derivatives
from popsr.bridge._paths import named_paths
from popsr.errors import Error
from popsr.op import Op

if TYPE_CHECKING:
    from popsr.bridge._arguments import Step

__all__ = ["Advice", "Variant", "advice_for"]

_MOST_OPS = 30_000
"""Ops of a program that is copied and proved again."""

_WRONG = frozenset(["L1", "L6", "L7", "L10", "L11"])
"""Lints that a right step has none of."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another reading of a step: with a change in the call that makes it.

    Attributes:
        text: the change, as a sentence that says what to do.
        read: reads it.
    """

    text: str
    read: Callable[[], Step]


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
    if step.gaps or proof.undeclared or step.ir._core.num_ops > _MOST_OPS:
        return ()
    try:
        found = next(_right_changes(proof), None)
    except Error:  # nothing is advised of what could not be tried
        found = None
    return () if found is None else (found,)


def _right_changes(proof: Proved) -> Iterator[Advice]:
    """Changes with which the step is right, the smallest first."""
    yield from _variants(proof)
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
        made = _edited(proof.step, [insertion for insertion, _ in each])
        if _is_right(made, proof):
            yield Advice(_text(proof, each), made, *_size(proof, each))


def _variants(proof: Proved) -> Iterator[Advice]:
    """Other readings of the step, where they cannot change what the loss is scaled by."""
    variants = proof.step.variants
    if not variants or not _is_whole_loss(proof):
        return
    for each in variants:
        try:
            made = each.read()
        except Exception:  # refused by the framework, so no cure
            continue
        if _is_right(made, proof):
            yield Advice(each.text, made)


def _is_whole_loss(proof: Proved) -> bool:
    """True if the loss is a mean over all data already: what is differentiated is the loss of all replicas.

    The sums that JAX adds to gradients with ``check_vma=True`` are right of such a loss, and too large of others.
    """
    step = proof.step
    data = [each.grouping.partition for each in step.arguments if each.role == "data"]
    apart = [each for each in data if each.num_blocks > 1]
    if not apart:
        return True
    derivatives = Derivatives(step.derivatives)
    groups = loss_groups(step.ir, proof.facts, derivatives)
    if groups is None or any(groups.join(each).num_blocks > 1 for each in apart):
        return False
    made = [t for op in derivatives for t in Op(step.ir, op).outputs]
    return is_mean_loss(step.ir, proof.facts, derivatives, [t._id for t in made], data_rows(step), 1)


def _edited(step: Step, insertions: Sequence[Insertion]) -> Step:
    """The step with all-reduces put in."""
    copied = copied_step(
        step.ir, step.arguments, step.results, Derivatives(step.derivatives), step.partial, insertions
    )
    made: Step = dataclasses.replace(
        cast("Any", step),
        ir=copied.ir,
        arguments=copied.arguments,
        results=copied.results,
        derivatives=copied.derivatives,
        partial=copied.partial,
        variants=(),
    )
    return made


def _is_right(step: Step, before: Proved) -> bool:
    """True if all is proved of a step, and nothing about it is suspicious."""
    rounding = before.step.ir.options.enable_stochastic_rounding
    proof: Proved = cast("Any", step).prove(stochastic_rounding=rounding)
    return proof.ok and not any(lint.code in _WRONG for lint in proof.lints)


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
