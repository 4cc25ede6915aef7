"""Findings of a check: the first difference, and what was compared."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from popsr._support.text.differences import difference_text
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr.errors import DriftError

__all__ = ["Checked", "Finding", "Replayed", "drift_error", "sets_text"]

_SHOWN = 80  # characters of groups and of ranks
_LIMIT = 440  # characters of a finding
_PLACES = {
    "start": "at its beginning",
    "forward": "after the forward pass",
    "backward": "after the backward pass",
    "reduction": "after the reduction of gradients",
    "update": "after the update",
    "end": "at its end",
}


@public
@dataclass(frozen=True, slots=True)
class Finding:
    """The first value in whose hashes ranks of a group differ.

    Attributes:
        step: of the check; None of one inside a traced function.
        since: the last step before it at which all hashes agreed; None where there was none.
        name: of the value.
        declared: ranks that should agree, in set notation, as ``{0,1}{2,3}``.
        found: ranks whose hashes agree, likewise.
        ranks: two of a group that differ.
        places: both by the axes of their mesh, as ``("dp 0", "dp 1")``; empty texts where there is no mesh.
        element: index of the first element that differs, of a shard that in the whole value; None if not known.
        values: both, as ``0x3f800000 (1.0)``; where no element is known, what differs of them.
        count: elements that differ between the two ranks; None where that is not known.
        size: elements that both have.
        names: all values that differ at this check, in their order.
        sentence: says what is wrong where it is not a difference: two ranks that were given one batch.
        replayed: the steps since ``since`` once more, where the guard bisects.
    """

    step: int | None
    since: int | None
    name: str
    declared: str
    found: str
    ranks: tuple[int, int]
    places: tuple[str, str]
    element: tuple[int, ...] | None
    values: tuple[str, str]
    count: int | None
    size: int
    names: tuple[str, ...]
    sentence: str = ""
    replayed: Replayed | None = None

    def __str__(self) -> str:
        since = "" if self.since is None else f", agreed at {self.since}"
        step = "" if self.step is None else f"step {self.step}{since}: "
        if self.sentence:
            return one_line(step + self.sentence, _LIMIT)
        return one_line(
            f"{step}'{self.name}' is declared equal on {self.declared}, {self.difference}", _LIMIT
        )

    @property
    def difference(self) -> str:
        """Ranks whose hashes agree, two that differ, the first element and its bits, as text."""
        places = f" ({self.places[0]} and {self.places[1]})" if any(self.places) else ""
        differ = difference_text(self.ranks, self.element, self.values, places)
        count = "" if self.count is None else f"; {self.count} of {self.size} elements differ"
        others = "" if len(self.names) < 2 else f", and {len(self.names) - 1} more values"
        return f"hashes agree on {self.found}: {differ}{count}{others}"


@public
@dataclass(frozen=True, slots=True)
class Replayed:
    """Steps that ranks made once more from the last state that they agreed on, with checks in each of their phases.

    Attributes:
        since: the step of that state.
        step: in which the first difference was seen; None where none was.
        phase: after which it was seen, the first of ``start``, ``forward``, ``backward``, ``reduction``, ``update`` and
            ``end``; empty where none was.
        finding: the difference; None where there is none.
        remark: what else is known of it.
        others: ranks on which the replay ended with other bits than the run, so that it may be of another fault.
        failure: why there is no replay to the end; empty where there is one.
    """

    since: int
    step: int | None = None
    phase: str = ""
    finding: Finding | None = None
    remark: str = ""
    others: tuple[int, ...] = ()
    failure: str = ""

    @property
    def reproduced(self) -> bool:
        """True if the replay has a difference, too."""
        return self.finding is not None

    def __str__(self) -> str:
        begin = f"replay from step {self.since}: "
        ranks = one_line(", ".join(map(str, self.others)), _SHOWN)
        end = f"; it ends with other bits than the run on ranks {ranks}" if self.others else ""
        if self.finding is not None:
            end = f"; it did not come to its end: {one_line(self.failure, 120)}" if self.failure else end
            end = (f"; {self.remark}" if self.remark else "") + end
            begin += f"first seen in step {self.step}, {_PLACES[self.phase]}: "
            found = f"'{self.finding.name}', {self.finding.difference}"
            return begin + one_line(found, _LIMIT - len(begin + end)) + end
        if self.failure:
            return one_line(f"{begin}no place is found: {self.failure}", _LIMIT)
        return (
            f"{begin}not reproduced, hashes agree after each phase of each step: the fault does not follow from what "
            f"is replayed, as one of the machine, or of code outside of the step{end}"
        )


@public
@dataclass(frozen=True, slots=True)
class Checked:
    """One check.

    It is true where all hashes that should agree do. That is evidence, not proof, that the values are equal.

    Attributes:
        step: number of steps before it; None where none are counted.
        ranks: that took part.
        compared: names of the values that this rank shares with others.
        left_out: other names, with the reason.
        finding: the first difference, if there is one.
    """

    step: int | None
    ranks: int
    compared: tuple[str, ...]
    left_out: dict[str, str]
    finding: Finding | None = None

    @property
    def ok(self) -> bool:
        """True if no hashes differ that should agree."""
        return self.finding is None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.finding is not None:
            replayed = self.finding.replayed
            return str(self.finding) if replayed is None else f"{self.finding}. {replayed}"
        left_out = f", {len(self.left_out)} left out" if self.left_out else ""
        step = "" if self.step is None else f"step {self.step}: "
        return f"{step}hashes agree, {len(self.compared)} values on {self.ranks} ranks{left_out}"


def sets_text(keys: Sequence[Hashable], numbers: Sequence[int]) -> str:
    """Ranks with equal keys, in set notation by their numbers; of many the first of them."""
    blocks: dict[Hashable, list[str]] = {}
    for number, key in zip(numbers, keys, strict=True):
        blocks.setdefault(key, []).append(str(number))
    text = "".join(f"{{{','.join(block)}}}" for block in blocks.values())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(blocks)} blocks)"


def drift_error(where: str, finding: Finding) -> DriftError:
    """The error of a finding."""
    error = DriftError(f"{where}: {finding}")
    error.drift = finding
    if finding.replayed is not None:
        error.add_note(str(finding.replayed))
    return error
