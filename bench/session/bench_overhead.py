"""Overhead before anything is computed: a call of session.run, the import, compilation; and the end of a run."""

import statistics
import subprocess
import sys
import threading
import time
import timeit

import numpy as np
import pytest

import popsr
from bench.programs import basic

IMPORT = """
import time, numpy
start = time.perf_counter()
import popsr
print(time.perf_counter() - start)
"""


def test_run_with_one_stream_in_and_out(benchmark):
    ir, stream = basic.echo()
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
    ir = basic.late_updates(5000)
    benchmark.pedantic(popsr.Session, args=(ir,), rounds=7, iterations=1, warmup_rounds=1)
    stats = benchmark.stats.stats
    print(f"\nsession of 20,000 ops: best {stats.min:.3f} s, median {stats.median:.3f} s")


@pytest.mark.parametrize("name", basic.LONG_PROGRAMS)
def test_compile_a_million_ops(benchmark, name):
    """The first session of a program each time, its analysis included."""
    taken = {}
    for size, repeat in ((10**4, 5), (10**5, 3)):
        irs = [basic.LONG_PROGRAMS[name](size) for _ in range(repeat)]
        taken[size] = min(timeit.repeat(lambda irs=irs: popsr.Session(irs.pop()), number=1, repeat=repeat))
    ir = basic.LONG_PROGRAMS[name](10**6)
    benchmark.pedantic(popsr.Session, args=(ir,), rounds=1, iterations=1)
    taken[10**6] = benchmark.stats.stats.min
    shown = ", ".join(f"{size:,} ops {seconds:.3f} s" for size, seconds in taken.items())
    print(f"\n{name}: {shown} (goal: 100,000 ops in at most 0.3 s)")


@pytest.mark.parametrize("name", basic.LONG_PROGRAMS)
def test_compilation_is_linear(benchmark, name):
    """Sessions of 4,000 and 64,000 ops: 16 times as many."""
    few, many = (basic.LONG_PROGRAMS[name](n) for n in (4_000, 64_000))
    best = min(timeit.repeat(lambda: popsr.Session(few), number=1, repeat=7))
    benchmark.pedantic(popsr.Session, args=(many,), rounds=7, iterations=1, warmup_rounds=1)
    ratio = benchmark.stats.stats.min / best
    print(f"\n{name}: 4,000 ops {best * 1e3:.1f} ms, 64,000 ops {ratio:.1f} times as long (16 is linear)")


@pytest.mark.parametrize("name", basic.ENDLESS_PROGRAMS)
def test_stop(benchmark, name):
    """From `stop` in another thread to the error: instructions of nanoseconds, and of milliseconds."""
    taken = []
    with popsr.Session(basic.ENDLESS_PROGRAMS[name]()) as session:
        benchmark.pedantic(lambda: taken.append(seconds_to_stop(session)), rounds=21, iterations=1)
    taken.sort()
    print(f"\nstop in {name}: median {taken[10] * 1e3:.1f} ms, worst {taken[-1] * 1e3:.1f} ms (goal: 100 ms)")


def seconds_to_stop(session) -> float:
    asked = []

    def ask() -> None:
        asked.append(time.perf_counter())
        session.stop()

    threading.Timer(0.05, ask).start()
    with pytest.raises(popsr.errors.StoppedError):
        session.run()
    return time.perf_counter() - asked[0]
