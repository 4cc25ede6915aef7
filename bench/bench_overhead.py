"""Overhead before anything is computed: a call of session.run, and the import."""

import statistics
import subprocess
import sys

import numpy as np

import popsr
from bench import programs

IMPORT = """
import time, numpy
start = time.perf_counter()
import popsr
print(time.perf_counter() - start)
"""


def test_run_with_one_stream_in_and_out(benchmark):
    ir, stream = programs.echo()
    inputs = {stream: np.arange(4, dtype=np.float32)}
    with popsr.Session(ir) as session:
        benchmark.pedantic(session.run, args=(inputs,), rounds=51, iterations=200, warmup_rounds=3)
    stats = benchmark.stats.stats
    print(
        f"\nsession.run: best {stats.min * 1e6:.1f} us, median {stats.median * 1e6:.1f} us (goal: at most 20 us)"
    )


def test_import(benchmark):
    taken = []

    def start() -> None:
        out = subprocess.run(
            [sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True
        ).stdout
        taken.append(float(out))

    benchmark.pedantic(start, rounds=11, iterations=1, warmup_rounds=1)
    best, median = min(taken[1:]), statistics.median(taken[1:])
    print(f"\nimport popsr after numpy: best {best:.3f} s, median {median:.3f} s (goal: at most 0.15 s)")


def test_compile_20000_ops(benchmark):
    ir = programs.late_updates(5000)
    benchmark.pedantic(popsr.Session, args=(ir,), rounds=7, iterations=1, warmup_rounds=1)
    stats = benchmark.stats.stats
    print(f"\nsession of 20,000 ops: best {stats.min:.3f} s, median {stats.median:.3f} s")
