"""Planted bugs in steps of JAX and PyTorch: popsr finds them at their line, and is silent about the right steps."""

from __future__ import annotations

import importlib.util
from typing import get_args

import pytest

from tests_py.bridge.planted.cases import Case, Kind
from tests_py.bridge.planted.run import Framework, all_cases, line, row, table
from tests_py.bridge.planted.table import ON_PAGE

PACKAGES: dict[Framework, str] = {"JAX": "jax", "PyTorch": "torch", "DTensor": "torch"}
# Bugs that make all replicas wrong alike, of which the program has no sign: PyTorch's does not say along which
# dimension a weight is cut, nor that shards are parts of one parameter.
NOT_FOUND = {
    "mean of partial outputs",
    "shards of local gradients",
    "mean of partial products by placement",
}
# A placement makes no op: the line that computes with the tensor is named.
AT_ANOTHER_LINE = {
    "rows called replicated",
    "partial products taken for whole ones",
    "rows along the other axis of the mesh",
}


def param(framework: Framework, case: Case) -> object:
    missing = importlib.util.find_spec(PACKAGES[framework]) is None
    mark = pytest.mark.skipif(missing, reason=f"needs {PACKAGES[framework]}")
    return pytest.param(framework, case, id=f"{framework}-{case.name}".replace(" ", "-"), marks=mark)


@pytest.mark.share(3)
@pytest.mark.parametrize(("framework", "case"), [param(*each) for each in all_cases()])
def test_bugs_are_found_and_right_steps_are_silent(framework: Framework, case: Case) -> None:
    found = row(framework, case)
    assert found.false_alarms == []
    assert found.popsr.found is (case.name not in NOT_FOUND)
    assert found.popsr.names_line is (found.popsr.found and case.name not in AT_ANOTHER_LINE)
    assert line(found) in ON_PAGE.written().splitlines(), "run python -m tests_py.bridge.planted.table"


def test_there_are_enough_of_each_kind() -> None:
    cases = [case for _, case in all_cases()]
    assert len({case.name for case in cases}) == len(cases) >= 30
    assert {case.kind for case in cases} == set(get_args(Kind))
    assert len(cases) - len(NOT_FOUND) - len(AT_ANOTHER_LINE) >= 29


@pytest.mark.slow  # it runs all cases, of which the test above runs a share
def test_the_table_of_the_docs_is_fresh() -> None:
    for package in PACKAGES.values():
        pytest.importorskip(package)
    assert ON_PAGE.written() == table(), "run python -m tests_py.bridge.planted.table"
