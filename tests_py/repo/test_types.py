"""Programs of users pass ``mypy --strict``: README's, the documentation's, the examples; wrong ones do not.

A line of a file in ``typed/`` that ends in ``# E: code: text`` has that error, with the text in its message.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import site
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests_py import ROOT
from tests_py.repo import option_attributes
from tests_py.repo.documentation import test_docs, test_docs_site, test_readme

pytest.importorskip("mypy")

TYPED = sorted((ROOT / "tests_py/repo/typed").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXPECTED = re.compile(r"# E: (?P<code>[\w-]+): (?P<text>.+)$")
FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[\w-]+)\]$")
# PopXL's names are made when a program runs.
WITHOUT_TYPES = re.compile(r"\b(popxl\w*|popart|poptorch|popdist)\b")
CONFIG = """\
[mypy]
strict = True
[mypy-sklearn.*,matplotlib.*,safetensors.*,onnx.*,optax.*,orbax.*]
ignore_missing_imports = True
"""
# Cells of notebooks are short of annotations, as cells are.
NOTEBOOK = "# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls\n"
# Steps of other frameworks, whose own functions have no types, are written as their users write them.
FRAMEWORKS = {"jax", "orbax", "torch"}
# Its stand-in of a library makes constructors that mypy does not see.
UNCHECKED = {"cells_prove_equinox"}


class Error(NamedTuple):
    line: int
    code: str
    text: str


def imports(program: str) -> set[str]:
    return set(re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE))


def documented() -> Iterator[tuple[str, str]]:
    """The programs of the pages, which other tests run, and the cells of each notebook."""
    for i, (program, _) in enumerate(test_readme.PROGRAMS):
        yield f"readme_{i}", program
    for parameters in (*test_docs.PROGRAMS, *test_docs_site.programs()):
        program = parameters.values[0]
        assert isinstance(program, str)
        yield str(parameters.id).replace("-", "_"), program
    for page in test_docs_site.NOTEBOOKS:
        cells = test_docs_site.CELL.findall(page.read_text())
        yield (
            f"cells_{page.stem}",
            "\n".join([NOTEBOOK, *(cell for cell in cells if not cell.startswith("%%"))]),
        )


def checked() -> Iterator[tuple[str, str]]:
    """Programs with types, without the pages about errors, which are wrong on purpose."""
    for name, program in documented():
        own = "popsr" in imports(program) and not WITHOUT_TYPES.search(program)
        if own and name not in UNCHECKED and not name.partition("_")[0].endswith("Error"):
            yield name, NOTEBOOK + program if FRAMEWORKS & imports(program) else program


def is_installed(file: Path) -> bool:
    library = file.stem.partition("_")[0]
    return library not in ("torch", "jax") or importlib.util.find_spec(library) is not None


PROGRAMS = dict(checked())


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Error]]:
    """mypy's output for all programs, in one process, by the names of their files.

    Workers of one run share it: with PyTorch's types it takes a minute.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "types"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output = folder / "output.txt"
        if not output.exists():
            output.write_text(checked_by_mypy(folder))
    by_file: dict[str, list[Error]] = defaultdict(list)
    for line in output.read_text().splitlines():
        match = FOUND.match(line)
        if match:
            by_file[Path(match["file"]).stem].append(Error(int(match["line"]), match["code"], match["text"]))
        else:
            assert ": note: " in line, line
    return by_file


def checked_by_mypy(folder: Path) -> str:
    (folder / "mypy.ini").write_text(CONFIG)
    files = [*EXAMPLES, *filter(is_installed, TYPED)]
    for name, program in PROGRAMS.items():
        files.append(folder / f"{name}.py")
        files[-1].write_text(program)
    options = ("--config-file", "mypy.ini", "--scripts-are-modules", "--no-error-summary", "--no-pretty")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", "cache", *map(str, files)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **search_path()},
        timeout=600,
    )
    assert not result.stderr, result.stderr
    return result.stdout


def search_path() -> dict[str, str]:
    """The folder in which mypy finds popsr, unless it is installed: mypy refuses folders that it searches anyway."""
    [path] = importlib.util.find_spec("popsr").submodule_search_locations  # type: ignore[union-attr,misc]
    folder = str(Path(path).parent)
    return {} if folder in site.getsitepackages() else {"MYPYPATH": folder}


@pytest.mark.parametrize("name", [*PROGRAMS, *(file.stem for file in EXAMPLES)])
def test_programs_have_no_errors_of_types(name: str, errors: dict[str, list[Error]]) -> None:
    for package in ("torch", "jax"):
        if package in imports(PROGRAMS.get(name, "")):
            pytest.importorskip(package)
    assert errors.get(name, []) == []


@pytest.mark.parametrize("file", TYPED, ids=lambda file: file.stem)
def test_wrong_lines_have_the_errors_that_they_say(file: Path, errors: dict[str, list[Error]]) -> None:
    if not is_installed(file):
        pytest.skip(f"needs {file.stem.partition('_')[0]}")
    wrong = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        expected = EXPECTED.search(line)
        here = [error for error in errors.get(file.stem, []) if error.line == number]
        fits = [e for e in here if expected and e.code == expected["code"] and expected["text"] in e.text]
        if bool(fits) != bool(expected) or len(here) > 2 * len(fits):
            wrong.append(f"{file.name}:{number}: got {here}, expected {expected and expected[0]}")
    assert not wrong, "\n".join(wrong)


def test_there_are_programs() -> None:
    assert len(PROGRAMS) > 25
    lines = [line for file in TYPED for line in file.read_text().splitlines()]
    assert sum(EXPECTED.search(line) is not None for line in lines) > 50


def test_types_of_options_follow_from_the_table() -> None:
    assert option_attributes.FILE.read_text() == option_attributes.text()
