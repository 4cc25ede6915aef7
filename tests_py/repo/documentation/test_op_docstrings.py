"""Docstrings of ops state the facts of the registry: dtypes, gradient, replicas, rounding, form in place."""

from __future__ import annotations

import inspect
import textwrap

import pytest

from popsr.ops._facts import _MARGIN as MARGIN
from popsr.ops._facts import with_facts
from tests_py.support.helpers import PUBLIC, SCHEMAS, python_op

NAMES = ("dtypes", "gradient", "replicas", "rounding", "in place")


def stated(op: str) -> dict[str, str]:
    """The section of the docstring by its names; no line is longer than the pages of the site have room for."""
    lines = (inspect.getdoc(python_op(op)) or "").split("\n")
    assert lines.count("Facts:") == 1, op
    found: dict[str, str] = {}
    for line in lines[lines.index("Facts:") + 1 :]:
        if not line.startswith("    "):
            break
        assert len(line) <= 106, line
        if not line.startswith("     "):
            name, _, text = line.strip().partition(": ")
            found[name] = text
        else:
            found[name] += f" {line.strip()}"
    return found


@pytest.mark.parametrize("op", PUBLIC)
def test_docstring_has_the_facts_of_the_registry(op: str) -> None:
    found, schema = stated(op), SCHEMAS[op]
    assert tuple(found) == tuple(name for name in NAMES if name in found)
    assert found["gradient"] == schema["gradient"]
    assert found["replicas"] == schema["partition"]
    assert found["rounding"].startswith("by the ops") == (schema["control"] != "none")
    if schema["control"] == "none":
        assert found["rounding"].startswith("stochastic") == schema["rounding"]
    has_form = bool(schema["effects"]) or f"{op}_" in SCHEMAS
    assert ("in place" in found) == has_form
    assert not has_form or (found["in place"] == "itself") == bool(schema["effects"])
    assert ("dtypes" in found) == bool(schema["inputs"])


EXAMPLES = {
    "relu": {
        "dtypes": "numbers",
        "gradient": "yes",
        "replicas": "meet of inputs",
        "rounding": "never stochastic",
        "in place": "``relu_``",
    },
    "add_": {
        "dtypes": "numbers",
        "gradient": "none",
        "replicas": "meet of inputs",
        "rounding": "stochastic where stochastic rounding is on",
        "in place": "itself",
    },
}


@pytest.mark.parametrize("op", EXAMPLES)
def test_facts_of_some_ops(op: str) -> None:
    assert stated(op) == EXAMPLES[op]


DOCSTRINGS = {  # the section stands in the place of "|"
    "before errors": "Sum.\n\nReturns:\n    It.\n|Raises:\n    E: e.",
    "last": "Sum.\n\nArgs:\n    t: it.\nReturns:\n    It.\n|",
    "no result": "Sum.\n\nArgs:\n    t: it.\n|Raises:\n    E: e.",
    "a bare summary": "Sum.\n\n|",
}


@pytest.mark.parametrize("case", DOCSTRINGS)
def test_section_follows_the_result(case: str) -> None:
    before, after = DOCSTRINGS[case].split("|")
    given = textwrap.indent(before + after, MARGIN).strip()
    expected = f"{before}Facts:\n    dtypes: all\n{after}".strip()
    assert inspect.cleandoc(with_facts(given, {"dtypes": "all"})) == expected
