"""Cost of the analysis: programs of a C++ generator (bench/analysis) and one built in Python, beside JAX's check.

The generator is built with the wheel of the preset `default` (nox does it); POPSR_BENCH_ANALYSIS names another binary.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import popsr
from bench.programs import basic
from bench.sides import compare
from popsr import _core, ops
from popsr.analysis import analyze

ROUNDS = 9
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


def generated(*specs: str, rounds: int = ROUNDS) -> dict[str, Row]:
    """Rows of programs "<program>:<replicas>:<size>" that took turns in one process."""
    if not GENERATOR.exists():
        pytest.fail(f"{GENERATOR} is missing: nox -s cpp builds it")
    out = subprocess.run([GENERATOR, str(rounds), *specs], check=True, capture_output=True, text=True).stdout
    rows = {}
    for line in out.splitlines():
        row = json.loads(line)
        seconds = row.pop("seconds")
        name = row.pop("program")
        rows[name] = Row(best=min(seconds), median=statistics.median(seconds), **row)
    return rows


def print_rows(title: str, rows: dict[str, Row]) -> None:
    print(f"\n{title}")
    print(
        f"{'program:replicas:size':26}{'ops':>11}{'best ms':>10}{'median ms':>11}{'ns/op':>12}{'B/tensor':>10}"
    )
    for name, row in rows.items():
        print(
            f"{name:26}{row.ops:11,}{row.best * 1e3:10.3f}{row.median * 1e3:11.3f}"
            f"{row.nanoseconds_an_op:12,.0f}{row.bytes_a_tensor:10.1f}"
        )


def test_size_and_replicas():
    sizes = ("gpt:1024:100000", "gpt:1024:1000000")
    counts = tuple(f"gpt:{n}:100000" for n in (8, 64, 4096, 1 << 20))
    rows = generated(*sizes, *counts)
    print_rows("A training step, all facts (goals: 5 Mops/s, 1 M ops in 250 ms, 64 B a value)", rows)
    print(
        f"median of 4096 replicas against 8: {rows[counts[2]].median / rows[counts[0]].median:.2f} (goal: 1.5)"
    )
    assert max(row.partitions for row in rows.values()) < 30


def test_beside_popart():
    ours, popart = "gpt:1024:100000", "gpt:1024:100000:popart"
    rows = generated(ours, popart, rounds=5)
    print_rows('The same program in mode "popart"', rows)
    print(f"popart against ours: {rows[popart].median / rows[ours].median:.1f}x the time")


def test_calls():
    inlined, called = specs = ("inlined:1024:1000", "called:1024:1000")
    rows = generated(*specs)
    print_rows("96 layers of 1,000 ops, written out and as one graph that is called 96 times", rows)
    print(f"written out against called: {rows[inlined].median / rows[called].median:.0f}x (goal: 20x)")


def test_loops():
    rows = generated("rotation:8:1000", "loops:8:12", rounds=5)
    print_rows("1,000 values handed round in a loop, and 12 loops in each other (goal: 1 s)", rows)


def seconds_of(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def print_times(title: str, seconds: list[float], per: float = 1.0) -> None:
    best, median = min(seconds), statistics.median(seconds)
    print(f"  {title:44}{best * 1e3:10.3f} ms best{median * 1e3:10.3f} median{median / per * 100:9.2f} %")


def time_python(checked: bool) -> None:
    ir = basic.late_updates(25_000)
    ir.options.enable_inplace_ambiguity_checking = checked
    with ir.main_graph:
        x = popsr.variable(0.0)
    analysed, linted, again, lints_again = [], [], [], []
    for _ in range(ROUNDS):
        ir._facts_at = ir._ordered_at = None
        ir._order = popsr._core.OrderCheck()
        analysed.append(seconds_of(lambda: analyze(ir)))
        linted.append(seconds_of(lambda: analyze(ir).warnings))
    for _ in range(ROUNDS):
        with ir.main_graph:
            ops.add(x, x)
        again.append(seconds_of(lambda: analyze(ir)))
        lints_again.append(seconds_of(lambda: analyze(ir).warnings))
    print_times("analyze", analysed, statistics.median(analysed))
    print_times("lints, with the order of writes (L12)", linted, statistics.median(linted))
    print_times("analyze after one more op", again, statistics.median(analysed))
    print_times("lints after one more op", lints_again, statistics.median(linted))
    total = min(a + b for a, b in zip(analysed, linted, strict=True))
    print(f"  {100_000 / total / 1e6:.1f} million ops a second for all, best")


def test_program_built_in_python():
    """Facts, the order of writes and lints, and all of them again after one more op."""
    print("\n100,000 ops built in Python (goals: 20 ms for all; one op more at most 1 %)")
    time_python(checked=False)
    print("  the same where analyze checks the order of writes too (enable_inplace_ambiguity_checking)")
    time_python(checked=True)


def test_growth():
    specs = ("late:4:25000", "gpt:1024:100000", "gpt:1024:1000000", "called:1024:1000")
    out = subprocess.run(
        [GENERATOR, "growth", str(ROUNDS), *specs], check=True, capture_output=True, text=True
    ).stdout
    print("\nThe analysis after one more op (goal: at most 1 % of a whole one)")
    for line in out.splitlines():
        row = json.loads(line)
        print_times(f"{row['program']}, {row['whole'] * 1e3:.2f} ms whole", row["seconds"], row["whole"])


def test_pending_sums():
    """A whole analysis, and the sums of gradients after it, which are found when they are first asked for."""
    for layers, rounds in ((100, 40 * ROUNDS), (1_000, 8 * ROUNDS)):
        ir = basic.tensor_parallel(layers)
        size = sum(len(ir._graph(i).ops) for i in range(ir._core.num_graphs))
        variable = ir.main_graph.variables[0]._id
        facts_alone, more = [], []
        for _ in range(rounds):  # of the core: ``analyze`` goes on from what it knows of a program that grew
            start = time.thread_time()
            facts = _core.PartitionAnalysis(ir._core)
            middle = time.thread_time()
            _core.Explainer(facts).pending(variable, None, None)
            facts_alone.append(middle - start)
            more.append(time.thread_time() - middle)
        best, median = (1 + of(more) / of(facts_alone) for of in (min, statistics.median))
        print(
            f"\n{size:,} ops of a tensor-parallel step: facts {min(facts_alone) * 1e3:.3f} ms, pending sums "
            f"{min(more) * 1e3:.3f} ms more: {best:.2f} times (best), {median:.2f} (median)"
        )


def test_beside_jax():
    ops, rounds = 20_000, 5
    out = subprocess.run(
        [sys.executable, "-c", JAX, str(ops), str(rounds)], check=True, capture_output=True, text=True
    ).stdout
    taken: dict[str, list[float]] = {"True": [], "False": []}
    for line in out.splitlines():
        check, seconds = line.split()
        taken[check].append(float(seconds))
    times = {check: compare.Times(min(t), statistics.median(t)) for check, t in taken.items()}
    ours = generated(f"inlined:8:{ops // 96}")[f"inlined:8:{ops // 96}"]
    check = (times["True"].median - times["False"].median) / ops
    print(
        f"\nJAX traces {ops:,} ops under shard_map: {times['True'].median / ops * 1e6:.1f} us an op with check_vma,"
    )
    print(
        f"  {times['False'].median / ops * 1e6:.1f} without: {check * 1e6:.1f} for the check alone (medians)"
    )
    print(f"  our analysis of such a program: {ours.nanoseconds_an_op / 1e3:.2f} us an op")
