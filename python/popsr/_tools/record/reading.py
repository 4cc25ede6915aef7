"""Recordings as they are read: runs with their inputs and rows."""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from popsr._support.host.arguments import read_path
from popsr._support.host.files import file_errors, shown_path
from popsr._support.host.regular_files import open_regular
from popsr._tools.record.file_format import MAGIC, TRAILER, VERSION, Tag
from popsr.errors import FileError

__all__ = ["Input", "Parser", "RecordFile", "Row", "Run", "Slot", "open_record"]

_ITERATION = 3  # PathNode::Kind
_END = len(TRAILER) + 16


@dataclass(frozen=True)
class Slot:
    """An instruction; ``path``: words of its nodes; ``outputs``: index, labels and number of blocks."""

    number: int
    op: int
    path: tuple[int, ...]
    loops: int
    covered: tuple[int, ...]
    outputs: tuple[tuple[int, tuple[int, ...], int], ...]


@dataclass(frozen=True)
class Row:
    """Values that an op has computed: the hashes of each output, by replica; None where it did not take part."""

    op: int
    nth: int
    iterations: tuple[int, ...]
    slot: Slot
    hashes: tuple[tuple[int, ...], ...]

    def outputs(self) -> dict[int, list[int | None]]:
        """By output the hash of each replica."""
        return {
            index: [hashes[label] or None if label < blocks else None for label in labels]
            for (index, labels, blocks), hashes in zip(self.slot.outputs, self.hashes, strict=True)
        }


@dataclass(frozen=True)
class Input:
    """A variable or stream when a run begins: the block of each replica, and of each transfer its hash."""

    is_stream: bool
    id: int
    labels: tuple[int, ...]
    values: tuple[tuple[int | None, ...], ...]


@dataclass
class Run:
    """One run; ``counts``: how often each op was executed, also without a value of its own."""

    step: int
    seed: int
    inputs: list[Input] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class RecordFile:
    """A recording: the table of its program, and its runs."""

    path: Path
    table: dict[str, Any]
    data: bytes

    def runs(self) -> Iterator[Run]:
        """The runs in order."""
        try:
            yield from Parser(self.data).runs()
        except (IndexError, KeyError, struct.error, ValueError) as error:
            _refuse(self.path, f"a record that does not fit ({type(error).__name__})", "whole records")


def open_record(where: str, path: Any) -> RecordFile:
    """Read and check a file.

    Raises:
        FileError: it cannot be read, or is not a complete recording of this version.
    """
    target = read_path(where, path)
    with open_regular(target, where) as file, file_errors(where, "read", target):
        data = file.read()
    if data[: len(MAGIC)] != MAGIC:
        _refuse(target, "another kind of file", "one of popsr.record", where)
    if len(data) < len(MAGIC) + 8:
        _refuse(target, f"a cut file of {len(data)} bytes", "a complete recording", where)
    version, size = struct.unpack_from("<II", data, len(MAGIC))
    if version != VERSION:
        _refuse(target, f"version {version}", f"version {VERSION}", where)
    if data[-_END:-16] != TRAILER:
        _refuse(target, f"a cut file of {len(data)} bytes", "a complete recording", where)
    if hashlib.blake2b(memoryview(data)[:-_END], digest_size=16).digest() != data[-16:]:
        _refuse(target, "bytes that do not fit its digest", "the bytes that were written", where)
    begin = len(MAGIC) + 8
    return RecordFile(target, json.loads(data[begin : begin + size]), data[begin + size : -_END])


def _refuse(path: Path, got: str, expected: str, where: str = "diff") -> NoReturn:
    raise FileError(
        f"{where}: {shown_path(path)} is not a recording that can be read, got {got}, expected {expected}"
    )


class Parser:
    """Reads the records one after another.

    Args:
        data: the records.
        keeps_all: runs have also the rows without outputs.
    """

    def __init__(self, data: bytes, *, keeps_all: bool = False) -> None:
        self._data, self._at, self._keeps_all = data, 0, keeps_all
        self._slots: dict[int, Slot] = {}
        self._formats: dict[int, tuple[struct.Struct, tuple[int, ...]]] = {}

    def _words(self, count: int) -> tuple[int, ...]:
        found = struct.unpack_from(f"<{count}I", self._data, self._at)
        self._at += 4 * count
        return found

    def _list(self) -> tuple[int, ...]:
        return self._words(self._words(1)[0])

    def _hashes(self, count: int) -> tuple[int, ...]:
        found = struct.unpack_from(f"<{count}Q", self._data, self._at)
        self._at += 8 * count
        return found

    def runs(self) -> Iterator[Run]:
        """The runs in order."""
        run: Run | None = None
        while self._at < len(self._data):
            (tag,) = self._words(1)
            if tag == Tag.RUN:
                step, seed = self._hashes(2)
                run = Run(step, seed)
            elif tag == Tag.SLOT:
                self._slot()
            elif run is None:
                raise ValueError(tag)
            elif tag in (Tag.VARIABLE, Tag.STREAM):
                run.inputs.append(self._input(tag == Tag.STREAM))
            elif tag == Tag.ROW:
                self._row(run)
            elif tag == Tag.END:
                yield run
                run = None
            else:
                raise ValueError(tag)

    def _slot(self) -> None:
        number, op, nodes = self._words(3)
        path = self._words(2 * nodes)
        covered = self._list()
        outputs: list[tuple[int, tuple[int, ...], int]] = []
        for _ in range(self._words(1)[0]):
            (index,) = self._words(1)
            labels = self._list()
            outputs.append((index, labels, self._words(1)[0]))
        slot = Slot(number, op, path, path[::2].count(_ITERATION), covered, tuple(outputs))
        self._slots[number] = slot
        blocks = tuple(count for _, _, count in outputs)
        self._formats[number] = struct.Struct(f"<{slot.loops}I{sum(blocks)}Q"), blocks

    def _input(self, is_stream: bool) -> Input:
        (id_,) = self._words(1)
        labels = self._list()
        times, blocks = self._words(2)
        hashes = self._hashes(times * blocks)
        values = tuple(
            tuple(hashes[t * blocks + label] if label < blocks else None for label in labels)
            for t in range(times)
        )
        return Input(is_stream, id_, labels, values)

    def _row(self, run: Run) -> None:
        (number,) = self._words(1)
        slot = self._slots[number]
        form, blocks = self._formats[number]
        words = form.unpack_from(self._data, self._at)
        self._at += form.size
        for op in slot.covered:
            run.counts[op] += 1
        hashes, at = [], slot.loops
        for count in blocks:
            hashes.append(words[at : at + count])
            at += count
        if hashes or self._keeps_all:
            run.rows.append(Row(slot.op, run.counts[slot.op] - 1, words[: slot.loops], slot, tuple(hashes)))
