"""Operations work in place: no temporary larger than a tile for each thread, whatever the layout and the formats."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

from popsr import StochasticAdder, sr

KEY = sr.Key(1)
TILES = 8 << 20  # much more than the tiles of two threads, much less than the arrays

PROGRAM = """
import resource, sys
import ml_dtypes, numpy as np
from popsr import StochasticAdder, sr

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

what, nbytes = sys.argv[1], int(sys.argv[2])
key = sr.Key(1)
n = nbytes // 2
w = np.ones(n, ml_dtypes.bfloat16)
if what == "transposed":
    w = w.reshape(1 << 10, -1).T
small = [np.ones(4096, ml_dtypes.bfloat16) for _ in range(2)]
u = np.float32(2.0**-9)
run = {
    "add_": lambda w: sr.add_(w, u, key=key, num_threads=2),
    "alpha": lambda w: sr.add_(w, u, key=key, alpha=0.3, num_threads=2),
    "transposed": lambda w: sr.add_(w, u, key=key, num_threads=2),
    "backwards": lambda w: sr.sub_(w[::-1], u, key=key, num_threads=2),
    "every second": lambda w: sr.mul_(w[::2], 1.001, key=key, num_threads=2),
    "two operands": lambda w: sr.add(w[: len(w) // 2], w[len(w) // 2 :], key=key, out=w[: len(w) // 2], num_threads=2),
    "value": lambda w: StochasticAdder("bfloat16", 1).add_biased(w, w, out=w),
    "sum": lambda w: sr.sum(w[: 1 << 22], key=key),
}[what]
run(small[0] if w.ndim == 1 else small[0].reshape(64, 64).T)
before = peak()
run(w)
print(peak() - before)
"""
CASES = ("add_", "alpha", "transposed", "backwards", "every second", "two operands", "value", "sum")


def growth(what: Any, nbytes: Any) -> Any:
    """By how much the peak memory of a process grows while it works on an array of that size in place."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, str(nbytes)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.parametrize("what", CASES)
def test_resident_memory(what: Any) -> None:
    assert growth(what, 128 << 20) < TILES


@pytest.mark.slow
def test_resident_memory_of_a_gibibyte() -> None:
    assert growth("add_", 1 << 30) < TILES
    assert growth("transposed", 1 << 30) < TILES


def test_python_allocates_nothing_large() -> None:
    n = 1 << 22
    w, u = np.ones(n, np.float32), np.full(n, 2.0**-25, np.float32)
    m, v = np.zeros(n, np.float32), np.zeros(n, np.float32)
    adder = StochasticAdder("float32", 1)
    tracemalloc.start()
    try:
        sr.add_(w, u, key=KEY)
        sr.lerp_(w[::2], u[::2], 0.3, key=KEY)
        sr.fma_(w, 1.0, u[::-1], key=KEY)
        sr.adamw_(w, u, m, v, key=KEY, step=1)
        adder.add(w, u, out=w)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
