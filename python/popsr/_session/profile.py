"""Profiles of sessions: time, memory and arithmetic of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from popsr._program.building.location import short_place
from popsr._support.text.amounts import count_text, time_text
from popsr._support.text.entry_points import public
from popsr._support.text.summary import MAX_ROWS, Summarised, Summary

if TYPE_CHECKING:
    from popsr import _core
    from popsr._support.records import ProfiledInstruction

__all__ = ["Profile", "ProfileRow"]


@dataclass(frozen=True)
class ProfileRow:
    """Cost of an instruction, of all instructions of a kind, or of a line of the program, in all runs.

    Attributes:
        name: an instruction's ops, as a printed plan has them, or the line.
        location: ``file:line`` of the op that gave the instruction; of all instructions of a kind "".
        executions: how often an instruction was executed.
        blocks: blocks that were computed, of all ops.
        seconds: time.
        bytes: memory of operands and results; of an op that reads a part of an operand the whole operand.
        flops: floating point operations of all blocks, as ``popsr.addons.performance_utils`` counts them.
    """

    name: str
    location: str
    executions: int
    blocks: int
    seconds: float
    bytes: int
    flops: int

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def flop_rate(self) -> float:
        """Floating point operations per second."""
        return self.flops / self.seconds if self.seconds else 0.0


@public
@dataclass(frozen=True)
class Profile(Summarised):
    """Cost of all runs of a session made with ``profile=True``; see ``Session.profile``.

    ``print`` shows the kinds of instructions, then the lines of the program, the slowest first.

    Attributes:
        runs: number of runs that ended.
        seconds: time of all runs in the core, with what lies between instructions, without the work of recordings.
        instructions: a row for each instruction that was executed, in the order of the plan.
    """

    runs: int
    seconds: float
    instructions: tuple[ProfileRow, ...]

    @classmethod
    def _of(cls, ir: _core.Ir, runs: int, recorded: tuple[int, Iterable[ProfiledInstruction]]) -> Profile:
        time, instructions = recorded
        return cls(runs, time * 1e-9, tuple(_row(ir, each) for each in instructions))

    @property
    def kinds(self) -> tuple[ProfileRow, ...]:
        """A row for each kind of instruction, the slowest first: of "matmul", "matmul+accumulate_", "copy"."""
        return _grouped(self.instructions, lambda row: (row.name, ""))

    @property
    def lines(self) -> tuple[ProfileRow, ...]:
        """A row for each line of the program, the slowest first. A gradient counts for its forward op's line."""
        return _grouped(self.instructions, lambda row: (short_place(row.location), row.location))

    @property
    def between(self) -> float:
        """Seconds that runs spent outside of instructions."""
        return max(self.seconds - sum(row.seconds for row in self.instructions), 0.0)

    def _summary(self) -> Summary:
        title = f"Profile[{self.runs} runs {time_text(self.seconds)} {len(self.instructions)} instructions]"
        header = ("what", "time", "share", "calls", "blocks", "bytes", "GB/s", "FLOPs", "GFLOP/s")
        between = ("between instructions", time_text(self.between), self._share(self.between), *[""] * 6)
        # A table as text has rows of both.
        rows = [*map(self._cells, self.kinds[: MAX_ROWS // 2]), between, *map(self._cells, self.lines)]
        return Summary(title, header, rows, len(rows))

    def _cells(self, row: ProfileRow) -> tuple[str, ...]:
        return (
            row.name,
            time_text(row.seconds),
            self._share(row.seconds),
            str(row.executions),
            str(row.blocks),
            count_text(row.bytes),
            f"{row.bandwidth * 1e-9:.1f}",
            count_text(row.flops) if row.flops else "",
            f"{row.flop_rate * 1e-9:.1f}" if row.flops else "",
        )

    def _share(self, seconds: float) -> str:
        return f"{seconds / self.seconds:.1%}" if self.seconds else ""

    def __iter__(self) -> Iterator[ProfileRow]:
        return iter(self.instructions)

    def __repr__(self) -> str:
        return self._summary().title


def _row(ir: _core.Ir, each: ProfiledInstruction) -> ProfileRow:
    known = [(op, blocks) for op, blocks in each.ops if op is not None]
    flops = sum(ir.op_flops(op) * blocks for op, blocks in known)
    location = ir.location_of(known[0][0]) if known else ""
    blocks = sum(blocks for _, blocks in each.ops)
    return ProfileRow(each.name, location, each.executions, blocks, each.time * 1e-9, each.bytes, flops)


def _grouped(
    rows: Iterable[ProfileRow], key: Callable[[ProfileRow], tuple[str, str]]
) -> tuple[ProfileRow, ...]:
    groups: dict[tuple[str, str], list[ProfileRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    made = [
        ProfileRow(
            *names,
            sum(row.executions for row in group),
            sum(row.blocks for row in group),
            sum(row.seconds for row in group),
            sum(row.bytes for row in group),
            sum(row.flops for row in group),
        )
        for names, group in groups.items()
    ]
    return tuple(sorted(made, key=lambda row: -row.seconds))
