"""Files that the latest new ops are spelt in, counted in the history: ``python tests_py/repo/touched_files.py``.

The registry of today names the ops. The commit that adds one is the first in which a definition below
``cpp/popsr/ops`` has its name; the files whose new lines spell it in that commit, however they write names, are those
that whoever adds such an op has to know of. Files that were there before are what counts: new ones hold the op itself.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import popsr._core as core

REPOSITORY = Path(__file__).resolve().parents[2]
DEFINITIONS = "cpp/popsr/ops"
# An op is complete with these; other tests, documentation and what reads programs of frameworks are further reach.
COUNTED = ("cpp/popsr", "python/popsr/ops", "tests_py/ops/rows", "tests_cpp/herbrand", "tests_cpp/support")
COMMITS = 10
GOAL = 6  # at most as many files that were there before


@dataclass(frozen=True)
class Addition:
    """An op, and the files in which the commit that added it spells it."""

    op: str
    commit: str
    subject: str
    edited: tuple[str, ...]
    new: tuple[str, ...]


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
    """The ops that the latest commits of those that add ops added, oldest first; RuntimeError if there are fewer."""
    ops = frozenset(schema["name"] for schema in core.op_schemas() if not schema["internal"])
    added: dict[tuple[str, str], list[str]] = {}
    for commit, subject, op in first_definitions(ops):
        added.setdefault((commit, subject), []).append(op)
    if len(added) < COMMITS:
        raise RuntimeError(f"got {len(added)} commits that add ops, expected {COMMITS}")
    found = []
    for (commit, subject), names in list(added.items())[-COMMITS:]:
        words = new_words(commit)
        is_new = set(git("show", "--format=", "--name-only", "--diff-filter=A", "-M", commit).split())
        for op in names:
            files = [file for file, spelt in words.items() if file.startswith(COUNTED) and says(spelt, op)]
            edited = tuple(file for file in files if file not in is_new)
            found.append(
                Addition(op, commit, subject, edited, tuple(file for file in files if file in is_new))
            )
    return found


def first_definitions(ops: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Commit, subject and op, for the first commit in which a definition has the op's name, oldest first."""
    log = git("log", "--reverse", "-p", "-U0", "--no-color", "--format=%x00%h%x09%s", "--", DEFINITIONS)
    seen = set()
    for block in log.split("\0")[1:]:
        head, _, patch = block.partition("\n")
        commit, subject = head.split("\t", maxsplit=1)
        lines = "\n".join(line for line in patch.splitlines() if line.startswith("+"))
        for op in dict.fromkeys(re.findall(r'"([a-z]\w+)"', lines)):
            if op in ops and op not in seen:
                seen.add(op)
                yield commit, subject, op


def new_words(commit: str) -> dict[str, set[tuple[str, ...]]]:
    """The identifiers in the new lines of each file of a commit, in parts; comments do not count."""
    words: dict[str, set[tuple[str, ...]]] = {}
    spelt: set[tuple[str, ...]] = set()
    for line in git("show", "-U0", "--format=", "--no-color", "-M", commit).splitlines():
        if line.startswith("+++ b/"):
            spelt = words.setdefault(line.removeprefix("+++ b/"), set())
        elif line.startswith("+"):
            spelt |= {parts(word) for word in re.findall(r"\w+", re.split(r"//|# ", line)[0])}
    return words


def parts(word: str) -> tuple[str, ...]:
    """The parts of an identifier: ``kMatmulInteger`` and ``matmul_integer`` have two that are alike."""
    return tuple(part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", word))


def says(words: set[tuple[str, ...]], op: str) -> bool:
    """True if an identifier is the op's name, or has one letter or one word beside it, as ``kErf`` and ``erf_grad``."""
    wanted = parts(op)
    return any(len(word) <= len(wanted) + 1 and wanted in (word[: len(wanted)], word[1:]) for word in words)


def main() -> None:
    """Print the files of each op, and how many ops edited how many files that were there."""
    found = additions()
    for addition in found:
        print(f"{addition.commit}  {addition.op}: {len(addition.edited)} edited, {len(addition.new)} new")
        for mark, files in (("  ", addition.edited), ("+ ", addition.new)):
            for file in files:
                print(f"    {mark}{file}")
    print("files edited: ops", dict(sorted(Counter(len(addition.edited) for addition in found).items())))


if __name__ == "__main__":
    main()
