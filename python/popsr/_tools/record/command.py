"""``python -m popsr diff``: the first difference between two recordings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from popsr._tools.record.compare import diff
from popsr.errors import Error

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
    options = parser.parse_args(argv)
    try:
        found = diff(options.a, options.b)
    except Error as error:
        print(f"popsr: {error}", file=sys.stderr)
        return 2
    print(found)
    return 1 if found else 0
