"""The strips of a page, each drawn once."""

from __future__ import annotations

from html import escape

from popsr._support.text.replica_sets import strip_text
from popsr._support.text.strip import STRIP_HEIGHT, strip_parts
from popsr.replicas import Partition

__all__ = ["Strips"]

_WIDTH = 120


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
        label = escape(strip_text(groups))
        return (
            f'<svg class="strip" width="{_WIDTH}" height="{STRIP_HEIGHT}" role="img" aria-label="{label}">'
            f'<title>{label}</title><use href="#strip-{self.number(groups)}"/></svg>'
        )

    def definitions(self) -> str:
        """The drawings, not shown where they stand."""
        drawings = "".join(
            f'<g id="strip-{i}">{strip_parts(each, _WIDTH)}</g>' for each, i in self._numbers.items()
        )
        return (
            f'<svg class="definitions" aria-hidden="true" width="0" height="0"><defs>{drawings}</defs></svg>'
        )
