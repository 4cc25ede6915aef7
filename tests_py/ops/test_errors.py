"""Calls of ops with wrong operands or attributes: one typed error of one line, and nothing is appended to the graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal
from tests_py.ops.rows.refusals.table import refusals_by_op
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import SCHEMAS

# Refusals beside ops: functions that make an op of another name.
FUNCTIONS = {"argsort", "create_adamupdater", "split"}


def _refusals() -> Iterator[Any]:
    for op, refusals in refusals_by_op().items():
        for i, refusal in enumerate(refusals):
            yield pytest.param(refusal, id=f"{op}-{refusal.label or i}")


@pytest.mark.parametrize("refusal", list(_refusals()))
def test_refused(refusal: Refusal) -> None:
    ir = popsr.Ir(replication=4)
    with ir.create_empty_graph() as graph:
        with pytest.raises(refusal.error) as caught:
            refusal.build(Operands(ir))
        text = str(caught.value)
        assert re.match(refusal.match, text), text
        assert isinstance(caught.value, errors.Error)
        assert "\n" not in text
        assert not text.endswith(".")
        assert [op.kind for op in graph.ops] == list(refusal.operands), "nothing was appended"
        ops.init((2,), popsr.float32)  # the graph goes on


def test_rows_have_the_refusals() -> None:
    assert set(refusals_by_op()) - set(OPS) == FUNCTIONS
    assert sum(len(row.errors) for row in OPS.values()) > 300


def test_ops_with_requirements_of_their_own_have_refusals() -> None:
    """Dtypes, tensors of other graphs and numbers of arguments are tested for all ops; attributes are not."""
    without = {
        name
        for name, row in OPS.items()
        if not row.errors and any(attr["required"] for attr in SCHEMAS[name]["attrs"])
    }
    assert without == set()


def test_errors_note_the_line() -> None:
    with popsr.Ir().main_graph:
        a, b = popsr.constant([1.0]), popsr.constant([1])
        with pytest.raises(errors.DTypeError) as caught:
            ops.add(a, b)
    (note,) = caught.value.__notes__
    assert "while emitting add(lhs=<float32[1] 't'>" in note
    assert "test_errors.py:" in note
