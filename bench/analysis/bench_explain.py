"""Cost of queries about facts: explanations on programs of 1,000,000 ops, from Python, and the lints of one."""

import json
import random
import statistics
import subprocess
import time

import pytest

from bench.analysis.bench_analysis import GENERATOR
from bench.programs import basic
from bench.record import at_most, duration
from popsr import _core
from popsr.analysis import PartitionAnalysis, analyze

GENERATED = ("gpt:1024:100000", "gpt:1024:1000000", "inlined:1024:10000", "called:1024:10000")
QUESTIONS = 1000
OPS = 100_000
TABLE = "Explaining 1,000 random differences"


def timed(body):
    start = time.perf_counter()
    result = body()
    return time.perf_counter() - start, result


def record_row(record, case: str, count: int, first: float, later: list[float]) -> None:
    """The first answer indexes the program."""
    median, ninth = statistics.median(later), statistics.quantiles(later, n=10)[-1]
    cells = {"median": median, "90 %": ninth, "worst": max(later)}
    shown = {name: duration(seconds) for name, seconds in cells.items()}
    record(TABLE, case, ops=f"{count:,}", first=duration(first), **shown, **at_most(1e-3, median, duration))


def test_random_values_of_generated_programs(record):
    """The first answer indexes the program; pairs that differ in a random value, with the text of the answer."""
    if not GENERATOR.exists():
        pytest.fail(f"{GENERATOR} is missing: nox -s cpp builds it")
    for program in GENERATED:
        command = [GENERATOR, "explain", str(QUESTIONS), program]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        first, *later = row["seconds"]
        record_row(record, f"`{program}`", row["ops"], first, later)
        assert max(row["lines"]) <= 30


def test_explain_from_python(benchmark, record):
    ir, values = basic.residual_layers(OPS)
    facts = analyze(ir)
    first, _ = timed(lambda: facts.explain(values[-1], 0, 1))
    chosen = random.Random(1)
    questions = [(chosen.choice(values), *chosen.sample(range(8), 2)) for _ in range(QUESTIONS)]
    times = [timed(lambda: facts.explain(*question)) for question in questions]  # noqa: B023
    benchmark.pedantic(facts.explain, args=questions[0], rounds=7, iterations=10, warmup_rounds=1)
    record_row(record, "`facts.explain` from Python", len(ir.main_graph.ops), first, [t for t, _ in times])


def test_lints(benchmark, record):
    ir, _ = basic.residual_layers(OPS)

    def forget() -> tuple[tuple[PartitionAnalysis], dict[str, object]]:
        """Facts of which no lint is known: an analysis goes on from the one before, and so do its lints."""
        ir._facts_now = ir._ordered_at = None
        ir._order = _core.OrderCheck()
        return (analyze(ir),), {}

    benchmark.pedantic(lambda facts: facts.warnings, setup=forget, rounds=7)
    median = duration(benchmark.stats.stats.median)
    record("Lints", "all of a program built in Python", ops=f"{len(ir.main_graph.ops):,}", median=median)
