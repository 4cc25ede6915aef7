"""Cost of queries about facts: explanations on programs of 1,000,000 ops, from Python, and the lints of one."""

import json
import random
import statistics
import subprocess
import time

import pytest

from bench.analysis.bench_analysis import GENERATOR
from bench.programs import basic
from popsr.analysis import analyze

GENERATED = ("gpt:1024:100000", "gpt:1024:1000000", "inlined:1024:10000", "called:1024:10000")
QUESTIONS = 1000
OPS = 100_000


def timed(body):
    start = time.perf_counter()
    result = body()
    return time.perf_counter() - start, result


def test_random_values_of_generated_programs():
    """The first answer indexes the program; pairs that differ in a random value, with the text of the answer."""
    if not GENERATOR.exists():
        pytest.fail(f"{GENERATOR} is missing: nox -s cpp builds it")
    print(f"\n{QUESTIONS} explanations (goal: median 1 ms at 1 M ops, at most 30 lines)")
    print(
        f"{'program:replicas:size':22}{'ops':>11}{'first ms':>10}{'median ms':>11}{'90% ms':>9}{'worst ms':>10}",
        end="",
    )
    print(f"{'steps':>8}{'lines':>7}")
    for program in GENERATED:
        command = [GENERATOR, "explain", str(QUESTIONS), program]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        first, *later = (seconds * 1e3 for seconds in row["seconds"])
        ninth = statistics.quantiles(later, n=10)[-1]
        print(
            f"{program:22}{row['ops']:11,}{first:10.1f}{statistics.median(later):11.3f}{ninth:9.1f}"
            f"{max(later):10.1f}{statistics.median(row['steps']):8.0f}{max(row['lines']):7}"
        )
        assert max(row["lines"]) <= 30


def test_explain_from_python(benchmark):
    ir, values = basic.residual_layers(OPS)
    facts = analyze(ir)
    first, _ = timed(lambda: facts.explain(values[-1], 0, 1))
    chosen = random.Random(1)
    questions = [(chosen.choice(values), *chosen.sample(range(8), 2)) for _ in range(QUESTIONS)]
    times = [timed(lambda: facts.explain(*question)) for question in questions]  # noqa: B023
    steps = statistics.median(len(found.steps) for _, found in times[:100])
    median, worst = statistics.median(t for t, _ in times), max(t for t, _ in times)
    benchmark.pedantic(facts.explain, args=questions[0], rounds=7, iterations=10, warmup_rounds=1)
    print(
        f"\nexplain on {len(ir.main_graph.ops):,} ops: first {first * 1e3:.1f} ms, then median {median * 1e3:.2f} ms, "
        f"worst {worst * 1e3:.1f} ms, median {steps:.0f} steps"
    )


def test_lints(benchmark):
    ir, _ = basic.residual_layers(OPS)
    benchmark.pedantic(lambda facts: facts.warnings, setup=lambda: ((analyze(ir),), {}), rounds=7)
    print(f"\nlints of {len(ir.main_graph.ops):,} ops: median {benchmark.stats.stats.median * 1e3:.0f} ms")
