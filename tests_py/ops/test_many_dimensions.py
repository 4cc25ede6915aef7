"""Tensors of 18 dimensions, none of which can be merged with the next, by operand, replica and op."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popsr
from popsr import ops
from tests_py.support.helpers import Array, Streams, assert_same_bits

RANK = 18
EVEN, ODD = tuple(range(0, RANK, 2)), tuple(range(1, RANK, 2))
ROWS = tuple(1 if d in EVEN else 2 for d in range(RANK))
COLUMNS = tuple(1 if d in ODD else 2 for d in range(RANK))
# Even dimensions in descending order, each with the odd dimension that mirrors it.
ORDER = tuple(d for pair in zip(reversed(EVEN), ODD, strict=True) for d in pair)

CASES: dict[str, tuple[Callable[..., popsr.Tensor], Callable[..., Array]]] = {
    "broadcasting": (ops.add, np.add),
    "a sum": (lambda a, b: ops.sum(ops.add(a, b), EVEN), lambda a, b: (a + b).sum(EVEN, dtype=np.float32)),
    "the largest": (lambda a, b: ops.max(ops.add(a, b), ODD), lambda a, b: (a + b).max(ODD)),
    "transposition": (
        lambda a, b: ops.transpose(ops.add(a, b), ORDER),
        lambda a, b: np.ascontiguousarray((a + b).transpose(ORDER)),
    ),
}


@pytest.mark.parametrize("replication", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_dimensions_that_cannot_be_merged(case: str, replication: int) -> None:
    of_tensors, of_arrays = CASES[case]
    rng = np.random.default_rng(18)
    a, b = (rng.integers(-50, 50, (replication, *shape)).astype(np.float32) for shape in (ROWS, COLUMNS))
    ir, io = popsr.Ir(replication=replication), Streams()
    with ir.main_graph, popsr.in_sequence():
        x, y = (io.feed(t if replication > 1 else t[0], replicated=True) for t in (a, b))
        io.fetch(of_tensors(x, y))
    with popsr.Session(ir) as session:
        [got] = io.run(session)
    expected = [of_arrays(p, q) for p, q in zip(a, b, strict=True)]
    assert_same_bits(np.asarray(got).reshape(-1), np.stack(expected).reshape(-1))
