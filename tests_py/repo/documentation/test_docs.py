"""The pages in docs/ print what they show."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests_py import ROOT
from tests_py.support.forked import run_program
from tests_py.support.needed import need_packages

DOCS = ROOT / "docs"
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(program, shown, id=f"{page.stem}-{i}")
    for page in sorted(DOCS.glob("*.md"))
    for i, (program, shown) in enumerate(PROGRAM.findall(page.read_text()))
]


@pytest.mark.parametrize(("program", "shown"), PROGRAMS)
def test_programs_print_what_is_shown(program: Any, shown: Any, tmp_path: Path) -> None:
    need_packages(program)
    (tmp_path / "program.py").write_text(program)
    result = run_program(tmp_path, "-W", "error")
    assert result.returncode == 0, result.stderr
    assert result.stdout.replace(f"{tmp_path}/", "") == shown


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 4
