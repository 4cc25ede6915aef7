"""The files of a job: which file has which ranks and steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from popsr._support.host.files import file_errors, shown_path
from popsr._support.text.shown import shown
from popsr.bridge.audit._layouts import BY_RANK, LONE, Named, name_facts
from popsr.bridge.audit._mesh import RANK
from popsr.bridge.audit._readers import SUFFIXES, Reader, reader_of
from popsr.errors import AttributeValueError, FileError

__all__ = ["Family", "Place", "families_of", "files_of", "find_places", "refusal"]


@dataclass(frozen=True, slots=True)
class Place:
    """A file and what its name says; of a checkpoint of torch.distributed.checkpoint its metadata."""

    named: Named
    path: Path

    @property
    def step(self) -> int | None:
        """Step of the job."""
        return self.named.step


@dataclass(frozen=True)
class Family:
    """Files of one layout with the same axes."""

    places: tuple[Place, ...]

    @property
    def is_compared(self) -> bool:
        """True if ranks hold values in common, each in a file of its own."""
        named = self.places[0].named
        return bool(named.layout.equal) and any(axis in (RANK, "dp") for axis, _ in named.place)

    @property
    def has_ranks(self) -> bool:
        """True if names have a rank of any axis."""
        return bool(self.places[0].named.place)

    def __str__(self) -> str:
        """Words for a family that is not compared."""
        layout, first = self.places[0].named.layout, self.places[0].path
        count = f"{len(self.places)} file{'' if len(self.places) == 1 else 's'}"
        of = "without a rank" if layout is LONE else f"of {layout.name}"
        return f"{count} {of} as {shown_path(first.name)}, {layout.word or 'shards'}"


def families_of(places: Iterable[Place]) -> list[Family]:
    """Families in the order of their first files."""
    found: dict[tuple[str, ...], list[Place]] = {}
    for each in places:
        axes = sorted(axis for axis, _ in each.named.place)
        found.setdefault((each.named.layout.name, *axes), []).append(each)
    return [Family(tuple(each)) for each in found.values()]


def find_places(where: str, source: Path) -> list[Place]:
    """Files of a folder, whose ranks and steps are in their paths, or of a pattern with ``{rank}``.

    Raises:
        AttributeValueError: a pattern without ``{rank}``.
        FileError: there is no such file.
    """
    text = str(source)
    if "{" in text:
        found = _of_pattern(where, text)
    else:
        found = [
            Place(name_facts(each.relative_to(source).as_posix()), each) for each in files_of(where, source)
        ]
    if not found:
        raise FileError(
            f"{where}: no files of ranks in {shown_path(source)}, expected names with rank0, rank1 ... that end in "
            f"{', '.join(SUFFIXES)}, folders of torch.distributed.checkpoint or Orbax, or a pattern with {{rank}}"
        )
    return sorted(found, key=lambda each: (_order(each.step), each.named.place, str(each.path)))


def _order(step: int | None) -> int:
    return -1 if step is None else step


def refusal(where: str, source: Path, families: Iterable[Family]) -> FileError:
    """The error for files that tell nothing of drift, with what would."""
    remedy = (
        "expected one of each rank (with torch.distributed.checkpoint no_dist=True, into rank_0, rank_1 ...), logs of "
        "log_hashes, groups as 'tp' for what tensor ranks share, or --between another job"
    )
    whose = sorted({_whole_of(each.path) for family in families for each in family.places} - {""})
    if whose:
        return FileError(
            f"{where}: no rank has a checkpoint of its own in {shown_path(source)}, got one of all ranks by "
            f"{' and '.join(whose)}, which keeps one copy of what ranks hold in common, {remedy}"
        )
    got = "; ".join(map(str, families))
    return FileError(f"{where}: nothing in {shown_path(source)} can be compared, got {got}, {remedy}")


def files_of(where: str, folder: Path) -> list[Path]:
    """Files of checkpoints below a folder.

    Raises:
        FileError: there is no such folder.
    """
    with file_errors(where, "read", folder):
        if not folder.is_dir():
            raise FileError(
                f"{where}: cannot read {shown_path(folder)}, got no folder, expected one of files by rank"
            )
        read = ((each, reader_of(each)) for each in sorted(folder.rglob("*")))
        found = [(each, reader) for each, reader in read if reader is not None and each.is_file()]
    is_told: set[tuple[Reader, Path]] = set()
    chosen = []
    for path, reader in found:
        if reader.is_complete is not None:
            key = reader, path.parent
            if key in is_told:
                continue
            is_told.add(key)  # one file of a folder is enough
            if reader.is_complete(path.parent):
                continue
        chosen.append(path)
    return chosen


def _whole_of(path: Path) -> str:
    reader = reader_of(path)
    return "" if reader is None else reader.whole


def _of_pattern(where: str, text: str) -> list[Place]:
    if "{rank}" not in text or re.sub(r"\{rank\}|\{step\}", "", text).count("{"):
        raise AttributeValueError(
            f"{where}: wrong pattern of files, got {shown(text)}, expected one with {{rank}} and maybe {{step}}"
        )
    parts = re.split(r"(\{rank\}|\{step\})", text)
    glob = "".join("*" if part in ("{rank}", "{step}") else part for part in parts)
    seen: set[str] = set()
    expression = ""
    for part in parts:
        if part in ("{rank}", "{step}"):
            expression += rf"(?P<{part[1:-1]}>\d+)" if part not in seen else f"(?P={part[1:-1]})"
            seen.add(part)
        else:
            expression += re.escape(part).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    head = Path(glob.split("*", 1)[0])
    base = head if glob.split("*", 1)[0].endswith("/") else head.parent
    with file_errors(where, "read", base):
        try:
            files = sorted(base.glob(str(Path(glob).relative_to(base)))) if base.is_dir() else []
        except ValueError as error:  # ** beside other characters
            raise AttributeValueError(
                f"{where}: wrong pattern of files, got {shown(text)}: {error}, expected ** as a whole folder"
            ) from None
    found = []
    for each in files:
        match = re.fullmatch(expression, str(each))
        if match is None:
            continue
        step = int(match["step"]) if "{step}" in seen else None
        named = Named(BY_RANK, ((RANK, int(match["rank"])),), "", step)
        found += [Place(named, file) for file in ([each] if each.is_file() else files_of(where, each))]
    return found
