"""The files of a job: which file has which ranks and steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from popsr._support.host.files import file_errors, shown_path
from popsr._support.text.shown import shown
from popsr.bridge.audit._dcp_metadata import is_metadata
from popsr.errors import AttributeValueError, FileError

__all__ = ["Place", "find_places"]

_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|dp|replica|worker|process)[-_=.]?(\d+)", re.IGNORECASE)
_WRITER = re.compile(r"^__(\d+)\.metadata$")
_STEP = re.compile(
    r"(?:^|[^a-z])(?:step|iter|iteration|checkpoint|global_step|epoch)[-_=.]?(\d+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Place:
    """A file of one rank at one step; of a checkpoint of torch.distributed.checkpoint its metadata."""

    rank: int
    step: int | None
    path: Path


def find_places(where: str, source: Path) -> list[Place]:
    """Files of a folder, whose ranks and steps are in their paths, or of a pattern with ``{rank}``.

    Raises:
        AttributeValueError: a pattern without ``{rank}``; two files of one rank and step with one name.
        FileError: there is no such file.
    """
    text = str(source)
    if "{" in text:
        return _of_pattern(where, text)
    with file_errors(where, "read", source):
        if not source.is_dir():
            raise FileError(
                f"{where}: cannot read {shown_path(source)}, got no folder, expected one of files by rank"
            )
        files = _files(source)
    found = []
    for each in files:
        relative = str(each.relative_to(source))
        ranks, steps = _WRITER.findall(each.name) or _RANK.findall(relative), _STEP.findall(relative)
        if ranks:
            found.append(Place(int(ranks[-1]), int(steps[-1]) if steps else None, each))
    if not found and any(is_metadata(each) for each in files):
        raise FileError(
            f"{where}: no rank has a checkpoint of its own in {shown_path(source)}, got one of all ranks by "
            "torch.distributed.checkpoint, which keeps one copy of what ranks hold in common, expected one of each "
            "rank (no_dist=True, into rank_0, rank_1 ...) or logs of log_hashes"
        )
    return _sorted(where, source, found)


def _files(folder: Path) -> list[Path]:
    return sorted(
        each
        for each in folder.rglob("*")
        if (each.suffix in _SUFFIXES or is_metadata(each)) and each.is_file()
    )


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
        inside = [each] if each.is_file() else _files(each)
        found += [Place(int(match["rank"]), step, file) for file in inside]
    return _sorted(where, Path(text), found)


def _sorted(where: str, source: Path, found: list[Place]) -> list[Place]:
    if not found:
        raise FileError(
            f"{where}: no files of ranks in {shown_path(source)}, expected names with rank0, rank1 ... that end in "
            f"{', '.join(_SUFFIXES)}, folders of torch.distributed.checkpoint, or a pattern with {{rank}}"
        )
    return sorted(found, key=lambda each: (-1 if each.step is None else each.step, each.rank, str(each.path)))
