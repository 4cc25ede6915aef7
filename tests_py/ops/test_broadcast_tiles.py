"""Broadcast operands give the bits of operands written out: rows of all lengths, threads, replicas, rounding."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import ops
from tests_py.support.helpers import Array, Streams, assert_same_bits, np_dtype

# The output, and operands that broadcast to it. Rows shorter than a tile of 1,024, which they may not divide; planes
# shorter and longer than one; 32,768 elements and more are shared by threads.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "mask of all heads": ((4, 3, 64, 64), (4, 1, 1, 64)),
    "mask of all batches": ((4, 3, 64, 64), (1, 1, 64, 64)),
    "a row": ((5, 7, 33, 100), (100,)),
    "a column": ((5, 7, 33, 100), (5, 7, 33, 1)),
    "columns of all heads": ((5, 7, 33, 100), (5, 1, 33, 1)),
    "rows of each head": ((6, 8, 50, 24), (6, 8, 1, 24)),
    "short planes": ((900, 3, 40), (900, 1, 40)),
    "shorter planes": ((4000, 2, 5), (4000, 1, 5)),
    "planes of a tile": ((40, 8, 128), (40, 1, 128)),
    "a thread starts inside a plane": ((300, 3, 256), (300, 1, 256)),
    "rows of half a tile": ((9, 11, 511), (9, 1, 511)),
    "rows of a tile": ((3, 20, 1024), (3, 1, 1024)),
    "a number": ((7, 9, 600), (7, 1, 1)),
    "every other axis": ((6, 7, 8, 9, 10), (6, 1, 8, 1, 10)),
}


def program(
    x: Array, m: Array, replication: int, stochastic: bool, threads: int, written_out: bool = False
) -> list[Array]:
    """``x + m``, ``where(m > 0, x, 2)`` and ``x * m``, by replica."""
    ir, io = popsr.Ir(replication=replication), Streams()
    ir.options.enable_stochastic_rounding = stochastic
    if written_out:
        m = np.ascontiguousarray(np.broadcast_to(m, (replication, *x.shape[1:])))
    with ir.main_graph, popsr.in_sequence():
        a, b = (io.feed(t if replication > 1 else t[0], replicated=True) for t in (x, m))
        two, zero = (popsr.constant(number, a.dtype) for number in (2, 0))
        for y in (ops.add(a, b), ops.where(ops.greater(b, zero), a, two), ops.mul(b, a)):
            io.fetch(y)
    with popsr.Session(ir, num_threads=threads) as session:
        return io.run(session)


@pytest.mark.parametrize("replication", [1, 2])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("case", SHAPES)
def test_bits_are_those_of_operands_written_out(case: str, name: str, replication: int) -> None:
    shape, narrow = SHAPES[case]
    rng = np.random.default_rng(5)
    x = rng.standard_normal((replication, *shape)).astype(np.float32).astype(np_dtype(name))
    m = rng.standard_normal((replication, *(1,) * (len(shape) - len(narrow)), *narrow)).astype(np.float32)
    m = m.astype(x.dtype)
    for stochastic in (False, True) if name in ("bfloat16", "float16") else (False,):
        expected = program(x, m, replication, stochastic, 1, written_out=True)
        for threads in (1, 2):
            got = program(x, m.reshape(replication, *narrow), replication, stochastic, threads)
            for y, expect in zip(got, expected, strict=True):
                assert_same_bits(y, expect, f"{case}, {threads} threads, stochastic: {stochastic}")
    total = expected[0].astype(np.float64)
    wide = x.astype(np.float64) + m.astype(np.float64)
    np.testing.assert_allclose(total.reshape(x.shape), wide, rtol=1e-2, atol=1e-2)
