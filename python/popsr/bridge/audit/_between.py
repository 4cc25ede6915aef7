"""Comparison of two jobs: what one saved with what the other did, file by file or assembled."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from popsr._support.host.arguments import read_bool, read_path
from popsr._support.host.files import file_errors, shown_name, shown_path
from popsr._support.host.rank_groups import RankGroups
from popsr._support.text.entry_points import public
from popsr.bridge.audit._collected import WHERE, Collected
from popsr.bridge.audit._findings import JOBS, AuditReport
from popsr.bridge.audit._held import Held
from popsr.bridge.audit._layouts import name_facts
from popsr.bridge.audit._places import files_of
from popsr.bridge.audit._whole import assemble, check_cuts
from popsr.errors import FileError

__all__ = ["between"]

_BOTH = RankGroups.of_one(2)
Files = dict[str, Path]


@public
def between(a: str | os.PathLike[str], b: str | os.PathLike[str], *, whole: bool = False) -> AuditReport:
    """Compare what two jobs saved, byte by byte: before and after a refactoring, or on two machines.

    Files are compared with those of equal names, below two folders; a checkpoint of torch.distributed.checkpoint or
    Orbax is one, whatever the number of its ranks.

    Args:
        a: a folder of checkpoints of a job, or one file.
        b: that of the other.
        whole: compare tensors by name instead, at each step, in whatever files they are: shards of DeepSpeed ZeRO are
            joined, stages 1 to 3.
    Returns:
        The findings, in which rank 0 is the first job and 1 the second; ``ok`` is true if they hold the same names
        at the same steps, with equal bits.
    Raises:
        FileError: there are no files, or none of equal names.
        CheckpointError: no file can be read.
        UnsupportedError: ``whole`` of states that are cut over other tensor ranks.
    """
    paths = read_path(WHERE, a), read_path(WHERE, b)
    comparison = _Comparison(_shown(paths))
    files = _files(paths[0]), _files(paths[1])
    if read_bool(f"{WHERE}: whole", whole):
        comparison.compare_whole(*files)
    else:
        comparison.compare_files(*files)
    return comparison.report()


def _shown(paths: tuple[Path, Path]) -> tuple[str, str]:
    return shown_path(paths[0]), shown_path(paths[1])


def _files(source: Path) -> Files:
    """Files by their names below the folder."""
    with file_errors(WHERE, "read", source):
        if source.is_file():
            return {"": source}
    found = {each.relative_to(source).as_posix(): each for each in files_of(WHERE, source)}
    if not found:
        raise FileError(f"{WHERE}: no checkpoints in {shown_path(source)}, expected files of a job")
    return found


class _Comparison:
    """Findings so far."""

    def __init__(self, jobs: tuple[str, str]) -> None:
        self._jobs = jobs
        self._collected = Collected()
        self._collected.ranks = 2
        self._is_compared = False

    def compare_files(self, a: Files, b: Files) -> None:
        """Compare files of equal names."""
        common = [name for name in a if name in b]
        if not common:
            names = (shown_name(next(iter(each))) for each in (a, b))
            raise FileError(
                f"{WHERE}: no file has a name in both, got {' and '.join(names)}, expected the same layout, or --whole"
            )
        self._note_others("", "files", a, b)
        for name in common:
            step = name_facts(name).step
            self._collected.begin(step)
            paths = a[name], b[name]
            found = [self._collected.read("", each) for each in paths]
            if found[0] is not None and found[1] is not None:
                at = f"{shown_name(name)}: " if name else ""
                self._compare(step, at, _shown(paths), found[0].tensors, found[1].tensors)

    def compare_whole(self, a: Files, b: Files) -> None:
        """Compare assembled states of equal steps."""
        steps = _by_step(a), _by_step(b)
        common = sorted(
            (step for step in steps[0] if step in steps[1]), key=lambda each: -1 if each is None else each
        )
        if not common:
            raise FileError(f"{WHERE}: no step is in both, expected the same steps")
        self._note_others("", "steps", *({str(step): 0 for step in each} for each in steps))
        for step in common:
            self._collected.begin(step)
            at = "" if step is None else f"step {step}: "
            states = [
                assemble(
                    WHERE,
                    each[step],
                    partial(self._collected.read, ""),
                    self._collected.damage,
                )
                for each in steps
            ]
            check_cuts(WHERE, *states)
            is_damaged = any(each.is_damaged for each in states)
            self._compare(step, at, self._jobs, states[0].tensors, states[1].tensors, is_damaged=is_damaged)

    def _compare(
        self,
        step: int | None,
        at: str,
        places: tuple[str, str],
        a: Mapping[str, Held],
        b: Mapping[str, Held],
        *,
        is_damaged: bool = False,
    ) -> None:
        if not is_damaged:  # of files that cannot be read the names are unknown
            self._note_others(at, "tensors", a, b)
        for name, first in a.items():
            other = b.get(name)
            if other is None:
                continue
            self._is_compared = True
            self._collected.names.add(name)
            self._collected.nbytes += first.nbytes + other.nbytes
            found = self._collected.drift(step, name, _BOTH, {0: first, 1: other})
            if found is not None:
                self._collected.add(
                    dataclasses.replace(found, declared=JOBS[0], found=JOBS[1], places=places)
                )

    def _note_others(self, at: str, what: str, a: Mapping[str, object], b: Mapping[str, object]) -> None:
        for job, mine, others in ((self._jobs[0], a, b), (self._jobs[1], b, a)):
            lone = [name for name in mine if name not in others]
            if lone:
                self._collected.note(f"{at}{len(lone)} {what} only in {job}, as {shown_name(lone[0])}")

    def report(self) -> AuditReport:
        """The findings."""
        if not self._is_compared:
            self._collected.note("nothing was compared, expected names of tensors that are in both")
        return dataclasses.replace(self._collected.report(), jobs=self._jobs)


def _by_step(files: Files) -> dict[int | None, list[Path]]:
    found: dict[int | None, list[Path]] = {}
    for name, path in files.items():
        found.setdefault(name_facts(name).step, []).append(path)
    return found
