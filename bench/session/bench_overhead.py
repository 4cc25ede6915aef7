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
from bench.record import at_most, duration, number, times

TABLE = "Overheads"
IMPORT = """
import time, numpy
start = time.perf_counter()
import popsr
print(time.perf_counter() - start)
"""


def test_run_with_one_stream_in_and_out(benchmark, record):
    ir, stream = basic.echo()
    inputs = {stream: np.arange(4, dtype=np.float32)}
    with popsr.Session(ir) as session:
        benchmark.pedantic(session.run, args=(inputs,), rounds=51, iterations=200, warmup_rounds=3)
    stats = benchmark.stats.stats
    goal = at_most(20e-6, stats.min, duration, aim=3e-6)
    record(TABLE, "`session.run`, one stream in and one out", **times(stats), **goal)


def test_import(benchmark, record):
    taken = []

    def start() -> None:
        out = subprocess.run(
            [sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True
        ).stdout
        taken.append(float(out))

    benchmark.pedantic(start, rounds=11, iterations=1, warmup_rounds=1)
    best, median = min(taken[1:]), statistics.median(taken[1:])
    cells = {"best": duration(best), "median": duration(median)} | at_most(0.15, best, duration)
    record(TABLE, "`import popsr` after `import numpy`", **cells)


def test_compile_20000_ops(benchmark, record):
    ir = basic.late_updates(5000)
    benchmark.pedantic(popsr.Session, args=(ir,), rounds=7, iterations=1, warmup_rounds=1)
    record(TABLE, "compiling 20,000 ops that end in 5,000 updates", **times(benchmark.stats.stats))


@pytest.mark.parametrize("name", basic.LONG_PROGRAMS)
def test_compile_a_million_ops(benchmark, record, name):
    """The first session of a program each time, its analysis included."""
    taken = {}
    for size, repeat in ((10**4, 5), (10**5, 3)):
        irs = [basic.LONG_PROGRAMS[name](size) for _ in range(repeat)]
        taken[size] = min(timeit.repeat(lambda irs=irs: popsr.Session(irs.pop()), number=1, repeat=repeat))
    ir = basic.LONG_PROGRAMS[name](10**6)
    benchmark.pedantic(popsr.Session, args=(ir,), rounds=1, iterations=1)
    taken[10**6] = benchmark.stats.stats.min
    for size, seconds in taken.items():
        goal = at_most(0.3, seconds, duration) if size == 10**5 else {}
        record(TABLE, f"a session of {size:,} ops", name, best=duration(seconds), **goal)
    ratio = taken[10**6] / taken[10**5]
    record(
        TABLE, "a session of 1,000,000 ops against 100,000", name, best=number(ratio), **at_most(10, ratio)
    )


@pytest.mark.parametrize("name", basic.LONG_PROGRAMS)
def test_compilation_is_linear(benchmark, record, name):
    """Sessions of 4,000 and 64,000 ops: 16 times as many."""
    few, many = (basic.LONG_PROGRAMS[name](n) for n in (4_000, 64_000))
    best = min(timeit.repeat(lambda: popsr.Session(few), number=1, repeat=7))
    benchmark.pedantic(popsr.Session, args=(many,), rounds=7, iterations=1, warmup_rounds=1)
    ratio = benchmark.stats.stats.min / best
    record(TABLE, "a session of 64,000 ops against 4,000; 16 is linear", name, best=number(ratio))


@pytest.mark.parametrize("name", basic.ENDLESS_PROGRAMS)
def test_stop(benchmark, record, name):
    """From `stop` in another thread to the error: instructions of nanoseconds, and of milliseconds."""
    taken = []
    with popsr.Session(basic.ENDLESS_PROGRAMS[name]()) as session:
        benchmark.pedantic(lambda: taken.append(seconds_to_stop(session)), rounds=21, iterations=1)
    taken.sort()
    cells = {"median": duration(taken[10]), "worst": duration(taken[-1])} | at_most(0.1, taken[-1], duration)
    record(TABLE, "from `stop` to the end of a run", name, **cells)


def seconds_to_stop(session) -> float:
    asked = []

    def ask() -> None:
        while not session._state.running:  # a stop before the run would be for none
            time.sleep(0.001)
        time.sleep(0.05)
        asked.append(time.perf_counter())
        session.stop()

    threading.Thread(target=ask).start()
    with pytest.raises(popsr.errors.StoppedError):
        session.run()
    return time.perf_counter() - asked[0]
