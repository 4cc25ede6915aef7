"""The order of search results: the function of that name first, then pages whose titles have the word, then the rest.

Sphinx's search gives each name of the reference the points of its level, which ``scorer.js`` lists: of two
names with one last part, the shorter path is first, and a function before a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.domains.python import PythonDomain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

__all__ = ["MEMBER", "OLD", "RankedDomain", "level", "setup"]

MEMBER, OLD = 10, 11  # methods and attributes; names of PopXL and PopART


def level(path: str, kind: str) -> int:
    """The level of a name; ``kind`` is Sphinx's type of object."""
    if kind not in ("function", "class", "exception", "data"):
        return MEMBER
    return (
        OLD
        if path.startswith("popsr.compat.")
        else min(2 * path.count(".") + (kind != "function"), MEMBER - 1)
    )


class RankedDomain(PythonDomain):
    """Python's domain, with levels as priorities."""

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Names with the levels of those that the search shows."""
        for path, shown, kind, page, anchor, priority in super().get_objects():
            yield path, shown, kind, page, anchor, level(path, kind) if priority >= 0 else priority


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.setup_extension("sphinx.domains.python")
    app.add_domain(RankedDomain, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
