"""Findings as they are made: drifts, what was missing, what cannot be read, what is left out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from popsr._support.host.files import shown_path
from popsr._support.host.rank_groups import RankGroups
from popsr.bridge.audit._differences import drift_of
from popsr.bridge.audit._findings import AuditReport, Drift
from popsr.bridge.audit._held import Array, Contents, Held, add_counts
from popsr.bridge.audit._readers import hold
from popsr.errors import CheckpointError, Error, FileError, UnsupportedError

__all__ = ["WHERE", "Collected"]

WHERE = "audit"
"""The call, for messages."""

_DAMAGE = (CheckpointError, FileError, UnsupportedError)


class Collected:
    """Findings so far, of one or several meshes."""

    def __init__(self) -> None:
        self._drifts: list[Drift] = []
        self._notes: dict[str, None] = {}
        self._damaged: dict[str, None] = {}
        self._left_out: dict[str, int] = {}
        self._first_error: Error | None = None
        self._is_read = False
        self._steps: set[int | None] = set()
        self.names: set[str] = set()
        self.ranks = 0
        self.nbytes = 0

    def note(self, text: str) -> None:
        """Add what was missing."""
        self._notes[text] = None

    def add(self, drift: Drift) -> None:
        """Add a drift."""
        self._drifts.append(drift)

    def begin(self, step: int | None) -> None:
        """Add a step that is compared."""
        self._steps.add(step)

    def damage(self, error: Error) -> None:
        """Add a file that cannot be read."""
        self._first_error = self._first_error or error
        self._damaged[str(error).removeprefix(f"{WHERE}: ")] = None

    def read(self, at: str, path: Path) -> Contents | None:
        """Contents of a file; None of one that is damaged."""
        try:
            found = hold(WHERE, path)
        except _DAMAGE as error:
            self.damage(error)
            return None
        self._is_read = True
        add_counts(self._left_out, found.left_out)
        for each in found.notes:
            self.note(f"{at}{shown_path(path)}: {each}")
        return found

    def drift(
        self, step: int | None, name: str, declared: RankGroups, tensors: dict[int, Held]
    ) -> Drift | None:
        """The drift of a tensor among the ranks whose data can be read."""
        left = {rank: _reported(rank, each) for rank, each in tensors.items()}
        while True:
            try:
                found = drift_of(step, name, declared, left)
            except _Unreadable as error:
                self.damage(error.error)
                del left[error.rank]
                continue
            return found

    def report(self) -> AuditReport:
        """The findings.

        Raises:
            Error: the first one, where no file could be read.
        """
        if not self._is_read and self._first_error is not None:
            raise self._first_error
        order = sorted(self._steps, key=lambda step: -1 if step is None else step)
        place = {step: i for i, step in enumerate(order)}
        return AuditReport(
            tuple(order),
            self.ranks,
            len(self.names),
            self.nbytes,
            tuple(sorted(self._drifts, key=lambda each: place[each.step])),
            tuple(self._notes),
            tuple(self._damaged),
            dict(sorted(self._left_out.items(), key=lambda each: (-each[1], each[0]))),
        )


class _Unreadable(Exception):
    """Data of a rank that cannot be read."""

    def __init__(self, rank: int, error: Error) -> None:
        super().__init__(rank)
        self.rank, self.error = rank, error


def _reported(rank: int, held: Held) -> Held:
    def read() -> Array:
        try:
            return held.read()
        except _DAMAGE as error:
            raise _Unreadable(rank, error) from error

    return dataclasses.replace(held, read=read)
