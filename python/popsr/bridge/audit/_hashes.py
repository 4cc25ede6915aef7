"""Logs of hashes: a line of JSON for each tensor of each rank and step, written by the training loop."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from popsr._core import MAX_REPLICAS
from popsr._support.host.arguments import read_int, read_items, read_path
from popsr._support.host.files import bytes_of, file_errors, shown_name, shown_path
from popsr._support.host.rank_groups import RankGroups, equal_groups
from popsr._support.host.regular_files import open_regular
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.bridge.audit._findings import AuditReport, Drift
from popsr.bridge.audit._groups import DeclaredGroups
from popsr.bridge.audit._held import Array
from popsr.bridge.audit._rank_groups import NO_PAIR, Present, absent_ranks, has_pair, read_ranks
from popsr.errors import ArgumentTypeError, CheckpointError
from popsr.io._torch.read import array_of_tensor

__all__ = ["audit_log", "log_hashes"]

_LOG, _AUDIT = "log_hashes", "audit_log"
_MAX_LINE = 1 << 16
_STEPS = 1 << 24


@public
def log_hashes(state: Mapping[str, Any], file: str | os.PathLike[str], *, step: int, rank: int) -> None:
    """Append a line of JSON for each tensor to a log: step, rank, name, and SHA-256 of dtype, shape and bytes.

    Called by each rank in the training loop, with a file of its own. Nested mappings are joined by dots.

    Args:
        state: a state dict: tensors of PyTorch, or arrays of NumPy or JAX, by name; other values are left out.
        file: the log of this rank.
        step: number of the step.
        rank: number of the rank.
    Raises:
        ArgumentTypeError: ``state`` is not a mapping.
        OSError: the file cannot be written.
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(
            f"{_LOG}: state is not a mapping, got {shown(state)}, expected tensors by name"
        )
    path = read_path(_LOG, file)
    where = {
        "step": read_int(f"{_LOG}: step", step, 0),
        "rank": read_int(f"{_LOG}: rank", rank, 0, MAX_REPLICAS - 1),
    }
    lines = [
        json.dumps({**where, "name": name, "hash": _hash(array)}, ensure_ascii=False) + "\n"
        for name, array in _arrays(state, "")
    ]
    with file_errors(_LOG, "write", path), path.open("a", encoding="utf-8") as out:
        out.writelines(lines)


def _arrays(state: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Array]]:
    torch = sys.modules.get("torch")
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _arrays(value, f"{name}.")
        elif torch is not None and isinstance(value, torch.Tensor):
            local = value.to_local() if hasattr(value, "to_local") else value
            yield name, array_of_tensor(torch, local.detach().cpu())
        elif isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
            yield name, np.asarray(value)


def _hash(array: Array) -> str:
    found = hashlib.sha256(f"{array.dtype.name}{list(array.shape)}".encode())
    found.update(bytes_of(array))
    return f"sha256:{found.hexdigest()}"


@public
def audit_log(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    groups: Any = "all",
    *,
    ranks: int | None = None,
) -> AuditReport:
    """Compare hashes that ranks logged with the groups that should hold equal bits.

    A line is ``{"step": 3, "rank": 0, "name": "w", "hash": "..."}``, whatever the hash; lines may come in any order.

    Args:
        files: the logs of all ranks, or a folder of files that end in ``.jsonl``.
        groups: which ranks should be equal, see ``DeclaredGroups``.
        ranks: number of ranks. Default: one more than the largest that is found.
    Raises:
        FileError: a file cannot be read.
        CheckpointError: a line is not such an object, or two of one rank, step and name contradict each other.
        ReplicaError: the groups are of another number of ranks.
    """
    declared = groups if isinstance(groups, DeclaredGroups) else DeclaredGroups(groups)
    table: dict[int, dict[str, dict[int, str]]] = {}
    for path in _files(files):
        for step, rank, name, text in _lines(path):
            held = table.setdefault(step, {}).setdefault(name, {})
            if held.setdefault(rank, text) != text:
                raise CheckpointError(
                    f"{_AUDIT}: {shown_path(path)} contradicts another line, got two hashes of {shown_name(name)} of "
                    f"rank {rank} at step {step}, expected one"
                )
    largest = max((rank for names in table.values() for held in names.values() for rank in held), default=0)
    return _compare(declared, table, read_ranks(_AUDIT, ranks, largest))


def _compare(
    declared: DeclaredGroups, table: dict[int, dict[str, dict[int, str]]], ranks: int
) -> AuditReport:
    drifts: list[Drift] = []
    notes: dict[str, None] = {}
    names: set[str] = set()
    is_compared = False
    for step in sorted(table):
        all_present = {rank for held in table[step].values() for rank in held}
        absent, present = absent_ranks(ranks, all_present), Present(all_present)
        if absent:
            notes[f"step {step}: no lines of rank {absent}"] = None
        for name, held in table[step].items():
            groups = declared._find(name, ranks)
            if groups is None:
                notes[f"no groups are declared for {shown_name(name)}"] = None
                continue
            names.add(name)
            lacking = present.first_lacking(groups, held)
            if lacking is not None:
                notes[
                    f"step {step}: rank {lacking} lacks {shown_name(name)}, which others of its group have"
                ] = None
            is_compared = is_compared or has_pair(groups, held)
            found = _drift(step, name, groups, held)
            if found is not None:
                drifts.append(found)
    if not is_compared:
        notes[f"nothing was compared, {NO_PAIR}"] = None
    notes |= dict.fromkeys(declared.notes(names))
    return AuditReport(tuple(sorted(table)), ranks, len(names), 0, tuple(drifts), tuple(notes))


def _drift(step: int, name: str, declared: RankGroups, held: Mapping[int, str]) -> Drift | None:
    for members in declared.among(sorted(held)).values():
        first = members[0]
        other = next((rank for rank in members if held[rank] != held[first]), None)
        if other is not None:
            found = equal_groups(declared, held).text
            values = (held[first][:40], held[other][:40])
            return Drift(step, name, declared.text, found, (first, other), None, values)
    return None


def _files(files: Any) -> list[Path]:
    if isinstance(files, (str, os.PathLike)):
        path = read_path(_AUDIT, files)
        return sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    return [read_path(_AUDIT, each) for each in read_items(_AUDIT, "files", files, kind="paths")]


def _lines(path: Path) -> Iterator[tuple[int, int, str, str]]:
    with open_regular(path, _AUDIT) as file, file_errors(_AUDIT, "read", path):
        number = 0
        while line := file.readline(_MAX_LINE):
            text = line.decode(errors="replace")
            number += 1
            if not text.strip():
                continue
            try:
                entry = json.loads(text)
                step, rank, name, found = (entry[key] for key in ("step", "rank", "name", "hash"))
            except (ValueError, KeyError, TypeError, RecursionError):
                step = rank = name = found = None
            is_right = isinstance(name, str) and isinstance(found, str)
            if not is_right or not _is_index(step, _STEPS) or not _is_index(rank, MAX_REPLICAS):
                raise CheckpointError(
                    f"{_AUDIT}: {shown_path(path)} has a wrong line {number}, got {shown_name(text.strip())}, expected "
                    "an object of step, rank, name and hash"
                )
            yield step, rank, name, found


def _is_index(value: Any, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
