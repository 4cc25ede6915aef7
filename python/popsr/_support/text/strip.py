"""The strip: a partition of the replicas as one small bar, whose parts tell their blocks when pointed at.

Replicas go from left to right. Blocks have colours from blue to ochre in their order, so a stride shows as a
repetition. One block is one calm bar; where no two replicas agree, the bar is a grey comb. Regular partitions whose
replicas are narrower than the eye can tell apart are drawn as teeth that repeat as the blocks do, but not to scale.
Stated colours and opacities work on light and dark pages; there is no script, and no name that could clash in a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

from popsr._support.text.replica_sets import Axis, axes_of, partition_of, set_text, strip_text

if TYPE_CHECKING:
    from popsr._core import Partition, ReplicaGrouping

__all__ = ["STRIP_HEIGHT", "block_fill", "strip_parts", "strip_svg"]

STRIP_HEIGHT = 12
_RUNS = 160  # rectangles; of an irregular partition with more runs, stretches of replicas are drawn
_NARROW = 2.5  # pixels: narrower parts are drawn as teeth
_PITCH = 3.0  # pixels from tooth to tooth
_SHADES = 12  # colours of the teeth of one part
_EXACT = 3000  # characters of sets that are written in full
_CUT = 60
_GREY = 'fill="currentColor" fill-opacity=".45"'


def strip_svg(
    groups: Partition | ReplicaGrouping,
    *,
    ranks: Sequence[int] | None = None,
    width: int = 240,
    title: str | None = None,
) -> str:
    """An inline SVG of a partition.

    Args:
        groups: the partition, or a grouping.
        ranks: the number of replicas of each MPI rank, in order: a line below the bar for each of them.
        width: in pixels.
        title: a text before the partition's own, which the whole bar tells when pointed at.
    """
    partition = partition_of(groups)
    text = strip_text(partition)
    label = escape(f"{title}: {text}" if title else text)
    height = STRIP_HEIGHT + (4 if ranks else 0)
    body = strip_parts(partition, width)
    lines = "".join(_ranks(ranks, partition.num_replicas, width)) if ranks else ""
    return (
        f'<svg class="strip" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}" style="vertical-align:middle">'
        f"<title>{label}</title>{body}{lines}</svg>"
    )


def strip_parts(partition: Partition, width: int) -> str:
    """The shapes of a bar, for an SVG of that width and of the height ``STRIP_HEIGHT``."""
    return "".join(_Drawing(partition, width).parts())


class _Drawing:
    """The parts of a bar."""

    def __init__(self, partition: Partition, width: float) -> None:
        self._partition, self._labels = partition, partition.labels
        self._blocks = partition.num_blocks
        self._width, self._across = width, width / partition.num_replicas
        self._comb = self._blocks == partition.num_replicas > 1

    def parts(self) -> Iterator[str]:
        """Blocks, if their replicas can be told apart; otherwise stretches of the bar."""
        runs = [(label, len(list(run))) for label, run in groupby(self._labels)]
        narrowest = self._across * min(size for _, size in runs)
        if len(runs) <= _RUNS and (narrowest >= _NARROW or axes_of(self._labels) is None):
            yield from self._whole_blocks(runs)
        elif axes := axes_of(self._labels):
            yield from self._regular(0, self._labels, axes)
        else:
            yield from self._stretches()

    def _whole_blocks(self, runs: Sequence[tuple[int, int]]) -> Iterator[str]:
        """A shape for each block, of a rectangle for each run of its replicas."""
        paths: dict[int, list[str]] = {}
        ends = [*accumulate(size for _, size in runs)]
        for (label, size), end in zip(runs, ends, strict=True):
            paths.setdefault(label, []).append(self._rectangle(end - size, size))
        blocks = self._partition.blocks
        texts = [set_text(block) for block in blocks]
        if sum(map(len, texts)) > _EXACT:
            texts = [set_text(block, _CUT) for block in blocks]
        comb = self._comb
        yield f"<g {_GREY}>" if comb else ""
        for label, path in paths.items():
            size = len(blocks[label])
            name = f"block {label + 1} of {self._blocks}: {texts[label]}, {_replicas(size)}"
            fill = "" if comb else f" {self._fill(label)}"
            yield f'<path d="{"".join(path)}"{fill}><title>{name}</title></path>'
        yield "</g>" if comb else ""

    def _regular(self, first: int, labels: Sequence[int], axes: Sequence[Axis]) -> Iterator[str]:
        """The rows of the mesh one after the other, each drawn in the same way; narrow ones as teeth."""
        *inner, axis = axes
        if inner and len(labels) // axis.size * self._across >= 4 * _PITCH:
            size = len(labels) // axis.size
            for start in range(0, len(labels), size):
                yield from self._regular(first + start, labels[start : start + size], inner)
            return
        if axis.equal and not inner:
            block = self._partition.blocks[labels[0]]
            name = (
                f"block {labels[0] + 1} of {self._blocks}: {set_text(block, _CUT)}, {_replicas(len(block))}"
            )
            path = self._rectangle(first, len(labels))
            yield f'<path d="{path}" {self._fill(labels[0])}><title>{name}</title></path>'
            return
        # Blocks in the order in which the teeth show them: once, or again and again.
        shown = list(dict.fromkeys(labels))
        yield self._teeth(first, labels, shown, repeated=axis.equal)

    def _teeth(self, first: int, labels: Sequence[int], shown: Sequence[int], *, repeated: bool) -> str:
        begin, across = first * self._across, len(labels) * self._across
        count = max(2, int(across / _PITCH))
        cycle = min(len(shown), _SHADES, count // 2 if repeated else count)
        paths: dict[int, list[str]] = {}
        for i in range(count):
            step = i % cycle if repeated else i * cycle // count
            label = shown[step * len(shown) // cycle]
            paths.setdefault(label, []).append(
                f"M{_number(begin + i * across / count)} 0h{_number(0.65 * across / count)}v{STRIP_HEIGHT}"
                f"h-{_number(0.65 * across / count)}z"
            )
        teeth = "".join(f'<path d="{"".join(path)}" {self._fill(label)}/>' for label, path in paths.items())
        last = first + len(labels) - 1
        name = f"replicas {first} to {last}: {len(shown)} blocks, {self._some(shown)}"
        return f"<g><title>{name}</title>{teeth}</g>"

    def _some(self, labels: Sequence[int]) -> str:
        blocks = self._partition.blocks
        return "".join(set_text(blocks[label], _CUT) for label in labels[:3]) + ("…" * (len(labels) > 3))

    def _stretches(self) -> Iterator[str]:
        """Equal stretches of replicas: of one block, or of so many."""
        stretches = min(_RUNS, max(1, int(self._width / _PITCH)))
        bounds = [i * len(self._labels) // stretches for i in range(stretches + 1)]
        for begin, end in pairwise(bounds):
            labels = self._labels[begin:end]
            shown = list(dict.fromkeys(labels))
            blocks = f"{len(shown)} block{'' if len(shown) == 1 else 's'}"
            name = f"replicas {begin} to {end - 1}: {blocks}"
            yield (
                f'<path d="{self._rectangle(begin, end - begin)}" {self._fill(shown[0])}>'
                f"<title>{name}</title></path>"
            )

    def _rectangle(self, first: int, count: int) -> str:
        """Apart from its neighbour, where there is space; of single replicas that all differ a tooth."""
        across = count * self._across
        gap = across * 0.4 if self._comb else 1 if across >= 4 else across * 0.2
        if self._blocks == 1:
            gap = 0
        wide = _number(min(across - gap, STRIP_HEIGHT) if self._comb else across - gap)
        return f"M{_number(first * self._across)} 0h{wide}v{STRIP_HEIGHT}h-{wide}z"

    def _fill(self, label: int) -> str:
        return _GREY if self._comb else block_fill(label, self._blocks)


def block_fill(block: int, blocks: int) -> str:
    """The attribute of a block's colour: neighbours have unlike lightness."""
    if blocks == 1:
        return 'fill="hsl(215 30% 58%)"'
    return f'fill="hsl({215 - 180 * block / (blocks - 1):.0f} 45% {(50, 62)[block % 2]}%)"'


def _ranks(ranks: Sequence[int], replicas: int, width: float) -> Iterator[str]:
    """A line below the replicas of each rank."""
    first = 0
    for rank, count in enumerate(ranks):
        begin, across = first * width / replicas, count * width / replicas
        yield (
            f'<path d="M{_number(begin)} {STRIP_HEIGHT + 2}h{_number(max(across - 1, 0.5))}v2h-'
            f'{_number(max(across - 1, 0.5))}z" fill="currentColor" fill-opacity=".6">'
            f"<title>rank {rank}: {set_text(range(first, first + count))}, {_replicas(count)}</title></path>"
        )
        first += count


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"
