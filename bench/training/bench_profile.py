"""The profile of a GPT-like training step: its cost, and where the time goes with and without rewrites of the plan.

4 layers, hidden 256, 8 heads, sequence 128, micro batch 4 on 2 replicas (gpt_program.py), two threads. See README.md
here.
"""

import numpy as np
import pytest

import popsr
from bench.programs.gpt_program import Config, Program
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
def test_profile_of_a_gpt_step(benchmark, dtype):
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
    ms = {name: f"{time.best * 1e3:.1f} ms" for name, time in times.items()}
    cost = {k: getattr(times["profiled"], k) / getattr(times["plain"], k) - 1 for k in ("best", "median")}
    print(
        f"\n{dtype}: {ms['plain']}, profiled {ms['profiled']}: {cost['best']:+.1%} best, {cost['median']:+.1%} "
        f"median (goal: at most 5%); each op by itself {ms['each']}"
    )
    for name, session in (("each op by itself", each), ("optimised", profiled)):
        profile = session.profile()
        print(f"{name}: {len(list(profile))} instructions")
        for row in sorted(profile.kinds, key=lambda row: -row.seconds)[:SHOWN]:
            print(
                f"  {row.name:<28} {row.seconds / profile.runs * 1e3:8.2f} ms {row.executions // profile.runs:6}"
            )
