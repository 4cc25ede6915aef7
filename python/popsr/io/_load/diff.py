"""The diff between a checkpoint and a program: what loading does or would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from popsr._support.host.files import shown_path
from popsr._support.text.entry_points import public
from popsr._support.text.summary import Judged, Summary, line
from popsr.errors import Error

__all__ = ["LoadDiff", "LoadEntry"]

_ORDER = ("refused", "missing", "reshard", "regroup", "cast", "load", "skipped", "unexpected")


@public
@dataclass(frozen=True, slots=True)
class LoadEntry:
    """One variable of the program, or one tensor of the file that no variable takes.

    Attributes:
        name: of the variable; of an unexpected tensor the file's.
        actions: ``("load",)``, or of ``"cast"``, ``"regroup"``, ``"reshard"`` those that apply, in this order; or one
            of ``"missing"``, ``"skipped"`` (not chosen by ``only``), ``"unexpected"`` and ``"refused"``.
        source: name in the file; None when it lacks the variable.
        found: dtype, shape and groups in the file.
        expected: dtype, shape and groups of the variable.
        error: why it is refused.
    """

    name: str
    actions: tuple[str, ...]
    source: str | None = None
    found: str = ""
    expected: str = ""
    error: Error | None = None


@public
@dataclass(frozen=True, repr=False)
class LoadDiff(Judged):
    """The result of ``reset_host_weights``, or with ``dry_run=True`` its plan; ``print`` shows a table.

    It is true where it is ``ok``.

    Attributes:
        path: the file.
        entries: a row for each variable and each unexpected tensor.
        is_dry: nothing was written.
        accepts_missing: the file may lack variables of the program.
    """

    path: Path
    entries: tuple[LoadEntry, ...]
    is_dry: bool
    accepts_missing: bool = field(default=False)

    @property
    def ok(self) -> bool:
        """True if the file can be loaded with these options."""
        return not self.refused and (self.accepts_missing or not self.missing)

    @property
    def loaded(self) -> tuple[str, ...]:
        """Variables that get a value of the file, cast or not."""
        gone = {"missing", "unexpected", "refused", "skipped"}
        return tuple(each.name for each in self.entries if not gone & set(each.actions))

    @property
    def cast(self) -> tuple[str, ...]:
        """Variables whose values are cast."""
        return self._with("cast")

    @property
    def regrouped(self) -> tuple[str, ...]:
        """Variables whose groups are others than in the file."""
        return self._with("regroup")

    @property
    def resharded(self) -> tuple[str, ...]:
        """Variables whose shards are joined and cut anew."""
        return self._with("reshard")

    @property
    def missing(self) -> tuple[str, ...]:
        """Variables that the file lacks."""
        return self._with("missing")

    @property
    def skipped(self) -> tuple[str, ...]:
        """Variables that ``only`` leaves out."""
        return self._with("skipped")

    @property
    def unexpected(self) -> tuple[str, ...]:
        """Tensors of the file that no variable takes, by the file's names."""
        return self._with("unexpected")

    @property
    def refused(self) -> tuple[str, ...]:
        """Variables that the file's tensors do not fit."""
        return self._with("refused")

    def _with(self, action: str) -> tuple[str, ...]:
        return tuple(each.name for each in self.entries if action in each.actions)

    def __repr__(self) -> str:
        counts = Counter(action for each in self.entries for action in each.actions)
        parts = [f"{counts[action]} {action}" for action in _ORDER if counts[action]]
        verdict = "fits" if self.ok else "does not fit"
        return line(f"LoadDiff[{shown_path(self.path)} {verdict}: {', '.join(parts) or 'no variables'}]")

    def _summary(self) -> Summary:
        ordered = sorted(self.entries, key=lambda each: min(map(_ORDER.index, each.actions)))
        rows = (
            (
                each.name,
                "+".join(each.actions),
                "" if each.source in (None, each.name) else str(each.source),
                each.found,
                each.expected,
                "" if each.error is None else str(each.error).partition(": ")[2],
            )
            for each in ordered
        )
        header = ("variable", "action", "name in the file", "file", "program", "why not")
        return Summary(repr(self), header, rows, len(self.entries))
