"""The form of a planted bug: a step whose text has a gap for one line, which is right or wrong."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Case", "Kind", "load"]

Kind = Literal[
    "forgotten collective",
    "doubled collective",
    "wrong axis",
    "wrong group",
    "rank-dependent branch",
    "rank-dependent seed",
    "rank-dependent data order",
    "state not synchronised",
    "cond on a varying predicate",
    "mean for sum",
    "wrong placement",
]


@dataclass(frozen=True)
class Case:
    """A step with a gap.

    Attributes:
        name: of the case, in words.
        kind: of the bug.
        text: the module of the step; ``{{}}`` stands for the line in question.
        right: the line as it should be.
        wrong: the line with the bug.
    """

    name: str
    kind: Kind
    text: str
    right: str
    wrong: str

    @property
    def line(self) -> int:
        """Number of the line in question."""
        lines = textwrap.dedent(self.text).strip().splitlines()
        return 1 + next(i for i, each in enumerate(lines) if "{{}}" in each)

    def file(self, variant: Literal["right", "wrong"]) -> str:
        """Name of the file that it is loaded as."""
        return f"/planted/{variant}/{self.name.replace(' ', '_')}.py"


def load(case: Case, variant: Literal["right", "wrong"], names: Mapping[str, Any]) -> dict[str, Any]:
    """Run the module with one of the lines, and return its names."""
    line = case.right if variant == "right" else case.wrong
    text = textwrap.dedent(case.text).strip().replace("{{}}", line) + "\n"
    file = case.file(variant)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    found = dict(names)
    exec(compile(text, file, "exec"), found)
    return found
