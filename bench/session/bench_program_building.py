"""Times to build, prove and compile a training program of the addons.

The program (gpt_program.py) has about 1,300 ops. A ratio takes out Python's own speed: by turns a chain of as many
calls of ``ops.add`` is built.
"""

import time
from itertools import count

import popsr
from bench.programs.gpt_program import Config, Program
from bench.record import at_most, duration, number, times
from bench.sides.compare import by_turns
from popsr import ops
from popsr.analysis import analyze

ROUNDS = 9
TABLE = "A GPT-like step, R = 8"


def _chain(length: int) -> popsr.Ir:
    ir = popsr.Ir(replication=8)
    with ir.main_graph, popsr.in_sequence():
        x = y = popsr.variable(1.0, popsr.float32)
        for _ in range(length):
            y = ops.add(y, x)
    return ir


def test_building(benchmark, record):
    length = Program(Config()).ir._core.num_ops
    taken = by_turns(
        benchmark, {"program": lambda: Program(Config()), "chain": lambda: _chain(length)}, ROUNDS
    )
    own, chain = taken["program"], taken["chain"]
    record(TABLE, f"building {length:,} ops", **times(own), **at_most(1, own.best, duration))
    record(TABLE, "building, against a chain of as many additions", best=number(own.best / chain.best))
    assert own.best <= 1


def test_proving_and_compiling(benchmark, record):
    """Each time of a program that nothing is known of yet."""
    programs = [Program(Config()) for _ in range(ROUNDS + 1)]
    proving, number = [], count()

    def compile_one() -> None:
        ir = programs[next(number)].ir
        start = time.perf_counter()
        analyze(ir)
        proving.append(time.perf_counter() - start)
        popsr.Session(ir)

    benchmark.pedantic(compile_one, rounds=ROUNDS, iterations=1, warmup_rounds=1)
    stats = benchmark.stats.stats
    best = min(proving)
    record(TABLE, "the analysis", best=duration(best), **at_most(5e-3, best, duration))
    record(TABLE, "the analysis and a session", **times(stats), **at_most(0.3, stats.min, duration))
    assert best <= 5e-3
    assert stats.min <= 0.3
