"""Events of a trace in the trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from popsr import _core

__all__ = ["EVENTS", "Traced", "rows_of"]

Array = np.ndarray[Any, Any]

EVENTS = 250_000  # of the thread of the run that are kept
_EVENT = np.dtype([("begin", "<i8"), ("end", "<i8"), ("slot", "<u4"), ("value", "<u4")])
_SPAN = np.dtype([("begin", "<i8"), ("end", "<i8")])
_RUN, _ITERATION, _NO_OP = 0xFFFFFFFF, 0x80000000, 0xFFFFFFFF
_MAX_NAME = 80


class Row(NamedTuple):
    """A line of the file; ``begin`` and ``weight``, nanoseconds, for the counters in its place."""

    text: str
    begin: int
    weight: int


@dataclass(frozen=True)
class Slot:
    """An instruction: its name, its arguments as JSON, the iterations that it holds, and whether others are inside."""

    name: str
    arguments: str
    path: int
    has_body: bool


class Traced:
    """Events of the runs of a session, as the core has seen them."""

    def __init__(self, ir: _core.Ir, core: _core.Session) -> None:
        """Take it from the core."""
        events, slots, counts, parts = core.trace_events()
        self.events: Array = np.frombuffer(events, _EVENT)
        self.slots = [_slot(ir, *each) for each in slots]
        self.counts = counts
        self.workers: list[Array] = [np.frombuffer(part, _SPAN) for part in parts]

    @property
    def begin(self) -> int:
        """Nanoseconds of the first event."""
        return int(self.events["begin"][0]) if len(self.events) else 0


def rows_of(traced: Traced, rank: int, begin: int) -> Iterator[Row]:
    """Events of all threads of a rank; times count from ``begin``."""
    yield from _of_the_run(traced, rank, begin)
    yield from _of_workers(traced, rank, begin)


def _slot(
    ir: _core.Ir, name: str, op: int, path: list[int], nbytes: int, blocks: int, has_body: bool
) -> Slot:
    arguments: dict[str, Any] = {"bytes": nbytes, "blocks": blocks}
    if op != _NO_OP:
        outputs = ir.op_outputs(op)
        scope = ir.tensor(outputs[0]).name.rpartition("/")[0] if outputs else ""
        arguments = {"op": op, "path": scope[-_MAX_NAME:], "line": ir.location_of(op)} | arguments
    return Slot(name[:_MAX_NAME], json.dumps(arguments), path[-1] if path else 0, has_body)


def _ends(traced: Traced) -> list[int]:
    """Ends of all events: an iteration ends where the next one of its loop begins, or the loop ends."""
    ends: list[int] = traced.events["end"].tolist()
    loops: dict[int, int] = {}  # the loop that runs, by path
    iterations: dict[int, tuple[int, int]] = {}  # its last iteration
    for i, (begin, end, slot, _) in enumerate(traced.events.tolist()):
        if slot < _ITERATION and traced.slots[slot].has_body:
            loops[traced.slots[slot].path] = i
        elif slot != _RUN and slot >= _ITERATION:
            path = slot - _ITERATION
            loop = loops.get(path, -1)
            before, of = iterations.get(path, (-1, -1))
            if before >= 0 and of == loop:
                ends[before] = begin
            ends[i] = ends[loop] if loop >= 0 else end
            iterations[path] = i, loop
    return ends


def _of_the_run(traced: Traced, rank: int, start: int) -> Iterator[Row]:
    for (begin, _, slot, value), end in zip(traced.events.tolist(), _ends(traced), strict=True):
        if end < begin:  # its run is in progress
            continue
        if slot == _RUN:
            name, category, arguments = f"run {value}", "run", "{}"
        elif slot >= _ITERATION:
            name, category, arguments = f"iteration {value}", "iteration", "{}"
        else:
            each = traced.slots[slot]
            name, arguments = each.name, each.arguments
            category = "loop" if each.has_body else "op"
        yield _row(name, category, arguments, rank, 0, begin - start, end - begin)


def _of_workers(traced: Traced, rank: int, start: int) -> Iterator[Row]:
    leaves = [slot < _ITERATION and not traced.slots[slot].has_body for slot in traced.events["slot"]]
    kept = traced.events[np.array(leaves, bool)]
    for thread, spans in enumerate(traced.workers):
        at = np.searchsorted(kept["begin"], spans["begin"], side="right") - 1
        for (begin, end), i in zip(spans.tolist(), at.tolist(), strict=True):
            name, arguments = "part", "{}"
            if i >= 0 and begin <= kept["end"][i]:
                slot = traced.slots[kept["slot"][i]]
                name, arguments = slot.name, slot.arguments
            yield _row(name, "part", arguments, rank, thread, begin - start, end - begin)


def _row(name: str, category: str, arguments: str, rank: int, thread: int, begin: int, time: int) -> Row:
    text = (
        f'{{"ph":"X","name":{json.dumps(name)},"cat":"{category}","pid":{rank},"tid":{thread},'
        f'"ts":{_micros(begin)},"dur":{_micros(time)},"args":{arguments}}}'
    )
    return Row(text, begin, time if category == "op" else 0)


def _micros(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"
