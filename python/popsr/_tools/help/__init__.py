"""A page for each error and each lint: ``python -m popsr help L2`` prints it, and the documentation shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import resources

from popsr import errors
from popsr._support.text.nearest import nearest

__all__ = ["LINTS", "main", "page"]

LINTS = ("L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11", "L12", "L13")


def page(name: str) -> str | None:
    """The page of a lint or of a class of ``popsr.errors``, as Markdown; None if there is no such page."""
    folder = "lints" if name in LINTS else "errors" if name in errors.__all__ else None
    if folder is None:
        return None
    return resources.files(__name__).joinpath(folder, f"{name}.md").read_text(encoding="utf-8")


def main(args: Sequence[str]) -> int:
    """Print the page of each name; returns the exit status."""
    status, names = 0, (*LINTS, *errors.__all__)
    for name in args:
        text = page(next((each for each in names if each.lower() == name.lower()), name))
        if text is None:
            expected = nearest(name, names) or f"one of {', '.join(names)}"
            print(f"popsr: no help on {name!r}, expected {expected}", file=sys.stderr)
            status = 2
        else:
            print(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text), end="")  # links have no target here
    return status
