"""One recording of the records of several ranks: of each value the blocks of all of them.

A rank records what it computes: the blocks that hold a replica of its own. Each replica's hash is taken from its own
rank, so that ranks which differ in a block that is proved equal are told apart. The records are the bytes that one
process would have written, where it has the same instructions.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from popsr._tools.record.file_format import Tag
from popsr._tools.record.reading import Input, Parser, Row, Run, Slot
from popsr.errors import RankError

__all__ = ["merged"]

Slots = Sequence[Slot | None]


def merged(
    texts: Sequence[bytes], shares: Sequence[range], row_of: Callable[[int, int], int]
) -> Iterator[bytes]:
    """The records of all ranks, run by run.

    Args:
        texts: records of each rank.
        shares: its replicas.
        row_of: by number of a stream and replica the row of the host's data.
    Raises:
        RankError: ranks have recorded other runs.
    """
    merger = _Merger(shares, row_of)
    for runs in zip_longest(*(Parser(text, keeps_all=True).runs() for text in texts)):
        yield b"".join(merger.of(_same_run(runs)))


def _same_run(runs: Sequence[Run | None]) -> list[Run]:
    names = ["no run" if run is None else f"run {run.step} with seed {run.seed}" for run in runs]
    for rank, name in enumerate(names):
        if name != names[0]:
            raise RankError(
                f"record: ranks recorded other runs, got {names[0]} on rank 0 and {name} on rank {rank}, expected "
                "the same on all ranks"
            )
    return [run for run in runs if run is not None]


@dataclass(frozen=True)
class _Output:
    """An output: where the hashes are, in the order of the first replica that has each, and which one a replica has.

    ``places``: the block among those of all ranks, the rank, and there the output's position and the block's label.
    """

    index: int
    places: tuple[tuple[int, int, int, int], ...]
    of_replica: tuple[int, ...]


@dataclass
class _Layout:
    """An instruction on all ranks; ``slots``: numbers of slots in the file, by the block of each place."""

    slot: Slot
    outputs: list[_Output]
    slots: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)


class _Merger:
    def __init__(self, shares: Sequence[range], row_of: Callable[[int, int], int]) -> None:
        self._owners = [rank for rank, share in enumerate(shares) for _ in share]
        self._row_of = row_of
        self._layouts: dict[tuple[int | None, ...], _Layout] = {}
        self._numbers: dict[bytes, int] = {}  # of slots, by their words

    def of(self, runs: Sequence[Run]) -> Iterator[bytes]:
        """The records of a run."""
        yield struct.pack("<IQQ", Tag.RUN, runs[0].step, runs[0].seed)
        for inputs in zip(*(run.inputs for run in runs), strict=True):
            yield self._input(inputs)
        others = [_by_key(run) for run in runs[1:]]
        for row in runs[0].rows:
            rows = [row, *(_next(other, row) for other in others)]
            # After an error ranks are not equally far.
            if all(found or run.counts[row.op] > row.nth for found, run in zip(rows, runs, strict=True)):
                yield from self._row(rows)
        yield struct.pack("<I", Tag.END)

    def _input(self, inputs: Sequence[Input]) -> bytes:
        numbers: dict[tuple[int, tuple[int | None, ...]], int] = {}
        labels = []
        first = [_first_replicas(each.labels) for each in inputs]
        for replica, rank in enumerate(self._owners):
            mine = inputs[rank]
            hashes = tuple(values[replica] for values in mine.values)
            # A rank does not know the rows of others' replicas.
            block = self._row_of(mine.id, replica) if mine.is_stream else first[rank][mine.labels[replica]]
            labels.append(numbers.setdefault((block, hashes), len(numbers)))
        tag, times = Tag.STREAM if inputs[0].is_stream else Tag.VARIABLE, len(inputs[0].values)
        ordered = [hashes[t] or 0 for t in range(times) for _, hashes in numbers]
        return _words(tag, inputs[0].id, len(labels), *labels, times, len(numbers)) + _hashes(ordered)

    def _row(self, rows: Sequence[Row | None]) -> Iterator[bytes]:
        key = tuple(None if row is None else row.slot.number for row in rows)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = self._layout([None if row is None else row.slot for row in rows])
        found = [() if row is None else row.hashes for row in rows]
        blocks: list[tuple[int, ...]] = []
        hashes: list[int] = []
        for output in layout.outputs:
            numbers: dict[tuple[int, int], int] = {}
            blocks.append(
                tuple(
                    [
                        numbers.setdefault((block, found[rank][at][label]), len(numbers))
                        for block, rank, at, label in output.places
                    ]
                )
            )
            hashes += [hash_ for _, hash_ in numbers]
        number = layout.slots.get(tuple(blocks))
        if number is None:
            text = _slot_text(layout, blocks)
            if text not in self._numbers:
                self._numbers[text] = len(self._numbers)
                yield _words(Tag.SLOT, self._numbers[text]) + text
            number = layout.slots[tuple(blocks)] = self._numbers[text]
        assert rows[0] is not None
        yield _words(Tag.ROW, number, *rows[0].iterations) + _hashes(hashes)

    def _layout(self, slots: Slots) -> _Layout:
        first = slots[0]
        assert first is not None
        at = [{} if slot is None else {out[0]: i for i, out in enumerate(slot.outputs)} for slot in slots]
        both = [index for index, _, _ in first.outputs if all(index in each for each in at)]
        return _Layout(first, [self._output(index, slots, [each[index] for each in at]) for index in both])

    def _output(self, index: int, slots: Slots, at: Sequence[int]) -> _Output:
        places: dict[tuple[int, int, int, int], int] = {}
        of_replica = []
        labels = [() if slot is None else slot.outputs[i][1] for slot, i in zip(slots, at, strict=True)]
        first = [_first_replicas(each) for each in labels]
        for replica, rank in enumerate(self._owners):
            label = labels[rank][replica]
            place = first[rank][label], rank, at[rank], label
            of_replica.append(places.setdefault(place, len(places)))
        return _Output(index, tuple(places), tuple(of_replica))


def _by_key(run: Run) -> dict[tuple[int, int], deque[Row]]:
    rows: dict[tuple[int, int], deque[Row]] = defaultdict(deque)
    for row in run.rows:
        rows[row.op, row.nth].append(row)
    return rows


def _next(rows: dict[tuple[int, int], deque[Row]], row: Row) -> Row | None:
    """The same row of another rank, whose plan may have other fused ops."""
    found = rows.get((row.op, row.nth))
    return found.popleft() if found else None


def _first_replicas(labels: Sequence[int]) -> dict[int, int]:
    """The smallest replica of each block, also of other ranks: the same on all that have it."""
    return {label: replica for replica, label in reversed(list(enumerate(labels)))}


def _slot_text(layout: _Layout, blocks: Sequence[tuple[int, ...]]) -> bytes:
    slot = layout.slot
    words = [slot.op, len(slot.path) // 2, *slot.path, len(slot.covered), *slot.covered, len(blocks)]
    for output, numbers in zip(layout.outputs, blocks, strict=True):
        labels = [numbers[place] for place in output.of_replica]
        words += [output.index, len(labels), *labels, max(numbers) + 1]
    return _words(*words)


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _hashes(hashes: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(hashes)}Q", *hashes)
