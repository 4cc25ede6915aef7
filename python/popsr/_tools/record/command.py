"""``python -m popsr diff``: the first difference between two recordings."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from popsr._support.text.annotations import Annotation
from popsr._support.text.answers import Answer, add_format, answer, parse
from popsr._tools.record.compare import Difference, diff

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Print the difference; returns 0 if there is none, 1 if there is one, 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(
        "python -m popsr diff",
        description="Compare two recordings of popsr.record, and print the first op with equal operands and other "
        "results, or the variable, stream, seed or op that differs. The exit status is 1 if they differ.",
    )
    parser.add_argument("a", help="a recording")
    parser.add_argument("b", help="another one")
    add_format(parser)
    options = parse("diff", parser, argv)
    return answer(
        "diff", options.format, lambda: _answer(options), lambda kind: f"{kind}, expected two recordings"
    )


def _answer(options: argparse.Namespace) -> Answer:
    found = diff(options.a, options.b)
    return Answer(
        1 if found else 0, lambda: str(found), lambda: dataclasses.asdict(found), lambda: _annotations(found)
    )


def _annotations(found: Difference) -> list[Annotation]:
    """The difference, at the op's line."""
    return [Annotation("difference", str(found).splitlines()[0], found.line)] if found else []
