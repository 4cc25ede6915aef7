"""Comparison of checkpoints of all ranks, byte by byte, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from popsr._support.host.arguments import read_path
from popsr._support.host.files import shown_name
from popsr._support.host.rank_groups import RankGroups, equal_groups
from popsr._support.text.differences import bits_text
from popsr._support.text.entry_points import public
from popsr.bridge.audit._findings import AuditReport, Drift
from popsr.bridge.audit._groups import DeclaredGroups
from popsr.bridge.audit._held import Array, Held
from popsr.bridge.audit._places import Place, find_places
from popsr.bridge.audit._rank_groups import Present, absent_ranks, read_ranks
from popsr.bridge.audit._readers import hold
from popsr.errors import CheckpointError

__all__ = ["audit", "differing_ranks"]

_WHERE = "audit"
_CHUNK = 4 << 20
_BEGIN = 64 << 10


@public
def audit(source: str | os.PathLike[str], groups: Any = "all", *, ranks: int | None = None) -> AuditReport:
    """Compare the checkpoints of all ranks of a job with the groups that should hold equal bits.

    The files are mapped and compared in chunks, so memory is bounded whatever their size; tensors of
    torch.distributed.checkpoint are read whole, two at a time. Of each parameter the first
    step at which it differs is reported.

    Args:
        source: a folder, whose files say their rank and step in their path, as ``step_10/rank_3.safetensors``; or a
            pattern with ``{rank}`` and maybe ``{step}``, as ``"run/{step}/model-{rank}.pt"``. Files of safetensors and
            popsr end in ``.safetensors``, those of PyTorch, which are opened with weights only, in ``.pt``, ``.pth`` or
            ``.bin``; of torch.distributed.checkpoint each rank has a folder with ``.metadata``, or its own
            ``__3.metadata`` in one.
        groups: which ranks should be equal, see ``DeclaredGroups``. Default: all, of all parameters.
        ranks: number of ranks. Default: one more than the largest that is found.
    Returns:
        What was found; ``ok`` is true if nothing drifts and nothing was missing.
    Raises:
        FileError: there are no such files, or one cannot be read.
        CheckpointError: a file is damaged, or holds more than weights.
        ReplicaError: the groups are of another number of ranks.
    """
    declared = groups if isinstance(groups, DeclaredGroups) else DeclaredGroups(groups)
    places = find_places(_WHERE, read_path(_WHERE, source))
    count = read_ranks(_WHERE, ranks, max(each.rank for each in places))
    steps: dict[int | None, list[Place]] = {}
    for each in places:
        steps.setdefault(each.step, []).append(each)
    job = _Job(declared, count)
    for step, found in steps.items():
        job.compare(step, found)
    return job.report(tuple(steps))


class _Job:
    """Findings so far."""

    def __init__(self, declared: DeclaredGroups, ranks: int) -> None:
        self._declared, self._ranks = declared, ranks
        self._drifts: dict[str, Drift] = {}
        self._names: set[str] = set()
        self._notes: dict[str, None] = {}
        self._nbytes = 0

    def compare(self, step: int | None, places: Iterable[Place]) -> None:
        """Compare the files of one step."""
        at = "" if step is None else f"step {step}: "
        with ExitStack() as files:
            held: dict[int, dict[str, Held]] = {}
            for place in places:
                found = files.enter_context(hold(_WHERE, place.path))
                mine = held.setdefault(place.rank, {})
                twice = next((name for name in found if name in mine), None)
                if twice is not None:
                    raise CheckpointError(
                        f"{_WHERE}: two files of rank {place.rank} have one tensor, got {shown_name(twice)} twice, "
                        "expected each once (or a pattern with {step})"
                    )
                mine.update(found)
            absent = absent_ranks(self._ranks, held)
            if absent:
                self._note(f"{at}no file of rank {absent}")
            tensors: dict[str, dict[int, Held]] = {}
            for rank, mine in sorted(held.items()):
                for name, each in mine.items():
                    tensors.setdefault(name, {})[rank] = each
            present = Present(held)
            for name, of_ranks in tensors.items():
                self._compare(step, at, name, of_ranks, present)

    def _compare(
        self, step: int | None, at: str, name: str, tensors: dict[int, Held], present: Present
    ) -> None:
        declared = self._declared._find(name, self._ranks)
        if declared is None:
            self._note(f"no groups are declared for {shown_name(name)}")
            return
        self._names.add(name)
        lacking = present.first_lacking(declared, tensors)
        if lacking is not None:
            self._note(f"{at}rank {lacking} lacks {shown_name(name)}, which others of its group have")
        self._nbytes += sum(each.nbytes for each in tensors.values())
        if name in self._drifts:
            return
        found = differing_ranks(declared, tensors)
        if found is not None:
            self._drifts[name] = _drift(step, name, declared, tensors, *found)

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def report(self, steps: tuple[int | None, ...]) -> AuditReport:
        """The findings."""
        return AuditReport(
            steps,
            self._ranks,
            len(self._names),
            self._nbytes,
            tuple(self._drifts.values()),
            tuple(self._notes),
        )


def differing_ranks(declared: RankGroups, tensors: Mapping[int, Held]) -> tuple[int, int, int | None] | None:
    """Two ranks of a group that differ, and the first byte in which they do; None when no group differs."""
    for members in declared.among(sorted(tensors)).values():
        if len(members) < 2:
            continue
        a = tensors[members[0]]
        data = a.read()
        for other in members[1:]:
            b = tensors[other]
            if (a.kind, a.shape) != (b.kind, b.shape):
                return members[0], other, None
            byte = _first_byte(data, b.read())
            if byte is not None:
                return members[0], other, byte
    return None


def _first_byte(a: Array, b: Array) -> int | None:
    for begin in range(0, len(a), _CHUNK):
        x, y = a[begin : begin + _CHUNK], b[begin : begin + _CHUNK]
        if not _equal(x, y):
            return begin + int(np.flatnonzero(x != y)[0])
    return None


def _equal(x: Array, y: Array) -> bool:
    whole = len(x) // 8 * 8
    # Words of 8 bytes are compared half as fast again as bytes.
    return bool(np.array_equal(x[:whole].view(np.uint64), y[:whole].view(np.uint64))) and bool(
        np.array_equal(x[whole:], y[whole:])
    )


def _drift(
    step: int | None,
    name: str,
    declared: RankGroups,
    tensors: Mapping[int, Held],
    first: int,
    other: int,
    byte: int | None,
) -> Drift:
    equal = equal_groups(declared, _content_keys(declared, tensors)).text
    a, b = tensors[first], tensors[other]
    if byte is None:
        shown = tuple(f"{each.kind}{list(each.shape)}" for each in (a, b))
        return Drift(step, name, declared.text, equal, (first, other), None, (shown[0], shown[1]))
    element = byte // a.itemsize
    place = tuple(int(each) for each in np.unravel_index(element, a.shape)) if a.shape else ()
    values = (_shown_value(a, element), _shown_value(b, element))
    return Drift(step, name, declared.text, equal, (first, other), place, values)


def _content_keys(declared: RankGroups, tensors: Mapping[int, Held]) -> dict[int, int]:
    """For each rank the first of its group that holds equal bits."""
    keys: dict[int, int] = {}
    for members in declared.among(sorted(tensors)).values():
        # Compared with each other are only those that begin alike.
        firsts: dict[Hashable, list[int]] = {}
        for rank in members:
            mine = tensors[rank]
            data = mine.read()
            begin = hashlib.sha256(data[:_BEGIN].tobytes()).digest()
            alike = firsts.setdefault((mine.kind, mine.shape, begin), [])
            found = next((each for each in alike if _first_byte(tensors[each].read(), data) is None), rank)
            if found == rank:
                alike.append(rank)
            keys[rank] = found
    return keys


def _shown_value(held: Held, element: int) -> str:
    data = np.array(held.read()[element * held.itemsize : (element + 1) * held.itemsize])
    return bits_text(data.tobytes(), None if held.dtype is None else data.view(held.dtype)[0])
