"""The parts of a variable and the replicas that hold each of them, as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from popsr._program.building.placement import shards_of
from popsr._program.tensor import Variable
from popsr._support.host.arguments import read_a, read_int, read_items
from popsr._support.text.entry_points import public
from popsr._support.text.replica_sets import partition_of, set_text, strip_text
from popsr._support.text.strip import block_fill, strip_svg
from popsr.errors import ArgumentTypeError, ReplicaError
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["ShardingPicture", "visualize_sharding"]

_MAX_COLUMNS, _MAX_BOXES = 16, 64  # that are drawn; the other rows and columns are counted
_CELL = 18  # characters of a set of replicas
_WIDTH, _HEIGHT = 132, 34


@public
class ShardingPicture:
    """Boxes, one for each group, with the replicas that hold its value; made by ``visualize_sharding``.

    ``str()`` draws them with characters; notebooks show them in the colours of the strip.
    """

    _title: str
    _groups: Partition
    _grid: tuple[int, int]
    _shown: tuple[int, int]
    _boxes: list[list[int]]
    _texts: list[list[str]]

    def __init__(self) -> None:
        """Refused: pictures are made by ``visualize_sharding``."""
        raise ArgumentTypeError(
            "ShardingPicture: cannot be constructed, expected popsr.analysis.visualize_sharding(value)"
        )

    @classmethod
    def _of(
        cls, title: str, groups: Partition, order: Sequence[int], grid: tuple[int, int]
    ) -> ShardingPicture:
        """Of blocks in rows, in that order."""
        self = cls.__new__(cls)
        self._title, self._groups, self._grid = title, groups, grid
        columns = min(grid[1], _MAX_COLUMNS)
        rows = min(grid[0], _MAX_BOXES // columns)
        self._shown = rows, columns
        blocks = groups.blocks
        self._boxes = [[order[i * grid[1] + j] for j in range(columns)] for i in range(rows)]
        self._texts = [[set_text(blocks[block], _CELL) for block in row] for row in self._boxes]
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of boxes."""
        return self._grid

    def __repr__(self) -> str:
        rows, columns = self._grid
        return f"ShardingPicture[{self._title}: {rows} × {columns} boxes]"

    def __str__(self) -> str:
        width = max(len(text) for row in self._texts for text in row) + 2
        columns = self._shown[1]

        def line(left: str, middle: str, right: str) -> str:
            return left + middle.join(["─" * width] * columns) + right

        lines = [self._title, line("┌", "┬", "┐")]
        for i, row in enumerate(self._texts):
            if i:
                lines.append(line("├", "┼", "┤"))
            lines.append("│" + "│".join(text.center(width) for text in row) + "│")
        return "\n".join([*lines, line("└", "┴", "┘"), *self._others()])

    def _repr_html_(self) -> str:
        rows, columns = self._shown
        boxes = "".join(
            self._box(i, j, block) for i, row in enumerate(self._boxes) for j, block in enumerate(row)
        )
        others = "".join(f"<p>{escape(text)}</p>" for text in self._others())
        width, height = columns * _WIDTH, rows * _HEIGHT
        return (
            '<div style="font:13px/1.5 ui-monospace,monospace;overflow:auto">'
            f"<p><b>{escape(self._title)}</b></p><p>{strip_svg(self._groups)} "
            f'{escape(strip_text(self._groups))}</p><svg width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(self._title)}" '
            f'text-anchor="middle" fill="currentColor" style="font:12px ui-monospace,monospace">{boxes}</svg>'
            f"{others}</div>"
        )

    def _box(self, i: int, j: int, block: int) -> str:
        members = self._groups.blocks[block]
        number = i * self._grid[1] + j
        count = f"{len(members)} replica{'' if len(members) == 1 else 's'}"
        name = f"part {number}: {set_text(members, 3 * _CELL)}, {count}"
        x, y = j * _WIDTH, i * _HEIGHT
        return (
            f'<g><title>{name}</title><rect x="{x}" y="{y}" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" '
            f'{block_fill(block, self._groups.num_blocks)} fill-opacity=".45"/>'
            f'<text x="{x + _WIDTH // 2}" y="{y + 21}">{self._texts[i][j]}</text></g>'
        )

    def _others(self) -> list[str]:
        """Counts of what is not drawn."""
        names = zip(("row", "column"), self._grid, self._shown, strict=True)
        return [
            f"… {side - shown} more {name}{'' if side - shown == 1 else 's'}"
            for name, side, shown in names
            if side > shown
        ]


@public
def visualize_sharding(
    value: Variable | ReplicaGrouping | Partition, *, grid: tuple[int, int] | None = None
) -> ShardingPicture:
    """Draw the parts of a variable, with the replicas that hold each of them.

    As ``jax.debug.visualize_array_sharding`` draws an array: a box for each part. Each row of a variable's data is a
    part, held by one group of replicas. Of a replica-sharded variable each group is a row of boxes, one for each shard.

    Args:
        value: a variable; or groups, or replicas that agree.
        grid: rows and columns of boxes, which the groups fill row by row, for variables that hold parts of two axes of
            an array. Default: a row of boxes, or groups by shards.
    Raises:
        ArgumentTypeError: ``value`` is none of these, or ``grid`` is not two ints.
        ReplicaError: ``grid`` has more or fewer boxes than there are groups.
    """
    read_a("visualize_sharding: value", value, (Variable, ReplicaGrouping, Partition))
    groups = partition_of(value.replica_grouping if isinstance(value, Variable) else value)
    shards = shards_of(value) if isinstance(value, Variable) else 1
    title = _title(value, groups, shards)
    rows = groups.num_blocks if shards > 1 else 1
    groups, order = _split(groups, shards)
    sides = (rows, len(order) // rows) if grid is None else _grid(grid)
    if math.prod(sides) != groups.num_blocks:
        raise ReplicaError(
            f"visualize_sharding: grid does not hold the groups, got {sides[0]} × {sides[1]} boxes, "
            f"expected {groups.num_blocks}"
        )
    return ShardingPicture._of(title, groups, order, sides)


def _split(groups: Partition, shards: int) -> tuple[Partition, list[int]]:
    """The replicas that hold each shard of each group, whose members take shards in turn; the blocks by part."""
    parts = [block[shard::shards] for block in groups.blocks for shard in range(shards)]
    labels = [0] * groups.num_replicas
    for number, part in enumerate(parts):
        for replica in part:
            labels[replica] = number
    found = Partition.from_labels(labels)
    return found, [found.labels[part[0]] for part in parts]


def _grid(grid: object) -> tuple[int, int]:
    items = read_items("visualize_sharding", "grid", grid, kind="two ints")
    if len(items) != 2:
        raise ReplicaError(f"visualize_sharding: grid has {len(items)} sides, expected 2: rows and columns")
    rows, columns = (read_int("visualize_sharding: a side of grid", side, 1) for side in items)
    return rows, columns


def _title(value: Variable | ReplicaGrouping | Partition, groups: Partition, shards: int) -> str:
    parts = f"{groups.num_blocks} part{'' if groups.num_blocks == 1 else 's'}"
    if shards > 1:
        parts = f"{groups.num_blocks} group{'' if groups.num_blocks == 1 else 's'} × {shards} shards"
    if isinstance(value, Variable):
        return (
            f"{value.name}: {parts} of {value.dtype.name}{[*value.shape]} on {groups.num_replicas} replicas"
        )
    return f"{parts} on {groups.num_replicas} replicas"
