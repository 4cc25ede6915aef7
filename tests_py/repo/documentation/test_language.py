"""Rules of names and sentences: plain headings, predicates and nouns, and the field's words in the core's names."""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests_py import ROOT

FOLDERS = ("bench", "cpp", "docs", "examples", "python", "tests_cpp", "tests_py")
KINDS = {".cpp", ".def", ".h", ".md", ".py", ".pyi"}
TEXTS = [
    f
    for folder in FOLDERS
    for f in sorted((ROOT / folder).rglob("*"))
    if f.suffix in KINDS and f.name != Path(__file__).name
] + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
ASKS = r"(?:What|Where|How|Who|Which|Does|Is|Are|Can|Do(?! nothing)|Has)\b(?!-)"
# Name of a rule: the lines that break it, and one of them.
RULES = {
    "headings are nouns": (rf"^#+ {ASKS}(?!.*\?$)", "## What differs"),
    "docstrings state": (rf'^\s*"""(?!Does something){ASKS}', '    """Is the value equal?"""'),
    "comments state": (rf"^\s*(?:///|//|#) (?:{ASKS}|Why\b)(?! popsr)", "/// Does a TileFn write lo?"),
    "predicates have an article": (
        r"(?<!there )(?<!There )\bis no (?!longer|more|less|such|other|smaller|greater|wider|way\b)[a-z]{2,}",
        "a buffer is no array",
    ),
    "tests have an article, too": (r"^def test_(?!there_)\w*_(?:is|are)_no_", "def test_a_view_is_no_copy()"),
    "sentences have a noun": (
        r"(?:^|[.:;] |/// |# |\"\"\")(?:That|Those) of\b",
        "/// That of the op that makes it",
    ),
    "no rulers": (r"^\s*(?:#|//) ?-{3,}|^\s*(?:#|//).*-{8,}$", "# --- buffers ------------------"),
}
# Private words of the core's names, and the field's.
WORDS = {
    r"\bExchange(?:Spec|Run|Kernel)\b": "Collective",
    r"\bEw[A-Z]": "Elementwise",
    r"\b(?!fold_in\()[a-z_]*fold(?:_[a-z]+)?\(|\bk?(?:[A-Z][a-z]+)?Fold(?:ed)?[A-Z]\w*": "reduce, fuse or derive_key",
    r"\b(?:parting|settle|spread)_?\w*\(": "diverging, decide, broadcast or propagate",
    r"\b(?:Stray|Alike|Fed)[A-Z]\w*|\b\w*(?:told|stray|alike)(?:_\w+)?\(|\b(?:leave|tell)_\w+\(|\b(?:fall_to|may_rise|"
    r"approve|is_news)\b": "a verb and a noun of the field, as report_invalid_label or write_equal_results",
}
# First words of comments of functions and members that say nothing without the name: a hover box shows none.
OPENINGS = r"(?:Of|By|That|As of|The same|Those|In|To|What|Where|How|Which)\b"
CORE = ("cpp/", "tests_cpp/")
WIDEST = 110  # of a line of C++, as .clang-format has it; it leaves comments alone


@functools.cache
def texts() -> dict[str, list[str]]:
    """Lines of each file, by its path."""
    return {str(file.relative_to(ROOT)): file.read_text().splitlines() for file in TEXTS}


def found(breaks: Callable[[str], object], folders: tuple[str, ...] = ("",)) -> str:
    """Lines that break a rule, of the files below some folders."""
    return "\n".join(
        f"{path}:{number}: {line.strip()[:120]}"
        for path, lines in texts().items()
        if path.startswith(folders)
        for number, line in enumerate(lines, 1)
        if breaks(line)
    )


@pytest.mark.parametrize("rule", RULES)
def test_sentences(rule: str) -> None:
    pattern, example = RULES[rule]
    assert re.search(pattern, example)
    assert not found(re.compile(pattern).search)


@pytest.mark.parametrize("pattern", WORDS)
def test_names_of_the_core_are_words_of_the_field(pattern: str) -> None:
    words, quoted = re.compile(pattern), re.compile(r'"[^"]*"')
    broken = found(lambda line: words.search(line) and words.search(quoted.sub('""', line)), CORE)
    assert not broken, f"expected {WORDS[pattern]}:\n{broken}"


def comments_of_cpp() -> Iterator[tuple[str, str]]:
    """First lines of comments of functions and members, with their places."""
    for file in TEXTS:
        before = ""
        for number, line in enumerate(
            file.read_text().splitlines() if file.suffix in (".h", ".cpp") else (), 1
        ):
            code, mark, text = line.partition("///")
            if mark and not (not code.strip() and "///" in before):
                yield (
                    f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}",
                    text.removeprefix("<").strip(),
                )
            before = line


def test_comments_of_cpp_name_their_thing_first() -> None:
    assert re.match(OPENINGS, "Of the op that makes it")
    broken = [where for where, text in comments_of_cpp() if re.match(OPENINGS, text)]
    assert not broken, "\n".join(broken)


def test_lines_of_cpp_are_not_too_wide() -> None:
    assert not found(lambda line: len(line) > WIDEST, CORE)
