"""Cost of the analysis: programs of a C++ generator (bench/analysis) and one built in Python, beside JAX's check.

The generator is built with the wheel of the preset `default` (nox does it); POPSR_BENCH_ANALYSIS names another binary.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import popsr
from bench.programs import basic
from bench.record import at_least, at_most, duration, number, ratios
from bench.record import times as cells_of
from bench.sides.compare import Times
from popsr import _core, ops
from popsr.analysis import analyze

ROUNDS = 9
WHOLE = "A whole analysis on one thread: program, replicas, size"
AGAINST = "One program against another"
PYTHON = "Facts and lints"
GROWTH = "After one more op that only reads"
BUILT = Path(__file__).parents[2] / "build/default/lib/popsr_bench_analysis"
GENERATOR = Path(os.environ.get("POPSR_BENCH_ANALYSIS", BUILT))
# The wanted operations, of which a 15th are all-reduces, traced on 8 devices as 2 x 4.
JAX = """
import os, sys, time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "tensor"))
def layers(x, w):
    for _ in range(int(sys.argv[1]) // 8):
        for _ in range(3):
            x = x * w
            x = x + w
        x = jnp.tanh(jax.lax.psum(x, "tensor"))
    return jax.lax.psum(x, "data")

for _ in range(int(sys.argv[2])):
    for check in (True, False):
        traced = jax.shard_map(layers, mesh=mesh, in_specs=(P("data"), P()), out_specs=P(), check_vma=check)
        jax.clear_caches()
        start = time.perf_counter()
        jax.make_jaxpr(traced)(jnp.ones((8, 4)), jnp.ones(4))
        print(check, time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Row:
    """Of one program; best and median in seconds."""

    ops: int
    partitions: int
    bytes_a_tensor: float
    best: float
    median: float

    @property
    def nanoseconds_an_op(self) -> float:
        return self.median / self.ops * 1e9


def generator_rows(*arguments: str) -> list[dict[str, Any]]:
    """Objects that the generator prints, one a line, for programs "<program>:<replicas>:<size>"."""
    if not GENERATOR.exists():
        pytest.fail(f"{GENERATOR} is missing: nox -s cpp builds it")
    out = subprocess.run([GENERATOR, *arguments], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def generated(*specs: str, rounds: int = ROUNDS) -> dict[str, Row]:
    """Rows of programs that took turns in one process."""
    rows = {}
    for row in generator_rows(str(rounds), *specs):
        seconds = row.pop("seconds")
        name = row.pop("program")
        rows[name] = Row(best=min(seconds), median=statistics.median(seconds), **row)
    return rows


def record_rows(record, rows: dict[str, Row], limits: Mapping[str, float] | None = None) -> None:
    """A case is a program, its replicas and its size; ``limits``: most seconds of some of them."""
    for name, row in rows.items():
        per_op = {"ns an op": f"{row.nanoseconds_an_op:,.0f}", "bytes a tensor": f"{row.bytes_a_tensor:.1f}"}
        goal = at_most(limits[name], row.best, duration) if limits and name in limits else {}
        record(WHOLE, f"`{name}`", ops=f"{row.ops:,}", **cells_of(row), **per_op, **goal)


def test_size_and_replicas(record):
    sizes = ("gpt:1024:100000", "gpt:1024:1000000")
    counts = tuple(f"gpt:{n}:100000" for n in (8, 64, 4096, 1 << 20))
    rows = generated(*sizes, *counts)
    record_rows(record, rows, {sizes[0]: 0.02, sizes[1]: 0.25})
    cells = ratios(rows[counts[2]], rows[counts[0]])
    goal = at_most(1.5, rows[counts[2]].median / rows[counts[0]].median)
    record(AGAINST, "4,096 replicas against 8", **cells, **goal)
    assert max(row.partitions for row in rows.values()) < 30


def test_beside_popart(record):
    ours, popart = "gpt:1024:100000", "gpt:1024:100000:popart"
    rows = generated(ours, popart, rounds=5)
    record_rows(record, rows)
    record(AGAINST, 'mode "popart" against the default', **ratios(rows[popart], rows[ours]))


def test_calls(record):
    inlined, called = specs = ("inlined:1024:1000", "called:1024:1000")
    rows = generated(*specs)
    record_rows(record, rows)
    cells = ratios(rows[inlined], rows[called]) | at_least(20, rows[inlined].median / rows[called].median)
    record(AGAINST, "96 layers of 1,000 ops written out, against one graph that is called 96 times", **cells)


def test_loops(record):
    specs = ("rotation:8:1000", "loops:8:12")
    record_rows(record, generated(*specs, rounds=5), dict.fromkeys(specs, 1.0))


def seconds_of(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def record_times(
    record, table: str, case: str, side: str, seconds: list[float], whole: float | None = None
) -> None:
    """Row of some times; ``whole``: seconds of the analysis without the one op that was added."""
    median = statistics.median(seconds)
    cells = {"best": duration(min(seconds)), "median": duration(median)}
    if whole is not None:
        share = at_most(0.01, median / whole, "{:.0%}".format)
        cells |= {"whole": duration(whole), "of a whole one": f"{median / whole * 100:.2f} %"} | share
    record(table, case, side, **cells)


def record_together(record, case: str, facts: list[float], lints: list[float], most: float) -> None:
    """Row of the sums of two times; ``most``: seconds of the goal."""
    total = [a + b for a, b in zip(facts, lints, strict=True)]
    goal = at_most(most, min(total), duration)
    record(PYTHON, case, "together", **cells_of(Times(min(total), statistics.median(total))), **goal)


def time_python(record, checked: bool) -> None:
    ir = basic.late_updates(25_000)
    ir.options.enable_inplace_ambiguity_checking = checked
    with ir.main_graph:
        x = popsr.variable(0.0)
    analysed, linted, again, lints_again = [], [], [], []
    for _ in range(ROUNDS):
        ir._facts_now = ir._ordered_at = None
        ir._order = popsr._core.OrderCheck()
        analysed.append(seconds_of(lambda: analyze(ir)))
        linted.append(seconds_of(lambda: analyze(ir).warnings))
    for _ in range(ROUNDS):
        with ir.main_graph:
            ops.add(x, x)
        again.append(seconds_of(lambda: analyze(ir)))
        lints_again.append(seconds_of(lambda: analyze(ir).warnings))
    case = f"100,000 ops built in Python{', `analyze` checks the order of writes' if checked else ''}"
    record_times(record, PYTHON, case, "`analyze`", analysed)
    record_times(record, PYTHON, case, "lints", linted)
    record_together(record, case, analysed, linted, 0.02)
    record_times(record, GROWTH, case, "`analyze`", again, statistics.median(analysed))
    record_times(record, GROWTH, case, "lints", lints_again, statistics.median(linted))


def test_program_built_in_python(record):
    """Facts, the order of writes and lints, and all of them again after one more op."""
    time_python(record, checked=False)
    time_python(record, checked=True)


def test_many_collectives(record):
    """Facts and lints of a program that is seen for the first time, in processor time."""
    rows = generator_rows("lints", str(ROUNDS), "collectives:16:102010")
    facts = [row["facts"] for row in rows]
    others = {"program", "ops", "verify", "check", "facts", "lints"}
    lints = [sum(seconds for name, seconds in row.items() if name not in others) for row in rows]
    case = f"many collectives: {rows[0]['ops']:,} ops"
    record_times(record, PYTHON, case, "facts", facts)
    record_times(record, PYTHON, case, "lints", lints)
    record_together(record, case, facts, lints, 0.025)


def test_growth(record):
    specs = ("late:4:25000", "gpt:1024:100000", "gpt:1024:1000000", "called:1024:1000")
    for row in generator_rows("growth", str(ROUNDS), *specs):
        record_times(record, GROWTH, f"`{row['program']}`", "facts", row["seconds"], row["whole"])


def test_pending_sums(record):
    """A whole analysis, and the sums of gradients after it, which are found when they are first asked for."""
    for layers, rounds in ((100, 40 * ROUNDS), (1_000, 8 * ROUNDS)):
        ir = basic.tensor_parallel(layers)
        size = sum(len(ir._graph(i).ops) for i in range(ir._core.num_graphs))
        variable = ir.main_graph.variables[0]._id
        facts_alone, more = [], []
        for _ in range(rounds):  # of the core: ``analyze`` goes on from what it knows of a program that grew
            start = time.thread_time()
            facts = _core.PartitionAnalysis(ir._core, _core.SeedRules())
            middle = time.thread_time()
            _core.Explainer(facts).pending(variable, None, None)
            facts_alone.append(middle - start)
            more.append(time.thread_time() - middle)
        best, median = (1 + of(more) / of(facts_alone) for of in (min, statistics.median))
        cells = {"facts, best": duration(min(facts_alone)), "sums, best": duration(min(more))}
        cells |= {"together, times the facts: best": number(best), "median": number(median)}
        record("Pending sums of a tensor-parallel step", f"{layers:,} layers, {size:,} ops", **cells)


def test_beside_jax(record):
    ops, rounds = 20_000, 5
    out = subprocess.run(
        [sys.executable, "-c", JAX, str(ops), str(rounds)], check=True, capture_output=True, text=True
    ).stdout
    taken: dict[str, list[float]] = {"True": [], "False": []}
    for line in out.splitlines():
        check, seconds = line.split()
        taken[check].append(float(seconds))
    times = {check: Times(min(t), statistics.median(t)) for check, t in taken.items()}
    ours = generated(f"inlined:8:{ops // 96}")[f"inlined:8:{ops // 96}"]
    check = (times["True"].median - times["False"].median) / ops
    table = f"Time an op of a program of {ops:,} ops under `shard_map`"
    record(table, "JAX traces it with `check_vma`", median=duration(times["True"].median / ops))
    record(table, "JAX traces it without", median=duration(times["False"].median / ops))
    record(table, "the check alone", median=duration(check))
    record(table, "popsr's analysis of such a program", median=duration(ours.median / ours.ops))
