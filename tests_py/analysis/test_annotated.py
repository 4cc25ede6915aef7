"""The reader of comments in programs: which lines they are about, and comments that it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests_py.analysis.annotated import Expectation, Program, programs

GOOD = """\
def program(ir):
    # lint L2, 4 bytes: one text
    #     that goes on, at @here and @second
    # drifts: w
    first = [

        # line: second
        ir,
    ]


def _helper(ir):
    # anything
    pass
"""

BAD = {
    "unknown kind": (GOOD.replace("drifts:", "drift:"), "unknown comment 'drift: w'"),
    "no text": (GOOD.replace("drifts: w", "drifts"), "unknown comment 'drifts'"),
    "last line": (GOOD.replace("    ]\n", "    ]\n    # drifts: v\n", 1), "nothing follows the comment"),
    "unknown line": (GOOD.replace("@second", "@third"), "third"),
}


def read(folder: Path, text: str) -> tuple[Program, ...]:
    path = folder / "annotated_program.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("annotated_program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return programs(module)


def test_comments_are_about_the_next_line(tmp_path: Path) -> None:
    [program] = read(tmp_path, GOOD)
    file = tmp_path / "annotated_program.py"
    assert program.expectations == (
        Expectation("lint", "L2, 4 bytes", f"one text that goes on, at {file}:5 and {file}:8", 5),
        Expectation("drifts", "", "w", 5),
        Expectation("line", "", "second", 8),
    )
    assert program.file == str(file)


@pytest.mark.parametrize("name", BAD)
def test_comments_that_nothing_checks_are_refused(name: str, tmp_path: Path) -> None:
    text, error = BAD[name]
    with pytest.raises((ValueError, KeyError), match=error):
        read(tmp_path, text)
