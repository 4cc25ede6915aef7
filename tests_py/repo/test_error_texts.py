"""Each error that says what it got says what is expected, or what is missing: a way out for who reads it."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests_py import ROOT

GOT = re.compile(r"\bgot\b")
WAY_OUT = re.compile(
    r"\bexpected\b|\bmust be\b|\bmissing\b"  # said in so many words
    r"|\bnot an? [\w{]|\bnot [A-Z]|\bare not \w|\bneither\b"  # "not a Graph, got 3" asks for a Graph
    r"|; (?:make|call) "
)
# Calls that raise about what a file or the system says: nobody expects anything of it.
OF_FILES = {"bad", "OSError", "FileError"}
# What stands after "got" is another error's text, which has its own.
OF_OTHERS = re.compile(r"(?:\{error\}|str\(error\).*\})$")
# The programmer of an op sees these, not the one who calls it.
INTERNAL = (
    "has the wrong type, got",
    "that it does not declare, got",
    "please report it",
    "has such a group of",
)


def literals(node: ast.AST) -> str:
    """A text with what it shows as code in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(literals, node.values))
    return f"{{{ast.unparse(node.value)}}}" if isinstance(node, ast.FormattedValue) else ""


def python_texts() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "python/popsr").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            name = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and node.args and re.search(r"Error$|^bad$", name):
                text = literals(node.args[0])
                if name not in OF_FILES and not OF_OTHERS.search(text):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {text}", text


def cpp_texts() -> Iterator[tuple[str, str]]:
    raised = re.compile(r'raise(?:<\w+>|_as)\((?:"\w+",\s*)?(?:fmt::format\()?((?:\s*"(?:[^"\\]|\\.)*")+)')
    for file in sorted((ROOT / "cpp/popsr").rglob("*.cpp")):
        source = file.read_text()
        for match in raised.finditer(source):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1]))
            if not any(words in text for words in INTERNAL):
                yield f"{file.relative_to(ROOT)}:{source.count(chr(10), 0, match.start()) + 1}: {text}", text


@pytest.mark.parametrize("texts", [python_texts, cpp_texts], ids=["python", "cpp"])
def test_errors_tell_a_way_out(texts: object) -> None:
    assert callable(texts)
    found = list(texts())
    assert sum(bool(GOT.search(text)) for _, text in found) > 200
    assert [where for where, text in found if GOT.search(text) and not WAY_OUT.search(text)] == []
