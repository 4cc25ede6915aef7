"""Files that an addition touches, counted in the history: ``python tests_py/repo/touched_files.py``.

A commit that adds one op, reduction, collective or dtype and nothing else says so in a trailer, such as
``Example: element-wise op``.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

GOALS = {"element-wise op": 5, "reduction": 5, "collective": 6, "dtype": 12}


@dataclass(frozen=True)
class Addition:
    """One line of the table."""

    kind: str
    subject: str
    files: tuple[str, ...]


def git(*arguments: str) -> str:
    """Output of a command of git about this checkout; RuntimeError without a history."""
    try:
        done = subprocess.run(("git", "-C", str(REPOSITORY), *arguments), capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(str(error)) from None
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def additions() -> list[Addition]:
    """Of the history, latest first."""
    found = []
    listed = git("log", "--grep", "^Example: ", "--format=%H%x09%s%x09%(trailers:key=Example,valueonly)")
    for line in filter(None, listed.splitlines()):
        commit, subject, kind = line.split("\t")
        files = git("show", "--format=", "--name-only", commit).split()
        found.append(Addition(kind, subject, tuple(files)))
    return found


def main() -> None:
    """Print the table."""
    rows = [(a.kind, a.subject, str(len(a.files)), str(GOALS.get(a.kind, "-"))) for a in additions()]
    table = [("kind", "commit", "files", "goal"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
