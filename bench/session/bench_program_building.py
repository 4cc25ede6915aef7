"""Times to build, prove and compile a training program of the addons.

The program (gpt_program.py) has about 1,300 ops. A ratio takes out Python's own speed: by turns a chain of as many
calls of ``ops.add`` is built.
"""

import time
from itertools import count

import popsr
from bench.programs.gpt_program import Config, Program
from bench.sides.compare import by_turns
from popsr import ops
from popsr.analysis import analyze

ROUNDS = 9


def _chain(length: int) -> popsr.Ir:
    ir = popsr.Ir(replication=8)
    with ir.main_graph, popsr.in_sequence():
        x = y = popsr.variable(1.0, popsr.float32)
        for _ in range(length):
            y = ops.add(y, x)
    return ir


def test_building(benchmark):
    length = Program(Config()).ir._core.num_ops
    times = by_turns(
        benchmark, {"program": lambda: Program(Config()), "chain": lambda: _chain(length)}, ROUNDS
    )
    own, chain = times["program"], times["chain"]
    print(
        f"\nbuilding {length:,} ops: best {own.best:.3f} s, median {own.median:.3f} s (goal: at most 1 s), "
        f"{own.best / chain.best:.1f}x a chain of as many additions"
    )
    assert own.best <= 1


def test_proving_and_compiling(benchmark):
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
    print(
        f"\nanalysis: best {best * 1e3:.2f} ms (goal: at most 5 ms); "
        f"with the session: best {stats.min:.3f} s, median {stats.median:.3f} s (goal: at most 0.3 s)"
    )
    assert best <= 5e-3
    assert stats.min <= 0.3
