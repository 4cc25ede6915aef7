"""The facts of every op: which replicas hold the same bits of its outputs, given the facts of its inputs.

Over 4 replicas; a partition is written as the labels of its blocks, ``"0011"`` for {0,1} and {2,3}.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from tests_py.ops.rows.inputs import Case, Facts, call_arguments
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import PUBLIC, as_list, make_variable, python_op

# Label strings and the groupings, by stride and size, of variables that have them.
GROUPINGS = {"0000": (1, 4), "0011": (1, 2), "0101": (2, 2), "0123": (1, 1)}
# Partitions of the inputs of an op whose outputs have their meet.
PATTERNS = ("0000", "0011", "0101")


def meet(labels: tuple[str, ...]) -> str:
    """Labels of the coarsest partition that refines all of these."""
    blocks: dict[tuple[str, ...], int] = {}
    replicas = zip(*labels, strict=True) if labels else [()] * 4
    return "".join(str(blocks.setdefault(tuple(r), len(blocks))) for r in replicas)


def outputs(op: str, case: Case, labels: tuple[str, ...], group: tuple[int, int] | None) -> list[str]:
    """Labels of the outputs that the analysis proves."""
    ir = popsr.Ir(replication=4)
    arrays = case.draw(np.random.default_rng(5), case.dtypes[0])
    attrs = call_arguments(case)
    with ir.main_graph, popsr.in_sequence():
        if group:
            attrs["group"] = ir.replica_grouping(*group)
        tensors = []
        for array, own in zip(arrays, labels, strict=True):
            grouping = ir.replica_grouping(*GROUPINGS[own])
            data = array[0] if case.group else array
            rows = np.stack([data] * grouping.num_groups) if grouping.num_groups > 1 else data
            tensors.append(make_variable(rows, replica_grouping=grouping))
        fn = python_op(op)
        results = as_list(case.call(fn, *tensors, **attrs) if case.call else fn(*tensors, **attrs))
    facts = popsr.analysis.analyze(ir)
    return ["".join(map(str, facts.partition(tensor).labels)) for tensor in results]


def _inputs(case: Case) -> int:
    return len(case.draw(np.random.default_rng(5), case.dtypes[0]))


def _rows() -> Iterator[Any]:
    for op in PUBLIC:
        for facts in OPS[op].replicas if op in OPS else ():
            yield pytest.param(op, facts, id=f"{op}-{facts.label or '-'.join(facts.inputs)}")


@pytest.mark.parametrize(("op", "facts"), list(_rows()))
def test_facts_of_the_row(op: str, facts: Facts) -> None:
    cases = OPS[op].cases
    case = facts.case or next(c for c in cases if _inputs(c) == len(facts.inputs))
    got = outputs(op, case, facts.inputs, facts.group)
    expected = (facts.outputs,) * len(got) if isinstance(facts.outputs, str) else facts.outputs
    assert tuple(got) == expected


def _meets(op: str) -> bool:
    return op in OPS and all(facts.case is not None for facts in OPS[op].replicas)


@pytest.mark.parametrize("op", [op for op in PUBLIC if _meets(op)])
def test_facts_are_the_meet_of_the_inputs(op: str) -> None:
    case = next((c for c in OPS[op].cases if _inputs(c) > 1), OPS[op].cases[0])
    count = _inputs(case)
    for labels in itertools.islice(itertools.product(PATTERNS, repeat=count), 81):
        for got in outputs(op, case, labels, None):
            assert got == meet(labels), labels
