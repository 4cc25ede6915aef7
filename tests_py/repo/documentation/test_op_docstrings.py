"""Docstrings of ops state the facts of the registry: dtypes, gradient, replicas, rounding, form in place."""

from __future__ import annotations

import inspect

import pytest

from tests_py.repo.documentation import op_docstrings
from tests_py.support.helpers import PUBLIC, SCHEMAS, python_op


@pytest.mark.parametrize("op", PUBLIC)
def test_docstring_has_the_facts_of_the_registry(op: str) -> None:
    expected = op_docstrings.facts(SCHEMAS[op], SCHEMAS.get(f"{op}_"))
    text = inspect.getdoc(inspect.unwrap(python_op(op)))
    assert text is not None
    section = "\n".join(line[4:] for line in expected)
    fix = "run python tests_py/repo/documentation/op_docstrings.py --write"
    assert f"\n{section}\n" in f"{text}\n", f"{op}: {fix}"
    assert text.count(op_docstrings.HEADING) == 1, f"{op}: {fix}"


@pytest.mark.parametrize("family", op_docstrings.families())
def test_modules_are_as_the_generator_writes_them(family: str) -> None:
    """It leaves fresh facts alone, and puts stale ones right."""
    source = op_docstrings.source_file(family).read_text()
    assert op_docstrings.updated(source, family) == source
    stale = source.replace("        replicas: ", "        replicas: not ")
    assert stale != source
    assert op_docstrings.updated(stale, family) == source


SECTION = ["    Facts:", "        dtypes: all"]
DOCSTRINGS = {
    "before errors": (
        ['    """Sum.', "", "    Returns:", "        It.", "    Raises:", "        E: e.", '    """'],
        4,
    ),
    "last": (['    """Sum.', "", "    Args:", "        t: it.", "    Returns:", "        It.", '    """'], 6),
    "no result": (
        ['    """Sum.', "", "    Args:", "        t: it.", "    Raises:", "        E: e.", '    """'],
        4,
    ),
}


@pytest.mark.parametrize("case", DOCSTRINGS)
def test_section_follows_the_result(case: str) -> None:
    lines, at = DOCSTRINGS[case]
    expected = [*lines[:at], *SECTION, *lines[at:]]
    assert op_docstrings.with_facts(lines, SECTION) == expected
    assert op_docstrings.with_facts(expected, SECTION) == expected


def test_section_of_a_bare_summary_stands_after_a_blank_line() -> None:
    lines = ['    """Sum.', '    """']
    expected = ['    """Sum.', "", *SECTION, '    """']
    assert op_docstrings.with_facts(lines, SECTION) == expected
    assert op_docstrings.with_facts(expected, SECTION) == expected
