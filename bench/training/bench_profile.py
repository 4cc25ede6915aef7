"""The profile of a GPT-like training step: its cost, and where the time goes with and without rewrites of the plan.

4 layers, hidden 256, 8 heads, sequence 128, micro batch 4 on 2 replicas (gpt_program.py), two threads. See README.md
here.
"""

import numpy as np
import pytest

import popsr
from bench.programs.gpt_program import Config, Program
from bench.record import at_most, duration
from bench.record import times as cells_of
from bench.sides.compare import by_turns

ROUNDS, SHOWN = 9, 12
CONFIG = {
    "layers": 4,
    "hidden": 256,
    "heads": 8,
    "vocab": 512,
    "sequence": 128,
    "micro_batch": 4,
    "accumulation": 1,
    "replicas": 2,
    "dropout": 0.0,
}
STEPS = "A GPT-like step, Adam, two threads"
DTYPES = {"float32": popsr.float32, "bfloat16": popsr.bfloat16}


def _session(ir: popsr.Ir, **options: bool) -> tuple[popsr.Session, dict]:
    session = popsr.Session(ir, num_threads=2, **options)
    rng = np.random.default_rng(0)
    inputs = {}
    for stream in session.expected_inputs():
        shape = session._full_input_shape(stream.shape)
        inputs[stream] = rng.integers(0, CONFIG["vocab"], shape).astype(stream.dtype.as_numpy())
    return session, inputs


@pytest.mark.parametrize("dtype", DTYPES)
def test_profile_of_a_gpt_step(benchmark, record, dtype):
    ir = Program(Config(dtype=DTYPES[dtype], **CONFIG)).ir
    plain, inputs = _session(ir)
    profiled, _ = _session(ir, profile=True)
    each, _ = _session(ir, profile=True, optimise=False)
    sides = {
        "plain": lambda: plain.run(inputs),
        "profiled": lambda: profiled.run(inputs),
        "each": lambda: each.run(inputs),
    }
    with plain, profiled, each:
        times = by_turns(benchmark, sides, ROUNDS)
    for name, title in (
        ("plain", "step"),
        ("profiled", "step with `profile=True`"),
        ("each", "each op by itself"),
    ):
        record(STEPS, dtype, title, **cells_of(times[name]))
    cost = {k: getattr(times["profiled"], k) / getattr(times["plain"], k) - 1 for k in ("best", "median")}
    percents = {name: f"{share:+.1%}" for name, share in cost.items()}
    record(STEPS, dtype, "cost of `profile=True`", **percents, **at_most(0.05, cost["best"], "{:.0%}".format))
    for name, session in (("each op by itself", each), ("optimised", profiled)):
        profile = session.profile()
        for row in sorted(profile.kinds, key=lambda row: -row.seconds)[:SHOWN]:
            cells = {
                "time": duration(row.seconds / profile.runs),
                "times a run": f"{row.executions // profile.runs}",
            }
            record("Kinds of instructions", f"{dtype}, {name}", f"`{row.name}`", **cells)
