"""Cost of comparing claims while a program runs: the training program, each replica stored on its own."""

import contextlib
import functools

import popsr
from bench.programs import basic
from bench.record import at_most, ratios
from bench.sides import compare

REPLICAS = 4


def test_checked_runs(benchmark, record):
    program = basic.training(REPLICAS, 8, 4, 4)
    images, labels = basic.batches(REPLICAS, 8, 4, 4)
    inputs = {program.images: images, program.labels: labels}
    options = {
        "unchecked": {"dedup": False},
        "check=True": {"check": True},
        "check=0.01": {"check": 0.01},
    }
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, given in options.items():
            session = stack.enter_context(popsr.Session(program.ir, **given))
            sides[name] = functools.partial(session.run, inputs)
        times = compare.by_turns(benchmark, sides)
    base = times["unchecked"]
    for name, goal in (("check=True", 2.0), ("check=0.01", 1.05)):
        cells = ratios(times[name], base) | at_most(goal, times[name].best / base.best)
        record("Training, R = 4, against `dedup=False`", f"`{name}`", **cells)
