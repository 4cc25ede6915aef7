"""Text of ``print_tensor``.

A block for each replica, in their order, and an empty line after each; elements of a row on one line, every other
dimension on lines of its own, indented by one space.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._program.ir import Ir
from popsr.dtypes import dtype

_ELLIPSIS = "..."


def print_values(
    ir: Ir, op: int, shown: Sequence[tuple[int, int]], values: Sequence[np.ndarray[Any, Any]]
) -> None:
    """Write what a tensor is on each replica to Python's standard error.

    Args:
        ir: the program.
        op: its ``print_tensor``.
        shown: replicas in ascending order, and which of the values each of them holds.
        values: the distinct values.
    """
    form = _Form(**{k: v for k, v in ir._core.op_attributes(op).items() if not k.startswith("print_")})
    blocks = []
    bodies: dict[tuple[int, int], str] = {}  # by value and room for it
    for replica, index in shown:
        title = form.title if ir.replication_factor == 1 else f"{form.title}_replica_{replica}"
        key = (index, len(title))
        if key not in bodies:
            bodies[key] = form.text(values[index], len(title) + 2)
        blocks.append(f"{title}: {bodies[key]}\n\n")
    sys.stderr.write("".join(blocks))


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The formatting parameters of the op."""

    title: str
    summarise_threshold: int
    edge_items: int
    max_line_width: int
    digits: int
    float_format: str
    separator: str
    open_bracket: str
    close_bracket: str

    def text(self, value: np.ndarray[Any, Any], used: int) -> str:
        """The value; ``used`` characters stand before it on its first line."""
        kind = dtype.as_dtype(value.dtype)
        if kind._is_foreign:
            value = value.view(kind.as_ml_dtypes()).astype(np.float32)
        summarised = 0 < self.summarise_threshold < value.size
        edge = self.edge_items if summarised else None
        elements = [value[index] for index in _shown(value.shape, edge)]
        cells = iter(self._cells(elements, value.dtype.kind not in "iub"))
        if value.ndim == 0:
            return next(cells)
        return "\n".join(self._lines(value.shape, edge, cells, 0, used))

    def _lines(
        self, shape: tuple[int, ...], edge: int | None, cells: Iterator[str], depth: int, used: int
    ) -> Iterator[str]:
        """Lines of the part of one dimension; rows take their cells."""
        indent = " " * depth
        if 0 in shape:  # nothing in it
            yield f"{indent}{self.open_bracket}{self.close_bracket}"
            return
        if len(shape) == 1:
            row = [cell if at is not None else _ELLIPSIS for at, cell in _row(shape[0], edge, cells)]
            yield from self._wrapped(row, indent, max(used, depth))
            return
        yield indent + self.open_bracket
        for at in _positions(shape[0], edge):
            if at is None:
                yield f"{indent} {_ELLIPSIS}"
            else:
                yield from self._lines(shape[1:], edge, cells, depth + 1, 0)
        yield indent + self.close_bracket

    def _wrapped(self, row: list[str], indent: str, used: int) -> Iterator[str]:
        """Lines of one row, broken where the next cell would reach beyond the width."""
        line, room = indent + self.open_bracket, self.max_line_width or sys.maxsize
        length, empty = used + 1, True
        for i, cell in enumerate(row):
            end = self.separator if i + 1 < len(row) else self.close_bracket
            if not empty and length + len(cell) + len(end.rstrip()) > room:
                yield line.rstrip(" ")
                line, empty = indent + " ", True
                length = len(line)
            line += cell + end
            length += len(cell) + len(end)
            empty = False
        yield line

    def _cells(self, elements: list[Any], floats: bool) -> list[str]:
        if not elements:
            return []
        if floats and self.digits and self.float_format != "none":
            cells = self._float_cells([float(x) for x in elements])
        else:
            cells = [str(x) for x in elements]
        if not self.digits or (floats and self.float_format == "none"):
            return cells
        width = max(map(len, cells))
        return [cell.rjust(width) for cell in cells]

    def _float_cells(self, elements: list[float]) -> list[str]:
        """Numbers with as many significant digits as asked for, in one notation."""
        scientific = f".{self.digits - 1}e"
        exponents = [
            int(format(x, scientific).rpartition("e")[2]) for x in elements if math.isfinite(x) and x != 0
        ]
        before_point = max([*exponents, 0]) + 1
        decimals = max(self.digits - before_point, 0)
        notation = self.float_format
        if notation == "auto":
            # Fixed, unless the least element would lose more than half of its digits, or the greatest one some.
            least = decimals + min([*exponents, 0]) + 1
            fits = before_point <= self.digits and 2 * min(least, self.digits) >= self.digits
            notation = "fixed" if fits else "scientific"
        spec = f"#.{decimals}f" if notation == "fixed" else scientific
        return [format(x, spec) for x in elements]


def _positions(extent: int, edge: int | None) -> list[int | None]:
    """Positions that are shown of a dimension; None for those that are left out."""
    if edge is None or extent <= 2 * edge:
        return list(range(extent))
    return [*range(edge), None, *range(extent - edge, extent)]


def _shown(shape: tuple[int, ...], edge: int | None) -> Iterator[tuple[int, ...]]:
    """Indices of the elements that are shown, in their order."""
    if not shape:
        yield ()
        return
    for at in _positions(shape[0], edge):
        if at is not None:
            for rest in _shown(shape[1:], edge):
                yield (at, *rest)


def _row(extent: int, edge: int | None, cells: Iterator[str]) -> Iterator[tuple[int | None, str]]:
    for at in _positions(extent, edge):
        yield at, _ELLIPSIS if at is None else next(cells)
