"""README.md says what is so: its programs run and print what it shows, its commands and folders exist."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests_py import ROOT
from tests_py.support.forked import run_program
from tests_py.support.needed import need_packages

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
# Each with the text block that is the next one, if it is: what else the program shows.
PROGRAMS = [
    (text, after if kind == "text" else "")
    for (first, text), (kind, after) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True)
    if first == "python"
]
COMMANDS = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]


@pytest.mark.parametrize(
    ("program", "text"), PROGRAMS, ids=[text.strip().splitlines()[0][:40] for text, _ in PROGRAMS]
)
def test_programs_run_and_print_what_their_comments_say(program: Any, text: Any, tmp_path: Path) -> None:
    """A comment after ``print(...)`` is the line it prints; a warning is an error unless the text shows it."""
    need_packages(program)
    (tmp_path / "program.py").write_text(program)
    strict = () if "Warning" in text else ("-W", "error")
    result = run_program(tmp_path, *strict)
    assert result.returncode == 0, result.stderr
    shown = re.findall(r"^\s*print\(.*\)  # (.+)$", program, re.MULTILINE)
    output = f"{result.stdout}\n{result.stderr}".replace(f"{tmp_path}/", "")
    assert [line for line in output.splitlines() if line.strip()] == [*shown, *text.splitlines()]


def test_there_is_a_program() -> None:
    assert PROGRAMS


def test_ci_runs_the_test_command() -> None:
    [command] = [line for line in COMMANDS if line.startswith("python3 -m venv") and "nox" in line]
    lines = (ROOT / ".ci/run").read_text().splitlines()
    before = lines[lines.index(command) - 1]
    assert before == "env -u CI bash <<'README'"  # as a newcomer's, and its failure ends the script
    assert not [line for line in lines if re.search(r"export.*\bCI=", line)]


def test_nox_sessions_exist() -> None:
    defined = re.findall(r"@nox\.session(?:\(.*\))?\ndef (\w+)", (ROOT / "noxfile.py").read_text())
    assert set(re.findall(r"nox -s (\w+)", README)) <= set(defined)


def test_files_and_folders_exist() -> None:
    for name in set(re.findall(r"`((?:cpp|python|tests_py|tests_cpp|bench|examples)/[\w./]*)`", README)):
        assert (ROOT / name).exists(), name
