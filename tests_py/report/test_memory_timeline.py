"""Memory over time: what the session allocates, and a slow computation from the program's ops alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from tests_py.report import programs

ALIGNMENT = 64


def loops() -> popsr.Ir:
    """A loop whose body makes and drops values, with values that live through it."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((64, 32), popsr.float32, "x"))
        kept = ops.gelu(x)
        body = ir.create_graph(lambda t: ops.gelu(t @ t.T) @ t * 0.01, x)
        (y,) = ops.repeat(body, 5, x)
        ops.host_store(popsr.d2h_stream(x.shape, x.dtype, "out"), y + kept)
    return ir


PROGRAMS = {
    "chain": lambda: programs.chain([1, 20, 300, 4000]),
    "falling": lambda: programs.chain([4000, 300, 20, 1]),
    "layers": lambda: programs.layers(40),
    "one replica": lambda: programs.layers(20, replicas=1),
    "loops": loops,
}


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_timeline_is_what_the_session_allocates(name: str, dedup: bool, optimise: bool) -> None:
    session = popsr.Session(PROGRAMS[name](), dedup=dedup, optimise=optimise)
    timeline, memory = session._core.memory_timeline(), session.memory()
    assert timeline.arena + timeline.temporaries == memory["activations"]
    assert max(step.extent for step in timeline.steps) == timeline.arena
    for i, step in enumerate(timeline.steps):
        live = [value for value in timeline.values if value.first <= i <= value.last]
        assert step.live == sum(value.bytes for value in live)
        assert step.extent == max((value.offset + value.bytes for value in live), default=0)
        places = sorted((value.offset, value.offset + value.bytes) for value in live)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(places))


def slow_live_bytes(session: popsr.Session, dedup: bool) -> list[int]:
    """Bytes of results that are made and used later, after each op of a program without views or loops."""
    ir = session.ir
    facts = popsr.analysis.analyze(ir, equal=dict.fromkeys(session.equal_streams))
    all_ops = ir.main_graph.ops
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, op in enumerate(all_ops):
        for t in (*op.inputs, *op.outputs):
            if t is not None and not isinstance(t, (popsr.Variable, popsr.Constant)):
                first.setdefault(t, i)
                last[t] = i
    bytes_of = {}
    for t in first:
        blocks = facts.partition(t).num_blocks if dedup else ir.replication_factor
        nbytes = blocks * int(np.prod(t.shape)) * t.dtype.as_numpy().itemsize
        bytes_of[t] = -(-nbytes // ALIGNMENT) * ALIGNMENT
    return [sum(bytes_of[t] for t in first if first[t] <= i <= last[t]) for i in range(len(all_ops))]


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("sizes", [[1, 20, 300, 4000], [4000, 300, 20, 1], [7] * 30, [100, 1] * 10])
def test_timeline_is_that_of_a_slow_computation(sizes: list[int], dedup: bool) -> None:
    ir = programs.chain(sizes)
    session = popsr.Session(ir, dedup=dedup, optimise=False)
    steps = session._core.memory_timeline().steps
    assert [step.op for step in steps] == [op.id for op in ir.main_graph.ops]
    assert [step.live for step in steps] == slow_live_bytes(session, dedup)
