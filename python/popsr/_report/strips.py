"""Strips: partitions as small bars, a segment for replicas next to each other that agree; each drawn once in a page."""

from __future__ import annotations

import itertools
from html import escape

from popsr._report.amounts import groups_text
from popsr.replicas import Partition

__all__ = ["Strips"]

_WIDTH, _HEIGHT = 120, 12
_MAX_SEGMENTS = 120  # more cannot be told apart: then the first replica of each shows
_MAX_LABEL = 200


class Strips:
    """Drawings that the rows of a page refer to by number."""

    def __init__(self) -> None:
        """None yet."""
        self._numbers: dict[Partition, int] = {}

    def number(self, groups: Partition) -> int:
        """Of the drawing."""
        return self._numbers.setdefault(groups, len(self._numbers))

    def use(self, groups: Partition) -> str:
        """HTML that shows it, with a text for those who do not see it."""
        text = str(groups)
        label = escape(text if len(text) <= _MAX_LABEL else groups_text(groups))
        return (
            f'<svg class="strip" width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label}">'
            f'<title>{label}</title><use href="#strip-{self.number(groups)}"/></svg>'
        )

    def definitions(self) -> str:
        """The drawings, not shown where they stand."""
        drawings = "".join(f'<g id="strip-{i}">{_drawing(each)}</g>' for each, i in self._numbers.items())
        return (
            f'<svg class="definitions" aria-hidden="true" width="0" height="0"><defs>{drawings}</defs></svg>'
        )


def _drawing(groups: Partition) -> str:
    """A rectangle for each run of replicas of one block, each block in a colour of its own, none of them red."""
    labels = groups.labels
    step = max(1, -(-len(labels) // _MAX_SEGMENTS))
    shown = labels[::step]
    across = _WIDTH / len(shown)
    gap = 1 if across >= 4 else 0
    parts, begin = [], 0
    for label, run in itertools.groupby(shown):
        end = begin + len(list(run))
        parts.append(
            f'<rect fill="{_colour(label, groups.num_blocks)}" x="{begin * across:.4g}" '
            f'width="{(end - begin) * across - gap:.4g}" height="{_HEIGHT}"/>'
        )
        begin = end
    return "".join(parts)


def _colour(label: int, blocks: int) -> str:
    """From green over blue to violet, neighbours of unlike lightness: readable on light and dark pages."""
    return f"hsl({160 + 150 * label / max(blocks, 4):.4g} 32% {(46, 66)[label % 2]}%)"
