"""``Session.trace``: a file of the trace event format."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from popsr import _core
from popsr._session.protocol import SessionProtocol
from popsr._session.ranks.ranks import Ranks
from popsr._support.host.arguments import read_path
from popsr._tools.observation import Observation
from popsr._tools.trace.events import EVENTS, Row, Traced, rows_of
from popsr.io._new_file import NewFile, NoFile

__all__ = ["MAX_BYTES", "Trace", "session_trace"]

MAX_BYTES = 50_000_000  # of the text of a file
_INTERVALS = 1000  # that events after the last one are counted in
_ONE_CLOCK = 60_000_000_000  # nanoseconds between first events; clocks of other machines have other origins


class Trace(Observation):
    """A trace in progress; ``close``, or the end of ``with``, writes the file. See :meth:`popsr.Session.trace`.

    After an error that leaves ``with``, the file has what was seen before; of several ranks there is none.
    """

    _kind = "trace"

    def __init__(self, session: SessionProtocol, path: str | os.PathLike[str]) -> None:
        """Watch the runs from now on."""
        self._path, self._ir = read_path("trace", path), session.ir._core
        self._file: NewFile = NoFile("trace", self._path)
        super().__init__(session)

    def _start(self) -> None:
        if self._ranks is None or self._ranks.rank == 0:
            self._file = NewFile("trace", self._path).__enter__()
        self._access.core.trace(EVENTS)

    def _finish(self) -> None:
        traced, ranks = Traced(self._ir, self._access.core), self._ranks
        rank, size = (0, 1) if ranks is None else (ranks.rank, ranks.size)
        begin = _origin(traced.begin, ranks)
        text = _text_of(traced, rank, begin, MAX_BYTES // size - 1000).encode()
        texts = [text] if ranks is None else ranks.collect(text)
        if not texts:
            return
        write = _writer(self._file, self._path)
        write(
            f'{{"displayTimeUnit":"ns","otherData":{{"popsr":{json.dumps(_core.__version__)}}},'
            f'"traceEvents":[\n'.encode()
        )
        for i, each in enumerate(texts):
            write((b",\n" if i else b"") + each)
        write(b"\n]}\n")
        write(None)
        self._file.commit()

    def _stop(self) -> None:
        self._access.core.end_trace()


def session_trace(session: SessionProtocol, path: str | os.PathLike[str]) -> Trace:
    """See :meth:`popsr.Session.trace`."""
    return Trace(session, path)


def _origin(begin: int, ranks: Ranks | None) -> int:
    """The time from which those of this rank count: the first event of all ranks with the same clock."""
    if ranks is None:
        return begin
    first = min(ranks.numbers(begin))
    return first if begin - first < _ONE_CLOCK else begin


def _text_of(traced: Traced, rank: int, begin: int, limit: int) -> str:
    """Events of a rank; after ``limit`` characters counters in their place."""
    lines = list(_names(traced, rank))
    left = limit - sum(len(line) + 2 for line in lines) - 200 * _INTERVALS
    rest: list[Row] = []
    for row in rows_of(traced, rank, begin):
        left -= len(row.text) + 2
        if left > 0:
            lines.append(row.text)
        elif row.weight:
            rest.append(row)
    counted = [(first - begin, last - begin, count, time) for first, last, count, time, _ in traced.counts]
    counted += [(row.begin, row.begin + row.weight, 1, row.weight) for row in rest]
    lines += _counters(counted, rank)
    return ",\n".join(lines)


def _names(traced: Traced, rank: int) -> Iterator[str]:
    def row(name: str, arguments: dict[str, Any], thread: int = 0) -> str:
        return json.dumps({"ph": "M", "name": name, "pid": rank, "tid": thread, "ts": 0, "args": arguments})

    yield row("process_name", {"name": f"rank {rank}"})
    yield row("process_sort_index", {"sort_index": rank})
    for thread in range(max(len(traced.workers), 1)):
        yield row("thread_name", {"name": f"worker {thread}" if thread else "session"}, thread)
        yield row("thread_sort_index", {"sort_index": thread}, thread)


def _counters(counted: Iterable[tuple[int, int, int, int]], rank: int) -> list[str]:
    """Instructions and the share of time that they take, in intervals of equal length."""
    found = sorted(counted)
    if not found:
        return []
    start = found[0][0]
    length = max((found[-1][1] - start) // _INTERVALS + 1, 1)
    sums: dict[int, list[int]] = {}
    for begin, _, count, time in found:
        each = sums.setdefault((begin - start) // length, [0, 0])
        each[0] += count
        each[1] += time
    return [
        json.dumps(
            {
                "ph": "C", "name": "instructions", "pid": rank, "tid": 0, "ts": (start + i * length) / 1000,
                "args": {"count": count, "busy %": round(100 * time / length, 1)},
            }
        )
        for i, (count, time) in sums.items()
    ]  # fmt: skip


def _writer(file: NewFile, path: Path) -> Callable[[bytes | None], None]:
    """Writes text, compressed where the name ends in ``.gz``; None ends it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31) if path.suffix == ".gz" else None

    def write(data: bytes | None) -> None:
        if packer is None:
            file.write(data or b"")
        else:
            file.write(packer.flush() if data is None else packer.compress(data))

    return write
