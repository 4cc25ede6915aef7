"""Facts of a value before and after ops, where random programs found an answer missing."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.analysis import analyze


def test_a_written_view_without_elements_has_a_value() -> None:
    """Was refused: no write touches memory that has no elements."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        view = ops.flatten_(popsr.variable(np.zeros((0, 3)), popsr.float32))
        written = ops.add_(view, view)
        ops.relu(written)
    facts, (_, add, relu) = analyze(ir), ir.main_graph.ops
    for answer in (
        facts.partition(written, before=relu),
        facts.partition(written, after=add),
        facts.partition(written),
    ):
        assert answer.num_blocks == 1
    assert str(facts.explain(written, 0, 1, before=relu))
    for times in ({"before": add}, {"time": 0}):
        with pytest.raises(errors.GraphError, match="has no value yet, got time 0"):
            facts.partition(written, **times)
