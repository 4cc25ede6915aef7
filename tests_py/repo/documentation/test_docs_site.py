"""The documentation site: its programs run, it has a page for each error, lint and public name, README leads to it."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import popsr
from popsr import __main__ as command
from popsr import errors
from popsr._tools import help as _help
from tests_py.support.forked import run_program
from tests_py.support.needed import need_packages

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
HELP = Path(_help.__file__).parent
README = (ROOT / "README.md").read_text()
PROGRAM = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?$", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for folder in (DOCS / "howto", HELP, DOCS)
    for page in sorted(folder.glob("*.md") if folder == DOCS else folder.rglob("*.md"))
]
NOTEBOOKS = [page for page in sorted(DOCS.rglob("*.md")) if CELL.search(page.read_text())]


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    """Sphinx's extension, which needs no Sphinx to tell what the pages are; it imports all public modules."""
    pytest.importorskip("onnx")
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        yield importlib.import_module("reference")
    finally:
        sys.path.remove(str(DOCS / "_ext"))


def run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "program.py").write_text(program)
    return run_program(folder, "-W", "error", env={"MPLBACKEND": "agg"})


def programs() -> Iterator[Any]:
    """Each program with the text that stands below it; pages directly in docs/ are tested in test_docs.py."""
    for page in PAGES:
        if page.parent != DOCS:
            for i, (program, shown) in enumerate(PROGRAM.findall(page.read_text())):
                yield pytest.param(program, shown, id=f"{page.stem}-{i}")


@pytest.mark.parametrize(("program", "shown"), list(programs()))
def test_programs_print_what_is_shown(program: str, shown: str, tmp_path: Path) -> None:
    need_packages(program)
    result = run(program, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.replace(f"{tmp_path}/", "") == shown


def notebooks() -> Iterator[Any]:
    """Tutorials; the nightly tests have those of PyTorch's steps, which take long and run when the site is built."""
    for page in NOTEBOOKS:
        slow = re.search(r"^import torch\.distributed\b", page.read_text(), re.MULTILINE)
        yield pytest.param(page, id=page.stem, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("page", list(notebooks()))
def test_cells_run(page: Path, tmp_path: Path) -> None:
    """The site's build executes them in Jupyter and shows what they print."""
    lines = []
    need_packages(page.read_text())
    for cell in CELL.findall(page.read_text()):
        file = re.match(r"%%writefile (\S+)\n", cell)
        if file:
            cell = f"import pathlib\npathlib.Path({file[1]!r}).write_text({cell[file.end() :]!r})\n"
        lines.append(cell)
    result = run("\n".join(lines), tmp_path)
    assert result.returncode == 0, result.stderr


def test_there_are_eleven_tutorials() -> None:
    tutorials = [page for page in NOTEBOOKS if page.parent.name == "tutorials"]
    assert len(tutorials) == 11


# Errors and lints


def test_each_error_and_each_lint_has_a_page() -> None:
    assert {file.stem for file in (HELP / "errors").iterdir()} == set(errors.__all__)
    assert {file.stem for file in (HELP / "lints").iterdir()} == set(_help.LINTS)
    table = re.findall(r"^ +(L\d+) ", popsr.analysis.PartitionAnalysis.warnings.__doc__ or "", re.MULTILINE)
    assert tuple(table) == _help.LINTS


@pytest.mark.parametrize("name", [*_help.LINTS, *errors.__all__])
def test_pages_name_their_error_and_show_it(name: str) -> None:
    text = _help.page(name)
    assert text is not None
    heading = text.splitlines()[0]
    assert heading.startswith(f"# {name}: " if name in _help.LINTS else f"# {name}")
    if name in _help.LINTS:
        assert "\n**Cost**: " in text
        assert "\n## Fix\n" in text
    shown = "".join(after for _, after in PROGRAM.findall(text))
    if name in _help.LINTS and name != "L9":  # all ops declare a rule
        assert name in shown or "drifts" in shown
    if name not in (
        "InterpreterError",
        "RankError",
        "L9",
    ):  # another interpreter, several processes, an op in C++
        assert shown


def test_help_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["help", "L2", "ShapeError"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# L2: a variable drifts")
    assert "\n# ShapeError\n" in out
    assert "](" not in out.split("```")[0]


def test_help_on_an_unknown_name_lists_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["help", "ShapeErrr"]) == 2
    assert capsys.readouterr().err == "popsr: no help on 'ShapeErrr', expected 'ShapeError'\n"
    assert command.main(["help", "nonsense"]) == 2
    assert "one of L1, L2, " in capsys.readouterr().err


def test_help_without_a_name_is_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["help"]) == 0
    assert "help NAME ..." in capsys.readouterr().out


# Reference


def test_reference_describes_every_public_name(reference: Any) -> None:
    """Each name of each public module is described once, maybe under a shorter path."""
    pages = reference.pages()
    described = [entry.path for page in pages.values() for entry in page.entries]
    assert len(described) == len(set(described))
    values = [entry.value for page in pages.values() for entry in page.entries]
    for module, name, value in reference.public_names():
        assert f"{module}.{name}" in described or any(value is each for each in values), f"{module}.{name}"


@pytest.mark.parametrize("name", [name for name in popsr.__all__ if not name.startswith("_")])
def test_names_of_the_package_are_described_as_such(name: str, reference: Any) -> None:
    """``popsr.Ir`` is described as ``popsr.Ir``; submodules have pages of their own."""
    pages = reference.pages()
    described = {entry.path for page in pages.values() for entry in page.entries}
    assert f"popsr.{name}" in described or any(module.startswith(f"popsr.{name}") for module in pages)


SIGNATURES = {  # autodoc reads the others, and their defaults, from their source
    "sub_": "(w: Any, u: Any, *, key: Key = REQUIRED, alpha: float = 1.0, dtype: Any = None, mode: Mode = 'sr', "
    "overflow: Overflow = 'ieee', offset: int = 0, num_threads: int | None = None) -> Any",
    "add": "",
    "Key": "",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_with_keywords_of_other_functions_are_written_out(name: str, reference: Any) -> None:
    entry = reference.Entry(f"popsr.sr.{name}", getattr(popsr.sr, name))
    assert reference._directive(entry)[0].partition("popsr.sr.")[2] == f"{name}{SIGNATURES[name]}"


def test_every_page_belongs_to_a_section(reference: Any) -> None:
    titles = {title for _, title in reference.ORDER}
    assert titles == {title for _, title in reference.SECTIONS}


# The site


def test_every_page_is_in_a_table_of_contents() -> None:
    listed: set[Path] = set()
    for page in DOCS.rglob("*.md"):
        for body in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            names = [line for line in body.split("\n") if line and not line.startswith(":")]
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    built = {DOCS / "reference/generated", DOCS / "help"}
    pages = {page for page in DOCS.rglob("*.md") if not any(folder in page.parents for folder in built)}
    assert {page.relative_to(DOCS) for page in pages - listed} == {Path("index.md"), Path("ops.md")}


def test_links_of_pages_lead_to_pages() -> None:
    """Pages that the build writes are named by their source."""
    built = {
        "reference/generated/index.md": DOCS / "_ext/reference.py",
        "reference/generated/ops.md": DOCS / "ops.md",
    }
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        for link in re.findall(r"\]\(((?!http)[^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            target = os.path.normpath(page.parent / link)
            name = os.path.relpath(target, DOCS)
            if name.startswith("help/"):
                name = name.removeprefix("help/").removesuffix(".md")
                assert name == "index" or _help.page(Path(name).name), f"{page}: {link}"
            elif page.parent.parent != DOCS / "help" and "generated" not in page.parts:
                assert built.get(name, Path(target)).exists(), f"{page}: {link}"


def test_docs_name_files_that_exist() -> None:
    path = re.compile(r"`((?:cpp|python|tests_py|tests_cpp|bench|examples)/[\w./]*)`")
    for page in ("development.md", "howto/training.md"):
        for name in set(path.findall((DOCS / page).read_text())):
            assert (ROOT / name).exists(), f"{page}: {name}"


def test_commands_of_nox_exist() -> None:
    defined = set(re.findall(r"@nox\.session(?:\(.*\))?\ndef (\w+)", (ROOT / "noxfile.py").read_text()))
    for page in DOCS.rglob("*.md"):
        for names in re.findall(r"nox -s ((?:\w+ ?)+)", page.read_text()):
            assert set(names.split()[:1]) <= defined, page


def test_readme_is_short() -> None:
    assert README.count("\n") <= 195


def test_picture_shows_what_the_program_of_readme_prints() -> None:
    shown = re.findall(r"^\s*print\(.*\)  # (\w+: \{.*\})$", README, re.MULTILINE)
    assert len(shown) == 3
    picture = (DOCS / "_static/partition.svg").read_text()
    assert [line for line in shown if f">{line}<" not in picture] == []
