"""docs/architecture.md and docs/glossary.md name what is there: paths, layers, walks, snippets, terms."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CORE = ROOT / "cpp" / "popsr"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
PATH = r"`((?:cpp|python|tests_cpp|tests_py|bench|examples|docs)/[\w./-]*)`"
# Walks, and the most files that one may meet.
WALKS = {
    "A tensor, from `variable` to `get_tensor_data`": 12,
    "A step of JAX, through `prove`": 20,
    "A seed of stochastic rounding": 15,
    "An op, from Python to its kernel": 12,
}


def section(title: str, level: int = 2) -> str:
    """The text under a heading, up to the next one of its level or above."""
    found = re.search(
        rf"^{'#' * level} {re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found[1]


def constant(file: str, name: str) -> Any:
    """A table of another file of the tests."""
    tree = ast.parse(next((ROOT / "tests_py").rglob(file)).read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    return next(ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == name)


def rows(title: str) -> dict[str, str]:
    """Of a table of layers or rooms: name -> those that it may include."""
    found = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .+ \| ([\w ]+|-) \|$", section(title), re.MULTILINE)
    return {name: below.strip("- ") for name, below in found}


def steps(text: str) -> list[tuple[str, str]]:
    """The numbered items of a list: the file that each begins with, and what it says."""
    items = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return [(found[1], item) for item in items if (found := re.match(PATH, item))]


# Files that the page lists for what is added, at most.
GOALS = {"element-wise op": 5, "reduction": 5, "collective": 6, "dtype": 12}

# Paths, layers, rooms


@pytest.mark.parametrize("text", [PAGE, GLOSSARY], ids=["architecture", "glossary"])
def test_paths_exist(text: str) -> None:
    missing = sorted({path for path in re.findall(PATH, text) if not (ROOT / path).exists()})
    assert missing == []


def test_layers_have_the_arrows_that_are_tested() -> None:
    table = rows("The C++ core")
    assert table.pop("bindings") == "everything"
    assert table == constant("test_codebase.py", "MAY_INCLUDE")


def test_rooms_have_the_arrows_that_are_tested() -> None:
    assert rows("The Python package") == constant("test_python_rooms.py", "MAY_IMPORT")


def test_layers_stand_above_those_that_they_include() -> None:
    picture = re.search(r"^```text\n(.*?)^```$", section("The C++ core"), re.MULTILINE | re.DOTALL)
    assert picture
    depth = {name: y for y, line in enumerate(picture[1].splitlines()) for name in line.split()}
    layers = constant("test_codebase.py", "MAY_INCLUDE")
    assert set(depth) == {*layers, "bindings"}
    assert depth["bindings"] < min(depth[layer] for layer in layers)
    for layer, below in layers.items():
        assert all(depth[layer] < depth[other] for other in below.split()), layer


def test_every_folder_is_described() -> None:
    folders = [str(folder.relative_to(CORE)) for folder in CORE.rglob("*") if folder.is_dir()]
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in section("The C++ core")] == []
    packages = [file.parent.name for file in (ROOT / "python" / "popsr").glob("*/__init__.py")]
    assert [name for name in sorted(packages) if f"`{name}/`" not in section("The Python package")] == []


# Walks


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short_and_names_what_is_in_its_files(title: str) -> None:
    walk = steps(section(title))
    assert len(walk) == len(re.findall(r"^\d+\. ", section(title), re.MULTILINE))
    assert len({file for file, _ in walk}) <= WALKS[title]
    for file, text in walk:
        names = [name for name in re.findall(r"`([^`]+)`", text) if name != file]
        assert names, text
        source = (ROOT / file).read_text()
        lost = [name for name in names if any(part not in source for part in re.split(r"::|\.", name))]
        assert not lost, f"{file} does not have {lost}"


# Adding


@pytest.mark.parametrize("kind", GOALS)
def test_a_list_of_files_is_as_short_as_its_goal(kind: str) -> None:
    article = "An" if kind[0] in "aeiou" else "A"
    files = steps(section(f"{article} {kind}", level=3))
    assert 4 < len(files) <= GOALS[kind]


def test_the_first_example_is_complete() -> None:
    """Each of the files has its snippet."""
    text = section("An element-wise op", level=3)
    snippets = re.findall(r"^\d+\. " + PATH + r".*?\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [file for file, _ in snippets] == [file for file, _ in steps(text)]
    for file, snippet in snippets:
        for piece in re.split(r"^// …\n", snippet, flags=re.MULTILINE):
            assert stands_in(piece, (ROOT / file).read_text()), f"{file} does not have:\n{piece}"


def stands_in(piece: str, source: str) -> bool:
    """True if the lines are in the source, one after another, however deep they are indented."""
    lines, wanted = source.splitlines(), piece.splitlines()
    candidates = ("\n".join(lines[i : i + len(wanted)]) for i in range(len(lines) - len(wanted) + 1))
    return any(textwrap.dedent(candidate) == "\n".join(wanted) for candidate in candidates)


def test_snippets_are_compared() -> None:
    assert stands_in("a\n  b\n", "  x\n  a\n    b\n")
    assert not stands_in("a\nb\n", "  a\n    b\n")
    assert not stands_in("a\n", "ab\n")


# Glossary


def terms() -> list[tuple[str, str]]:
    """Each term with its meaning."""
    return re.findall(r"^\| (?!term |---)(.+?) \| (.+?) \| .+ \|$", GLOSSARY, re.MULTILINE)


@cache
def sources() -> str:
    files = [*CORE.rglob("*.[hc]*"), *(ROOT / "python" / "popsr").rglob("*.py")]
    return "\n".join(file.read_text() for file in files)


def test_terms_are_in_order() -> None:
    names = [term.lower() for term, _ in terms()]
    assert names == sorted(set(names))
    assert len(names) > 40


@pytest.mark.parametrize(("term", "meaning"), terms())
def test_a_meaning_is_a_sentence_about_what_is_there(term: str, meaning: str) -> None:
    assert re.fullmatch(r"[A-Z0-9].*[^.]\.", meaning), meaning
    for name in re.findall(r"`([A-Za-z_]\w*)`", meaning):
        assert re.search(rf"\b{name}\b", sources()), name


def test_the_pages_are_linked() -> None:
    assert "(docs/architecture.md)" in (ROOT / "README.md").read_text()
    assert "(glossary.md)" in PAGE
    assert "(architecture.md)" in GLOSSARY
