"""Ops without a counterpart: all are named, stand-ins claim no more than the op, and do not run."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.bridge import BridgedStep, Gap, StepBuilder, UnsupportedOpsError
from popsr.replicas import Partition
from tests_py.bridge.steps import F32

TYPES = [
    popsr.float32,
    popsr.float16,
    popsr.bfloat16,
    popsr.float64,
    popsr.int32,
    popsr.int64,
    popsr.uint8,
    popsr.bool,
]


def gappy(unsupported: str, lines: list[tuple[str, int]], everywhere: bool = False) -> BridgedStep:
    """A chain of unknown ops between data and a state that is averaged in the end."""
    b = StepBuilder(4, where="reader", unsupported=unsupported)  # type: ignore[arg-type]
    with b:
        w = b.state("w", np.ones(3, np.float32), b.all())
        t = b.data("x", (3,), F32, b.all() if everywhere else b.each())
        for op, line in lines:
            with popsr.location("model.py", line):
                (t,) = b.unsupported(op, [t], [((3,), F32)], everywhere=everywhere)
        if not everywhere:
            t = ops.collectives.replicated_all_reduce(t, "mean")
        b.update("w", w - t)
        return b.finish()


def test_all_gaps_are_named() -> None:
    lines = [("one", 1), ("two", 2), ("one", 1), ("three", 3), ("four", 4), ("one", 5)]
    with pytest.raises(UnsupportedOpsError) as caught:
        gappy("error", lines)
    error = caught.value
    assert isinstance(error, errors.UnsupportedError)
    assert error.gaps == (
        Gap("one", "model.py:1", 2),
        Gap("two", "model.py:2"),
        Gap("three", "model.py:3"),
        Gap("four", "model.py:4"),
        Gap("one", "model.py:5"),
    )
    assert str(error) == (
        "reader: 4 kinds of op without a counterpart, got one at model.py:1, two at model.py:2, three at model.py:3 "
        "and 1 more, expected supported ops; unsupported='conservative' proves what it can without them"
    )
    assert "one at model.py:1, 2 times" in error.__notes__


def test_a_step_with_gaps_is_proved_and_not_run() -> None:
    step = gappy("conservative", [("one", 1)])
    assert step.gaps == (Gap("one", "model.py:1"),)
    proof = popsr.prove(step)
    assert proof.ok
    assert proof.gaps == step.gaps
    assert repr(proof) == "Proof[ok: 1 state on 4 replicas, none drifts, 1 unsupported op]"
    for run in (step.run, step.restart, lambda: popsr.Session(step.ir)):
        with pytest.raises(UnsupportedOpsError, match=r"one at model\.py:1"):
            run()


def test_an_unknown_collective_makes_all_replicas_differ() -> None:
    proof = popsr.prove(gappy("conservative", [("one", 7)], everywhere=True))
    assert proof.value("w").proved.num_blocks == 4


@pytest.mark.parametrize("first", TYPES, ids=str)
def test_stand_ins_agree_where_all_operands_do(first: popsr.dtypes.dtype) -> None:
    """For all pairs of groups of two operands, every type of the first, and outputs of several types and ranks."""
    groups = [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 3]]
    outputs = [((), popsr.bool), ((2, 3), popsr.float16), ((0, 2), popsr.int32), ((4,), first)]
    for one, two in product(groups, groups):
        b = StepBuilder(4, unsupported="conservative")
        with b:
            x = b.data("x", (2,), first, b.groups(one))
            y = b.data("y", (), F32, b.groups(two))
            found = b.unsupported("op", [x, y], outputs)
            for i, t in enumerate(found):
                b.result(f"out{i}", t, grouping=b.all())
            proof = b.finish().prove()
        expected = Partition.from_labels(one) & Partition.from_labels(two)
        assert [(t.shape, t.dtype) for t in found] == outputs
        assert {each.proved for each in proof.results} == {expected}


def test_operands_without_elements_tell_nobody_apart() -> None:
    b = StepBuilder(2, unsupported="conservative")
    with b:
        x = b.data("x", (0,), F32, b.each())
        (t,) = b.unsupported("op", [x], [((), F32)])
        (u,) = b.unsupported("op without operands", [], [((), F32)])
        b.result("t", t, grouping=b.all())
        b.result("u", u, grouping=b.all())
        assert b.finish().prove().ok


def test_gaps_in_graphs_of_loops() -> None:
    b = StepBuilder(2, unsupported="conservative")
    with b:
        w = b.state("w", np.float32(1), b.all())
        x = b.data("x", (), F32, b.each())
        body = b.ir.create_graph(lambda t, x: b.unsupported("op", [t, x], [((), F32)])[0], w, x)
        (new,) = ops.repeat(body, 3, w, x)
        b.update("w", new)
        step = b.finish()
    assert not step.prove().ok
    assert step.gaps[0].op == "op"


def test_a_failed_call_leaves_no_gap() -> None:
    b = StepBuilder(2, unsupported="conservative")
    with b:
        other = popsr.Ir(2)
        with pytest.raises(errors.StateError), other.main_graph:
            pass
        assert b.gaps == ()
